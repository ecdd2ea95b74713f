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
use crate::mbarrier::{BarrierSpec, Mbarrier, Mbarriers, RingCursor, Waiter};
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
    full: Full<'k>,
    /// Where every block of the cluster receives the response.
    multicast: Option<Multicast<'k>>,
}

/// The barriers that count responses.
#[derive(Clone, Copy, Debug)]
enum Full<'k> {
    /// One slot, one barrier.
    One(Waiter<'k>),
    /// A slot and a barrier for each request in flight.
    Ring(Ring<'k>),
}

/// Slots in turns.
#[derive(Clone, Copy, Debug)]
struct Ring<'k> {
    full: Mbarriers<'k>,
    /// Where the next request goes; its parity is that of the barrier that says it is free.
    asked: RingCursor<'k>,
    /// Where the next answer is waited for.
    read: RingCursor<'k>,
    /// The same for the submitting thread, which looks before all others do.
    judged: RingCursor<'k>,
}

impl<'k> Ring<'k> {
    #[track_caller]
    fn new(k: &Kernel<'k>, full: Mbarriers<'k>) -> Ring<'k> {
        let count = full.count();
        Ring {
            full,
            // Before the first request all slots are free: the phase before the first counts as
            // ended.
            asked: k.ring_cursor(count, 1),
            read: k.ring_cursor(count, 0),
            judged: k.ring_cursor(count, 0),
        }
    }
}

