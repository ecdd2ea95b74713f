//! A warp: the registers of its lanes, and where each of them is in the program.
//!
//! Lanes that run together are a [`Fragment`]. A branch whose lanes disagree
//! splits one; a [`Join`] remembers who is expected where the sides meet again,
//! and the fragments that arrive there wait and become one. Nothing depends on
//! that for progress: a fragment that waits at a join while its siblings spin,
//! or wait for it elsewhere, is let go alone.

use super::load::Stretches;
use crate::code::{Code, NOWHERE, Wait};
use crate::decode::pipe::Demand;
use crate::lanes::{Mask, Row};
use crate::race::clock::WarpClock;
use crate::race::sync::Fences;
use crate::state::memory::local::Local;
use std::collections::VecDeque;

/// Cycles of waiting for an operand that are told apart from work.
const STALL: u64 = 64;

/// A caller to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) pc: u32,
    pub(crate) base: u32,
    pub(crate) pbase: u32,
    pub(crate) local: u32,
    pub(crate) function: u32,
}

/// What a fragment is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// At the meeting point of join `.0`.
    Joining(u32),
    /// Waiting; the flag says whether to run the instruction at `pc` again.
    Waiting(Wait),
}

/// Lanes that run together.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) pc: u32,
    pub(crate) mask: Mask,
    /// Where the register window, the predicates and the local frame start.
    pub(crate) base: u32,
    pub(crate) pbase: u32,
    pub(crate) local: u32,
    pub(crate) function: u32,
    pub(crate) frames: Vec<Frame>,
    /// Joins that these lanes are expected at, innermost last.
    pub(crate) joins: Vec<u32>,
    /// The pc of the innermost join.
    pub(crate) stop: u32,
    pub(crate) state: State,
    /// Interactions since a sibling began to wait at a join.
    pub(crate) spins: u32,
    /// Run the instruction without the lanes that it would wait for.
    pub(crate) forced: bool,
    /// Lanes that the instruction began to wait for.
    pub(crate) awaited: Mask,
    /// The instruction has run once, and finishes now that its wait is over.
    pub(crate) resumed: bool,
}

impl Fragment {
    /// What stands in for a fragment while there is none.
    pub(crate) const NOBODY: Fragment = Fragment {
        pc: 0,
        mask: 0,
        base: 0,
        pbase: 0,
        local: 0,
        function: 0,
        frames: Vec::new(),
        joins: Vec::new(),
        stop: NOWHERE,
        state: State::Ready,
        spins: 0,
        forced: false,
        awaited: 0,
        resumed: false,
    };

    /// All lanes at the first instruction.
    fn start(entry: &crate::code::FunctionCode, mask: Mask, base: u32) -> Fragment {
        Fragment {
            pc: entry.start,
            mask,
            base,
            ..Fragment::NOBODY
        }
    }

    pub(crate) fn same_place(&self, other: &Fragment) -> bool {
        self.pc == other.pc && self.base == other.base && self.frames == other.frames
    }
}

/// Where the sides of a branch meet again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    pub(crate) pc: u32,
    pub(crate) depth: u32,
    /// Lanes expected, and lanes there; a join without members is free.
    pub(crate) members: Mask,
    pub(crate) arrived: Mask,
}

