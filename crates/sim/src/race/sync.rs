//! What fences do: the release and acquire patterns of the memory model.
//!
//! A release is a fence followed by a strong write, or a write that releases by
//! itself; an acquire is a strong read followed by a fence, or a read that
//! acquires. [`Fences`] remembers for a warp what its last fence covers and what
//! its strong reads may acquire with the next one. [`Flags`] holds what has been
//! released through each location.

use super::access::{Geography, Scope};
use super::clock::Clock;
use crate::lanes::Mask;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A warp's fences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences {
    /// What the last fences cover: the lanes, the scope, and what they know.
    released: Vec<(Mask, Scope, Arc<Clock>)>,
    /// What strong reads have seen, to be learnt at the next fence.
    seen: Vec<(Mask, Scope, Arc<Clock>)>,
}

impl Fences {
    /// A fence that covers what its lanes know.
    pub(crate) fn fence(&mut self, lanes: Mask, scope: Scope, clock: Clock) {
        self.released.retain_mut(|(mask, _, _)| {
            *mask &= !lanes;
            *mask != 0
        });
        self.released.push((lanes, scope, Arc::new(clock)));
    }

    /// What a strong write by these lanes hands on.
    pub(crate) fn covered(&self, lanes: Mask) -> impl Iterator<Item = (Scope, &Arc<Clock>)> {
        self.released
            .iter()
            .filter(move |(mask, _, _)| mask & lanes != 0)
            .map(|(_, scope, clock)| (*scope, clock))
    }

    /// A strong read has seen something that was released.
    pub(crate) fn saw(&mut self, lanes: Mask, scope: Scope, clock: Arc<Clock>) {
        if self.seen.len() < 64 {
            self.seen.push((lanes, scope, clock));
        }
    }

    /// What a fence by these lanes acquires.
    pub(crate) fn take_seen(&mut self, lanes: Mask) -> Vec<(Mask, Arc<Clock>)> {
        let mut out = Vec::new();
        self.seen.retain_mut(|(mask, _, clock)| {
            if *mask & lanes != 0 {
                out.push((*mask & lanes, Arc::clone(clock)));
            }
            *mask &= !lanes;
            *mask != 0
        });
        out
    }
}

/// One release through a location.
#[derive(Clone, Debug)]
struct Released {
    scope: Scope,
    block: u32,
    clock: Arc<Clock>,
}

/// What has been released through each location of memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    by_place: FxHashMap<u64, Vec<Released>>,
}

impl Flags {
    /// Something is released by a write to `place` by block `block`.
    pub(crate) fn release(&mut self, place: u64, scope: Scope, block: u32, clock: Arc<Clock>) {
        let list = self.by_place.entry(place).or_default();
        let same = list
            .iter_mut()
            .find(|one| one.scope == scope && (scope > Scope::Cluster || one.block == block));
        match same {
            Some(one) if Arc::ptr_eq(&one.clock, &clock) => {}
            Some(one) => Arc::make_mut(&mut one.clock).join(&clock),
            None => list.push(Released {
                scope,
                block,
                clock,
            }),
        }
    }

    /// What a read of `place` by block `block` with `scope` may acquire.
    pub(crate) fn acquire(
        &self,
        place: u64,
        scope: Scope,
        block: u32,
        geography: Geography,
    ) -> impl Iterator<Item = &Arc<Clock>> {
        self.by_place
            .get(&place)
            .into_iter()
            .flatten()
            .filter(move |one| {
                let narrow = scope.min(one.scope);
                match narrow {
                    Scope::Block => one.block == block,
                    Scope::Cluster => {
                        one.block / geography.blocks_per_cluster
                            == block / geography.blocks_per_cluster
                    }
                    Scope::Gpu | Scope::System => true,
                }
            })
            .map(|one| &one.clock)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::ALL;
    use crate::race::clock::WarpClock;

    const GRID: Geography = Geography {
        warps_per_block: 1,
        blocks_per_cluster: 1,
        isolated: false,
    };

    #[test]
    fn a_fence_and_a_flag_order_two_blocks() {
        let mut writer = WarpClock::new(0, 0, 1);
        let mut reader = WarpClock::new(1, 1, 1);
        let (mut ours, mut theirs) = (Fences::default(), Fences::default());
        let mut flags = Flags::default();
        ours.fence(ALL, Scope::Gpu, writer.release(ALL, ALL));
        for (scope, clock) in ours.covered(1) {
            flags.release(64, scope, 0, Arc::clone(clock));
        }
        for clock in flags.acquire(64, Scope::Gpu, 1, GRID) {
            theirs.saw(1, Scope::Gpu, Arc::clone(clock));
        }
        assert!(!reader.knows(0, 1, 5, 0));
        for (lanes, clock) in theirs.take_seen(ALL) {
            reader.acquire(&clock, lanes, ALL);
        }
        assert!(reader.knows(0, 1, 5, 0));
        assert!(!reader.knows(0, 1, 5, 1), "only lane 0 looked");
    }

    #[test]
    fn a_block_scope_does_not_reach_another_block() {
        let mut writer = WarpClock::new(0, 0, 1);
        let mut flags = Flags::default();
        flags.release(8, Scope::Block, 0, Arc::new(writer.release(ALL, ALL)));
        assert_eq!(flags.acquire(8, Scope::Gpu, 1, GRID).count(), 0);
        assert_eq!(flags.acquire(8, Scope::Gpu, 0, GRID).count(), 1);
    }
}