/// What the blocks of a cluster need beside their slots.
#[derive(Clone, Copy, Debug)]
struct Multicast<'k> {
    /// Thread 0 of the first block, which submits.
    leader: Bool<'k>,
    /// In the first block, for each slot: each block has read the last response.
    empty: Mbarriers<'k>,
    /// The parity that the leader waits for next, of one slot.
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
        Idle {
            slot: self.clc_slots(1),
        }
    }

    /// The same with so many slots.
    #[track_caller]
    pub(crate) fn clc_slots(&self, slots: u32) -> Slot<'k> {
        self.require(Feature::ClusterLaunchControl);
        self.one_submitter();
        let response = self.responses(slots);
        let full = Mbarriers::private(self, "clc_full", slots);
        Slot {
            k: *self,
            response,
            full: self.full(full),
            multicast: None,
        }
    }

    #[track_caller]
    fn responses(&self, slots: u32) -> Ptr<'k, Shared, u64> {
        self.shared_aligned::<u64>("clc_response", RESPONSE / 8 * slots, RESPONSE)
            .ptr()
    }

    #[track_caller]
    fn full(&self, full: Mbarriers<'k>) -> Full<'k> {
        match full.count() {
            1 => Full::One(full.first().waiter()),
            _ => Full::Ring(Ring::new(self, full)),
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
        Idle {
            slot: self.clc_multicast_slots(1),
        }
    }

    /// The same with so many slots.
    #[track_caller]
    pub(crate) fn clc_multicast_slots(&self, slots: u32) -> Slot<'k> {
        self.require(Feature::ClusterLaunchControlMulticast);
        self.one_submitter();
        if self.rec.depth.get() != 0 {
            self.fail("a request of the whole cluster inside of a branch or loop: all threads make it, once");
        }
        let response = self.responses(slots);
        let [full, empty] = self.mbarriers([
            BarrierSpec {
                name: "clc_full",
                count: slots,
                arrivals: 1,
            },
            BarrierSpec {
                name: "clc_empty",
                count: slots,
                arrivals: self.cluster_size(),
            },
        ]);
        let slot = Slot {
            k: *self,
            response,
            full: self.full(full),
            multicast: Some(Multicast {
                leader: self.thread_index().eq(0) & self.cluster_rank().eq(0),
                empty,
                // Before the first request all slots are empty: the phase before the first counts
                // as ended.
                emptied: self.var(1u32).named("clc_emptied"),
            }),
        };
        self.one_thread(|| {
            for slot in 0..slots {
                full.at(slot).arrive_expecting(RESPONSE);
            }
        });
        slot
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

impl<'k> Slot<'k> {
    /// Waits until every block has read the last response of the slot that is asked for next, and
    /// armed its own barrier for the next.
    #[track_caller]
    fn await_all(&self, multicast: &Multicast<'k>) {
        match self.full {
            Full::One(_) => {
                let empty = multicast.empty.first();
                empty.wait_for_copies(multicast.emptied.get());
                multicast.emptied.update(|parity| parity ^ 1);
            }
            Full::Ring(ring) => {
                let empty = multicast.empty.at(ring.asked.stage());
                empty.wait_for_copies(ring.asked.parity());
            }
        }
    }

    /// The barrier of the slot that is asked for next.
    #[track_caller]
    fn full_asked(&self) -> Mbarrier<'k> {
        match self.full {
            Full::One(full) => full.barrier(),
            Full::Ring(ring) => ring.full.at(ring.asked.stage()),
        }
    }

    /// In the submitting thread: asks.
    #[track_caller]
    pub(crate) fn submit(&self) {
        let full = self.full_asked();
        let form = match &self.multicast {
            None => {
                full.arrive_expecting(RESPONSE);
                ""
            }
            Some(multicast) => {
                self.await_all(multicast);
                ".multicast::cluster::all"
            }
        };
        let response = match self.full {
            Full::One(_) => self.response,
            Full::Ring(ring) => self.response.at(ring.asked.stage() * (RESPONSE / 8)),
        };
        self.k.effect(
            format!(
                "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{form}.b128"
            ),
            vec![response.operand(), full.operand()],
        );
        if let Full::Ring(ring) = self.full {
            ring.asked.advance();
        }
    }

    /// Waits for the response, as often as is liked.
    #[track_caller]
    pub(crate) fn arrived(&self) {
        // The hardware wrote it: no thread's writes have to be made visible.
        match self.full {
            Full::One(full) => full.barrier().wait_for_copies(full.parity()),
            Full::Ring(ring) => self.arrived_at(ring.read),
        }
    }

    #[track_caller]
    fn arrived_at(&self, at: RingCursor<'k>) {
        if let Full::Ring(ring) = self.full {
            ring.full.at(at.stage()).wait_for_copies(at.parity());
        }
    }

    /// The next wait is for the next response.
    #[track_caller]
    pub(crate) fn advance(&self) {
        match self.full {
            Full::One(full) => full.advance(),
            Full::Ring(ring) => ring.read.advance(),
        }
    }

    /// Reads the response, which has arrived.
    #[track_caller]
    pub(crate) fn read(self) -> Answer<'k> {
        let response = match self.full {
            Full::One(_) => self.response,
            Full::Ring(ring) => self.response.at(ring.read.stage() * (RESPONSE / 8)),
        };
        self.read_from(response)
    }

    /// In the submitting thread, which looks before all others do: waits for the response that it
    /// has not looked at yet, and reads it.
    #[track_caller]
    pub(crate) fn judge(self) -> Answer<'k> {
        let Full::Ring(ring) = self.full else {
            self.arrived();
            return self.read();
        };
        self.arrived_at(ring.judged);
        let answer = self.read_from(self.response.at(ring.judged.stage() * (RESPONSE / 8)));
        ring.judged.advance();
        answer
    }

    #[track_caller]
    fn read_from(self, from: Ptr<'k, Shared, u64>) -> Answer<'k> {
        let k = self.k;
        let response = k.rec.reg(Class::B128);
        k.rec.op(
            "ld.shared.b128",
            vec![response.into(), from.operand()],
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
            let (full, empty) = match self.full {
                Full::One(full) => (full.barrier(), multicast.empty.first()),
                Full::Ring(ring) => {
                    let stage = ring.read.stage();
                    (ring.full.at(stage), multicast.empty.at(stage))
                }
            };
            self.k.one_thread(|| {
                // The next response may come earlier than this: until the arrival the phase can't
                // end.
                full.arrive_expecting(RESPONSE);
                empty.on(0u32).arrive_after_reading();
            });
        }
    }

    /// Which slot is read next.
    #[track_caller]
    pub(crate) fn stage(&self) -> Val<'k, u32> {
        match self.full {
            Full::One(_) => self.k.c(0u32),
            Full::Ring(ring) => ring.read.stage(),
        }
    }

    /// In the submitting thread, for bytes of its own in place of a response: waits until every
    /// block can take them, and gives the barrier that counts them in each, and which slot it is.
    #[track_caller]
    pub(crate) fn in_place_of_a_response(&self) -> (Mbarrier<'k>, Val<'k, u32>) {
        if let Some(multicast) = &self.multicast {
            self.await_all(multicast);
        }
        let stage = match self.full {
            Full::One(_) => self.k.c(0u32),
            Full::Ring(ring) => ring.asked.stage(),
        };
        (self.full_asked(), stage)
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
