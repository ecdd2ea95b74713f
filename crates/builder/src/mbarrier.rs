//! Barriers in shared memory: mbarriers.
//!
//! A barrier is made with the number of arrivals it takes, in one call that
//! also initialises it, fences, and syncs; so there is no barrier before its
//! initialisation. Bytes are counted by the builder, not by hand: see
//! [`Mbarrier::fill`].

use crate::emit::{Line, Opnd};
use crate::kernel::{Kernel, number};
use crate::pointer::{Cluster, IntoIndex, Ptr, Shared};
use crate::value::{Bool, IntoVal, Val, Var};
use heist_ptx::arch::Feature;

/// What to make: a name, how many, and how many arrivals end a phase.
#[derive(Clone, Copy, Debug)]
pub struct BarrierSpec<'n> {
    /// Its name in the PTX.
    pub name: &'n str,
    /// How many of them.
    pub count: u32,
    /// Arrivals that end a phase.
    pub arrivals: u32,
}

/// Barriers in a row, one per stage.
#[derive(Clone, Copy, Debug)]
pub struct Mbarriers<'k> {
    base: Ptr<'k, Shared, u64>,
    count: u32,
    arrivals: u32,
}

/// A barrier in this block's shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Mbarrier<'k> {
    pub(crate) at: Ptr<'k, Shared, u64>,
    arrivals: u32,
}

/// A barrier in another block of the cluster. Only arrivals are possible: waiting is for the block
/// that owns it.
#[derive(Clone, Copy, Debug)]
pub struct RemoteMbarrier<'k> {
    at: Ptr<'k, Cluster, u64>,
}

impl<'k> Kernel<'k> {
    /// Makes barriers, initialises them in thread 0, and synchronises: the whole block takes part,
    /// and the whole cluster where there is one.
    ///
    /// ```
    /// # use heist_builder::*;
    /// # kernel_params! { pub struct No {} }
    /// # KernelSpec::<No>::new("k").build(Arch::SM_80, |k, _| {
    /// let [full, empty] = k.mbarriers([
    ///     BarrierSpec { name: "full", count: 4, arrivals: 1 },
    ///     BarrierSpec { name: "empty", count: 4, arrivals: k.threads() },
    /// ]);
    /// empty.at(0).arrive();
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn mbarriers<const N: usize>(&self, specs: [BarrierSpec<'_>; N]) -> [Mbarriers<'k>; N] {
        self.require(Feature::Mbarrier);
        let rings = specs.map(|spec| {
            if !(1..=0xF_FFFF).contains(&spec.arrivals) {
                self.fail_with(crate::Problem::OutOfRange {
                    what: format!("the arrivals of the barrier {}", spec.name),
                    value: spec.arrivals.into(),
                    low: 1,
                    high: 0xF_FFFF,
                });
            }
            Mbarriers {
                base: self.shared_aligned::<u64>(spec.name, spec.count, 8).ptr(),
                count: spec.count,
                arrivals: spec.arrivals,
            }
        });
        let each = |ring: &Mbarriers<'k>| {
            let (base, arrivals) = (ring.base, ring.arrivals);
            (0..ring.count).map(move |index| (base.at(index).operand(), arrivals))
        };
        let all: Vec<_> = rings.iter().flat_map(each).collect();
        if let Some(later) = self.rec.uninitialised.borrow_mut().as_mut() {
            later.extend(all);
            return rings;
        }
        self.initialise(all);
        rings
    }

    /// Initialises barriers in thread 0, and synchronises.
    #[track_caller]
    fn initialise(&self, all: Vec<(Opnd, u32)>) {
        self.comment("initialise the barriers");
        self.if_(self.thread_index().eq(0), || {
            for (at, arrivals) in all.clone() {
                let arrivals = number(arrivals.into());
                self.effect("mbarrier.init.shared.b64", vec![at, arrivals]);
            }
            if self.has(Feature::MbarrierTransactions) {
                self.require(Feature::MbarrierTransactions);
                self.effect("fence.mbarrier_init.release.cluster", vec![]);
            }
        });
        self.cluster_sync();
    }

    /// The barriers that `make` makes, of rings too, are initialised together behind it: the block
    /// synchronises once, not once for each. Inside of `make` they are only made, not used.
    ///
    /// ```
    /// # use heist_builder::*;
    /// # kernel_params! { pub struct No {} }
    /// # KernelSpec::<No>::new("k").build(Arch::SM_80, |k, _| {
    /// let (one, other) = k.barriers_together(|| (k.mbarrier("one", 1), k.mbarrier("other", 2)));
    /// one.arrive();
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn barriers_together<R>(&self, make: impl FnOnce() -> R) -> R {
        if self.rec.uninitialised.borrow().is_some() {
            return make();
        }
        *self.rec.uninitialised.borrow_mut() = Some(Vec::new());
        let made = make();
        let all = self.rec.uninitialised.borrow_mut().take();
        self.initialise(all.unwrap_or_default());
        made
    }

