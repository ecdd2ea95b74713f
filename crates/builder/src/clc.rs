//! Cluster launch control: taking over blocks that have not started.
//!
//! The request is a value that each step uses up:
//!
//! ```text
//!            submit            wait              granted
//!   Idle  ----------> InFlight ------> Answer ------------> Granted --release--> Idle
//!                                        |
//!                                        +-- refused -----> Refused   (the end)
//! ```
//!
//! Only an [`Answer`] can be decoded, and only after its wait. Only [`Granted`] has coordinates.
//! [`Refused`] can't become a request again, so no request follows a refusal. A loop over requests
//! ([`Idle::steal_loop`]) can be left only while nothing is in flight, so a block never exits with
//! a request in flight. None of the states can be copied, so there is one submitter.
//!
//! One thread does all of it: make the request inside
//! `k.if_(k.thread_index().eq(0), || ...)`, and hand what it finds to the other
//! threads, of this block or of the cluster, through shared memory.

use crate::emit::{LabelId, Line, Opnd};
use crate::kernel::{Dim3, Kernel};
use crate::mbarrier::{Mbarrier, Waiter};
use crate::pointer::{Ptr, Shared};
use crate::scalar::Class;
use crate::value::{Bool, IntoVal, Val};
use heist_ptx::arch::Feature;
use std::panic::Location;

/// Where the response lands and which barrier counts it.
#[derive(Clone, Copy, Debug)]
struct Slot<'k> {
    k: Kernel<'k>,
    response: Ptr<'k, Shared, u64>,
    full: Waiter<'k>,
}

/// No request is in flight; one may be submitted.
#[must_use = "a request that is dropped can never be made again"]
#[derive(Debug)]
pub struct Idle<'k> {
    slot: Slot<'k>,
}

/// A request is in flight.
#[must_use = "a request in flight must be waited for before its block exits: call `.wait()`"]
#[derive(Debug)]
pub struct InFlight<'k> {
    slot: Slot<'k>,
}

/// The response has arrived and has not been decoded.
#[must_use = "an answer says whether there is more work: call `.granted_or_break()` or `.decide()`"]
#[derive(Debug)]
pub struct Answer<'k> {
    slot: Slot<'k>,
    response: crate::emit::Reg,
    granted: Bool<'k>,
}

/// A block (the first of its cluster) was taken over: it must be run here, because no other block
/// will.
#[must_use = "the tile that was granted must be run, and `.release()` gives the request back"]
#[derive(Debug)]
pub struct Granted<'k> {
    slot: Slot<'k>,
    first: Dim3<'k>,
}

/// There is nothing to take over, or a more urgent kernel wants the
/// multiprocessor. Either way this block leaves.
#[derive(Debug)]
pub struct Refused<'k> {
    k: Kernel<'k>,
}

impl<'k> Kernel<'k> {
    /// The request of this block (or, in a cluster, of its first block). Made
    /// by the one thread that uses it, once, outside of any loop.
    #[track_caller]
    pub fn clc(&self) -> Idle<'k> {
        self.require(Feature::ClusterLaunchControl);
        if self
            .rec
            .clc_requests
            .replace(self.rec.clc_requests.get() + 1)
            > 0
        {
            self.fail("a second request for cluster launch control in one kernel: one submitter asks for all");
        }
        let response = self.shared_aligned::<u64>("clc_response", 2, 16).ptr();
        let full = Mbarrier::private(self, "clc_full").waiter();
        Idle {
            slot: Slot {
                k: *self,
                response,
                full,
            },
        }
    }
}

impl<'k> Idle<'k> {
    /// Asks for a block that has not started.
    #[track_caller]
    pub fn submit(self) -> InFlight<'k> {
        let slot = self.slot;
        slot.full.barrier().arrive_expecting(16);
        slot.k.effect(
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128",
            vec![slot.response.operand(), slot.full.barrier().operand()],
        );
        InFlight { slot }
    }

    /// A loop of requests: `body` gets the request idle and hands it back idle.
    /// It ends by a refusal or by [`StealFlow::break_if`].
    ///
    /// ```
    /// # use heist_builder::*;
    /// # kernel_params! { pub struct No {} }
    /// # KernelSpec::<No>::new("k").build(Arch::SM_100, |k, _| {
    /// k.if_(k.thread_index().eq(0), || {
    ///     k.clc().steal_loop(|flow, idle| {
    ///         let granted = idle.submit().wait().granted_or_break(flow);
    ///         let tile = granted.first_block();
    ///         // ... tell the other threads about `tile`, and run it ...
    ///         # let _ = tile;
    ///         granted.release()
    ///     });
    /// });
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn steal_loop(self, body: impl Fn(StealFlow<'k>, Idle<'k>) -> Idle<'k>) {
        let slot = self.slot;
        slot.steal_loop(|flow| {
            let Idle { slot: _ } = body(flow, Idle { slot });
        });
    }
}

impl<'k> Slot<'k> {
    #[track_caller]
    fn steal_loop(self, body: impl FnOnce(StealFlow<'k>)) {
        let rec = self.k.rec;
        let flow = StealFlow {
            k: self.k,
            top: rec.label("steal"),
            end: rec.label("endsteal"),
        };
        rec.line(Line::Label(flow.top));
        body(flow);
        self.k.jump(flow.top);
        rec.line(Line::Label(flow.end));
    }
}

/// The way out of a loop of requests.
#[derive(Clone, Copy, Debug)]
pub struct StealFlow<'k> {
    k: Kernel<'k>,
    top: LabelId,
    end: LabelId,
}

