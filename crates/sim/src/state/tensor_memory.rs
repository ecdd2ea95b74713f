//! Tensor memory: 128 lanes of 512 words for a block, its access history, and its allocations.
//!
//! A word holds the result of all started operations: those of one thread see each other's results
//! in order. Any other thread must have observed the completion of the operation, or the access is
//! reported (see [`crate::access::tensor_memory`]).
//!
//! For that every sixteen lanes of a column are a [`Unit`], which records its last writer and the
//! readers since. For the race detector operations in flight have agents of their own: a thread's
//! products and copies are one agent, whose clock is the number of the commit; a warp's loads and
//! its stores are one each, whose clock is the number of the wait.

use crate::race::clock::{Agent, Clock};
use heist_arith::tensor::tcgen05::place::{COLUMNS, LANES};

/// Lanes that are followed together.
const HALF: usize = 16;
/// Of a column.
const HALVES: usize = LANES / HALF;

/// The kind of an operation, for the order of two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A product; those with the same number follow each other in order.
    Product(u64),
    Copy,
    Shift,
    Load,
    Store,
    /// Giving columns back.
    Free,
}

impl What {
    /// Whether a commit signals its completion.
    pub(crate) fn is_committed(self) -> bool {
        matches!(self, What::Product(_) | What::Copy | What::Shift)
    }

    /// Whether this one, of the same thread or known to have been started, is in order
    /// before `next` without being waited for. `wrote` says whether it wrote what `next` uses.
    pub(crate) fn is_before(self, next: What, wrote: bool) -> bool {
        match (self, next) {
            (What::Product(one), What::Product(other)) => !wrote || one == other,
            (What::Product(_), What::Copy) => !wrote,
            (one, other) => one.is_committed() && other.is_committed(),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            What::Product(_) => "tcgen05.mma",
            What::Copy => "tcgen05.cp",
            What::Shift => "tcgen05.shift",
            What::Load => "tcgen05.ld",
            What::Store => "tcgen05.st",
            What::Free => "tcgen05.dealloc",
        }
    }
}

/// An operation on tensor memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) what: What,
    /// The agent and clock of its completion.
    pub(crate) over: (Agent, u32),
    /// Who started it: agent, clock and lane.
    pub(crate) by: (Agent, u32, u8),
    pub(crate) pc: u32,
    /// When it is over.
    pub(crate) time: u64,
}

/// Sixteen lanes of a column: numbers of uses, zero for none.
#[derive(Clone, Debug, Default)]
struct Unit {
    writer: u32,
    readers: Vec<u32>,
}

/// Some lanes, in halves of a quarter, of some columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// A bit for each sixteen lanes.
    pub(crate) halves: u8,
    pub(crate) start: usize,
    pub(crate) width: usize,
}

impl Span {
    pub(crate) fn columns(self) -> std::ops::Range<usize> {
        self.start..self.start + self.width
    }

    fn units(self) -> impl Iterator<Item = usize> {
        self.columns().flat_map(move |column| {
            (0..HALVES)
                .filter(move |half| self.halves >> half & 1 != 0)
                .map(move |half| column * HALVES + half)
        })
    }
}

/// Columns that a block has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) start: u32,
    pub(crate) columns: u32,
    pub(crate) pc: u32,
}

/// The operations of a thread that a commit covers.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) warp: u32,
    pub(crate) lane: u8,
    pub(crate) agent: Agent,
    /// The number of the next commit.
    pub(crate) commit: u32,
    /// When the last of them is over.
    pub(crate) done: u64,
    /// The last one that no commit covers.
    pub(crate) open: Option<u32>,
}

/// The loads and stores of a warp.
#[derive(Debug)]
pub(crate) struct Mover {
    pub(crate) warp: u32,
    /// Of loads, and of stores: the agent, the number of the next wait, and when the last
    /// is over.
    pub(crate) kinds: [(Agent, u32, u64); 2],
}

/// The tensor memory of a block.
#[derive(Debug)]
pub(crate) struct TensorMemory {
    words: Vec<u32>,
    units: Vec<Unit>,
    uses: Vec<Use>,
    pub(crate) allocations: Vec<Allocation>,
    /// Columns given back, for messages: where.
    pub(crate) freed: Vec<(Allocation, u32)>,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) movers: Vec<Mover>,
    /// When the tensor cores are free again.
    pub(crate) busy_until: u64,
    /// What each warp knew when it last executed `tcgen05.fence::after_thread_sync`.
    pub(crate) fenced: Vec<(u32, u8, Clock)>,
}

