//! What an instruction sees while it runs: its warp, its cluster, the machine.

use crate::code::{Code, Flow, Pred, PredSrc, Slot, Wait};
use crate::lanes::{ALL, LANES, Lane, Mask, Row, first, wide};
use crate::race::clock::{ASYNCHRONOUS, Agent, Clock, Known, SEVERAL};
use crate::state::block::Block;
use crate::state::machine::Machine;
use crate::state::team::Team;
use crate::state::warp::{Fragment, Warp};
use heist_launch::Dim3;
use heist_ptx::Diagnostic;

/// Writes some lanes and leaves the others.
#[inline(never)]
fn blend<T: Lane>(rows: &mut [Row], values: &[T; LANES], mask: Mask) {
    wide(
        #[inline(always)]
        || {
            let mut merged = T::unpack(rows);
            for lane in 0..LANES {
                if mask >> lane & 1 != 0 {
                    merged[lane] = values[lane];
                }
            }
            T::pack(&merged, rows);
        },
    );
}

/// The rows behind a slot, of a warp with these registers whose window starts at `base`.
#[inline(always)]
pub(crate) fn rows<'a>(
    code: &'a Code,
    regs: &'a [Row],
    base: u32,
    slot: Slot,
    count: usize,
) -> &'a [Row] {
    if let Some(row) = slot.as_register() {
        let at = row as usize + base as usize;
        return &regs[at..at + count];
    }
    let row = slot.row() as usize;
    if slot.is_constant() {
        &code.constants[row..row + count]
    } else {
        &regs[row..row + count]
    }
}

/// An instruction's surroundings.
pub(crate) struct Cx<'a> {
    pub(crate) code: &'a Code,
    pub(crate) warp: &'a mut Warp,
    /// The active lanes, and their program counter.
    pub(crate) fragment: Fragment,
    /// All blocks of the cluster, by rank.
    pub(crate) blocks: &'a mut [Block],
    pub(crate) team: &'a mut Team,
    pub(crate) machine: &'a mut Machine,
    /// The lanes of the fragment that the guard lets through.
    pub(crate) mask: Mask,
    /// Where each lane goes after [`crate::code::Flow::Scatter`].
    pub(crate) targets: [u32; LANES],
    /// What the fragment waits for after [`crate::code::Flow::Wait`] and
    /// [`crate::code::Flow::Retry`].
    pub(crate) awaits: Wait,
}