/// A warp.
#[derive(Debug)]
pub(crate) struct Warp {
    /// Its number in its block, and its block's rank in the cluster.
    pub(crate) number: u32,
    pub(crate) rank: u32,
    pub(crate) regs: Vec<Row>,
    pub(crate) preds: Vec<Mask>,
    /// The carry of extended-precision arithmetic.
    pub(crate) carry: Mask,
    /// Which lanes have set the registers that are followed.
    pub(crate) unset: Vec<crate::watch::unset::Followed>,
    /// What followed registers are made of, see [`crate::watch::lineage`].
    pub(crate) lineage: Vec<[crate::watch::lineage::Stock; crate::lanes::LANES]>,
    /// Its `wgmma` products.
    pub(crate) products: crate::ops::wgmma::pending::Products,
    /// The end of what each lane has allocated on its stack.
    pub(crate) stack: [u32; crate::lanes::LANES],
    /// Lanes that have not exited.
    pub(crate) live: Mask,
    pub(crate) fragments: VecDeque<Fragment>,
    joins: Vec<Join>,
    pub(crate) local: Local,
    pub(crate) clock: WarpClock,
    pub(crate) fences: Fences,
    pub(crate) copies: crate::ops::copy::cp_async::WarpCopies,
    /// Lanes that have arrived at the cluster barrier and not waited, and in which round.
    pub(crate) cluster_arrived: Mask,
    pub(crate) cluster_phase: u32,
    /// The cycle that the chain of dependent instructions has reached.
    pub(crate) cycle: u64,
    segment: u64,
    demand: Demand,
    /// How many warps of its block share a scheduler.
    pub(crate) share: f64,
    pub(crate) stretches: Stretches,
    /// When each row of the running window can be read.
    pub(crate) ready: Vec<u64>,
    /// A number that changes whenever the cluster makes progress, as last seen by
    /// a failed wait, and how many waits have failed since.
    pub(crate) stuck: (u64, u32),
    /// The same for strong reads, with the device's changes.
    pub(crate) spinning: (u64, u32),
    /// The other block whose flag was read last, ordered or not.
    pub(crate) flag_setter: Option<u32>,
}

impl Warp {
    /// A warp at the start of the kernel, in the buffers of one that has ended.
    pub(crate) fn reuse(
        &mut self,
        number: u32,
        rank: u32,
        lanes: Mask,
        code: &Code,
        place: (crate::race::clock::Agent, crate::race::clock::Agent, usize),
        cycle: u64,
    ) {
        let specials: u32 = code.specials.iter().map(|special| special.rows()).sum();
        let entry = &code.functions[0];
        (self.number, self.rank, self.live) = (number, rank, lanes);
        // What a register holds before it is set must not tell which warp was here before.
        // The special registers stay: they are not the kernel's to set.
        if let Some(own) = self.regs.get_mut(specials as usize..) {
            bytemuck::cast_slice_mut::<Row, u8>(own).fill(0);
        }
        self.preds.fill(0);
        self.carry = 0;
        self.unset.fill(Default::default());
        self.lineage.fill([Default::default(); crate::lanes::LANES]);
        self.stack = [0; crate::lanes::LANES];
        self.products = Default::default();
        self.fragments.clear();
        self.fragments.push_back(Fragment::NOBODY);
        if let Some(all) = self.fragments.front_mut() {
            (all.pc, all.mask, all.base) = (entry.start, lanes, specials);
        }
        self.joins.clear();
        self.local.fresh(0, self.local.len() as u32, u32::MAX);
        self.clock.restart(place.0, place.1, place.2);
        self.fences = Fences::default();
        self.copies = Default::default();
        (self.cluster_arrived, self.cluster_phase) = (0, 0);
        (self.cycle, self.segment, self.demand) = (cycle, cycle, Demand::default());
        self.stretches.clear();
        self.ready.fill(0);
        self.stuck = (0, 0);
        self.spinning = (0, 0);
        self.flag_setter = None;
    }

