//! Fences: the release and acquire patterns of the memory model.
//!
//! A release is a fence followed by a strong write, or a releasing write; an acquire is a strong
//! read followed by a fence, or an acquiring read. [`Fences`] holds for a warp the clock of its
//! last fence and the clocks that its strong reads may acquire with the next one. [`Flags`] holds
//! the clocks released through each location.

use super::access::{Geography, Scope};
use super::clock::{Agent, Clock};
use crate::lanes::Mask;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A released clock, for reads with a scope of at least `needs`.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) needs: Scope,
    pub(crate) clock: Arc<Clock>,
}

/// An offer that strong reads of some lanes have seen at a place.
#[derive(Clone, Debug)]
struct Seen {
    lanes: Mask,
    place: u64,
    offer: Offer,
}

/// What some lanes released through a place by a releasing operation.
#[derive(Clone, Debug)]
struct Through {
    lanes: Mask,
    scope: Scope,
    clock: Arc<Clock>,
}

/// A warp's fences.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fences {
    /// What the last fences cover: the lanes, the scope, and their clock.
    released: Vec<(Mask, Scope, Arc<Clock>)>,
    /// What releasing writes to each place covered: a later strong write of the same thread to the
    /// same place continues the release sequence.
    through: FxHashMap<u64, Vec<Through>>,
    /// The clocks that strong reads have seen, acquired by the next fence.
    seen: Vec<Seen>,
    /// Released clocks that were not acquired because of a scope that is too narrow, for messages.
    missed: Vec<Arc<Clock>>,
}

/// Clocks that a warp has missed and that are kept.
const MOST_MISSED: usize = 8;

/// Offers that a warp keeps apart until a fence.
const MOST_SEEN: usize = 64;

impl Fences {
    /// A fence with the clock of its lanes. An earlier fence with a wider scope is kept.
    pub(crate) fn fence(&mut self, lanes: Mask, scope: Scope, clock: Clock) {
        self.released.retain_mut(|(mask, known, _)| {
            if *known <= scope {
                *mask &= !lanes;
            }
            *mask != 0
        });
        self.released.push((lanes, scope, Arc::new(clock)));
    }

    /// A fence that covers something of its own, beside the others.
    pub(crate) fn fence_beside(&mut self, lanes: Mask, scope: Scope, clock: Clock) {
        self.released.push((lanes, scope, Arc::new(clock)));
    }

    /// The clocks that a strong write by these lanes releases.
    pub(crate) fn covered(&self, lanes: Mask) -> impl Iterator<Item = (Scope, &Arc<Clock>)> {
        self.released
            .iter()
            .filter(move |(mask, _, _)| mask & lanes != 0)
            .map(|(_, scope, clock)| (*scope, clock))
    }

    /// A write to `place` by these lanes that releases by itself.
    pub(crate) fn released_through(
        &mut self,
        place: u64,
        lanes: Mask,
        scope: Scope,
        clock: Arc<Clock>,
    ) {
        let list = self.through.entry(place).or_default();
        list.retain_mut(|one| {
            if one.scope <= scope {
                one.lanes &= !lanes;
            }
            one.lanes != 0
        });
        list.push(Through {
            lanes,
            scope,
            clock,
        });
    }

    /// What these lanes have released through `place`.
    pub(crate) fn covered_through(
        &self,
        place: u64,
        lanes: Mask,
    ) -> impl Iterator<Item = (Scope, &Arc<Clock>)> {
        let list = self.through.get(&place).into_iter().flatten();
        list.filter(move |one| one.lanes & lanes != 0)
            .map(|one| (one.scope, &one.clock))
    }

    /// A strong read of `place` has seen something that was released.
    pub(crate) fn saw(&mut self, lanes: Mask, place: u64, offer: Offer) {
        let needs = offer.needs;
        let same = |one: &&mut Seen| one.lanes == lanes && one.offer.needs == needs;
        // A second read sees at least what the first one saw.
        if let Some(known) = self
            .seen
            .iter_mut()
            .filter(same)
            .find(|one| one.place == place)
        {
            if !Arc::ptr_eq(&known.offer.clock, &offer.clock) {
                Arc::make_mut(&mut known.offer.clock).join(&offer.clock);
            }
            return;
        }
        if self.seen.len() >= MOST_SEEN
            && let Some(known) = self.seen.iter_mut().find(same)
        {
            Arc::make_mut(&mut known.offer.clock).join(&offer.clock);
            return;
        }
        self.seen.push(Seen {
            lanes,
            place,
            offer,
        });
    }

    /// Something was released, and a scope was too narrow for it.
    pub(crate) fn miss(&mut self, clock: Arc<Clock>) {
        if self.missed.len() >= MOST_MISSED {
            self.missed.remove(0);
        }
        self.missed.push(clock);
    }

