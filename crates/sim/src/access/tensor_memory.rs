//! Checks of tensor-memory accesses against the operations in flight.
//!
//! Two operations are ordered if the completion of the earlier one happens before the later: by the
//! mbarrier of its commit, or by its wait. Products and copies of one thread are also in order
//! among each other as far as [`What::is_before`] says.

use super::context::Cx;
use crate::lanes::{Mask, each, first};
use crate::race::clock::{Agent, Behind};
use crate::state::tensor_memory::{Span, TensorMemory, Use, What};
use heist_ptx::rule;

/// The poison value of tensor memory that is read too early.
pub(crate) const POISON: u32 = 0x7fff_dead;

impl Cx<'_> {
    /// The tensor memory of a block.
    pub(crate) fn tensor(&mut self, rank: u32) -> &mut TensorMemory {
        self.blocks[rank as usize].tensor.get_or_insert_default()
    }

    /// The agent of a thread's products and copies, and the number of their next commit.
    pub(crate) fn pipe(&mut self, lane: usize) -> (Agent, u32) {
        let warp = self.warp.number;
        let block = self.block();
        let (mbarriers, number) = (&mut block.mbarriers, block.number);
        let tensor = block.tensor.get_or_insert_default();
        let pipe = tensor.pipe(warp, lane as u8, || mbarriers.new_agent(number));
        (pipe.agent, pipe.commit)
    }

    /// The agents of a warp's loads and stores, and the numbers of their next waits.
    pub(crate) fn mover(&mut self, which: usize) -> &mut (Agent, u32, u64) {
        let warp = self.warp.number;
        let block = self.block();
        let (mbarriers, number) = (&mut block.mbarriers, block.number);
        let tensor = block.tensor.get_or_insert_default();
        let mover = tensor.mover(warp, || mbarriers.new_agent(number));
        &mut mover.kinds[which]
    }

    /// Whether the completion of an operation happens before all lanes of `lanes`. Without race
    /// checks there are no vector clocks, and the modelled time decides.
    fn knows_over(&self, one: &Use, lanes: Mask) -> bool {
        let (agent, clock) = one.over;
        if !self.machine.options.checks.races {
            return one.time <= self.now();
        }
        each(lanes).all(|lane| self.warp.clock.knows(agent, clock, 0, lane as u8))
    }

    fn knows_started(&self, one: &Use, lane: usize) -> bool {
        let (agent, clock, their) = one.by;
        let own = agent == self.warp.clock.agent && usize::from(their) == lane;
        own || !self.machine.options.checks.races
            || self.warp.clock.knows(agent, clock, their, lane as u8)
    }

    /// Whether the warp has fenced since it observed the completion of an operation.
    fn has_fenced(&self, rank: u32, one: &Use, lane: usize) -> bool {
        let (agent, clock) = one.over;
        let Some(tensor) = &self.blocks[rank as usize].tensor else {
            return true;
        };
        tensor.fenced.iter().any(|(warp, fenced, known)| {
            *warp == self.warp.number
                && usize::from(*fenced) == lane
                && known.of(agent).covers(clock, 0)
        })
    }

    /// Whether a thread handed a load or a store over without a fence before; a commit has one. Only
    /// in kernels that have such fences: others leave all of them out.
    fn lacks_fence_before(&self, one: &Use, lane: usize) -> bool {
        self.code.shape.tensor_fences_before
            && !one.what.is_committed()
            && !self
                .warp
                .clock
                .knows_fenced(Behind::Tensor, one.by, lane as u8)
    }
}

/// How tensor memory is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    pub(crate) what: What,
    pub(crate) writes: bool,
    /// The lanes that do it together.
    pub(crate) lanes: Mask,
}

/// Checks a use of some lanes and columns of a block's tensor memory: allocated, written, and not
/// in flight. False if the contents must not be read.
pub(crate) fn check(cx: &mut Cx<'_>, rank: u32, span: Span, doing: Doing) -> bool {
    let lane = first(doing.lanes);
    let tensor = cx.tensor(rank);
    if let Some(column) = tensor.outside(span) {
        report_outside(cx, rank, column, doing);
        return false;
    }
    let tensor = cx.tensor(rank);
    let unwritten = (!doing.writes).then(|| tensor.unwritten(span)).flatten();
    let before = tensor.before(span, doing.writes);
    // What a load takes may be dropped: where it is followed, that is told where it has an effect.
    let followed = doing.what == What::Load && cx.follows_values();
    if let Some(column) = unwritten
        && cx.machine.options.checks.unwritten
        && !followed
    {
        cx.report(rule::TENSOR_UNWRITTEN, doing.lanes, |_, mut told| {
            let (message, help) = unwritten_column(doing.what, column);
            told.message = message;
            told.help(help)
        });
    }
    let mut good = true;
    for (one, wrote) in before {
        if one.what.is_before(doing.what, wrote) && cx.knows_started(&one, lane) {
            continue;
        }
        if !cx.knows_over(&one, doing.lanes) {
            good &= !wrote;
            report_early(cx, &one, wrote, doing);
        } else if doing.what != What::Free
            && cx.code.shape.tensor_fences
            && cx.machine.options.checks.races
            && one.by.0 != cx.warp.clock.agent
        {
            if !cx.has_fenced(cx.warp.rank, &one, lane) {
                report_unfenced(cx, &one, doing, "after");
            } else if cx.lacks_fence_before(&one, lane) {
                report_unfenced(cx, &one, doing, "before");
            }
        }
    }
    good
}

