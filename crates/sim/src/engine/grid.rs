//! A launch: clusters from the pool onto SMs, in the order of modelled time.

use super::cluster::{Cluster, Pause};
use super::dram::Dram;
use super::executable::Executable;
use super::load::Shapes;
use super::site::{Ended, LAUNCH, Piece, Sites, Work};
use super::spares::Spares;
use super::{deadlock, parallel};
use crate::code::Code;
use crate::state::machine::{Machine, Spinners};
use heist_launch::{BlockSpan, Time};
use heist_ptx::{Diagnostic, Span, rule};

/// Runs all clusters of the machine's pool; stops early if one writes global memory that was
/// assumed read-only.
pub(crate) fn run(
    executable: &Executable,
    machine: &mut Machine,
    residency: u32,
) -> Vec<BlockSpan> {
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
    let clusters = u64::from(machine.pool.left());
    let begin = |machine: &Machine| {
        let blocks = clusters * u64::from(per_cluster);
        machine.options.meter.begin(blocks);
    };
    begin(machine);
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
    begin(machine);
    let dram = Dram::of(machine.device.gpu());
    // As those are that may run side by side.
    let alike = executable.code.shape.isolated && per_cluster == 1;
    let mut grid = Grid {
        executable,
        machine,
        limit,
        per_cluster,
        sites: Sites::new(places, dram),
        alike,
        starting: Work::without_memory([Piece::idle(LAUNCH)].into()),
        running: Vec::new(),
        free: Vec::new(),
        spares: Spares::default(),
        shapes: Shapes::default(),
        spans: Vec::new(),
    };
    for slot in 0..slots {
        for site in 0..places {
            grid.launch(site, u64::from(slot));
        }
    }
    while let Some(ended) = grid.sites.next() {
        if !grid.go_on(ended) {
            break;
        }
    }
    let mut spans = grid.spans;
    if alike {
        let growth = dram.growth(machine.stats.cycles, machine.global.traffic());
        let grown = |time: Time| Time(Dram::grown(time.0 / cycle_ps, growth) * cycle_ps);
        for span in &mut spans {
            (span.start, span.end) = (grown(span.start), grown(span.end));
        }
        machine.stats.cycles = Dram::grown(machine.stats.cycles, growth);
    }
    spans
}

/// A launch while it runs.
struct Grid<'r> {
    executable: &'r Executable,
    machine: &'r mut Machine,
    /// The cycle that the budget ends at.
    limit: u64,
    per_cluster: u32,
    sites: Sites,
    /// Whether DRAM slows all blocks alike, and not those that ask for something first.
    alike: bool,
    /// What a cluster does before its first instruction.
    starting: Work,
    running: Vec<ClusterSlot>,
    /// Numbers of places that nobody has.
    free: Vec<usize>,
    spares: Spares,
    shapes: Shapes,
    spans: Vec<BlockSpan>,
}