    /// Whether an access would be known if a scope had been wider.
    pub(crate) fn has_missed(&self, agent: Agent, clock: u32, lane: u8) -> bool {
        let knows = |known: &Arc<Clock>| known.of(agent).covers(clock, lane);
        self.missed.iter().any(knows)
    }

    /// What a fence of this scope by these lanes acquires; with a place, what an
    /// acquiring read of that place does.
    pub(crate) fn take_seen(
        &mut self,
        lanes: Mask,
        scope: Scope,
        place: Option<u64>,
    ) -> Vec<(Mask, Arc<Clock>)> {
        let mut out = Vec::new();
        let mut missed = Vec::new();
        self.seen.retain_mut(|one| {
            let reaches = one.offer.needs <= scope && place.is_none_or(|at| at == one.place);
            if !reaches && place.is_none() {
                missed.push(Arc::clone(&one.offer.clock));
            }
            if reaches && one.lanes & lanes != 0 {
                out.push((one.lanes & lanes, Arc::clone(&one.offer.clock)));
                one.lanes &= !lanes;
            }
            one.lanes != 0
        });
        missed.into_iter().for_each(|clock| self.miss(clock));
        out
    }
}

impl Fences {
    /// What a fence of this scope by these lanes may acquire, which a later one may, too.
    pub(crate) fn seen(&self, lanes: Mask, scope: Scope) -> Vec<(Mask, Arc<Clock>)> {
        let reaches = |one: &&Seen| one.offer.needs <= scope && one.lanes & lanes != 0;
        let seen = self.seen.iter().filter(reaches);
        seen.map(|one| (one.lanes & lanes, Arc::clone(&one.offer.clock)))
            .collect()
    }
}

/// What one block has released through a place.
#[derive(Clone, Debug)]
struct Released {
    scope: Scope,
    block: u32,
    clock: Arc<Clock>,
}

/// What has been released through one place, as its present value carries it.
#[derive(Clone, Debug, Default)]
struct Releases {
    /// The scope and the block of the write that its value comes from.
    carrier: Option<(Scope, u32)>,
    /// To the whole device: by all blocks, and by each.
    wide: Option<Arc<Clock>>,
    by_block: FxHashMap<u32, Arc<Clock>>,
    /// To a block or a cluster.
    narrow: Vec<Released>,
}

/// What has been released through each location of memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    by_place: FxHashMap<u64, Releases>,
}

/// Whether two blocks are in the scope of each other's access.
fn both_reach(one: (Scope, u32), other: (Scope, u32), geography: Geography) -> bool {
    let size = geography.blocks_per_cluster;
    let needs = match (one.1, other.1) {
        (a, b) if a == b => Scope::Block,
        (a, b) if a / size == b / size => Scope::Cluster,
        _ => Scope::Gpu,
    };
    one.0 >= needs && other.0 >= needs
}

fn add(to: &mut Arc<Clock>, clock: &Arc<Clock>) {
    if !Arc::ptr_eq(to, clock) {
        Arc::make_mut(to).join(clock);
    }
}

impl Flags {
    /// A strong write by block `block`. A read of its value does not synchronise with earlier
    /// releases, unless it is a read-modify-write of such a value.
    pub(crate) fn write(
        &mut self,
        place: u64,
        (scope, block): (Scope, u32),
        geography: Geography,
        reads: bool,
    ) {
        let Some(at) = self.by_place.get_mut(&place) else {
            return;
        };
        let sees = |by: (Scope, u32)| both_reach(by, (scope, block), geography);
        if !reads || !at.carrier.is_some_and(sees) {
            *at = Releases::default();
        }
        at.carrier = Some((scope, block));
    }

    /// Something is released by a write of scope `by` to `place` by block `block`; `scope`
    /// is that of the operation that releases it, the write itself or a fence before it.
    pub(crate) fn release(
        &mut self,
        place: u64,
        (scope, by): (Scope, Scope),
        block: u32,
        clock: Arc<Clock>,
    ) {
        let at = self.by_place.entry(place).or_default();
        at.carrier = Some((by, block));
        if scope >= Scope::Gpu {
            match &mut at.wide {
                Some(wide) => add(wide, &clock),
                none => *none = Some(Arc::clone(&clock)),
            }
            let own = at.by_block.entry(block).or_insert_with(|| clock.clone());
            add(own, &clock);
            return;
        }
        let mut narrow = at.narrow.iter_mut();
        match narrow.find(|one| one.scope == scope && one.block == block) {
            Some(one) => add(&mut one.clock, &clock),
            None => at.narrow.push(Released {
                scope,
                block,
                clock,
            }),
        }
    }