impl Cx<'_> {
    /// Lets the fragment wait, and then go on with the next instruction.
    pub(crate) fn wait(&mut self, wait: Wait) -> Flow {
        self.awaits = wait;
        Flow::Wait
    }

    /// Lets the fragment wait, and then run the present instruction again.
    pub(crate) fn retry(&mut self, wait: Wait) -> Flow {
        self.awaits = wait;
        Flow::Retry
    }

    #[inline(always)]
    fn rows(&self, slot: Slot, count: usize) -> &[Row] {
        rows(self.code, &self.warp.regs, self.fragment.base, slot, count)
    }

    /// All lanes of a register.
    #[inline(always)]
    pub(crate) fn read<T: Lane>(&self, slot: Slot) -> [T; LANES] {
        T::unpack(self.rows(slot, T::ROWS))
    }

    /// All lanes of a register, without a copy; [`Lane::of`] makes values of them.
    #[inline(always)]
    pub(crate) fn view<T: Lane>(&self, slot: Slot) -> &[T::Bits; LANES] {
        T::view(self.rows(slot, T::ROWS))
    }

    /// One row of a register, as it is.
    #[inline(always)]
    pub(crate) fn row(&self, slot: Slot) -> &[u32; LANES] {
        &self.rows(slot, 1)[0].0
    }

    /// Writes the lanes in [`Cx::mask`].
    #[inline(always)]
    pub(crate) fn write<T: Lane>(&mut self, slot: Slot, values: &[T; LANES]) {
        let at = (slot.row() + self.fragment.base) as usize;
        let rows = &mut self.warp.regs[at..at + T::ROWS];
        if self.mask == ALL {
            T::pack(values, rows);
            return;
        }
        // A copy, so that values written to all lanes can stay in vector registers.
        let values = *values;
        blend(rows, &values, self.mask);
    }

    /// The lanes in which a predicate holds.
    #[inline(always)]
    pub(crate) fn pred(&self, source: PredSrc) -> Mask {
        let bits = self.warp.preds[(source.pred.0 + self.fragment.pbase) as usize];
        if source.negated { !bits } else { bits }
    }

    /// Writes a predicate in the lanes of [`Cx::mask`].
    #[inline(always)]
    pub(crate) fn set_pred(&mut self, pred: Pred, bits: Mask) {
        let mask = self.mask;
        let slot = &mut self.warp.preds[(pred.0 + self.fragment.pbase) as usize];
        *slot = *slot & !mask | bits & mask;
    }

    /// The instruction's own place.
    #[inline]
    pub(crate) fn pc(&self) -> u32 {
        self.fragment.pc
    }

    /// The block that the warp belongs to.
    #[inline]
    pub(crate) fn block(&mut self) -> &mut Block {
        &mut self.blocks[self.warp.rank as usize]
    }

    /// The modelled time of the warp, in cycles.
    pub(crate) fn now(&self) -> u64 {
        self.warp.cycle
    }

    /// A lane in words.
    pub(crate) fn who(&self, lane: usize) -> String {
        let block = &self.blocks[self.warp.rank as usize];
        self.machine
            .thread(block.ctaid, self.warp.number, lane as u8)
    }

    /// A thread of any warp of the grid in words, or who writes for an mbarrier.
    pub(crate) fn whom(&self, agent: Agent, lane: u8) -> String {
        if agent >= ASYNCHRONOUS {
            return "an asynchronous copy".to_owned();
        }
        let warps = self.machine.geography.warps_per_block;
        let index = u64::from(agent / warps);
        let block = self.machine.coordinates(index);
        self.machine.thread(block, agent % warps, lane)
    }

    /// Reports a broken rule at this instruction, by the lowest lane of `lanes`.
    ///
    /// `tell` writes the message, and may add labels, notes and helps. Severity
    /// is the rule's own.
    pub(crate) fn report(
        &mut self,
        code: heist_ptx::Code,
        lanes: Mask,
        tell: impl FnOnce(&Self, Diagnostic) -> Diagnostic,
    ) {
        // What does not depend on the message is apart: there are a hundred of them.
        let told = self.blank(code).map(|blank| tell(self, blank));
        self.file(code, lanes, told);
    }

    /// Whether values are followed here, see [`super::doubt`]: in the kernel's own body, not in the functions that it calls.
    pub(crate) fn follows_values(&self) -> bool {
        self.fragment.function == 0
    }

    /// Whether a value that is not defined is being stored.
    #[inline]
    pub(crate) fn stores_undefined(&self) -> bool {
        let doubts = self.warp.doubts.as_ref();
        doubts.is_some_and(|doubts| doubts.stores.is_some())
    }

    /// A finding without words, unless there are enough of its kind at this place.
    #[inline(never)]
    fn blank(&self, code: heist_ptx::Code) -> Option<Diagnostic> {
        let pc = self.pc();
        let wanted = self.machine.findings.wants(code, pc);
        wanted.then(|| self.code.finding(code, pc, ""))
    }

    #[inline(never)]
    fn file(&mut self, code: heist_ptx::Code, lanes: Mask, told: Option<Diagnostic>) {
        let pc = self.pc();
        let told = told.map(|mut told| {
            told.notes.push(format!("by {}", self.who(first(lanes))));
            told
        });
        self.machine.findings.report(code, pc, || {
            told.unwrap_or_else(|| Diagnostic::error(code, heist_ptx::Span::NONE, ""))
        });
    }
}

impl Machine {
    /// A thread in words, by its block, its warp in it and its lane.
    pub(crate) fn thread(&self, ctaid: Dim3, warp: u32, lane: u8) -> String {
        if lane == SEVERAL {
            return format!("several lanes of warp {warp} of block ({ctaid})");
        }
        let at = self
            .launch
            .block
            .coordinates(u64::from(warp * 32 + u32::from(lane)));
        format!("thread ({at}) of block ({ctaid})")
    }

    /// The coordinates of a block that has this number in the order of launch:
    /// the blocks of a cluster one after the other.
    pub(crate) fn coordinates(&self, index: u64) -> Dim3 {
        let cluster = self.cluster_shape;
        let grid = self.launch.grid;
        let clusters = Dim3::new(grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z);
        let at = clusters.coordinates(index / cluster.count());
        let within = cluster.coordinates(index % cluster.count());
        Dim3::new(
            at.x * cluster.x + within.x,
            at.y * cluster.y + within.y,
            at.z * cluster.z + within.z,
        )
    }
}

impl Cx<'_> {
    /// Whether some event of a block of the cluster happens before this lane, so that the block
    /// must have started.
    pub(crate) fn has_heard_of(&self, rank: u32, lane: usize) -> bool {
        if rank == self.warp.rank {
            return true;
        }
        let warps = self.machine.geography.warps_per_block;
        let first = self.team.first + rank * warps;
        (first..first + warps).any(|agent| self.warp.clock.has_heard_of(agent, lane as u8))
    }

    /// The active lanes know from now on that these blocks of the cluster have started, and no more.
    pub(crate) fn hear_of(&mut self, ranks: std::ops::Range<u32>) {
        let warps = self.machine.geography.warps_per_block;
        let mut started = Clock::default();
        for rank in ranks {
            started.learn(self.team.first + rank * warps, Known::all(1));
        }
        let (lanes, live) = (self.mask, self.warp.live);
        self.warp.clock.acquire(&started, lanes, live);
    }
}
