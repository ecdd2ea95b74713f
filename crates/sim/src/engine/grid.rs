//! A launch: clusters from the pool onto SMs, in the order of modelled time.

use super::cluster::{Cluster, Pause};
use super::executable::Executable;
use super::load::Shapes;
use super::site::{Ended, LAUNCH, Piece, Sites};
use super::spares::Spares;
use super::{deadlock, parallel};
use crate::code::Code;
use crate::state::block::Block;
use crate::state::machine::Machine;
use heist_launch::{BlockSpan, Time};
use heist_ptx::{Diagnostic, Span, rule};
use std::sync::Arc;
use std::time::Instant;

/// Runs all clusters of the machine's pool, or some of them if one stirs global memory
/// that was to be still.
pub(crate) fn run(
    executable: &Executable,
    machine: &mut Machine,
    residency: u32,
) -> Vec<BlockSpan> {
    let started = machine.started;
    let per_cluster = machine.cluster_shape.count() as u32;
    let sms = machine.device.gpu().sms;
    // A cluster's blocks are spread over SMs that are counted together.
    let (places, slots) = if per_cluster == 1 {
        (sms, residency)
    } else {
        ((sms / per_cluster).max(1), residency.max(1))
    };
    let cycle_ps = machine.device.cycle_ps();
    let limit = machine.options.budget.time_ns.saturating_mul(1000) / cycle_ps;
    if let Some(launched) = parallel::run(executable, machine, places, slots, limit) {
        return launched
            .into_iter()
            .map(|one| BlockSpan {
                block: machine
                    .launch
                    .grid
                    .linear(machine.coordinates(u64::from(one.number)))
                    as u32,
                cluster: one.number,
                sm: one.sm,
                start: Time(one.start * cycle_ps),
                end: Time(one.end * cycle_ps),
            })
            .collect();
    }
    if machine.global.is_stirred() {
        return Vec::new();
    }
    let code = &executable.code;
    let (mut spares, mut shapes) = (Spares::default(), Shapes::default());
    let mut sites = Sites::new(places);
    let starting: Arc<[Piece]> = [Piece::idle(LAUNCH)].into();
    let mut running: Vec<Place> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut spans = Vec::new();
    let launch = |site: u32,
                  time: u64,
                  machine: &mut Machine,
                  sites: &mut Sites,
                  running: &mut Vec<Place>,
                  free: &mut Vec<usize>| {
        let Some(number) = machine.pool.take() else {
            return;
        };
        let at = free.pop().unwrap_or(running.len());
        if at == running.len() {
            running.push(Place::Free);
        }
        running[at] = Place::Starting { number };
        sites.start(site, at, time, Arc::clone(&starting));
    };
    for slot in 0..slots {
        for site in 0..places {
            let time = u64::from(slot);
            launch(site, time, machine, &mut sites, &mut running, &mut free);
        }
    }
    while let Some(Ended { time, site, who }) = sites.next() {
        // Made when it starts, and taken apart when it has run: warps that are used
        // again at once are still in the host's caches.
        if let Place::Starting { number } = running[who] {
            let cluster = Cluster::launch(number, site, time, code, machine, &mut spares);
            running[who] = Place::Taken(cluster);
        }
        let Place::Taken(cluster) = &mut running[who] else {
            continue;
        };
        cluster.team.offset = time - cluster.reached.min(time);
        if !cluster.ended {
            let pause = cluster.run(executable, machine, cluster.reached);
            machine.stopped |= machine.global.is_stirred();
            if let Some(told) = over_budget(cluster, code, machine, limit, started) {
                machine.findings.report(rule::TIME_BUDGET, 0, || told);
                machine.stopped = true;
            }
            let until = match pause {
                _ if machine.stopped => None,
                Pause::At(until) => Some(until),
                Pause::Done => {
                    cluster.ended = true;
                    Some(cluster.end())
                }
                Pause::Deadlock => {
                    deadlock::report(cluster, code, machine);
                    None
                }
                Pause::Stopped => None,
            };
            if let Some(until) = until {
                let job = cluster.job(until, &mut shapes);
                if cluster.ended {
                    spares.strip(cluster);
                }
                sites.start(site, who, time, job);
                continue;
            }
            spares.strip(cluster);
        }
        let Place::Taken(cluster) = std::mem::replace(&mut running[who], Place::Free) else {
            continue;
        };
        free.push(who);
        machine.stats.cycles = machine.stats.cycles.max(time);
        for (rank, block) in cluster.blocks.iter().enumerate() {
            machine.stats.blocks += 1;
            let stay = Stay {
                cluster: cluster.number,
                sm: site * per_cluster + rank as u32,
                start: cluster.team.start,
                end: block.end + cluster.team.offset,
            };
            spans.push(span(block, &stay, machine, cycle_ps));
        }
        spares.keep(cluster);
        if machine.stopped {
            break;
        }
        launch(site, time, machine, &mut sites, &mut running, &mut free);
    }
    spans
}

/// Room for a cluster on an SM.
enum Place {
    Free,
    /// A cluster will start here.
    Starting {
        number: u32,
    },
    /// A cluster is here, or is still in time that it has run through already.
    Taken(Box<Cluster>),
}

/// When and where a block ran.
struct Stay {
    cluster: u32,
    sm: u32,
    start: u64,
    end: u64,
}

fn span(block: &Block, stay: &Stay, machine: &Machine, cycle_ps: u64) -> BlockSpan {
    BlockSpan {
        block: machine.launch.grid.linear(block.ctaid) as u32,
        cluster: stay.cluster,
        sm: stay.sm % machine.device.gpu().sms,
        start: Time(stay.start * cycle_ps),
        end: Time(stay.end * cycle_ps),
    }
}

fn over_budget(
    cluster: &Cluster,
    code: &Code,
    machine: &Machine,
    limit: u64,
    started: Instant,
) -> Option<Diagnostic> {
    let budget = &machine.options.budget;
    let now = cluster
        .warps
        .iter()
        .flatten()
        .map(|warp| warp.cycle + cluster.team.offset)
        .max()
        .unwrap_or(0);
    let why = if machine.stats.warp_instructions > budget.warp_instructions {
        format!("{} instructions of warps", budget.warp_instructions)
    } else if now > limit {
        format!("{} modelled nanoseconds", budget.time_ns)
    } else if started.elapsed().as_millis() as u64 > budget.wall_ms {
        format!("{} milliseconds", budget.wall_ms)
    } else {
        return None;
    };
    let warp = cluster.warps.iter().flatten().find(|warp| warp.live != 0);
    let pc = warp
        .and_then(|warp| warp.fragments.front())
        .map(|fragment| fragment.pc);
    let span = pc.map_or(Span::NONE, |pc| code.span(pc));
    let mut told = Diagnostic::error(
        rule::TIME_BUDGET,
        span,
        format!("the kernel was stopped after {why}"),
    )
    .label("a thread was here when it was stopped")
    .help("if it is only slow, give it more time (`--timeout`); if it spins, somebody must set what it waits for");
    if let Some(warp) = warp {
        let block = cluster.blocks[warp.rank as usize].ctaid;
        told = told.note(format!(
            "warp {} of block ({block}) was still running",
            warp.number
        ));
    }
    Some(told)
}
