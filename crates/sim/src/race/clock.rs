//! Vector clocks: the happens-before order.
//!
//! An [`Agent`] is a warp of the grid. Its own clock counts its
//! synchronisations, not its instructions: two accesses of a warp with no
//! synchronisation between them carry the same clock. [`Known`] is one component of a vector clock:
//! what is known of one agent. It distinguishes what all of its lanes did from what only some of
//! them have released, so that one elected lane's release does not cover its neighbours' stores.
//! The join of two such partial facts over-approximates the order: a race may be missed there, but
//! none is reported falsely.

use super::far::Far;
use crate::lanes::{ALL, Mask};
use std::sync::Arc;

/// A warp of the grid: block number times warps per block, plus its own number; or, from
/// [`ASYNCHRONOUS`] on, who writes asynchronously.
pub(crate) type Agent = u32;

/// The first of the agents that are not warps: mbarriers, for what copies write that
/// complete there, and lanes, for what their bulk stores write.
pub(crate) const ASYNCHRONOUS: Agent = 0x8000_0000;

/// The lane of an access that several lanes made.
pub(crate) const SEVERAL: u8 = 0xff;

/// What is known of one agent: everything before `base`, and of the lanes in
/// `lanes` everything before `top`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) base: u32,
    pub(crate) top: u32,
    pub(crate) lanes: Mask,
}

impl Known {
    /// Everything before `clock`, of all lanes.
    pub(crate) fn all(clock: u32) -> Known {
        Known {
            base: clock,
            top: clock,
            lanes: ALL,
        }
    }

    #[inline]
    pub(crate) fn covers(self, clock: u32, lane: u8) -> bool {
        clock < self.base || (clock < self.top && lane < 32 && self.lanes >> lane & 1 != 0)
    }

    pub(crate) fn join(&mut self, other: Known) {
        self.base = self.base.max(other.base);
        if other.top > self.top {
            self.lanes = if self.top > self.base {
                self.lanes | other.lanes
            } else {
                other.lanes
            };
            self.top = other.top;
        } else if other.top > self.base {
            self.lanes |= other.lanes;
        }
        if self.lanes == ALL {
            self.base = self.base.max(self.top);
        }
    }
}

/// A vector clock: dense for the agents of one cluster, sparse for the rest of the grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// The first agent of the cluster that `near` is about.
    first: Agent,
    near: Vec<Known>,
    far: Far,
    /// For each special kind of fence, the accesses that happen before such a fence.
    fenced: [Option<Arc<Clock>>; Behind::COUNT],
}

/// What a special fence orders: generic accesses to shared or global memory before later
/// asynchronous ones, `mbarrier.init`s only, operations in tensor memory, or accesses to shared
/// memory alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    Shared,
    Global,
    Inits,
    Tensor,
    Restricted,
}

impl Behind {
    const COUNT: usize = 5;
}

impl Clock {
    pub(crate) fn new(first: Agent, agents: usize) -> Clock {
        Clock {
            first,
            near: vec![Known::default(); agents],
            far: Far::default(),
            fenced: Default::default(),
        }
    }

    /// Back to knowing nothing, for another cluster.
    pub(crate) fn restart(&mut self, first: Agent, agents: usize) {
        self.first = first;
        self.near.clear();
        self.near.resize(agents, Known::default());
        self.far = Far::default();
        self.fenced = Default::default();
    }

    /// What is known of an agent.
    #[inline]
    pub(crate) fn of(&self, agent: Agent) -> Known {
        match self.near.get(agent.wrapping_sub(self.first) as usize) {
            Some(known) => *known,
            None => self.far.of(agent),
        }
    }

    /// Learns one fact.
    pub(crate) fn learn(&mut self, agent: Agent, known: Known) {
        match self.near.get_mut(agent.wrapping_sub(self.first) as usize) {
            Some(slot) => slot.join(known),
            None => self.far.learn(agent, known),
        }
    }