/// What is said of a column that is read and that nothing has written, and what to do.
pub(crate) fn unwritten_column(what: What, column: usize) -> (String, &'static str) {
    let message = format!(
        "{} reads column {column} of tensor memory, which nothing has written",
        what.name()
    );
    let help = "the first product of a sum goes without what is there (its last predicate false); scale factors are written to all four quarters of the lanes";
    (message, help)
}

#[cold]
fn report_outside(cx: &mut Cx<'_>, rank: u32, column: usize, doing: Doing) {
    let own = rank == cx.warp.rank;
    let freed = cx.tensor(rank).freed.iter().rev().find(|(one, _)| {
        (one.start as usize..(one.start + one.columns) as usize).contains(&column)
    });
    let freed = freed.map(|&(_, pc)| pc);
    cx.report(rule::TENSOR_BOUNDS, doing.lanes, |cx, mut told| {
        let whose = if own { "the block" } else { "its peer" };
        told.message = match freed {
            Some(_) => format!(
                "{} uses column {column} of tensor memory, which {whose} has freed",
                doing.what.name()
            ),
            None => format!(
                "{} uses column {column} of tensor memory, which {whose} has not allocated",
                doing.what.name()
            ),
        };
        if let Some(pc) = freed {
            told = told.other(cx.code.span(pc), "it was freed here");
        }
        told.help("an address of tensor memory is a lane in bits 16 and up and a column below; add to the one that `tcgen05.alloc` has stored, and free it after the last use")
    });
}

#[cold]
fn report_early(cx: &mut Cx<'_>, one: &Use, wrote: bool, doing: Doing) {
    let code = if one.what.is_committed() {
        rule::TENSOR_RESULT_EARLY
    } else {
        rule::TENSOR_TRANSFER_EARLY
    };
    let (name, mine) = (one.what.name(), doing.what.name());
    cx.report(code, doing.lanes, |cx, mut told| {
        let verb = if doing.writes { "writes" } else { "reads" };
        let theirs = if wrote { "is going to write" } else { "may still be reading" };
        told.message = format!(
            "{mine} {verb} tensor memory that a {name} {theirs}: nothing here says that it is over"
        );
        let help = match (one.what, doing.what) {
            (What::Product(_), What::Product(_)) => "products follow each other in order only with the same accumulator, shape and kind; otherwise commit, and wait for the mbarrier",
            (What::Load, _) => "`tcgen05.wait::ld` in the warp that loaded, and then hand over by a barrier or an mbarrier",
            (What::Store, _) => "`tcgen05.wait::st` in the warp that stored, and then hand over by a barrier or an mbarrier",
            _ => "`tcgen05.commit` to an mbarrier in the thread that started it, and wait for the mbarrier",
        };
        told.other(cx.code.span(one.pc), format!("the {name} was started here"))
            .help(help)
    });
}

#[cold]
fn report_unfenced(cx: &mut Cx<'_>, one: &Use, doing: Doing, which: &str) {
    let (name, mine) = (one.what.name(), doing.what.name());
    cx.report(rule::TENSOR_THREAD_FENCE, doing.lanes, |cx, mut told| {
        let (place, help) = match which {
            "after" => (
                "behind",
                "put `tcgen05.fence::after_thread_sync` behind the wait, before the first tcgen05 instruction that relies on it",
            ),
            _ => (
                "in front of",
                "put `tcgen05.fence::before_thread_sync` behind the operation and its wait, before the arrival or barrier that hands it over",
            ),
        };
        told.message = format!(
            "{mine} comes after another thread's {name} by a barrier alone, and no `tcgen05.fence::{which}_thread_sync` stands {place} it"
        );
        told.other(cx.code.span(one.pc), format!("the {name} is here"))
            .help(help)
    });
}

/// A block has exited: nothing of its tensor memory may be left.
pub(crate) fn block_exited(cx: &mut Cx<'_>) {
    let rank = cx.warp.rank as usize;
    let (sm, Some(tensor)) = (cx.blocks[rank].sm, cx.blocks[rank].tensor.take()) else {
        return;
    };
    for one in &tensor.allocations {
        cx.machine.columns.give(sm, one.start, one.columns);
    }
    if let Some(one) = tensor.allocations.first() {
        let (columns, pc) = (one.columns, one.pc);
        cx.report(rule::TENSOR_LEAK, cx.mask, |cx, mut told| {
            told.message =
                format!("the block exits and has not freed {columns} columns of tensor memory");
            told.other(cx.code.span(pc), "they were allocated here")
                .help("`tcgen05.dealloc` on every way to the exit, in the warp that allocated")
        });
    }
    if let Some(pc) = tensor.pipes.iter().find_map(|pipe| pipe.open) {
        cx.report(rule::TENSOR_UNCOMMITTED, cx.mask, |cx, mut told| {
            told.message =
                "the block exits with a tcgen05 operation that no commit covers".to_owned();
            told.other(cx.code.span(pc), "it was started here")
                .help("`tcgen05.commit` in the thread that started it, and wait for the mbarrier")
        });
    }
}
