//! Blocks on several threads of the host, where the result is the same.
//!
//! A kernel whose blocks are isolated (see [`crate::decode::isolation`]) runs each
//! block from its launch to its end in one go, and what it asks of its SM does not depend
//! on when it was launched. So every worker takes blocks as they come, on its
//! own copy of global memory that also notes which bytes it has read and written;
//! afterwards the copies are merged and the timeline is computed from the jobs. Which block was the
//! first to ask DRAM for a byte is not known then, so DRAM slows all of them alike.
//!
//! The serial run handles every other case: if there is a finding, if a budget is spent, or if one
//! worker has written a byte that another one has touched, [`run`] returns nothing, and the machine
//! is unchanged. So the results are those of one thread, whatever the number of threads. If a
//! worker has written memory that was assumed read-only, global memory is marked as stirred, too.

use super::cluster::{Cluster, Pause};
use super::dram::Dram;
use super::executable::Executable;
use super::load::Shapes;
use super::replay::{Jobs, Launched, replay};
use super::site::{LAUNCH, Piece};
use super::spares::Spares;
use crate::code::Code;
use crate::options::Chaos;
use crate::state::machine::{Machine, Stats};
use crate::state::memory::global::Global;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Blocks below which copies of the memory are not worth it.
const FEW: u32 = 64;

/// Runs all blocks of the machine's pool; nothing if they have to run in order.
pub(crate) fn run(
    executable: &Executable,
    machine: &mut Machine,
    sites: u32,
    slots: u32,
    limit: u64,
) -> Option<Vec<Launched>> {
    let blocks = machine.pool.left();
    let threads = threads(&executable.code, machine, blocks)?;
    let next = AtomicU32::new(0);
    let (stop, stirred) = (Arc::default(), AtomicBool::new(false));
    let done: Vec<Option<Share>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (machine, next, stop, stirred) = (&*machine, &next, &stop, &stirred);
                scope.spawn(move || work(executable, machine.fork(), blocks, next, (stop, stirred)))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().ok().flatten())
            .collect()
    });
    if stirred.into_inner() {
        machine.global.stir();
        return None;
    }
    let done: Vec<Share> = done.into_iter().collect::<Option<_>>()?;
    let mut stats = Stats {
        interactions: machine.stats.interactions,
        ..Stats::default()
    };
    let mut jobs = Jobs::new(blocks);
    let mut parts: Vec<Global> = Vec::new();
    for share in done {
        stats.thread_instructions += share.stats.thread_instructions;
        stats.warp_instructions += share.stats.warp_instructions;
        jobs.extend(share.jobs);
        parts.push(share.global);
    }
    let mut launched = replay(&jobs, sites, slots, || machine.is_late())?;
    let end = launched.iter().map(|one| one.end).max().unwrap_or(0);
    let growth = Dram::of(machine.device.gpu()).growth(end, Global::traffic_of(&parts));
    for one in &mut launched {
        one.start = Dram::grown(one.start, growth);
        one.end = Dram::grown(one.end, growth);
    }
    stats.blocks = u64::from(blocks);
    stats.cycles = Dram::grown(end, growth);
    let budget = &machine.options.budget;
    if stats.warp_instructions > budget.warp_instructions || end > limit || machine.is_late() {
        return None;
    }
    if !machine.global.absorb(parts) {
        return None;
    }
    machine.stats = stats;
    Some(launched)
}

/// How many threads to use; none for one.
fn threads(code: &Code, machine: &Machine, blocks: u32) -> Option<usize> {
    let options = &machine.options;
    let plain = code.shape.isolated
        && machine.cluster_shape.count() == 1
        && options.seed == 0
        && options.chaos == Chaos::NONE
        && blocks >= FEW;
    if !plain {
        return None;
    }
    let wanted = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    // Each worker has a copy of the memory.
    let copies = options.budget.memory / machine.global.size().max(1);
    let threads = wanted.min(blocks as usize).min(
        usize::try_from(copies)
            .unwrap_or(usize::MAX)
            .saturating_sub(1),
    );
    (threads > 1).then_some(threads)
}

/// What one worker has done.
pub(crate) struct Share {
    global: Global,
    stats: Stats,
    /// Blocks, and what they ask of their SM.
    jobs: Vec<(u32, Arc<[Piece]>)>,
}

pub(crate) fn work(
    executable: &Executable,
    mut machine: Machine,
    blocks: u32,
    next: &AtomicU32,
    (stop, stirred): (&Arc<AtomicBool>, &AtomicBool),
) -> Option<Share> {
    machine.given_up = Some(Arc::clone(stop));
    let mut jobs = Vec::new();
    let (mut spares, mut shapes) = (Spares::default(), Shapes::default());
    // Neighbours touch neighbouring memory: a few of them at a time, and fewer
    // towards the end, so that nobody waits long for the last worker.
    let after = |first: u32| first + ((blocks - first) / 64).clamp(1, 32);
    let take = |first: u32| (first < blocks).then(|| after(first));
    while let Ok(first) = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        for number in first..after(first) {
            // A short block ends before it has looked at the clock itself.
            if machine.is_late() {
                stop.store(true, Ordering::Relaxed);
            }
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let mut cluster = Cluster::launch(
                number,
                0,
                LAUNCH,
                &executable.code,
                &mut machine,
                &mut spares,
            );
            let pause = cluster.run(executable, &mut machine, u64::MAX);
            let is_stirred = machine.global.is_stirred();
            if pause != Pause::Done || machine.stopped || machine.findings.len() > 0 || is_stirred {
                stirred.fetch_or(is_stirred, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
                return None;
            }
            let end = cluster.end();
            jobs.push((number, cluster.job(end, &mut shapes).pieces));
            machine.options.meter.end(1);
            spares.keep(cluster);
        }
    }
    // Here, where other workers need not wait for it.
    machine.global.forget_races();
    Some(Share {
        global: machine.global,
        stats: machine.stats,
        jobs,
    })
}