    /// Learns everything that `other` knows.
    pub(crate) fn join(&mut self, other: &Clock) {
        self.join_fenced(other);
        if self.first == other.first && self.near.len() == other.near.len() {
            for (mine, theirs) in self.near.iter_mut().zip(&other.near) {
                mine.join(*theirs);
            }
        } else {
            for (at, known) in other.near.iter().enumerate() {
                if known.top > 0 {
                    self.learn(other.first + at as Agent, *known);
                }
            }
        }
        let near = self.first..self.first.saturating_add(self.near.len() as Agent);
        for &(agent, known) in other.far.within(near.clone()) {
            self.near[(agent - self.first) as usize].join(known);
        }
        self.far.join(&other.far, near);
    }

    /// Joins the clocks of special fences.
    fn join_fenced(&mut self, other: &Clock) {
        for (mine, theirs) in self.fenced.iter_mut().zip(&other.fenced) {
            match (mine, theirs) {
                (_, None) => {}
                (mine @ None, Some(theirs)) => *mine = Some(Arc::clone(theirs)),
                (Some(mine), Some(theirs)) if Arc::ptr_eq(mine, theirs) => {}
                (Some(mine), Some(theirs)) => Arc::make_mut(mine).join(theirs),
            }
        }
    }

    /// Whether a special fence after an access happens before this clock.
    fn has_fenced(&self, kind: Behind, agent: Agent, clock: u32, lane: u8) -> bool {
        let fenced = self.fenced[kind as usize].as_ref();
        fenced.is_some_and(|fenced| fenced.of(agent).covers(clock, lane))
    }
}

/// One warp's place in the order.
#[derive(Clone, Debug)]
pub(crate) struct WarpClock {
    pub(crate) agent: Agent,
    /// The present epoch; starts at one, since zero means never.
    pub(crate) now: u32,
    /// All lanes are synchronised up to this epoch.
    synced: u32,
    /// For warps that synchronised in parts: `pairs[a][b]` is the epoch before
    /// which lane `a` knows what lane `b` did.
    pairs: Option<Box<[[u32; 32]; 32]>>,
    /// What all lanes know of other warps.
    common: Clock,
    /// What only some lanes know.
    partial: Vec<(Mask, Clock)>,
}

impl WarpClock {
    /// A warp that knows nothing of the `agents` warps of its cluster.
    pub(crate) fn new(agent: Agent, first: Agent, agents: usize) -> WarpClock {
        WarpClock {
            agent,
            now: 1,
            synced: 1,
            pairs: None,
            common: Clock::new(first, agents),
            partial: Vec::new(),
        }
    }

    /// Back to knowing nothing, as another agent.
    pub(crate) fn restart(&mut self, agent: Agent, first: Agent, agents: usize) {
        self.agent = agent;
        (self.now, self.synced) = (1, 1);
        self.pairs = None;
        self.common.restart(first, agents);
        self.partial.clear();
    }

    /// Whether an access that another agent (or another lane) made at `clock` is
    /// known to `lane`; [`SEVERAL`] asks for all lanes.
    #[inline]
    pub(crate) fn knows(&self, agent: Agent, clock: u32, their: u8, lane: u8) -> bool {
        if agent == self.agent {
            return clock < self.synced
                || self.knows_lane(clock, their, lane)
                || self.common.of(agent).covers(clock, their)
                || self.knows_partly(agent, clock, their, lane);
        }
        let known = self.common.of(agent);
        clock < known.base
            || known.covers(clock, their)
            || self.knows_partly(agent, clock, their, lane)
    }

    /// Whether everything that `agent` did up to `clock` is known to all lanes;
    /// false for the warp itself unless it has synchronised since.
    #[inline]
    pub(crate) fn knows_all(&self, agent: Agent, clock: u32) -> bool {
        if agent == self.agent {
            clock < self.synced
        } else {
            clock < self.common.of(agent).base
        }
    }

    /// Whether a lane knows anything of an agent.
    pub(crate) fn has_heard_of(&self, agent: Agent, lane: u8) -> bool {
        self.common.of(agent).top > 0
            || self
                .partial
                .iter()
                .any(|(lanes, clock)| lanes >> (lane & 31) & 1 != 0 && clock.of(agent).top > 0)
    }

