//! `once`: random configurations on the GPU, every tile counted.
//!
//! What a kernel is built for (source, policy, moment, cluster, order, axes,
//! threads) is drawn once for many launches; grid, number of workers and length
//! of the tiles are drawn for each launch. Kernels are assembled on all cores
//! while those that are ready run. The control words of a kernel are never
//! cleared between its launches.

use super::adversaries;
use super::overlap::{self, Overlap};
use super::{Failure, flag, number};
use heist::run::Device;
use heist_builder::{Arch, Global, kernel_params};
use heist_gpu::{Array, Gpu, JitOptions, Kernel, KernelArg, PtxText};
use heist_launch::{Clock, Dim3};
use heist_sched::{
    AnyOrder, AnyPolicy, Catalogue, Plan, Policy, Schedule, Submit, Table, TicketGrid, TileSource,
    Tiled, TiledKernel, TraceDevice, Watch,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

kernel_params! {
    /// How often each tile ran, when the first began and the last ended, and
    /// how long a tile is.
    pub(super) struct Count { runs: Global<u32>, span: Global<u64>, steps: u32 }
}

/// What a kernel is built for.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    schedule: Schedule,
    threads: u32,
    /// Axes of the grids.
    rank: usize,
    /// The one grid of an order that is a table.
    fixed: Option<Dim3>,
}

/// A kernel that is ready to be launched.
pub(super) struct Made {
    pub(super) recipe: Recipe,
    pub(super) tiled: TiledKernel<Count>,
    pub(super) kernel: Kernel,
}

/// Grids by the number of their axes: one tile, primes, fewer than SMs, many.
const GRIDS: [&[[u32; 3]]; 3] = [
    &[
        [1, 1, 1],
        [2, 1, 1],
        [7, 1, 1],
        [131, 1, 1],
        [1009, 1, 1],
        [5003, 1, 1],
        [100_000, 1, 1],
    ],
    &[
        [61, 53, 1],
        [1, 97, 1],
        [13, 11, 1],
        [317, 313, 1],
        [1, 1, 1],
    ],
    &[[13, 7, 11], [3, 1, 29], [2, 2, 2], [47, 46, 46]],
];

const CLUSTERS: [[u32; 3]; 12] = [
    [1, 1, 1],
    [1, 1, 1],
    [1, 1, 1],
    [2, 1, 1],
    [1, 2, 1],
    [2, 2, 1],
    [4, 1, 1],
    [1, 4, 1],
    [3, 1, 1],
    [8, 1, 1],
    [1, 8, 1],
    [2, 2, 2],
];

fn policies() -> Result<Vec<AnyPolicy>, Failure> {
    let catalogue = Catalogue::standard();
    let texts = catalogue.entries().iter().map(|entry| entry.example);
    let more = [
        "max-steals(1)",
        "every(3)",
        "probability(0.5)",
        "!first-half",
        "time-budget(3us)",
        "token-bucket(1, 1)",
        "max-steals(2) & first-half | every(2)",
    ];
    let mut all = Vec::new();
    for text in texts.chain(more) {
        all.push(text.parse()?);
    }
    all.extend(adversaries::all());
    Ok(all)
}

/// The `index`-th recipe: every policy, cluster and order comes up in turn, the
/// rest is drawn.
fn recipe(index: usize, seed: u64, policies: &[AnyPolicy]) -> Result<Recipe, Failure> {
    let mut rng = fastrand::Rng::with_seed(seed ^ (index as u64).wrapping_mul(0x9E37_79B9));
    let source = [
        TileSource::Ticket,
        TileSource::Ticket,
        TileSource::Ticket,
        TileSource::Static,
        TileSource::Direct,
    ][index % 5];
    let mut schedule = Schedule::new(source)
        .policy(policies[(index / 5 * 3 + index % 5) % policies.len()].clone())
        .submit([Submit::Early, Submit::Late][rng.usize(0..2)])
        .watch([Watch::Off, Watch::Off, Watch::Stats, Watch::Trace][rng.usize(0..4)]);
    schedule.cluster = Dim3::from(CLUSTERS[rng.usize(0..CLUSTERS.len())]);
    schedule.grid = [
        None,
        None,
        Some(TicketGrid::Full),
        Some(TicketGrid::Resident),
        Some(TicketGrid::Relief),
    ][rng.usize(0..5)];
    let rank = rng.usize(1..4);
    let mut fixed = None;
    let order = ["linear", "reversed", "grouped(3)", "hilbert", "longest"][rng.usize(0..5)];
    schedule.order = if order == "longest" {
        let grids = GRIDS[rank - 1];
        let tiles = Dim3::from(grids[rng.usize(0..grids.len())]);
        fixed = Some(tiles);
        let (tiles, cluster) = (tiles.to_array(), schedule.cluster.to_array());
        let clusters = [0, 1, 2].map(|axis| tiles[axis].div_ceil(cluster[axis]));
        let costs: Vec<u64> = (0..Dim3::from(clusters).count())
            .map(|at| at * 7919 % 31)
            .collect();
        AnyOrder::new(Table::longest_first(&costs))
    } else {
        order.parse()?
    };
    Ok(Recipe {
        schedule,
        threads: [32, 64, 128, 256][rng.usize(0..4)],
        rank,
        fixed,
    })
}

