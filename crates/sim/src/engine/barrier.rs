//! The completion of a phase of the barriers of a block and of a cluster.

use crate::code::Wait;
use crate::race::clock::{WarpClock, meet};
use crate::state::block::Block;
use crate::state::team::Team;
use crate::state::warp::Warp;
use std::mem::take;

/// Cycles from the last arrival until the waiting warps go on.
const LATENCY: u64 = 20;

/// Completes a phase: the clocks of all arrived warps are joined into the waiting ones, which
/// continue.
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
            // The async proxy has not met with anybody: what it may still conflict with stays.
            if block.shared.history.defers() {
                for clock in clocks {
                    team.floor.raise(clock.agent, clock.now);
                }
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
    // The next phase needs as much room.
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

/// Cycles from the last arrival until the cluster goes on.
const CLUSTER_LATENCY: u64 = 200;

/// Completes a phase of the cluster barrier if all threads have arrived.
pub(crate) fn settle_cluster(team: &mut Team, warps: &mut [Option<Box<Warp>>], blocks: &[Block]) {
    let changed = std::mem::replace(&mut team.cluster_barrier.changed, false);
    if !changed || team.cluster_barrier.arrived == 0 {
        return;
    }
    let live: u32 = blocks.iter().map(|block| block.live).sum();
    // Threads that arrived and then exited have been counted; they are not waited for.
    let here: u32 = warps
        .iter()
        .flatten()
        .filter(|warp| warp.cluster_phase == team.cluster_barrier.phase)
        .map(|warp| (warp.cluster_arrived & warp.live).count_ones())
        .sum();
    if here < live {
        return;
    }
    let barrier = &mut team.cluster_barrier;
    barrier.phase += 1;
    barrier.arrived = 0;
    barrier.done = barrier.clock.take();
    let time = barrier.latest + CLUSTER_LATENCY;
    for (at, warp) in warps.iter_mut().enumerate() {
        if let Some(warp) = warp
            && warp.wake(|wait| wait == Wait::ClusterBarrier)
        {
            warp.advance(time);
            team.enqueue(at, warp.cycle);
        }
    }
    team.progress += 1;
}