impl<'k> StealFlow<'k> {
    /// Leaves the loop where `condition` holds; `idle` shows that nothing is in
    /// flight.
    #[track_caller]
    pub fn break_if(self, idle: &Idle<'k>, condition: impl IntoVal<'k, bool>) {
        let _ = idle;
        self.k.branch_if(condition.into_val(&self.k), self.end);
    }

    /// Goes back to the start of the loop where `condition` holds; `idle` shows
    /// that nothing is in flight.
    #[track_caller]
    pub fn continue_if(self, idle: &Idle<'k>, condition: impl IntoVal<'k, bool>) {
        let _ = idle;
        self.k.branch_if(condition.into_val(&self.k), self.top);
    }
}

impl<'k> InFlight<'k> {
    /// Waits for the response and takes it out of its slot.
    #[track_caller]
    pub fn wait(self) -> Answer<'k> {
        let slot = self.slot;
        let k = slot.k;
        slot.full.wait();
        let response = k.rec.reg(Class::B128);
        let place = Location::caller();
        k.rec.op(
            "ld.shared.b128",
            vec![response.into(), slot.response.operand()],
            place,
        );
        let granted = k.emit::<bool>(
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128",
            vec![response.into()],
        );
        Answer {
            slot,
            response,
            granted,
        }
    }

    /// A loop that carries a request in flight from one trip to the next:
    /// `body` waits for it, and submits the next one before the work that it
    /// overlaps.
    #[track_caller]
    pub fn steal_loop(self, body: impl Fn(StealFlow<'k>, InFlight<'k>) -> InFlight<'k>) {
        let slot = self.slot;
        slot.steal_loop(|flow| {
            let InFlight { slot: _ } = body(flow, InFlight { slot });
        });
    }
}

impl<'k> Answer<'k> {
    /// The block that was taken over; on a refusal leaves the loop.
    #[track_caller]
    pub fn granted_or_break(self, flow: StealFlow<'k>) -> Granted<'k> {
        self.slot.k.branch_unless(self.granted, flow.end);
        self.decode()
    }

    /// Runs one side or the other. What a side is given says what it may do.
    #[track_caller]
    pub fn decide(
        self,
        on_granted: impl FnOnce(Granted<'k>),
        on_refused: impl FnOnce(Refused<'k>),
    ) {
        let (k, granted) = (self.slot.k, self.granted);
        k.either(
            granted,
            || on_granted(self.decode()),
            || on_refused(Refused { k }),
        );
    }

    /// Takes the coordinates out, in code that only a grant reaches.
    #[track_caller]
    fn decode(self) -> Granted<'k> {
        let k = self.slot.k;
        let [x, y, z] = [(); 3].map(|()| k.rec.reg(Class::B32));
        let lanes = Opnd::Vector(vec![x.into(), y.into(), z.into(), Opnd::Sink]);
        k.effect(
            "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128",
            vec![lanes, self.response.into()],
        );
        Granted {
            slot: self.slot,
            first: Dim3 {
                x: Val::from_reg(k, x),
                y: Val::from_reg(k, y),
                z: Val::from_reg(k, z),
            },
        }
    }
}

impl<'k> Granted<'k> {
    /// The position of the first block of the cluster that was taken over. Each
    /// block of this cluster adds its own offset, dimension by dimension: see
    /// [`Kernel::cluster_block`].
    pub fn first_block(&self) -> Dim3<'k> {
        self.first
    }

    /// Gives the request back, so that the next one can be made.
    #[track_caller]
    pub fn release(self) -> Idle<'k> {
        // The slot was read through the generic proxy; the next response is written through the
        // async proxy.
        self.slot.k.fence_async_shared();
        Idle { slot: self.slot }
    }
}

impl<'k> Refused<'k> {
    /// The kernel, which goes on without stealing.
    pub fn kernel(&self) -> Kernel<'k> {
        self.k
    }
}

/// The request of a scheduler: submitted in one branch, collected in another.
///
/// The typestate above fits code that submits and waits in one place. In a tile loop the tile's
/// work lies between the two, and only at run time is it known whether a request is in flight. So
/// here the scheduler guarantees the order: the thread that made it calls [`Request::submit`] and
/// [`Request::collect`] in turns, stops after a refusal, and does not exit with a request in
/// flight. `heist-sched` does so for every kernel, and the simulator checks it.
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
    /// Asks.
    #[track_caller]
    pub fn submit(&self) {
        let InFlight { slot: _ } = Idle { slot: self.slot }.submit();
    }

    /// Waits for the answer and runs one side or the other; a grant brings the
    /// position of the first block of the cluster that was taken over.
    #[track_caller]
    pub fn collect(&self, on_granted: impl FnOnce(Dim3<'k>), on_refused: impl FnOnce()) {
        InFlight { slot: self.slot }.wait().decide(
            |granted| {
                let first = granted.first_block();
                let Idle { slot: _ } = granted.release();
                on_granted(first);
            },
            |Refused { k: _ }| on_refused(),
        );
    }
}