impl Default for TensorMemory {
    fn default() -> TensorMemory {
        TensorMemory {
            words: vec![0; COLUMNS * LANES],
            units: vec![Unit::default(); COLUMNS * HALVES],
            uses: Vec::new(),
            allocations: Vec::new(),
            freed: Vec::new(),
            pipes: Vec::new(),
            movers: Vec::new(),
            busy_until: 0,
            fenced: Vec::new(),
        }
    }
}

impl TensorMemory {
    #[inline]
    pub(crate) fn word(&self, lane: usize, column: usize) -> u32 {
        self.words[lane % LANES * COLUMNS + column % COLUMNS]
    }

    #[inline]
    pub(crate) fn word_mut(&mut self, lane: usize, column: usize) -> &mut u32 {
        &mut self.words[lane % LANES * COLUMNS + column % COLUMNS]
    }

    /// Some words of a lane; none where it has not as many columns.
    pub(crate) fn row(&self, lane: usize, column: usize, len: usize) -> &[u32] {
        let start = lane % LANES * COLUMNS + column;
        self.words.get(start..start + len).unwrap_or(&[])
    }

    pub(crate) fn row_mut(&mut self, lane: usize, column: usize, len: usize) -> &mut [u32] {
        let start = lane % LANES * COLUMNS + column;
        self.words.get_mut(start..start + len).unwrap_or(&mut [])
    }

    /// The first column that is not the block's.
    pub(crate) fn outside(&self, span: Span) -> Option<usize> {
        span.columns().find(|&column| {
            !self.allocations.iter().any(|one| {
                (one.start as usize..(one.start + one.columns) as usize).contains(&column)
            })
        })
    }

    /// The first column of which nothing has written some of the lanes.
    pub(crate) fn unwritten(&self, span: Span) -> Option<usize> {
        span.units()
            .find(|&unit| self.units.get(unit).is_some_and(|unit| unit.writer == 0))
            .map(|unit| unit / HALVES)
    }

    /// The operations that a read, or a write, must be ordered after: each with whether it wrote.
    pub(crate) fn before(&self, span: Span, writes: bool) -> Vec<(Use, bool)> {
        let mut found: Vec<(u32, bool)> = Vec::new();
        let mut last = (0, false);
        let mut add = |id: u32, wrote: bool| {
            if id != 0 && last != (id, wrote) {
                last = (id, wrote);
                if !found.contains(&last) {
                    found.push(last);
                }
            }
        };
        for unit in span.units().filter_map(|unit| self.units.get(unit)) {
            add(unit.writer, true);
            if writes {
                unit.readers.iter().for_each(|&id| add(id, false));
            }
        }
        found
            .into_iter()
            .filter_map(|(id, wrote)| Some((*self.uses.get(id as usize - 1)?, wrote)))
            .collect()
    }

    /// Remembers an operation.
    pub(crate) fn note(&mut self, one: Use, reads: &[Span], writes: &[Span]) {
        self.uses.push(one);
        let id = self.uses.len() as u32;
        for unit in reads.iter().flat_map(|span| span.units()) {
            if let Some(unit) = self.units.get_mut(unit) {
                let uses = &self.uses;
                // A later use of the same agent stands for the earlier ones.
                unit.readers
                    .retain(|&old| uses[old as usize - 1].over.0 != one.over.0);
                unit.readers.push(id);
            }
        }
        for unit in writes.iter().flat_map(|span| span.units()) {
            if let Some(unit) = self.units.get_mut(unit) {
                unit.writer = id;
                unit.readers.clear();
            }
        }
    }

    /// Columns begin with nothing written.
    pub(crate) fn forget(&mut self, start: u32, columns: u32) {
        let first = start as usize * HALVES;
        let units = self.units.iter_mut().skip(first);
        units
            .take(columns as usize * HALVES)
            .for_each(|unit| *unit = Unit::default());
    }

    /// The pipe of a thread; `new` makes a name.
    pub(crate) fn pipe(&mut self, warp: u32, lane: u8, new: impl FnOnce() -> Agent) -> &mut Pipe {
        let of = |pipe: &Pipe| (pipe.warp, pipe.lane) == (warp, lane);
        let at = self.pipes.iter().position(of).unwrap_or_else(|| {
            self.pipes.push(Pipe {
                warp,
                lane,
                agent: new(),
                commit: 1,
                done: 0,
                open: None,
            });
            self.pipes.len() - 1
        });
        &mut self.pipes[at]
    }