    /// One barrier, initialised as in [`Kernel::mbarriers`].
    #[track_caller]
    pub fn mbarrier(&self, name: &str, arrivals: u32) -> Mbarrier<'k> {
        let [ring] = self.mbarriers([BarrierSpec {
            name,
            count: 1,
            arrivals,
        }]);
        ring.first()
    }
}

impl<'k> Mbarriers<'k> {
    /// Barriers of this thread, which initialises them.
    #[track_caller]
    pub(crate) fn private(k: &Kernel<'k>, name: &str, count: u32) -> Mbarriers<'k> {
        k.require(Feature::MbarrierTransactions);
        let base = k.shared_aligned::<u64>(name, count, 8).ptr();
        for index in 0..count {
            let at = base.at(index).operand();
            k.effect("mbarrier.init.shared.b64", vec![at, number(1)]);
        }
        k.effect("fence.mbarrier_init.release.cluster", vec![]);
        Mbarriers {
            base,
            count,
            arrivals: 1,
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The one at `index`.
    #[track_caller]
    pub fn at(&self, index: impl IntoIndex<'k>) -> Mbarrier<'k> {
        Mbarrier {
            at: self.base.at(index),
            arrivals: self.arrivals,
        }
    }

    /// The first.
    pub fn first(&self) -> Mbarrier<'k> {
        Mbarrier {
            at: self.base,
            arrivals: self.arrivals,
        }
    }
}

/// Orders a wait against arrivals of the cluster where there is one.
fn scope(k: &Kernel<'_>) -> &'static str {
    if k.cluster_size() > 1 {
        ".acquire.cluster"
    } else {
        ""
    }
}

impl<'k> Mbarrier<'k> {
    /// How many arrivals end a phase.
    pub fn arrivals(&self) -> u32 {
        self.arrivals
    }

    /// Arrives: one of the [`arrivals`](Mbarrier::arrivals) of this phase. Earlier writes of this
    /// thread are visible to threads that wait.
    #[track_caller]
    pub fn arrive(&self) {
        let k = self.at.k;
        k.emit::<u64>("mbarrier.arrive.shared.b64", vec![self.at.operand()]);
    }

    /// Arrives, and says that `bytes` more will be counted by asynchronous
    /// copies before the phase can end. Prefer [`Mbarrier::fill`], which counts
    /// by itself.
    #[track_caller]
    pub fn arrive_expecting(&self, bytes: impl IntoVal<'k, u32>) {
        let k = self.at.k;
        k.require(Feature::MbarrierTransactions);
        let bytes = bytes.into_val(&k).operand();
        k.emit::<u64>(
            "mbarrier.arrive.expect_tx.shared.b64",
            vec![self.at.operand(), bytes],
        );
    }

    /// Waits until the phase with this parity has ended: 0 for the first, 1 for
    /// the second, and so on in turns.
    #[track_caller]
    pub fn wait(&self, parity: impl IntoVal<'k, u32>) {
        let k = self.at.k;
        let parity = parity.into_val(&k);
        let again = k.rec.label("wait");
        k.rec.line(Line::Label(again));
        let done = self.test(parity);
        k.branch_unless(done, again);
    }

    /// Whether the phase with this parity has ended. On Hopper and later it may suspend the thread
    /// for a while before it returns false.
    #[track_caller]
    pub fn test(&self, parity: impl IntoVal<'k, u32>) -> Bool<'k> {
        let scope = scope(&self.at.k);
        self.test_in(scope, parity.into_val(&self.at.k))
    }

    /// Waits like [`wait`](Mbarrier::wait), but only for bulk copies and for threads that have only
    /// read: writes of threads of other blocks are not made visible. In a cluster that is far
    /// cheaper, since an acquire of other blocks' writes invalidates the L1 cache.
    #[track_caller]
    pub fn wait_for_copies(&self, parity: impl IntoVal<'k, u32>) {
        let k = self.at.k;
        let parity = parity.into_val(&k);
        let again = k.rec.label("wait");
        k.rec.line(Line::Label(again));
        let done = self.test_in("", parity);
        k.branch_unless(done, again);
    }

    #[track_caller]
    fn test_in(&self, scope: &str, parity: Val<'k, u32>) -> Bool<'k> {
        let k = self.at.k;
        let parity = parity.operand();
        let name = if k.has(Feature::MbarrierTransactions) {
            k.require(Feature::MbarrierTransactions);
            format!("mbarrier.try_wait.parity{scope}.shared::cta.b64")
        } else {
            k.require(Feature::MbarrierParity);
            "mbarrier.test_wait.parity.shared.b64".into()
        };
        k.emit::<bool>(name, vec![self.at.operand(), parity])
    }

    /// The barrier in the same place of the cluster's block `rank`.
    #[track_caller]
    pub fn on(&self, rank: impl IntoVal<'k, u32>) -> RemoteMbarrier<'k> {
        RemoteMbarrier {
            at: self.at.on(rank),
        }
    }

    /// A waiter that waits for one phase after the other, starting with the first.
    #[track_caller]
    pub fn waiter(&self) -> Waiter<'k> {
        Waiter {
            barrier: *self,
            parity: self.at.k.var(0u32),
        }
    }

    pub(crate) fn operand(&self) -> Opnd {
        self.at.operand()
    }
}

impl<'k> RemoteMbarrier<'k> {
    /// Arrives at the other block's barrier.
    #[track_caller]
    pub fn arrive(&self) {
        let k = self.at.k;
        k.require(Feature::MbarrierTransactions);
        k.effect(
            "mbarrier.arrive.release.cluster.shared::cluster.b64",
            vec![Opnd::Sink, self.at.operand()],
        );
    }

    /// Arrives at the other block's barrier after reads only (relaxed): writes of this thread are
    /// not made visible there, which would take a fence of the whole GPU.
    #[track_caller]
    pub fn arrive_after_reading(&self) {
        let k = self.at.k;
        k.require(Feature::MbarrierTransactions);
        k.effect(
            "mbarrier.arrive.shared::cluster.b64",
            vec![Opnd::Sink, self.at.operand()],
        );
    }

    /// Arrives at the other block's barrier, and says that `bytes` more will be
    /// counted there before the phase can end.
    #[track_caller]
    pub fn arrive_expecting(&self, bytes: impl IntoVal<'k, u32>) {
        let k = self.at.k;
        k.require(Feature::MbarrierTransactions);
        let bytes = bytes.into_val(&k).operand();
        k.effect(
            "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64",
            vec![Opnd::Sink, self.at.operand(), bytes],
        );
    }

    pub(crate) fn operand(&self) -> Opnd {
        self.at.operand()
    }
}

/// Waits for a barrier's phases one after the other and keeps count.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<'k> {
    barrier: Mbarrier<'k>,
    parity: Var<'k, u32>,
}

impl<'k> Waiter<'k> {
    /// Waits for the phase it has not waited for yet.
    #[track_caller]
    pub fn wait(&self) {
        self.barrier.wait(self.parity.get());
        self.advance();
    }

    /// The next wait is for the next phase.
    #[track_caller]
    pub fn advance(&self) {
        self.parity.update(|parity| parity ^ 1);
    }

    /// The barrier.
    pub fn barrier(&self) -> Mbarrier<'k> {
        self.barrier
    }

    /// The parity of the phase it will wait for next.
    #[track_caller]
    pub fn parity(&self) -> Val<'k, u32> {
        self.parity.get()
    }
}

/// A position in a ring of stages and the parity of its barriers: the parity flips each time it
/// wraps around.
#[derive(Clone, Copy, Debug)]
pub struct RingCursor<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
    count: u32,
}

impl<'k> Kernel<'k> {
    /// A cursor at the first of `count` stages. A consumer starts with parity 0
    /// (it waits for the first filling); a producer with parity 1 (a wait for
    /// the emptying before the first filling returns at once).
    #[track_caller]
    pub fn ring_cursor(&self, count: u32, parity: u32) -> RingCursor<'k> {
        RingCursor {
            stage: self.var(0u32),
            parity: self.var(parity & 1),
            count,
        }
    }
}

impl<'k> RingCursor<'k> {
    /// The stage it is at.
    #[track_caller]
    pub fn stage(&self) -> Val<'k, u32> {
        self.stage.get()
    }

    /// The parity to wait with.
    #[track_caller]
    pub fn parity(&self) -> Val<'k, u32> {
        self.parity.get()
    }

    /// The stage behind it, and the parity to wait for that with.
    #[track_caller]
    pub fn second(&self) -> (Val<'k, u32>, Val<'k, u32>) {
        let next = self.stage.get() + 1;
        let wraps = next.eq(self.count);
        let parity = self.parity.get() ^ wraps.select(1u32, 0u32);
        (wraps.select(0u32, next), parity)
    }

    /// Goes so many stages on.
    #[track_caller]
    pub fn advance_by(&self, stages: Val<'k, u32>) {
        let next = self.stage.get() + stages;
        self.stage.set(next % self.count);
        self.parity
            .set(self.parity.get() ^ ((next / self.count) & 1));
    }

    /// Goes back by as many stages as there are.
    #[track_caller]
    pub(crate) fn back_a_round(&self) {
        self.parity.set(self.parity.get() ^ 1);
    }

    /// Goes to the next stage.
    #[track_caller]
    pub fn advance(&self) {
        let (stage, parity) = self.second();
        self.stage.set(stage);
        self.parity.set(parity);
    }
}