    /// A warp at the start of the kernel.
    pub(crate) fn new(
        number: u32,
        rank: u32,
        lanes: Mask,
        code: &Code,
        clock: WarpClock,
        cycle: u64,
    ) -> Warp {
        let specials: u32 = code.specials.iter().map(|special| special.rows()).sum();
        let entry = &code.functions[0];
        let widest = code
            .functions
            .iter()
            .map(|function| function.rows)
            .max()
            .unwrap_or(0);
        let mut local = Local::default();
        local.grow(entry.frame);
        Warp {
            number,
            rank,
            regs: vec![Row::splat(0); (specials + entry.rows) as usize],
            preds: vec![0; entry.preds as usize],
            carry: 0,
            unset: vec![Default::default(); code.watched.unset.len()],
            lineage: vec![[Default::default(); crate::lanes::LANES]; code.watched.lineage],
            products: Default::default(),
            stack: [0; crate::lanes::LANES],
            live: lanes,
            fragments: VecDeque::from([Fragment::start(entry, lanes, specials)]),
            joins: Vec::new(),
            local,
            clock,
            fences: Fences::default(),
            copies: Default::default(),
            cluster_arrived: 0,
            cluster_phase: 0,
            cycle,
            segment: cycle,
            demand: Demand::default(),
            share: 1.0,
            stretches: Stretches::default(),
            ready: vec![0; widest as usize + 1],
            stuck: (0, 0),
            spinning: (0, 0),
            flag_setter: None,
        }
    }

    /// Counts an instruction: when it issues given its operands, and when its
    /// result is there.
    #[inline]
    pub(crate) fn account(&mut self, op: &crate::code::Op) {
        let [a, b, rest @ ..] = op.reads;
        let when = |row: u16| self.ready.get(row as usize).copied().unwrap_or(0);
        let mut needed = when(a).max(when(b));
        // Most have no more than two.
        if rest != [0, 0] {
            needed = needed.max(when(rest[0])).max(when(rest[1]));
        }
        let mut there = needed;
        if op.demand != Demand::default() {
            let port = self.cycle + u64::from(op.issue);
            if needed > port + STALL {
                self.stall(port, needed);
            }
            self.cycle = self.cycle.max(port).max(needed);
            self.demand.0 += op.demand.0;
            there = self.cycle + u64::from(op.latency);
        }
        if let Some(ready) = self.ready.get_mut(op.writes as usize)
            && op.writes != 0
        {
            *ready = there;
        }
    }

    /// A long wait for an operand: what came before is a stretch of its own.
    #[cold]
    fn stall(&mut self, port: u64, until: u64) {
        let end = port.max(self.by_units());
        self.stretches.push(self.segment, end, self.demand);
        self.demand = Demand::default();
        self.cycle = end;
        self.segment = until.max(end);
    }

    /// When the units are done that the block's other warps use as well.
    fn by_units(&self) -> u64 {
        self.segment + (f64::from(self.demand.longest()) * self.share) as u64
    }

    /// The time, with what the block's other warps take from the scheduler.
    #[inline]
    pub(crate) fn settle(&mut self) -> u64 {
        self.cycle = self.cycle.max(self.by_units());
        self.stretches.push(self.segment, self.cycle, self.demand);
        self.segment = self.cycle;
        self.demand = Demand::default();
        self.cycle
    }

    /// Moves to a later time.
    pub(crate) fn advance(&mut self, time: u64) {
        self.settle();
        self.cycle = self.cycle.max(time);
        self.segment = self.cycle;
    }

    /// The next fragment that can run.
    pub(crate) fn pick(&mut self) -> Option<Fragment> {
        loop {
            match self.fragments.iter().position(|f| f.state == State::Ready) {
                // Most warps have one fragment.
                Some(0) => return self.fragments.pop_front(),
                Some(at) => return self.fragments.remove(at),
                None => {}
            }
            let moved = self.gather() || (self.is_alone() && self.let_go());
            if !moved {
                return None;
            }
        }
    }

    /// Whether no fragment waits for anything outside the warp: then nobody but
    /// the warp itself can end a wait at a join.
    fn is_alone(&self) -> bool {
        self.fragments.iter().all(|fragment| {
            matches!(
                fragment.state,
                State::Joining(_) | State::Waiting(Wait::Gather { .. } | Wait::WarpBarrier { .. })
            )
        })
    }

