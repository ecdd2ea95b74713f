//! `table`: all workloads under all schedules, in turns, beside CUDA C++.

use super::{Failure, flag, number};
use heist::run::Device;
use heist::tiled::resident;
use heist_builder::Arch;
use heist_gpu::{
    Arm, Array, Figures, Gpu, GpuError, JitOptions, Kernel, KernelArg, Protocol, PtxText, Stream,
};
use heist_kernels::synthetic::{Parameters, Synthetic, THREADS, Workload, build};
use heist_launch::Launch;
use heist_sched::{Effort, Plan, Schedule, Submit, TicketGrid, TileSource, TuneKey, Tuner};
use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// A cell of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) schedule: String,
    pub(super) median_us: f64,
    pub(super) p10_us: f64,
    pub(super) p90_us: f64,
    /// Every element right and the counter at zero, after all launches.
    pub(super) right: bool,
}

/// A row of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) workload: Workload,
    pub(super) parameters: Parameters,
    pub(super) entries: Vec<Entry>,
    /// Ticket greedy beside CUDA C++ with the same moment, within rounds:
    /// early, late.
    pub(super) ticket_over_peer: [Option<f64>; 2],
    /// What the tuner chose before the row was measured, and how much longer
    /// that takes than the best of the row.
    pub(super) auto: Option<(String, f64)>,
    /// How many samples the tuner took, of all its candidates.
    #[serde(default)]
    pub(super) auto_samples: u32,
}

/// The table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Table {
    pub(super) device: String,
    pub(super) sms: u32,
    pub(super) rounds: u32,
    pub(super) rows: Vec<Row>,
}

/// The schedules of a row, in order.
pub(super) fn schedules() -> Vec<Schedule> {
    let mut all = vec![
        Schedule::new(TileSource::Direct),
        Schedule::new(TileSource::Static),
    ];
    for submit in [Submit::Early, Submit::Late] {
        for text in ["greedy", "max-steals(8)", "at-most(64)"] {
            all.extend(text.parse().ok().map(|policy| {
                Schedule::new(TileSource::Ticket)
                    .policy(policy)
                    .submit(submit)
            }));
        }
    }
    for submit in [Submit::Early, Submit::Late] {
        let mut full = Schedule::new(TileSource::Ticket).submit(submit);
        full.grid = Some(TicketGrid::Full);
        all.push(full);
    }
    for text in [
        "never",
        "every(2)",
        "time-budget(50us)",
        "first-half",
        "fair-share",
        "token-bucket(500, 4)",
        "probability(0.75)",
        "sm-limit(100)",
    ] {
        all.extend(
            text.parse()
                .ok()
                .map(|policy| Schedule::new(TileSource::Ticket).policy(policy)),
        );
    }
    all
}

/// One schedule made ready.
struct Ready {
    name: String,
    kernel: Kernel,
    plan: Plan,
    control: Array<u64>,
    watch: Array<u64>,
    table: Array<u32>,
    output: Array<u32>,
}

/// The CUDA C++ kernel made ready.
struct Peer {
    name: String,
    kernel: Kernel,
    launch: Launch,
    counter: Array<u32>,
    base: Cell<u32>,
    output: Array<u32>,
}

/// Puts one launch into a stream.
type Launcher<'l> = Box<dyn Fn(&Stream) -> Result<(), GpuError> + 'l>;

/// Measures; whether every result was right.
pub(super) fn run(words: &[String]) -> Result<bool, Failure> {
    let gpu = Gpu::open(0)?;
    let tiles = number(words, "--tiles", 16384)?;
    let mean = number(words, "--mean", 1000)?;
    let prologues = [0, number(words, "--prologue", 2000)?];
    let rounds = number(words, "--rounds", 15)?;
    let peer = flag(words, "--peer")
        .map(std::fs::read_to_string)
        .transpose()?;
    let mut table = Table {
        device: gpu.info().name.clone(),
        sms: gpu.info().sms,
        rounds,
        rows: Vec::new(),
    };
    for workload in Workload::ALL {
        for prologue in prologues {
            let parameters = Parameters {
                tiles,
                // A warp searches until its last number is found, which is
                // much later than in the mean.
                mean: match workload {
                    Workload::DataDependent => (mean / 16).max(1),
                    _ => mean,
                },
                imbalance: 8.0,
                prologue,
                seed: 7,
                shared: 0,
            };
            let row = row(&gpu, workload, parameters, peer.as_deref(), rounds)?;
            print_row(&row);
            table.rows.push(row);
        }
    }
    if let Some(path) = flag(words, "--json") {
        std::fs::write(path, serde_json::to_string_pretty(&table)?)?;
    }
    let right = table
        .rows
        .iter()
        .all(|row| row.entries.iter().all(|entry| entry.right));
    println!("every result right: {right}");
    Ok(right)
}