    #[cold]
    fn knows_lane(&self, clock: u32, their: u8, lane: u8) -> bool {
        if their == lane && lane != SEVERAL {
            return true;
        }
        match &self.pairs {
            Some(pairs) if lane < 32 && their < 32 => clock < pairs[lane as usize][their as usize],
            _ => false,
        }
    }

    #[cold]
    fn knows_partly(&self, agent: Agent, clock: u32, their: u8, lane: u8) -> bool {
        lane < 32
            && self.partial.iter().any(|(lanes, clock_of)| {
                lanes >> lane & 1 != 0 && clock_of.of(agent).covers(clock, their)
            })
    }

    /// The lanes in `lanes` synchronise with each other; `live` are the warp's
    /// lanes that have not exited.
    pub(crate) fn sync_lanes(&mut self, lanes: Mask, live: Mask) {
        self.now += 1;
        if lanes & live == live {
            self.synced = self.now;
            self.pairs = None;
            for (_, clock) in std::mem::take(&mut self.partial) {
                self.common.join(&clock);
            }
            return;
        }
        let (now, synced) = (self.now, self.synced);
        let pairs = self
            .pairs
            .get_or_insert_with(|| Box::new([[synced; 32]; 32]));
        let mut joined = [synced; 32];
        for a in crate::lanes::each(lanes) {
            for (joined, own) in joined.iter_mut().zip(&pairs[a]) {
                *joined = (*joined).max(*own);
            }
        }
        for a in crate::lanes::each(lanes) {
            joined[a] = now;
        }
        for a in crate::lanes::each(lanes) {
            pairs[a] = joined;
        }
        for (knowing, _) in &mut self.partial {
            if *knowing & lanes != 0 {
                *knowing |= lanes;
            }
        }
        self.settle_partial(live);
    }

    /// The clock that a release of the lanes in `lanes` carries. Starts a new epoch, so that later
    /// accesses are not covered.
    pub(crate) fn release(&mut self, lanes: Mask, live: Mask) -> Clock {
        let snapshot = self.snapshot(lanes, live);
        self.now += 1;
        snapshot
    }

    /// The clock of the lanes, without starting a new epoch.
    pub(crate) fn snapshot(&self, lanes: Mask, live: Mask) -> Clock {
        let mut clock = self.common.clone();
        for (knowing, partial) in &self.partial {
            if knowing & lanes != 0 {
                clock.join(partial);
            }
        }
        clock.learn(self.agent, self.own(lanes, live));
        clock
    }

    /// What the lanes know of their own warp.
    fn own(&self, lanes: Mask, live: Mask) -> Known {
        let mut covered = lanes;
        if let Some(pairs) = &self.pairs {
            for a in crate::lanes::each(lanes) {
                for b in 0..32 {
                    if pairs[a][b] >= self.now {
                        covered |= 1 << b;
                    }
                }
            }
        }
        if covered & live == live {
            Known::all(self.now + 1)
        } else {
            // Lanes that are gone have nothing left to publish.
            Known {
                base: self.synced,
                top: self.now + 1,
                lanes: covered | !live,
            }
        }
    }

    /// A special fence of the lanes in `lanes`: it orders everything that happens before it.
    pub(crate) fn fence(&mut self, kinds: &[Behind], lanes: Mask, live: Mask) -> Clock {
        let mut behind = self.release(lanes, live);
        behind.fenced = Default::default();
        self.put_behind(behind, kinds, lanes, live)
    }

    /// A special fence that orders what the lanes have done themselves, and nothing that they have
    /// learnt of others.
    pub(crate) fn fence_own(&mut self, kind: Behind, lanes: Mask, live: Mask) {
        let mut behind = Clock::default();
        behind.learn(self.agent, self.own(lanes, live));
        self.now += 1;
        self.put_behind(behind, &[kind], lanes, live);
    }