    /// Whether a fragment can run now.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.fragments.iter().any(|f| f.state == State::Ready)
            || self.gather()
            || (self.is_alone() && self.let_go())
    }

    /// Makes one of fragments that wait for each other, where all have come.
    fn gather(&mut self) -> bool {
        for at in 0..self.fragments.len() {
            let one = &self.fragments[at];
            match one.state {
                State::Waiting(Wait::Gather { members }) => {
                    let there = |other: &Fragment| {
                        matches!(other.state, State::Waiting(Wait::Gather { .. }))
                            && other.same_place(one)
                    };
                    let union = self
                        .fragments
                        .iter()
                        .filter(|f| there(f))
                        .fold(0, |all, f| all | f.mask);
                    if union & members & self.live == members & self.live && union != one.mask {
                        let pc = self.fragments[at].clone();
                        self.merge(|other| {
                            matches!(other.state, State::Waiting(Wait::Gather { .. }))
                                && other.same_place(&pc)
                        });
                        return true;
                    }
                }
                State::Waiting(Wait::WarpBarrier { members }) => {
                    let union = self
                        .fragments
                        .iter()
                        .filter(|f| matches!(f.state, State::Waiting(Wait::WarpBarrier { .. })))
                        .fold(0, |all, f| all | f.mask);
                    if union & members & self.live == members & self.live {
                        self.clock.sync_lanes(members, self.live);
                        for fragment in &mut self.fragments {
                            if matches!(fragment.state, State::Waiting(Wait::WarpBarrier { .. }))
                                && fragment.mask & !members == 0
                            {
                                fragment.state = State::Ready;
                            }
                        }
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Makes one fragment of all that `belong`, ready to run.
    fn merge(&mut self, belong: impl Fn(&Fragment) -> bool) {
        let mut merged: Option<Fragment> = None;
        let mut rest = VecDeque::with_capacity(self.fragments.len());
        for fragment in std::mem::take(&mut self.fragments) {
            if !belong(&fragment) {
                rest.push_back(fragment);
                continue;
            }
            match &mut merged {
                None => merged = Some(fragment),
                Some(one) => {
                    one.mask |= fragment.mask;
                    one.awaited |= fragment.awaited;
                    // The outermost joins are the ones they share.
                    let shared = one
                        .joins
                        .iter()
                        .zip(&fragment.joins)
                        .take_while(|(a, b)| a == b)
                        .count();
                    for join in one
                        .joins
                        .drain(shared..)
                        .chain(fragment.joins[shared..].iter().copied())
                    {
                        if let Some(join) = self.joins.get_mut(join as usize) {
                            join.members &= !fragment.mask & !one.mask;
                        }
                    }
                }
            }
        }
        self.fragments = rest;
        if let Some(mut one) = merged {
            one.state = State::Ready;
            one.stop = self.stop_of(&one.joins);
            self.fragments.push_front(one);
        }
    }

    /// Lets fragments that wait at joins go on alone.
    pub(crate) fn let_go(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.fragments.len() {
            if let State::Joining(join) = self.fragments[at].state {
                any = true;
                let mask = self.fragments[at].mask;
                if let Some(join) = self.joins.get_mut(join as usize) {
                    join.members &= !mask;
                    join.arrived &= !mask;
                }
                let fragment = &mut self.fragments[at];
                fragment.joins.pop();
                fragment.state = State::Ready;
                let joins = std::mem::take(&mut self.fragments[at].joins);
                self.fragments[at].stop = self.stop_of(&joins);
                self.fragments[at].joins = joins;
            }
        }
        any
    }

    /// Counts an interaction of a fragment that others wait for; after many of
    /// them it is taken to spin, and the others are let go.
    pub(crate) fn count_spin(&mut self, fragment: &mut Fragment) {
        fragment.spins += 1;
        if fragment.spins > 600 {
            fragment.spins = 0;
            self.let_go();
        }
    }

    fn stop_of(&self, joins: &[u32]) -> u32 {
        joins
            .last()
            .and_then(|&join| self.joins.get(join as usize))
            .map_or(NOWHERE, |join| join.pc)
    }

    /// Expects all lanes of a fragment at `pc`, called at depth `depth`.
    pub(crate) fn expect(&mut self, fragment: &mut Fragment, pc: u32, depth: u32) {
        if let Some(&last) = fragment.joins.last()
            && let Some(join) = self.joins.get(last as usize)
            && join.pc == pc
            && join.depth == depth
        {
            return;
        }
        let join = Join {
            pc,
            depth,
            members: fragment.mask,
            arrived: 0,
        };
        let at = match self.joins.iter().position(|join| join.members == 0) {
            Some(free) => {
                self.joins[free] = join;
                free
            }
            None => {
                self.joins.push(join);
                self.joins.len() - 1
            }
        };
        fragment.joins.push(at as u32);
        fragment.stop = pc;
    }

    /// A fragment has come to the pc of its innermost join. Gives it back if it
    /// may go on, with everybody who waited there.
    pub(crate) fn arrive(&mut self, mut fragment: Fragment) -> Option<Fragment> {
        let Some(&at) = fragment.joins.last() else {
            return Some(fragment);
        };
        let Some(join) = self.joins.get_mut(at as usize) else {
            return Some(fragment);
        };
        if join.depth != fragment.frames.len() as u32 {
            return Some(fragment);
        }
        join.arrived |= fragment.mask;
        if join.arrived & join.members != join.members {
            fragment.state = State::Joining(at);
            fragment.spins = 0;
            self.fragments.push_back(fragment);
            return None;
        }
        let mut rest = VecDeque::with_capacity(self.fragments.len());
        for other in std::mem::take(&mut self.fragments) {
            if other.state == State::Joining(at) {
                fragment.mask |= other.mask;
            } else {
                rest.push_back(other);
            }
        }
        self.fragments = rest;
        self.joins[at as usize].members = 0;
        fragment.joins.pop();
        fragment.stop = self.stop_of(&fragment.joins);
        Some(fragment)
    }

    /// Whether a fragment at its `stop` has really come to its innermost join,
    /// and not to the same place of a deeper call.
    pub(crate) fn is_due(&self, fragment: &Fragment) -> bool {
        fragment
            .joins
            .last()
            .and_then(|&join| self.joins.get(join as usize))
            .is_some_and(|join| join.depth == fragment.frames.len() as u32)
    }

    /// Lanes have exited: nobody waits for them any more.
    pub(crate) fn retire(&mut self, lanes: Mask) {
        self.live &= !lanes;
        for at in 0..self.joins.len() {
            let join = &mut self.joins[at];
            if join.members & lanes == 0 {
                continue;
            }
            join.members &= !lanes;
            join.arrived &= !lanes;
            if join.members != 0 && join.arrived & join.members == join.members {
                join.members = 0;
                let id = at as u32;
                for fragment in &mut self.fragments {
                    if fragment.state == State::Joining(id) {
                        fragment.joins.pop();
                    }
                }
                self.merge(|fragment| fragment.state == State::Joining(id));
            }
        }
    }

    /// Wakes every fragment whose wait is `what`; true if there was one.
    pub(crate) fn wake(&mut self, what: impl Fn(Wait) -> bool) -> bool {
        let mut any = false;
        for fragment in &mut self.fragments {
            if let State::Waiting(wait) = fragment.state
                && what(wait)
            {
                fragment.state = State::Ready;
                any = true;
            }
        }
        any
    }

    /// Lets fragments that wait for lanes that will never come run without them;
    /// true if there was one.
    pub(crate) fn force(&mut self) -> bool {
        let mut any = false;
        for fragment in &mut self.fragments {
            if matches!(
                fragment.state,
                State::Waiting(Wait::Gather { .. } | Wait::WarpBarrier { .. })
            ) {
                fragment.state = State::Ready;
                fragment.forced = true;
                any = true;
            }
        }
        any
    }
}
