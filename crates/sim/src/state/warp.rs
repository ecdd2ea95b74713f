//! A warp: the registers of its lanes, and where each of them is in the program.
//!
//! Lanes that run together are a [`Fragment`]; a [`Join`] is a reconvergence point.

use super::demand::{Demand, Stretches};
use super::machine::Spinners;
use super::memory::local::Local;
use crate::code::{Code, NOWHERE, Wait};
use crate::lanes::{Mask, Row};
use crate::race::clock::WarpClock;
use crate::race::sync::Fences;
use std::collections::VecDeque;

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
    /// At the reconvergence point of join `.0`.
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
        resumed: false,
    };

    /// All lanes at the first instruction.
    pub(crate) fn start(entry: &crate::code::FunctionCode, mask: Mask, base: u32) -> Fragment {
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

/// The reconvergence point of a branch.
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
    /// Which lanes have set the registers that may be read uninitialised, or have read them.
    pub(crate) set: Vec<Mask>,
    /// Its values that are not defined, while there are some.
    pub(crate) doubts: Option<Box<super::follow::Doubts>>,
    /// The origins of followed registers, see [`crate::watch::lineage`].
    pub(crate) lineage: Vec<[super::follow::Stock; crate::lanes::LANES]>,
    /// While a grant is decoded whose id is followed: which one each lane has.
    pub(crate) decoding: Option<Box<[Option<u32>; crate::lanes::LANES]>>,
    /// The strong loads that followed registers come from, see [`crate::watch::update`].
    pub(crate) updates: Vec<[Option<super::follow::Read>; crate::lanes::LANES]>,
    /// While a load that is followed runs: what each lane's value may lack.
    pub(crate) missed: Option<Box<[Option<super::follow::Written>; crate::lanes::LANES]>>,
    /// Its `wgmma` products.
    pub(crate) products: super::products::Products,
    /// The end of what each lane has allocated on its stack.
    pub(crate) stack: [u32; crate::lanes::LANES],
    /// Lanes that have not exited.
    pub(crate) live: Mask,
    pub(crate) fragments: VecDeque<Fragment>,
    pub(crate) joins: Vec<Join>,
    pub(crate) local: Local,
    pub(crate) clock: WarpClock,
    pub(crate) fences: Fences,
    pub(crate) copies: super::copies::WarpCopies,
    /// Lanes that have arrived at the cluster barrier and not waited, and in which round.
    pub(crate) cluster_arrived: Mask,
    pub(crate) cluster_phase: u32,
    /// The cycle that the chain of dependent instructions has reached.
    pub(crate) cycle: u64,
    pub(crate) segment: u64,
    pub(crate) demand: Demand,
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
    /// Whether it has left, spins with one of its fragments while the others wait, or waits with all
    /// of them for other threads, where the device's memory has changed so many times.
    pub(crate) fn is_in_vain(&self, changes: u64) -> bool {
        let spins = self.reads_in_vain(changes) >= u64::from(Spinners::OFTEN);
        let free = self
            .fragments
            .iter()
            .filter(|fragment| match fragment.state {
                State::Ready | State::Waiting(Wait::Until { .. }) => true,
                State::Joining(_) | State::Waiting(_) => false,
            });
        self.live == 0 || free.count() <= usize::from(spins)
    }

    /// Its strong reads since the device's memory changed last, where it has changed so many times.
    pub(crate) fn reads_in_vain(&self, changes: u64) -> u64 {
        match self.spinning {
            (seen, reads) if seen == changes => u64::from(reads),
            _ => 0,
        }
    }

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
        // The initial value of a register must not depend on which warp used the buffer before. The
        // special registers stay: they are not the kernel's to set.
        if let Some(own) = self.regs.get_mut(specials as usize..) {
            bytemuck::cast_slice_mut::<Row, u8>(own).fill(0);
        }
        self.preds.fill(0);
        self.carry = 0;
        self.set.fill(0);
        self.doubts = None;
        self.lineage.fill([Default::default(); crate::lanes::LANES]);
        self.updates.fill([None; crate::lanes::LANES]);
        self.stack = [0; crate::lanes::LANES];
        self.products = Default::default();
        self.fragments.clear();
        self.fragments.push_back(Fragment::NOBODY);
        if let Some(all) = self.fragments.front_mut() {
            (all.pc, all.mask, all.base) = (entry.start, lanes, specials);
        }
        self.joins.clear();
        self.local.undefined.clear();
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
            set: vec![0; code.watched.unset.len()],
            doubts: None,
            decoding: None,
            lineage: vec![[Default::default(); crate::lanes::LANES]; code.watched.lineage],
            updates: vec![[None; crate::lanes::LANES]; code.watched.updates],
            missed: None,
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
}