    fn put_behind(&mut self, behind: Clock, kinds: &[Behind], lanes: Mask, live: Mask) -> Clock {
        let behind = Arc::new(behind);
        let mut fence = Clock::default();
        for &kind in kinds {
            fence.fenced[kind as usize] = Some(Arc::clone(&behind));
        }
        self.acquire(&fence, lanes, live);
        fence
    }

    /// Whether a special fence lies between an access and the present of `lane`.
    pub(crate) fn knows_fenced(
        &self,
        kind: Behind,
        (agent, clock, their): (Agent, u32, u8),
        lane: u8,
    ) -> bool {
        self.common.has_fenced(kind, agent, clock, their)
            || self.partial.iter().any(|(lanes, known)| {
                lanes >> (lane & 31) & 1 != 0 && known.has_fenced(kind, agent, clock, their)
            })
    }

    /// The lanes in `lanes` learn what `clock` holds of accesses to shared memory.
    pub(crate) fn acquire_restricted(&mut self, clock: &Clock, lanes: Mask, live: Mask) {
        let mut behind = clock.clone();
        let inside = std::mem::take(&mut behind.fenced);
        if let Some(inside) = &inside[Behind::Restricted as usize] {
            behind.join(inside);
        }
        let mut fence = Clock {
            fenced: inside,
            ..Clock::default()
        };
        fence.fenced[Behind::Restricted as usize] = Some(Arc::new(behind));
        self.acquire(&fence, lanes, live);
    }

    /// The lanes in `lanes` learn what `clock` holds.
    pub(crate) fn acquire(&mut self, clock: &Clock, lanes: Mask, live: Mask) {
        if lanes & live == live {
            self.common.join(clock);
            return;
        }
        match self
            .partial
            .iter_mut()
            .find(|(knowing, _)| *knowing == lanes)
        {
            Some((_, partial)) => partial.join(clock),
            None => {
                let mut partial = self.common.clone();
                partial.join(clock);
                self.partial.push((lanes, partial));
                // Too many different groups: merge them.
                if self.partial.len() > 32 {
                    for (_, clock) in std::mem::take(&mut self.partial) {
                        self.common.join(&clock);
                    }
                }
            }
        }
        self.settle_partial(live);
    }

    fn settle_partial(&mut self, live: Mask) {
        let common = &mut self.common;
        self.partial.retain(|(knowing, clock)| {
            let everybody = knowing & live == live;
            if everybody {
                common.join(clock);
            }
            !everybody
        });
    }
}