impl Grid<'_> {
    /// Puts the next cluster, if there is one, on an SM that has room.
    fn launch(&mut self, site: u32, time: u64) {
        let Some(number) = self.machine.pool.take() else {
            return;
        };
        let at = self.free.pop().unwrap_or(self.running.len());
        if at == self.running.len() {
            self.running.push(ClusterSlot::Free);
        }
        self.running[at] = ClusterSlot::Starting { number };
        self.sites.start(site, at, time, self.starting.clone());
    }

    /// A job has ended: its cluster runs on, or leaves. False when the launch is over.
    fn go_on(&mut self, Ended { time, site, who }: Ended) -> bool {
        let code = &self.executable.code;
        // Made when it starts, and taken apart when it has run: warps that are used
        // again at once are still in the host's caches.
        if let ClusterSlot::Starting { number } = self.running[who] {
            let cluster = Cluster::launch(number, site, time, code, self.machine, &mut self.spares);
            self.running[who] = ClusterSlot::Taken(cluster);
        }
        let ClusterSlot::Taken(cluster) = &mut self.running[who] else {
            return true;
        };
        cluster.team.offset = time - cluster.reached.min(time);
        if !cluster.ended {
            let until = run_cluster(cluster, self.executable, self.machine, self.limit);
            if !self.alike {
                cluster.moved += self.machine.take_traffic();
            }
            if let Some(until) = until {
                let job = cluster.job(until, &mut self.shapes);
                if cluster.ended {
                    self.spares.strip(cluster);
                }
                self.sites.start(site, who, time, job);
                if std::mem::take(&mut self.machine.spinners.look) && self.nobody_changes() {
                    self.machine.spinners.alone = Some(self.machine.changes);
                }
                return true;
            }
            self.spares.strip(cluster);
        }
        self.leave(site, who, time);
        if !self.machine.stopped {
            self.launch(site, time);
        }
        !self.machine.stopped
    }

    /// Whether every warp on the device spins, or waits for one that does. What was to come by
    /// itself, a copy under way, has come while they spun.
    fn nobody_changes(&self) -> bool {
        let changes = self.machine.changes;
        let mut reads = 0;
        let mut in_vain = |slot: &ClusterSlot| match slot {
            ClusterSlot::Free => true,
            ClusterSlot::Starting { .. } => false,
            ClusterSlot::Taken(cluster) => {
                let warps = cluster.warps.iter().flatten();
                reads += warps.map(|warp| warp.reads_in_vain(changes)).sum::<u64>();
                cluster.ended
                    || cluster
                        .warps
                        .iter()
                        .flatten()
                        .all(|warp| warp.is_in_vain(changes))
            }
        };
        !self.machine.spinners.timed
            && self.running.iter().all(&mut in_vain)
            && reads >= Spinners::ENOUGH
    }

    /// A cluster has left its SM.
    fn leave(&mut self, site: u32, who: usize, time: u64) {
        let ClusterSlot::Taken(cluster) =
            std::mem::replace(&mut self.running[who], ClusterSlot::Free)
        else {
            return;
        };
        self.free.push(who);
        let machine = &mut *self.machine;
        let cycle_ps = machine.device.cycle_ps();
        machine.stats.cycles = machine.stats.cycles.max(time);
        for (rank, block) in cluster.blocks.iter().enumerate() {
            machine.stats.blocks += 1;
            self.spans.push(BlockSpan {
                block: machine.launch.grid.linear(block.ctaid) as u32,
                cluster: cluster.number,
                sm: (site * self.per_cluster + rank as u32) % machine.device.gpu().sms,
                start: Time(cluster.team.start * cycle_ps),
                end: Time((block.end + cluster.team.offset) * cycle_ps),
            });
        }
        self.spares.keep(cluster);
    }
}

/// Runs a cluster up to its next interaction with the device; the time of its own that it
/// has reached, or none if it can't go on.
pub(super) fn run_cluster(
    cluster: &mut Cluster,
    executable: &Executable,
    machine: &mut Machine,
    limit: u64,
) -> Option<u64> {
    let pause = cluster.run(executable, machine, cluster.reached);
    machine.stopped |= machine.global.is_stirred();
    if let Some(told) = over_budget(cluster, &executable.code, machine, limit) {
        machine.findings.report(rule::TIME_BUDGET, 0, || told);
        machine.stopped = true;
    }
    match pause {
        _ if machine.stopped => None,
        Pause::At(until) => Some(until),
        Pause::Done => {
            cluster.ended = true;
            machine.options.meter.end(cluster.blocks.len() as u64);
            Some(cluster.end())
        }
        Pause::Deadlock => {
            deadlock::report(cluster, &executable.code, machine);
            None
        }
        Pause::Stopped => None,
    }
}

/// Room for a cluster on an SM.
pub(super) enum ClusterSlot {
    Free,
    /// A cluster will start here.
    Starting {
        number: u32,
    },
    /// A cluster runs here, or its modelled time has not passed yet.
    Taken(Box<Cluster>),
}

fn over_budget(
    cluster: &Cluster,
    code: &Code,
    machine: &Machine,
    limit: u64,
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
    } else if machine.is_late() {
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