fn make(gpu: &Gpu, arch: Arch, recipe: Recipe) -> Result<Made, Failure> {
    let cluster = recipe.schedule.cluster;
    let several = |axis: usize, blocks: u32| if axis < recipe.rank { 2 * blocks } else { 1 };
    let tiles = recipe.fixed.unwrap_or(Dim3::new(
        several(0, cluster.x),
        several(1, cluster.y),
        several(2, cluster.z),
    ));
    let tiled = Tiled::<Count>::new("count", tiles)
        .schedule(&recipe.schedule)
        .block(recipe.threads)
        .locations(false)
        .build(arch, |k, args, tiles| {
            let scratch = k.shared::<u32>("scratch", 1);
            tiles.each(|tile| {
                // Shared memory is used in every tile, so that blocks that do
                // not meet between tiles miscount.
                k.one_thread(|| {
                    scratch.at(0).store(tile.number());
                    args.span.at(0).atomic_min(k.nanoseconds());
                });
                k.sync();
                let number = scratch.at(0).load();
                let spin = k.var(number);
                k.for_range(0u32, (number % 7) * args.steps, |_| {
                    spin.set(spin.get() * 3 + 1);
                });
                k.if_(k.thread_index().eq(k.threads() - 1), || {
                    // One, unless 2^-32: the loop's result is needed to know.
                    let one = spin.get().eq(0xDEAD_BEEF).select(2u32, 1u32);
                    args.runs.at(number).atomic_add(one);
                    args.span.at(1).atomic_max(k.nanoseconds());
                });
            })
        })?;
    let text = PtxText::new("count", tiled.ptx());
    let kernel = gpu
        .load(&text, &JitOptions::default())?
        .kernel(&tiled.built.launch.entry)?;
    Ok(Made {
        recipe,
        tiled,
        kernel,
    })
}

impl Made {
    pub(super) fn name(&self) -> String {
        format!("{}, {} threads", self.recipe.schedule, self.recipe.threads)
    }

    pub(super) fn source(&self) -> TileSource {
        self.recipe.schedule.source
    }

    /// The one grid of an order that is a table.
    pub(super) fn fixed(&self) -> Option<Dim3> {
        self.recipe.fixed
    }

    /// A grid for a launch.
    fn grid(&self, rng: &mut fastrand::Rng) -> Dim3 {
        self.recipe.fixed.unwrap_or_else(|| {
            let grids = GRIDS[self.recipe.rank - 1];
            Dim3::from(grids[rng.usize(0..grids.len())])
        })
    }
}

/// The arguments of a launch.
pub(super) fn arguments(
    plan: &Plan,
    runs: &Array<u32>,
    span: &Array<u64>,
    steps: u32,
    control: u64,
    watch: &Array<u64>,
    table: &Array<u32>,
) -> Vec<KernelArg> {
    let mut all = vec![
        KernelArg::pointer(runs),
        KernelArg::pointer(span),
        KernelArg::scalar(steps),
        KernelArg::address(control),
        KernelArg::pointer(watch),
        KernelArg::pointer(table),
    ];
    all.extend(plan.numbers.to_array().map(KernelArg::scalar));
    all
}