/// A barrier of whole warps: their clocks are joined. True when they are all warps of the cluster:
/// then everything before happens before all of them.
pub(crate) fn meet(warps: &mut [&mut WarpClock]) -> bool {
    let Some(agents) = warps.first().map(|warp| warp.common.near.len()) else {
        return false;
    };
    let everybody = warps.len() == agents;
    let mut all = Clock::new(warps[0].common.first, agents);
    for warp in warps.iter_mut() {
        for (_, clock) in std::mem::take(&mut warp.partial) {
            warp.common.join(&clock);
        }
        // When all meet, what they know of each other is less than what they are.
        if !everybody || !warp.common.far.is_empty() {
            all.join(&warp.common);
        } else {
            all.join_fenced(&warp.common);
        }
        all.learn(warp.agent, Known::all(warp.now + 1));
    }
    for warp in warps {
        warp.common.near.copy_from_slice(&all.near);
        warp.common.far.clone_from(&all.far);
        warp.common.fenced.clone_from(&all.fenced);
        warp.now += 1;
        warp.synced = warp.now;
        warp.pairs = None;
    }
    everybody
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (WarpClock, WarpClock) {
        (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2))
    }

    #[test]
    fn a_release_covers_what_came_before_it_and_not_what_comes_after() {
        let (mut a, mut b) = pair();
        let before = a.now;
        let clock = a.release(ALL, ALL);
        b.acquire(&clock, ALL, ALL);
        assert!(b.knows(0, before, 3, 5));
        assert!(!b.knows(0, a.now, 3, 5));
        assert!(!a.knows(1, b.now, 0, 0));
    }

    #[test]
    fn one_lanes_release_does_not_cover_its_neighbours() {
        let (mut a, mut b) = pair();
        let clock = a.release(1, ALL);
        b.acquire(&clock, ALL, ALL);
        assert!(b.knows(0, 1, 0, 9));
        assert!(!b.knows(0, 1, 1, 9));
        // With a warp barrier before the release it does.
        let (mut a, mut b) = pair();
        a.sync_lanes(ALL, ALL);
        let clock = a.release(1, ALL);
        b.acquire(&clock, ALL, ALL);
        assert!(b.knows(0, 1, 1, 9));
    }

    #[test]
    fn one_lanes_acquire_reaches_its_neighbours_by_a_warp_barrier() {
        let (mut a, mut b) = pair();
        let clock = a.release(ALL, ALL);
        b.acquire(&clock, 1, ALL);
        assert!(b.knows(0, 1, 7, 0));
        assert!(!b.knows(0, 1, 7, 1));
        b.sync_lanes(0b11, ALL);
        assert!(b.knows(0, 1, 7, 1));
        assert!(!b.knows(0, 1, 7, 2));
        b.sync_lanes(ALL, ALL);
        assert!(b.knows(0, 1, 7, 2));
    }

    #[test]
    fn lanes_that_synchronise_in_parts_know_their_part() {
        let (mut a, _) = pair();
        assert!(a.knows(0, 1, 4, 4) && !a.knows(0, 1, 4, 5));
        a.sync_lanes(0b11_0000, ALL);
        assert!(a.knows(0, 1, 4, 5));
        assert!(!a.knows(0, 1, 4, 6));
        a.sync_lanes(0b110_0000, ALL);
        assert!(a.knows(0, 1, 4, 6), "by way of lane 5");
    }

    #[test]
    fn a_barrier_of_all_teaches_all() {
        let (mut a, mut b) = pair();
        assert!(meet(&mut [&mut a, &mut b]));
        assert!(a.knows(1, 1, 0, 9) && b.knows(0, 1, 0, 9));
        assert!(!a.knows(1, 2, 0, 9));
    }

    #[test]
    fn a_proxy_fence_covers_what_it_comes_after_for_whoever_knows_of_it() {
        let (mut a, mut b) = pair();
        let before = a.now;
        let fenced = |clock: &WarpClock, at: u32| clock.knows_fenced(Behind::Shared, (0, at, 3), 5);
        // Handed over before the fence: the order is known, the fence is not.
        b.acquire(&a.release(ALL, ALL), ALL, ALL);
        a.fence(&[Behind::Shared], ALL, ALL);
        assert!(b.knows(0, before, 3, 5) && !fenced(&b, before));
        assert!(fenced(&a, before) && !fenced(&a, a.now));
        assert!(!a.knows_fenced(Behind::Global, (0, before, 3), 5));
        // Handed over after it.
        b.acquire(&a.release(ALL, ALL), ALL, ALL);
        assert!(fenced(&b, before));
        let (mut a, mut b) = pair();
        a.fence(&[Behind::Shared], ALL, ALL);
        assert!(meet(&mut [&mut a, &mut b]));
        assert!(fenced(&b, 1));
    }

    #[test]
    fn one_lanes_proxy_fence_is_its_own() {
        let (mut a, _) = pair();
        a.fence(&[Behind::Shared], 1, ALL);
        assert!(a.knows_fenced(Behind::Shared, (0, 1, 0), 0));
        assert!(!a.knows_fenced(Behind::Shared, (0, 1, 1), 0));
        assert!(!a.knows_fenced(Behind::Shared, (0, 1, 0), 1));
        a.sync_lanes(ALL, ALL);
        assert!(a.knows_fenced(Behind::Shared, (0, 1, 0), 1));
    }

    #[test]
    fn what_is_known_of_other_blocks_travels() {
        let mut far = WarpClock::new(100, 100, 1);
        let (mut a, mut b) = pair();
        a.acquire(&far.release(ALL, ALL), ALL, ALL);
        assert!(a.knows(100, 1, 3, 3));
        assert!(meet(&mut [&mut a, &mut b]));
        assert!(b.knows(100, 1, 3, 3));
    }
}