fn row(
    gpu: &Gpu,
    workload: Workload,
    parameters: Parameters,
    peer: Option<&str>,
    rounds: u32,
) -> Result<Row, Failure> {
    let synthetic = Synthetic::new(workload, parameters);
    let costs = gpu.upload(&synthetic.costs)?;
    let input = gpu.upload(synthetic.input())?;
    let ready = ready(gpu, &synthetic)?;
    let peers = match peer {
        None => Vec::new(),
        Some(text) => peers(gpu, &synthetic, text)?,
    };
    let own = |output: &Array<u32>| {
        vec![
            KernelArg::pointer(&costs),
            KernelArg::pointer(&input),
            KernelArg::pointer(output),
            KernelArg::scalar(parameters.prologue),
            KernelArg::scalar(synthetic.seed()),
        ]
    };
    let ours = ready
        .iter()
        .map(|one| (one.name.clone(), one.launcher(own(&one.output))));
    let theirs = peers.iter().map(|one| {
        let launcher = one.launcher(own(&one.output), parameters.tiles);
        (one.name.clone(), launcher)
    });
    let launchers: Vec<(String, Launcher<'_>)> = ours.chain(theirs).collect();
    // The tuner first: it knows nothing of what is measured after it.
    let arch = Device::Gpu(gpu.clone()).arch()?;
    let (chosen, auto_samples) = tune(gpu, arch, &synthetic, &launchers)?;
    let mut arms: Vec<Arm<'_>> = launchers
        .iter()
        .map(|(name, launch)| Arm::new(name.clone(), launch))
        .collect();
    let protocol = Protocol {
        rounds,
        ..Protocol::default()
    };
    let figures = gpu.measure(&mut arms, &protocol)?;
    drop(arms);
    drop(launchers);
    let entries = entries(&figures, &ready, &peers, &synthetic)?;
    let named = |name: &str| figures.iter().find(|figure| figure.name == name);
    let over = |ours: &str, theirs: &str| {
        let ratio = named(ours)?.times_as_long_as(named(theirs)?)?;
        Some(ratio.median)
    };
    let best = entries
        .iter()
        .filter(|entry| !entry.schedule.starts_with("cuda"))
        .map(|entry| entry.median_us)
        .fold(f64::INFINITY, f64::min);
    let auto = chosen.and_then(|name| {
        let entry = entries.iter().find(|entry| entry.schedule == name)?;
        Some((name, entry.median_us / best))
    });
    Ok(Row {
        workload,
        parameters,
        entries,
        ticket_over_peer: [
            over("ticket early greedy", "cuda early"),
            over("ticket late greedy", "cuda late"),
        ],
        auto,
        auto_samples,
    })
}

/// All schedules of a workload, made ready.
fn ready(gpu: &Gpu, synthetic: &Synthetic) -> Result<Vec<Ready>, Failure> {
    let device = Device::Gpu(gpu.clone());
    let arch = device.arch()?;
    let mut all = Vec::new();
    for schedule in schedules() {
        let built = build(synthetic, &schedule, arch)?;
        let plan = built.plan(resident(&device, &built))?;
        let program = gpu.load(
            &PtxText::new("workload", built.ptx()),
            &JitOptions::default(),
        )?;
        all.push(Ready {
            name: schedule.to_string(),
            kernel: program.kernel(&built.built.launch.entry)?,
            control: gpu.upload(&plan.control)?,
            watch: gpu.upload(&plan.watch)?,
            table: gpu.upload(&plan.table)?,
            output: gpu.zeros::<u32>(synthetic.input().len())?,
            plan,
        });
    }
    Ok(all)
}

/// The CUDA C++ kernels for a workload, early and late, from their PTX.
fn peers(gpu: &Gpu, synthetic: &Synthetic, text: &str) -> Result<Vec<Peer>, Failure> {
    let options = JitOptions {
        clamp_version: true,
        ..JitOptions::default()
    };
    let program = gpu.load(&PtxText::new("plain.ptx", text), &options)?;
    let kind = match synthetic.workload {
        Workload::DataDependent => "search",
        _ => "chain",
    };
    let mut all = Vec::new();
    for moment in ["early", "late"] {
        let kernel = program.kernel(&format!("plain_{moment}_{kind}"))?;
        let whole = Launch::new(1, THREADS);
        let blocks = kernel.occupancy(&whole)?.blocks_per_sm * gpu.info().sms;
        all.push(Peer {
            name: format!("cuda {moment}"),
            launch: Launch::new(blocks.min(synthetic.parameters.tiles), THREADS),
            kernel,
            counter: gpu.zeros::<u32>(1)?,
            base: Cell::new(0),
            output: gpu.zeros::<u32>(synthetic.input().len())?,
        });
    }
    Ok(all)
}

impl Ready {
    /// Launches it with the workload's `own` arguments and the schedule's.
    fn launcher(&self, own: Vec<KernelArg>) -> Launcher<'_> {
        let mut arguments = own;
        arguments.push(KernelArg::pointer(&self.control));
        arguments.push(KernelArg::pointer(&self.watch));
        arguments.push(KernelArg::pointer(&self.table));
        arguments.extend(self.plan.numbers.to_array().map(KernelArg::scalar));
        Box::new(move |stream| self.kernel.launch(stream, &self.plan.launch, &arguments))
    }
}

