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
//! There are two ways to go through the states:
//!
//! * **One thread** ([`Kernel::clc`]) does all of it: make the request inside
//!   `k.if_(k.thread_index().eq(0), || ...)`, and hand what it finds to the other threads, of this
//!   block or of the cluster, through shared memory.
//! * **A whole cluster** ([`Kernel::clc_multicast`], on targets such as sm_100a): every thread of
//!   every block goes through the states together. One thread of the first block submits, and the
//!   hardware sends the answer to each block, with an mbarrier of its own.

use crate::emit::{LabelId, Line, Opnd};
use crate::kernel::{Dim3, Kernel};
use crate::mbarrier::{BarrierSpec, Mbarrier, Waiter};
use crate::pointer::{Ptr, Shared};
use crate::scalar::Class;
use crate::value::{Bool, IntoVal, Val, Var};
use heist_ptx::arch::Feature;
use std::panic::Location;

/// Bytes of a response.
const RESPONSE: u32 = 16;

/// Where the response lands and which barrier counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'k> {
    pub(crate) k: Kernel<'k>,
    response: Ptr<'k, Shared, u64>,
    full: Waiter<'k>,
    /// Where every block of the cluster receives the response.
    multicast: Option<Multicast<'k>>,
}

/// What the blocks of a cluster need beside their slots.
#[derive(Clone, Copy, Debug)]
struct Multicast<'k> {
    /// Thread 0 of the first block, which submits.
    leader: Bool<'k>,
    /// In the first block: each block has read the last response.
    empty: Mbarrier<'k>,
    /// The parity that the leader waits for next.
    emptied: Var<'k, u32>,
}

/// No request is in flight; one may be submitted.
#[must_use = "a request that is dropped can never be made again"]
#[derive(Debug)]
pub struct Idle<'k> {
    pub(crate) slot: Slot<'k>,
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
        self.one_submitter();
        let response = self
            .shared_aligned::<u64>("clc_response", RESPONSE / 8, RESPONSE)
            .ptr();
        let full = Mbarrier::private(self, "clc_full").waiter();
        Idle {
            slot: Slot {
                k: *self,
                response,
                full,
                multicast: None,
            },
        }
    }

    /// The request of the whole cluster: every thread of every block makes it, and goes through
    /// its states together with all others, outside of any branch that not all of them take. One
    /// thread submits, and every block receives the answer from the hardware.
    ///
    /// ```
    /// # use heist_builder::*;
    /// # kernel_params! { pub struct No {} }
    /// # KernelSpec::<No>::new("k").cluster([2, 1, 1]).build(Arch::SM_100A, |k, _| {
    /// k.clc_multicast().steal_loop(|flow, idle| {
    ///     let asked = idle.submit();
    ///     // ... run the tile in hand ...
    ///     let granted = asked.wait().granted_or_break(flow);
    ///     let mine = granted.first_block().x + k.cluster_block().x;
    ///     // ... `mine` is the next one ...
    ///     # let _ = mine;
    ///     granted.release()
    /// });
    /// k.cluster_sync(); // a cluster leaves together
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn clc_multicast(&self) -> Idle<'k> {
        self.require(Feature::ClusterLaunchControlMulticast);
        self.one_submitter();
        if self.rec.depth.get() != 0 {
            self.fail("a request of the whole cluster inside of a branch or loop: all threads make it, once");
        }
        let response = self
            .shared_aligned::<u64>("clc_response", RESPONSE / 8, RESPONSE)
            .ptr();
        let [full, empty] = self.mbarriers([
            BarrierSpec {
                name: "clc_full",
                count: 1,
                arrivals: 1,
            },
            BarrierSpec {
                name: "clc_empty",
                count: 1,
                arrivals: self.cluster_size(),
            },
        ]);
        let slot = Slot {
            k: *self,
            response,
            full: full.first().waiter(),
            multicast: Some(Multicast {
                leader: self.thread_index().eq(0) & self.cluster_rank().eq(0),
                empty: empty.first(),
                // Before the first request all slots are empty: the phase before the first counts
                // as ended.
                emptied: self.var(1u32).named("clc_emptied"),
            }),
        };
        self.one_thread(|| slot.arm());
        Idle { slot }
    }

    #[track_caller]
    fn one_submitter(&self) {
        let before = self.rec.clc_requests.get();
        self.rec.clc_requests.set(before + 1);
        if before > 0 {
            self.fail("a second request for cluster launch control in one kernel: one submitter asks for all");
        }
    }
}

