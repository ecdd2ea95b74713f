//! The request of a scheduler: submitted in one branch, collected in another.
//!
//! The typestate of [`Idle`] fits code that submits and waits in one place. In a tile loop the
//! tile's work lies between the two, and only at run time is it known whether a request is in
//! flight. So here the scheduler guarantees the order: the thread that made it submits and collects
//! in turns, stops after a refusal, and does not exit with a request in flight. `heist-sched` does
//! so for every kernel, and the simulator checks it.

use crate::clc::{Idle, Slot};
use crate::kernel::Dim3;
use crate::mbarrier::Mbarrier;

/// A request outside of the typestate.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Request<'k> {
    slot: Slot<'k>,
}

impl<'k> Idle<'k> {
    /// Leaves the typestate, for a scheduler that keeps the order itself.
    #[doc(hidden)]
    pub fn into_request(self) -> Request<'k> {
        Request { slot: self.slot }
    }
}

impl<'k> Request<'k> {
    /// In the submitting thread: asks.
    #[track_caller]
    pub fn submit(&self) {
        self.slot.submit();
    }

    /// In the submitting thread of a request that is not multicast: waits for the answer and runs
    /// one side or the other; a grant brings the position of the first block of the cluster that
    /// was taken over.
    #[track_caller]
    pub fn collect(&self, on_granted: impl FnOnce(Dim3<'k>), on_refused: impl FnOnce()) {
        self.wait();
        self.slot.advance();
        let released = |first| {
            self.slot.release();
            on_granted(first);
        };
        self.look(released, on_refused);
    }

    /// Of a multicast request, in any thread of any block: waits until the answer is there, as
    /// often as is liked.
    #[track_caller]
    pub fn wait(&self) {
        self.slot.arrived();
    }

    /// Of a multicast request, in any thread of any block: reads the answer that was waited for,
    /// as often as is liked.
    #[track_caller]
    pub fn look(&self, on_granted: impl FnOnce(Dim3<'k>), on_refused: impl FnOnce()) {
        self.slot.read().decide(
            |granted| on_granted(granted.first_block()),
            |_refused| on_refused(),
        );
    }

    /// Of a multicast request, in every thread of every block: the next wait is for the next
    /// answer.
    #[track_caller]
    pub fn advance(&self) {
        self.slot.advance();
    }

    /// Of a multicast request, in every thread of every block, after a grant: all threads have
    /// read it.
    #[track_caller]
    pub fn release(&self) {
        self.slot.release();
    }

    /// Of a multicast request, in the submitting thread: 16 bytes for each block in place of an
    /// answer. Waits until every block can take them, and gives the barrier that counts them.
    #[track_caller]
    pub fn in_place_of_an_answer(&self) -> Mbarrier<'k> {
        self.slot.in_place_of_a_response()
    }
}
