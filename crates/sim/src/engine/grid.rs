//! A launch: clusters from the pool onto SMs, in the order of modelled time.

use super::cluster::{Block, Cluster, Pause};
use super::{deadlock, parallel};
use crate::code::Code;
use crate::machine::Machine;
use heist_launch::{BlockSpan, Time};
use heist_ptx::{Diagnostic, Span, rule};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Cycles from a free slot to the first instruction of the block put there.
pub(crate) const LAUNCH: u64 = 700;

/// Something that is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A running cluster wants to go on.
    Cluster(usize),
    /// An SM has room for another cluster.
    Slot(u32),
}

/// Runs all clusters of the machine's pool.
pub(crate) fn run(code: &Code, machine: &mut Machine, residency: u32) -> Vec<BlockSpan> {
    let started = machine.started;
    let per_cluster = machine.cluster_shape.count() as u32;
    let sms = machine.device.gpu().sms;
    // A cluster's blocks are spread over SMs that are counted together.
    let (sites, slots) = if per_cluster == 1 {
        (sms, residency)
    } else {
        ((sms / per_cluster).max(1), residency.max(1))
    };
    let cycle_ps = machine.device.cycle_ps();
    let limit = machine.options.budget.time_ns.saturating_mul(1000) / cycle_ps;
    if let Some(launched) = parallel::run(code, machine, sites, slots, limit) {
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
    let mut due: BinaryHeap<Reverse<(u64, Due)>> = BinaryHeap::new();
    for slot in 0..slots {
        for sm in 0..sites {
            if slot * sites + sm < machine.pool.left() {
                due.push(Reverse((u64::from(slot), Due::Slot(sm))));
            }
        }
    }
    let mut running: Vec<Option<Cluster>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut resident = vec![0u32; sites as usize];
    let mut spans = Vec::new();
    while let Some(Reverse((time, what))) = due.pop() {
        let at = match what {
            Due::Cluster(at) => at,
            Due::Slot(sm) => {
                let Some(number) = machine.pool.take() else {
                    continue;
                };
                resident[sm as usize] += 1;
                let warps = machine.geography.warps_per_block;
                let share = share_of(
                    warps,
                    resident[sm as usize],
                    slots,
                    sites,
                    machine.pool.left(),
                );
                let cluster = Cluster::launch(number, sm, time + LAUNCH, share, code, machine);
                match free.pop() {
                    Some(at) => {
                        running[at] = Some(cluster);
                        at
                    }
                    None => {
                        running.push(Some(cluster));
                        running.len() - 1
                    }
                }
            }
        };
        let until = due.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        let Some(cluster) = &mut running[at] else {
            continue;
        };
        let pause = cluster.run(code, machine, until);
        if let Some(told) = over_budget(cluster, code, machine, limit, started) {
            machine.findings.report(rule::TIME_BUDGET, 0, || told);
            machine.stopped = true;
        }
        match pause {
            _ if machine.stopped => {}
            Pause::At(time) => {
                due.push(Reverse((time, Due::Cluster(at))));
                continue;
            }
            Pause::Deadlock => deadlock::report(cluster, code, machine),
            Pause::Done | Pause::Stopped => {}
        }
        let Some(cluster) = running[at].take() else {
            continue;
        };
        free.push(at);
        let end = cluster
            .blocks
            .iter()
            .map(|block| block.end)
            .max()
            .unwrap_or(time);
        let sm = cluster.team.sm;
        resident[sm as usize] -= 1;
        machine.stats.cycles = machine.stats.cycles.max(end);
        machine
            .pool
            .give_back_warps(cluster.warps.into_iter().flatten());
        for (rank, block) in cluster.blocks.into_iter().enumerate() {
            machine.stats.blocks += 1;
            spans.push(span(
                &block,
                cluster.number,
                machine,
                sm * per_cluster + rank as u32,
                cluster.team.start,
                cycle_ps,
            ));
            machine.pool.give_back(block.shared);
        }
        if machine.stopped {
            break;
        }
        due.push(Reverse((end, Due::Slot(sm))));
    }
    spans
}

/// How many warps' worth of issue slots each warp of a new block takes, given the
/// clusters that its SM holds and those that are still to be launched.
pub(crate) fn share_of(warps: u32, resident: u32, slots: u32, sites: u32, left: u32) -> f64 {
    // The other slots of this SM are about to be filled as well.
    let filled = resident.max(slots.min(1 + left / sites));
    (f64::from(warps * filled.min(slots)) / 4.0).max(1.0)
}

fn span(
    block: &Block,
    cluster: u32,
    machine: &Machine,
    sm: u32,
    start: u64,
    cycle_ps: u64,
) -> BlockSpan {
    BlockSpan {
        block: machine.launch.grid.linear(block.ctaid) as u32,
        cluster,
        sm: sm % machine.device.gpu().sms,
        start: Time(start * cycle_ps),
        end: Time(block.end * cycle_ps),
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
        .map(|warp| warp.cycle)
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
    .help("if it is only slow, raise the budget; if it spins, somebody must set what it waits for");
    if let Some(warp) = warp {
        let block = cluster.blocks[warp.rank as usize].ctaid;
        told = told.note(format!(
            "warp {} of block ({block}) was still running",
            warp.number
        ));
    }
    Some(told)
}