impl Multicast<'_> {
    /// Waits until every block has read the last response, and armed its own barrier for the next.
    #[track_caller]
    fn await_all(&self) {
        self.empty.wait_for_copies(self.emptied.get());
        self.emptied.update(|parity| parity ^ 1);
    }
}

impl<'k> Slot<'k> {
    /// This block's barrier waits for the next response too. It may come earlier than this: until
    /// the arrival the phase can't end.
    #[track_caller]
    fn arm(&self) {
        self.full.barrier().arrive_expecting(RESPONSE);
    }

    /// In the submitting thread: asks.
    #[track_caller]
    pub(crate) fn submit(&self) {
        let form = match &self.multicast {
            None => {
                self.arm();
                ""
            }
            Some(multicast) => {
                multicast.await_all();
                ".multicast::cluster::all"
            }
        };
        self.k.effect(
            format!(
                "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{form}.b128"
            ),
            vec![self.response.operand(), self.full.barrier().operand()],
        );
    }

    /// Waits for the response, as often as is liked.
    #[track_caller]
    pub(crate) fn arrived(&self) {
        // The hardware wrote it: no thread's writes have to be made visible.
        self.full.barrier().wait_for_copies(self.full.parity());
    }

    /// The next wait is for the next response.
    #[track_caller]
    pub(crate) fn advance(&self) {
        self.full.advance();
    }

    /// Reads the response, which has arrived.
    #[track_caller]
    pub(crate) fn read(self) -> Answer<'k> {
        let k = self.k;
        let response = k.rec.reg(Class::B128);
        k.rec.op(
            "ld.shared.b128",
            vec![response.into(), self.response.operand()],
            Location::caller(),
        );
        let granted = k.emit::<bool>(
            "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128",
            vec![response.into()],
        );
        Answer {
            slot: self,
            response,
            granted,
        }
    }

    /// The slot may be written again.
    #[track_caller]
    pub(crate) fn release(&self) {
        // The slot was read through the generic proxy; the next response is written through the
        // async proxy.
        self.k.fence_async_shared();
        if let Some(multicast) = &self.multicast {
            self.k.sync();
            self.k.one_thread(|| {
                self.arm();
                multicast.empty.on(0u32).arrive_after_reading();
            });
        }
    }

    /// In the submitting thread, for bytes of its own in place of a response: waits until every
    /// block can take them, and gives the barrier that counts them in each.
    #[track_caller]
    pub(crate) fn in_place_of_a_response(&self) -> Mbarrier<'k> {
        if let Some(multicast) = &self.multicast {
            multicast.await_all();
        }
        self.full.barrier()
    }
}

impl<'k> Idle<'k> {
    /// Asks for a block that has not started.
    #[track_caller]
    pub fn submit(self) -> InFlight<'k> {
        let slot = self.slot;
        match slot.multicast {
            None => slot.submit(),
            Some(multicast) => slot.k.if_(multicast.leader, || slot.submit()),
        }
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
        self.slot.arrived();
        self.slot.advance();
        self.slot.read()
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
        self.slot.release();
        Idle { slot: self.slot }
    }
}

impl<'k> Refused<'k> {
    /// The kernel, which goes on without stealing.
    pub fn kernel(&self) -> Kernel<'k> {
        self.k
    }
}
