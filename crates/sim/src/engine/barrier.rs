//! The numbered barriers of a block.

use super::cluster::{Block, Team};
use super::warp::Warp;
use crate::code::Wait;
use crate::lanes::Mask;
use crate::race::clock::{Clock, WarpClock, meet};
use std::mem::take;

/// Cycles from the last arrival until the waiting warps go on.
const LATENCY: u64 = 20;

/// One numbered barrier.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    /// Threads that this round waits for; none for all of the block.
    pub(crate) expected: Option<u32>,
    /// Threads that have come, counted as the hardware does: a whole warp is 32.
    pub(crate) counted: u32,
    /// Threads that have come, counted one by one.
    pub(crate) threads: u32,
    /// The first instruction of this round, for messages about mismatches.
    pub(crate) first_pc: Option<u32>,
    pub(crate) first_reduces: bool,
    /// Who has come in this round: warp and lanes.
    pub(crate) came: Vec<(usize, Mask)>,
    /// The fragments that wait.
    pub(crate) waiting: Vec<(usize, Mask)>,
    /// What those who only arrived have released.
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

    /// Whether everybody has come; `live` are the block's threads that have not exited.
    pub(crate) fn is_complete(&self, live: u32) -> bool {
        match self.expected {
            Some(count) => self.counted >= count,
            None => self.threads > 0 && self.threads >= live,
        }
    }
}

/// Ends a round: everybody who waits learns of everybody who came, and goes on.
pub(crate) fn complete(
    block: &mut Block,
    id: u32,
    warps: &mut [Option<Box<Warp>>],
    team: &mut Team,
) {
    let Some(barrier) = block.barriers.get_mut(id as usize) else {
        return;
    };
    let time = barrier.latest + LATENCY;
    barrier.result = (barrier.population, barrier.all, barrier.any);
    let mut waiting = take(&mut barrier.waiting);
    let arrived = barrier.arrived.take();
    barrier.came.clear();
    barrier.expected = None;
    barrier.first_pc = None;
    (barrier.counted, barrier.threads, barrier.latest) = (0, 0, 0);
    (barrier.population, barrier.all, barrier.any) = (0, true, false);

    let whole = arrived.is_none()
        && waiting.iter().all(|&(at, mask)| {
            warps[at]
                .as_ref()
                .is_some_and(|warp| warp.live & mask == warp.live)
        });
    if whole {
        let members: Mask64 = waiting.iter().map(|&(at, _)| at).collect();
        let mut clocks: Vec<&mut WarpClock> = Vec::with_capacity(waiting.len());
        clocks.extend(
            warps
                .iter_mut()
                .enumerate()
                .filter(|(at, _)| members.contains(*at))
                .filter_map(|(_, warp)| warp.as_mut().map(|warp| &mut warp.clock)),
        );
        if meet(&mut clocks) {
            for clock in clocks {
                team.floor.raise(clock.agent, clock.now);
            }
            block.shared.history.all_met();
        }
    } else {
        let mut all = arrived;
        for &(at, mask) in &waiting {
            if let Some(warp) = &mut warps[at] {
                let live = warp.live;
                let released = warp.clock.release(mask, live);
                match &mut all {
                    Some(all) => all.join(&released),
                    None => all = Some(released),
                }
            }
        }
        for &(at, mask) in &waiting {
            if let (Some(warp), Some(all)) = (&mut warps[at], &all) {
                let live = warp.live;
                warp.clock.sync_lanes(mask, live);
                warp.clock.acquire(all, mask, live);
            }
        }
    }
    for &(at, _) in &waiting {
        if let Some(warp) = &mut warps[at] {
            warp.wake(|wait| wait == Wait::Barrier { id });
            warp.advance(time);
            team.enqueue(at, warp.cycle);
        }
    }
    // The next round needs as much room.
    waiting.clear();
    barrier.waiting = waiting;
    team.progress += 1;
}

/// A set of up to 512 warps.
#[derive(Default)]
struct Mask64([u64; 8]);

impl Mask64 {
    fn contains(&self, at: usize) -> bool {
        self.0
            .get(at / 64)
            .is_some_and(|bits| bits >> (at % 64) & 1 != 0)
    }
}

impl FromIterator<usize> for Mask64 {
    fn from_iter<I: IntoIterator<Item = usize>>(items: I) -> Mask64 {
        let mut set = Mask64::default();
        for at in items {
            if let Some(bits) = set.0.get_mut(at / 64) {
                *bits |= 1 << (at % 64);
            }
        }
        set
    }
}
