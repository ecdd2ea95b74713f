//! Where warps of a block meet, and launches.

use heist_builder::{BarrierSpec, Kernel, Val, Waiter};

/// Waits for the launch before this one, where this one was allowed to begin before its end, and lets the
/// next one begin: its blocks set out while the last ones of this launch work.
///
/// Before it nothing is read or written that another launch may touch. After it nothing of the kind is
/// read by loads of read-only data, which may have been cached before.
pub(super) fn overlap(k: &Kernel<'_>) {
    k.comment("the launch before has ended");
    k.wait_for_dependency();
    k.launch_dependents();
}

/// A barrier of some warps: an mbarrier at which every lane arrives.
///
/// One lane of a warp could arrive for all of it, behind `bar.warp.sync`, which orders
/// their accesses; racecheck does not follow that (docs/decisions.md), and takes what
/// other warps do after a named barrier of some of them for races.
pub(super) struct Meeting<'k> {
    waiter: Waiter<'k>,
}

impl<'k> Meeting<'k> {
    /// One of `count`, of `warps` warps each. The whole block takes part in making
    /// it.
    pub(super) fn of(
        k: &Kernel<'k>,
        name: &str,
        count: u32,
        warps: u32,
        which: &Val<'k, u32>,
    ) -> Self {
        let [barriers] = k.mbarriers([BarrierSpec {
            name,
            count,
            arrivals: 32 * warps,
        }]);
        Meeting {
            waiter: barriers.at(*which).waiter(),
        }
    }

    /// Waits for the others, and orders memory accesses before and after.
    pub(super) fn meet(&self) {
        self.waiter.barrier().arrive();
        self.waiter.wait();
    }
}