    /// The loads and stores of a warp; `new` makes a name.
    pub(crate) fn mover(&mut self, warp: u32, mut new: impl FnMut() -> Agent) -> &mut Mover {
        let at = self.movers.iter().position(|mover| mover.warp == warp);
        let at = at.unwrap_or_else(|| {
            let kinds = [(new(), 1, 0), (new(), 1, 0)];
            self.movers.push(Mover { warp, kinds });
            self.movers.len() - 1
        });
        &mut self.movers[at]
    }
}

/// The columns of one SM, in units of 32: the block that has each, counted from one.
#[derive(Clone, Copy, Debug, Default)]
struct Columns([u32; COLUMNS / GRAIN as usize]);

/// Columns that are allocated together.
pub(crate) const GRAIN: u32 = 32;

/// The columns of tensor memory that the blocks on each SM have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    sms: Vec<Columns>,
}

impl Pool {
    fn of(&mut self, sm: u32) -> &mut Columns {
        let at = sm as usize;
        if self.sms.len() <= at {
            self.sms.resize(at + 1, Columns::default());
        }
        &mut self.sms[at]
    }

    /// Takes columns for blocks, each on its SM, at the same place on all of them.
    pub(crate) fn take(&mut self, blocks: &[(u32, u32)], columns: u32) -> Option<u32> {
        let count = (columns / GRAIN) as usize;
        let starts = (0..COLUMNS / GRAIN as usize).step_by(count.max(1));
        let start = starts.into_iter().find(|&start| {
            blocks.iter().all(|&(sm, _)| {
                let own = &self.of(sm).0;
                own.get(start..start + count)
                    .is_some_and(|part| part.iter().all(|&owner| owner == 0))
            })
        })?;
        for &(sm, block) in blocks {
            self.of(sm).0[start..start + count].fill(block + 1);
        }
        Some(start as u32 * GRAIN)
    }

    /// Gives columns of an SM back.
    pub(crate) fn give(&mut self, sm: u32, start: u32, columns: u32) {
        let part = (start / GRAIN) as usize..((start + columns) / GRAIN) as usize;
        if let Some(part) = self.of(sm).0.get_mut(part) {
            part.fill(0);
        }
    }

    /// How many blocks other than this one have columns of an SM.
    pub(crate) fn others(&mut self, sm: u32, block: u32) -> usize {
        let mut owners: Vec<u32> = self.of(sm).0.to_vec();
        owners.retain(|&owner| owner != 0 && owner != block + 1);
        owners.sort_unstable();
        owners.dedup();
        owners.len()
    }
}

/// What a block has done with allocations, apart from the memory itself.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    /// The warp that allocates.
    pub(crate) warp: Option<(u32, u32)>,
    /// Where the block gave up its right to allocate.
    pub(crate) relinquished: Option<u32>,
    /// The size of the last allocation.
    pub(crate) last: Option<u32>,
    /// Whether operations are for pairs of blocks, and where that was said.
    pub(crate) group: Option<(bool, u32)>,
    /// A pair's request that waits for the other block: what is asked, and the answer.
    pub(crate) request: Option<Request>,
    /// How often an attempt has failed.
    pub(crate) looks: u32,
}

/// A step that both blocks of a pair take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) step: Step,
    /// The answer, when the other block has arrived.
    pub(crate) answer: Option<u32>,
}

/// What a pair does together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Allocate(u32),
    Free(u32, u32),
    Relinquish,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_for_all_blocks_of_a_pair_or_none() {
        let mut pool = Pool::default();
        assert_eq!(pool.take(&[(0, 0)], 128), Some(0));
        assert_eq!(pool.take(&[(0, 7), (1, 8)], 256), Some(256));
        assert_eq!(pool.take(&[(1, 9)], 256), Some(0));
        assert_eq!(pool.take(&[(0, 7)], 256), None);
        assert_eq!(pool.take(&[(0, 7)], 128), Some(128));
        pool.give(0, 256, 256);
        assert_eq!(pool.others(0, 7), 1);
        assert_eq!(pool.take(&[(0, 3)], 256), Some(256));
    }

    #[test]
    fn what_follows_what_without_waiting() {
        let (one, other) = (What::Product(1), What::Product(2));
        assert!(one.is_before(one, true) && !one.is_before(other, true));
        assert!(one.is_before(other, false), "its operand is read in order");
        assert!(What::Copy.is_before(one, true) && one.is_before(What::Copy, false));
        assert!(!one.is_before(What::Load, true) && !What::Store.is_before(one, true));
    }
}
