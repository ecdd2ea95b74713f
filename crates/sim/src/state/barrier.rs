//! The numbered barriers of a block, and the barrier of a cluster.

use crate::lanes::Mask;
use crate::race::clock::Clock;
use std::mem::take;

/// One numbered barrier.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    /// Threads that this phase expects; none for all of the block.
    pub(crate) expected: Option<u32>,
    /// Threads that have arrived, counted as the hardware does: a whole warp is 32.
    pub(crate) counted: u32,
    /// Threads that have arrived, counted one by one.
    pub(crate) threads: u32,
    /// The first instruction of this round, for messages about mismatches.
    pub(crate) first_pc: Option<u32>,
    pub(crate) first_reduces: bool,
    /// The arrivals of this phase: warp and lanes.
    pub(crate) came: Vec<(usize, Mask)>,
    /// The fragments that wait.
    pub(crate) waiting: Vec<(usize, Mask)>,
    /// The clock released by threads that only arrive.
    pub(crate) arrived: Option<Clock>,
    pub(crate) latest: u64,
    /// Lanes whose predicate holds, and whether it holds for all and for any.
    pub(crate) population: u32,
    pub(crate) all: bool,
    pub(crate) any: bool,
    /// The last round's results.
    pub(crate) result: (u32, bool, bool),
}

impl Barrier {
    /// Back to the start, for another block; keeps its buffers.
    pub(crate) fn restart(&mut self) {
        let (mut came, mut waiting) = (take(&mut self.came), take(&mut self.waiting));
        came.clear();
        waiting.clear();
        *self = Barrier {
            came,
            waiting,
            ..Barrier::default()
        };
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.threads == 0
    }

    /// Whether all expected threads have arrived; `live` are the block's threads that have not
    /// exited.
    pub(crate) fn is_complete(&self, live: u32) -> bool {
        match self.expected {
            Some(count) => self.counted >= count,
            None => self.threads > 0 && self.threads >= live,
        }
    }
}

/// The barrier of a cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterBarrier {
    /// Rounds completed.
    pub(crate) phase: u32,
    /// Threads that have arrived in this round.
    pub(crate) arrived: u32,
    pub(crate) clock: Option<Clock>,
    /// The clock that the last phase released.
    pub(crate) done: Option<Clock>,
    pub(crate) latest: u64,
    /// Set when a thread arrived or exited, so that the count is checked again.
    pub(crate) changed: bool,
}