    /// What a read of `place` by block `block` with `scope` may acquire.
    pub(crate) fn offers(
        &self,
        place: u64,
        scope: Scope,
        block: u32,
        geography: Geography,
    ) -> Vec<Offer> {
        let Some(at) = self.by_place.get(&place) else {
            return Vec::new();
        };
        let sees = |by: (Scope, u32)| both_reach(by, (scope, block), geography);
        if !at.carrier.is_some_and(sees) {
            return Vec::new();
        }
        let size = geography.blocks_per_cluster;
        let needs = |other: u32| match other {
            _ if other == block => Scope::Block,
            _ if other / size == block / size => Scope::Cluster,
            _ => Scope::Gpu,
        };
        let first = block / size * size;
        let near = (first..first + size)
            .filter_map(|other| Some((needs(other), at.by_block.get(&other)?)));
        let narrow = at.narrow.iter();
        let narrow = narrow.filter(|one| needs(one.block) <= one.scope);
        let narrow = narrow.map(|one| (needs(one.block), &one.clock));
        let wide = at.wide.iter().map(|wide| (Scope::Gpu, wide));
        near.chain(narrow)
            .chain(wide)
            .filter(|(needs, _)| *needs <= scope)
            .map(|(needs, clock)| Offer {
                needs,
                clock: Arc::clone(clock),
            })
            .collect()
    }

    /// The clocks released through `place` that a read by block `block` with `scope` can't acquire,
    /// because one of the two scopes is too narrow.
    pub(crate) fn out_of_reach(
        &self,
        place: u64,
        scope: Scope,
        block: u32,
    ) -> impl Iterator<Item = &Arc<Clock>> {
        let at = self.by_place.get(&place).into_iter();
        at.flat_map(move |at| {
            let wide = at.wide.iter().filter(move |_| scope < Scope::Gpu);
            let narrow = at.narrow.iter().filter(move |one| one.block != block);
            let carried = at.carrier.is_some_and(|(by, _)| by < Scope::Gpu);
            let carried = at.wide.iter().filter(move |_| carried);
            wide.chain(carried).chain(narrow.map(|one| &one.clock))
        })
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
        in_parts: false,
    };

    /// Whether a fence and a flag of these scopes synchronise block 0 with block 1: the scopes of
    /// the writer's fence, its write, the reader's read and its fence.
    fn handed_on(scopes: [Scope; 4]) -> bool {
        let mut writer = WarpClock::new(0, 0, 1);
        let mut reader = WarpClock::new(1, 1, 1);
        let (mut ours, mut theirs) = (Fences::default(), Fences::default());
        let mut flags = Flags::default();
        ours.fence(ALL, scopes[0], writer.release(ALL, ALL));
        for (scope, clock) in ours.covered(1) {
            flags.release(64, (scope, scopes[1]), 0, Arc::clone(clock));
        }
        for offer in flags.offers(64, scopes[2], 1, GRID) {
            theirs.saw(1, 64, offer);
        }
        assert!(!reader.knows(0, 1, 5, 0));
        for (lanes, clock) in theirs.take_seen(ALL, scopes[3], None) {
            reader.acquire(&clock, lanes, ALL);
        }
        assert!(!reader.knows(0, 1, 5, 1), "only lane 0 looked");
        reader.knows(0, 1, 5, 0)
    }

    #[test]
    fn every_scope_on_the_way_must_reach_the_other_block() {
        assert!(handed_on([Scope::Gpu; 4]));
        for narrow in 0..4 {
            let mut scopes = [Scope::System; 4];
            scopes[narrow] = Scope::Cluster;
            assert!(!handed_on(scopes), "{scopes:?}");
        }
    }

    #[test]
    fn a_block_scope_does_not_reach_another_block() {
        let mut writer = WarpClock::new(0, 0, 1);
        let mut flags = Flags::default();
        let clock = Arc::new(writer.release(ALL, ALL));
        flags.release(8, (Scope::Block, Scope::Block), 0, clock);
        assert!(flags.offers(8, Scope::Gpu, 1, GRID).is_empty());
        assert_eq!(flags.offers(8, Scope::Gpu, 0, GRID).len(), 1);
        flags.write(8, (Scope::Gpu, 0), GRID, true);
        assert_eq!(flags.offers(8, Scope::Gpu, 0, GRID).len(), 1);
        flags.write(8, (Scope::Gpu, 0), GRID, false);
        assert!(flags.offers(8, Scope::Gpu, 0, GRID).is_empty());
    }

    #[test]
    fn a_narrow_fence_leaves_what_a_wide_one_may_still_take() {
        let mut fences = Fences::default();
        let offer = Offer {
            needs: Scope::Gpu,
            clock: Arc::default(),
        };
        fences.saw(1, 8, offer);
        assert!(fences.take_seen(ALL, Scope::Block, None).is_empty());
        assert!(fences.take_seen(ALL, Scope::Gpu, Some(16)).is_empty());
        assert_eq!(fences.take_seen(ALL, Scope::Gpu, None).len(), 1);
    }
}
