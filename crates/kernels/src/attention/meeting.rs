//! Where warps of a block meet.

use heist_builder::{BarrierSpec, Kernel, Val, Waiter};

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