impl Peer {
    /// Launches it with the workload's `own` arguments and the counter's.
    fn launcher(&self, own: Vec<KernelArg>, tiles: u32) -> Launcher<'_> {
        Box::new(move |stream| {
            let base = self.base.get();
            let mut all = own.clone();
            all.push(KernelArg::pointer(&self.counter));
            all.push(KernelArg::scalar(tiles));
            all.push(KernelArg::scalar(base));
            // As many draws as tiles: each block's last one is in vain, and its
            // first tile is not drawn.
            self.base.set(base.wrapping_add(tiles));
            self.kernel.launch(stream, &self.launch, &all)
        })
    }
}

/// What was measured, ours and then theirs, and whether the results are right.
fn entries(
    figures: &[Figures],
    ready: &[Ready],
    peers: &[Peer],
    synthetic: &Synthetic,
) -> Result<Vec<Entry>, Failure> {
    let mut all = Vec::new();
    for (index, figure) in figures.iter().enumerate() {
        let spread = figure
            .nanoseconds()
            .ok_or_else(|| format!("{}: no time was measured", figure.name))?;
        let (output, settled) = match ready.get(index) {
            Some(one) => (one.output.read()?, one.control.read()?[0] == 0),
            None => (peers[index - ready.len()].output.read()?, true),
        };
        all.push(Entry {
            schedule: figure.name.clone(),
            median_us: spread.median / 1e3,
            p10_us: spread.p10 / 1e3,
            p90_us: spread.p90 / 1e3,
            right: settled && synthetic.verify(&output).is_ok(),
        });
    }
    Ok(all)
}

/// What the tuner chooses, and how many samples it took.
fn tune(
    gpu: &Gpu,
    arch: Arch,
    synthetic: &Synthetic,
    launchers: &[(String, Launcher<'_>)],
) -> Result<(Option<String>, u32), Failure> {
    let candidates = Schedule::candidates(arch, &"max-steals(8)".parse()?);
    let mut places = Vec::new();
    for candidate in &candidates {
        let name = candidate.to_string();
        let place = launchers.iter().position(|(launcher, _)| *launcher == name);
        places.push(place.ok_or_else(|| format!("{name} is not in the table"))?);
    }
    let sampler = gpu.sampler()?;
    for &place in &places {
        sampler.sample(3, &launchers[place].1)?;
    }
    let mut samples = 0;
    let key = TuneKey::new(synthetic.workload.as_str(), synthetic.tiles(), "gpu");
    let chosen = Tuner::new(Effort::default()).choose(&key, &candidates, |at| {
        samples += 1;
        sampler.sample(1, &launchers[places[at]].1)
    })?;
    Ok((chosen.map(|at| candidates[at].to_string()), samples))
}

fn print_row(row: &Row) {
    println!("\n{}, prologue {}", row.workload, row.parameters.prologue);
    for entry in &row.entries {
        let mark = if entry.right { "" } else { "   WRONG" };
        println!(
            "  {:<34} {:>9.1} us  ({:.1} to {:.1}){mark}",
            entry.schedule, entry.median_us, entry.p10_us, entry.p90_us
        );
    }
    if let [Some(early), Some(late)] = row.ticket_over_peer {
        println!("  ticket over CUDA C++: early {early:.3}, late {late:.3}");
    }
    if let Some((name, ratio)) = &row.auto {
        let samples = row.auto_samples;
        println!("  auto: {name} after {samples} samples, {ratio:.3} of the best");
    }
}
