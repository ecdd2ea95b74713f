//! The request of a scheduler: submitted in one branch, collected in another.
//!
//! The typestate of [`Idle`] fits code that submits and waits in one place. In a tile loop the
//! tile's work lies between the two, and only at run time is it known whether a request is in
//! flight, or how many. So here the scheduler guarantees the order: the thread that made it collects
//! in the order in which it submits, stops after a refusal, and does not exit with a request in
//! flight. `heist-sched` does so for every kernel, and the simulator checks it.

use crate::clc::Slot;
use crate::kernel::{Dim3, Kernel};
use crate::mbarrier::Mbarrier;
use crate::value::Val;

/// A request outside of the typestate.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Request<'k> {
    slot: Slot<'k>,
}

impl<'k> Kernel<'k> {
    /// The requests of a scheduler, made by its thread ([`Kernel::clc`]): up to `depth` in flight.
    #[doc(hidden)]
    #[track_caller]
    pub fn clc_request(&self, depth: u32) -> Request<'k> {
        Request {
            slot: self.clc_slots(depth),
        }
    }

    /// The requests of a scheduler that the hardware answers in every block, made by all threads
    /// ([`Kernel::clc_multicast`]): up to `depth` in flight.
    #[doc(hidden)]
    #[track_caller]
    pub fn clc_multicast_request(&self, depth: u32) -> Request<'k> {
        // With several, one slot is being read while as many as that are in flight: the next
        // request is made before the block meets, hence before any of its threads can see a
        // refusal that this one has not seen.
        let slots = if depth > 1 { depth + 1 } else { 1 };
        Request {
            slot: self.clc_multicast_slots(slots),
        }
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
        let answer = self.slot.read();
        self.slot.advance();
        answer.decide(
            |granted| {
                self.slot.release();
                on_granted(granted.first_block());
            },
            |_refused| on_refused(),
        );
    }

    /// Of a multicast request, in the submitting thread, which looks before all others do: waits
    /// for the answer and runs one side or the other. With several in flight each call is for the
    /// next one.
    #[track_caller]
    pub fn judge(&self, on_granted: impl FnOnce(Dim3<'k>), on_refused: impl FnOnce()) {
        self.slot.judge().decide(
            |granted| on_granted(granted.first_block()),
            |_refused| on_refused(),
        );
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

    /// Of a multicast request, in every thread of every block, after a grant and before
    /// [`advance`](Request::advance): all threads have read it.
    #[track_caller]
    pub fn release(&self) {
        self.slot.release();
    }

    /// Of a multicast request: the slot whose answer is read next.
    #[track_caller]
    pub fn stage(&self) -> Val<'k, u32> {
        self.slot.stage()
    }

    /// Of a multicast request, in the submitting thread: 16 bytes for each block in place of an
    /// answer. Waits until every block can take them, and gives the barrier that counts them and
    /// the slot in whose place they come.
    #[track_caller]
    pub fn in_place_of_an_answer(&self) -> (Mbarrier<'k>, Val<'k, u32>) {
        self.slot.in_place_of_a_response()
    }
}