/// One launch; what is wrong with it, or nothing.
fn launch(
    gpu: &Gpu,
    made: &Made,
    control: &Array<u64>,
    rng: &mut fastrand::Rng,
) -> Result<Option<String>, Failure> {
    let tiles = made.grid(rng);
    let resident = [1, 5, 64, 1056][rng.usize(0..4)];
    let steps = if tiles.count() > 50_000 { 1 } else { 20 };
    let plan = made.tiled.plan_for(tiles, resident)?;
    let runs = gpu.zeros::<u32>(tiles.count() as usize)?;
    let span = gpu.upload(&[u64::MAX, 0])?;
    let watch = gpu.upload(&plan.watch)?;
    let table = gpu.upload(&plan.table)?;
    let all = arguments(
        &plan,
        &runs,
        &span,
        steps,
        control.address(),
        &watch,
        &table,
    );
    let stream = gpu.stream()?;
    made.kernel.launch(&stream, &plan.launch, &all)?;
    stream.synchronize_within(Duration::from_secs(30))?;
    let what = format!("{}, {tiles} tiles, {resident} resident", made.name());
    let counted = runs.read()?;
    if let Some(at) = counted.iter().position(|runs| *runs != 1) {
        let bad = counted.iter().filter(|runs| **runs != 1).count();
        return Ok(Some(format!(
            "{what}: {bad} tiles miscounted, tile {at} ran {} times",
            counted[at]
        )));
    }
    let place = TraceDevice {
        device: gpu.info().name.clone(),
        sms: gpu.info().sms,
        clock: Clock::Measured,
    };
    let report =
        made.tiled
            .readout(&plan)
            .report_words(&control.read()?, &watch.read()?, &place)?;
    if !report.counter_is_zero {
        return Ok(Some(format!("{what}: the counter is not back at zero")));
    }
    if let Some(ejected) = report.ejected {
        return Ok(Some(format!("{what}: {ejected}")));
    }
    if let Some(trace) = report.trace
        && !trace.miscounted_tiles(tiles).is_empty()
    {
        return Ok(Some(format!("{what}: the trace miscounts tiles")));
    }
    Ok(None)
}

/// Runs them; whether all were right.
pub(super) fn run(words: &[String]) -> Result<bool, Failure> {
    let count: usize = words.first().and_then(|w| w.parse().ok()).unwrap_or(1000);
    let kernels = (number(words, "--kernels", 200)? as usize).clamp(1, count.max(1));
    let seed = u64::from(number(words, "--seed", 1)?);
    let began = Instant::now();
    let gpu = Gpu::open(0)?;
    let arch = Device::Gpu(gpu.clone()).arch()?;
    let policies = policies()?;
    let recipes: Vec<Recipe> = (0..kernels)
        .map(|index| recipe(index, seed, &policies))
        .collect::<Result<_, _>>()?;
    let next = AtomicUsize::new(0);
    let (send, made) = std::sync::mpsc::channel::<Result<(usize, Made), String>>();
    let mut wrong: Vec<String> = Vec::new();
    let mut by_source = BTreeMap::<&str, u64>::new();
    let mut by_policy = BTreeMap::<String, u64>::new();
    let mut by_cluster = BTreeMap::<String, u64>::new();
    let mut overlap = Overlap::default();
    let (mut launches, mut assembled) = (0u64, Duration::ZERO);
    let ran: Result<(), Failure> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(4, usize::from);
        for _ in 0..threads.min(16) {
            let (send, gpu, next, recipes) = (send.clone(), &gpu, &next, &recipes);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(recipe) = recipes.get(index) else {
                        return;
                    };
                    let made = make(gpu, arch, recipe.clone())
                        .map(|made| (index, made))
                        .map_err(|error| format!("{}: {error}", recipe.schedule));
                    let failed = made.is_err();
                    if send.send(made).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(send);
        for made in &made {
            let (index, made) = made?;
            assembled = began.elapsed();
            let control = gpu.zeros::<u64>(heist_sched::CONTROL_WORDS)?;
            let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(index as u64) ^ 0xC0FFEE);
            for _ in (index..count).step_by(kernels) {
                wrong.extend(launch(&gpu, &made, &control, &mut rng)?);
                launches += 1;
                *by_source.entry(made.source().as_str()).or_default() += 1;
                let schedule = &made.recipe.schedule;
                if made.source().asks() {
                    *by_policy.entry(schedule.policy.name()).or_default() += 1;
                }
                *by_cluster.entry(schedule.cluster.to_string()).or_default() += 1;
                if launches.is_multiple_of(100) {
                    let seconds = began.elapsed().as_secs_f64();
                    eprintln!(
                        "{launches} of {count} in {seconds:.1} s, {} wrong",
                        wrong.len()
                    );
                }
            }
            if made.source() == TileSource::Ticket {
                wrong.extend(overlap::run(&gpu, &made, &mut overlap)?);
            }
        }
        Ok(())
    });
    if let Err(error) = ran {
        wrong.push(error.to_string());
    }
    let answer = json!({
        "device": gpu.info().name,
        "launches": launches,
        "kernels": kernels,
        "seconds": began.elapsed().as_secs_f64(),
        "last_kernel_assembled_after_s": assembled.as_secs_f64(),
        "by_source": by_source,
        "by_policy": by_policy,
        "by_cluster": by_cluster,
        "overlap": overlap,
        "wrong": wrong,
    });
    println!("{answer:#}");
    if let Some(path) = flag(words, "--json") {
        std::fs::write(path, format!("{answer:#}\n"))?;
    }
    // Launches that never overlapped would show nothing.
    Ok(wrong.is_empty() && launches == count as u64 && overlap.overlapping_pairs > 0)
}
