//! `loaded`: what it costs that a policy is loaded, tile by tile as long as you like.

use super::{Failure, number};
use heist::run::Device;
use heist::tiled::resident;
use heist_gpu::{Arm, Array, Gpu, JitOptions, Kernel, KernelArg, Protocol, PtxText, Stream};
use heist_kernels::synthetic::{Parameters, Synthetic, Workload, build};
use heist_sched::{AnyPolicy, Loaded, Plan, Schedule, Submit, TicketGrid, TileSource};

/// Built in, built in over a full grid, and loaded.
fn schedules() -> Result<Vec<(String, Schedule)>, Failure> {
    let mut all = Vec::new();
    for submit in [Submit::Early, Submit::Late] {
        for text in ["greedy", "max-steals(1000000)"] {
            let policy: AnyPolicy = text.parse()?;
            let schedule = Schedule::new(TileSource::Ticket).submit(submit);
            let built_in = schedule.clone().policy(policy.clone());
            all.push((format!("{submit} {text}"), built_in.clone()));
            if text == "greedy" {
                let full = Schedule {
                    grid: Some(TicketGrid::Full),
                    ..built_in
                };
                all.push((format!("{submit} {text} full grid"), full));
            }
            let loaded = schedule.policy(AnyPolicy::new(Loaded::new(&policy)?));
            all.push((format!("{submit} {text} loaded"), loaded));
        }
    }
    Ok(all)
}

struct Ready {
    kernel: Kernel,
    plan: Plan,
    control: Array<u64>,
    watch: Array<u64>,
    table: Array<u32>,
    output: Array<u32>,
}

/// Measures; whether every result was right.
pub(super) fn run(words: &[String]) -> Result<bool, Failure> {
    let gpu = Gpu::open(0)?;
    let device = Device::Gpu(gpu.clone());
    let arch = device.arch()?;
    let rounds = number(words, "--rounds", 15)?;
    let mut all_right = true;
    for shared in [0, 150_000] {
        for mean in [125, 250, 500, 1000, 4000] {
            let parameters = Parameters {
                tiles: number(words, "--tiles", 8192)?,
                mean,
                imbalance: 8.0,
                prologue: 0,
                seed: 7,
                shared,
            };
            let synthetic = Synthetic::new(Workload::Uniform, parameters);
            let costs = gpu.upload(&synthetic.costs)?;
            let input = gpu.upload(synthetic.input())?;
            let schedules = schedules()?;
            let mut ready = Vec::new();
            let mut at_a_time = 0;
            for (_, schedule) in &schedules {
                let built = build(&synthetic, schedule, arch)?;
                at_a_time = resident(&device, &built);
                let plan = built.plan(at_a_time)?;
                let text = PtxText::new("workload", built.ptx());
                let program = gpu.load(&text, &JitOptions::default())?;
                ready.push(Ready {
                    kernel: program.kernel(&built.built.launch.entry)?,
                    control: gpu.upload(&plan.control)?,
                    watch: gpu.upload(&plan.watch)?,
                    table: gpu.upload(&plan.table)?,
                    output: gpu.zeros::<u32>(synthetic.input().len())?,
                    plan,
                });
            }
            let launchers: Vec<_> = ready
                .iter()
                .map(|one| {
                    let mut arguments = vec![
                        KernelArg::pointer(&costs),
                        KernelArg::pointer(&input),
                        KernelArg::pointer(&one.output),
                        KernelArg::scalar(parameters.prologue),
                        KernelArg::scalar(synthetic.seed()),
                        KernelArg::pointer(&one.control),
                        KernelArg::pointer(&one.watch),
                        KernelArg::pointer(&one.table),
                    ];
                    arguments.extend(one.plan.numbers.to_array().map(KernelArg::scalar));
                    move |stream: &Stream| one.kernel.launch(stream, &one.plan.launch, &arguments)
                })
                .collect();
            let mut arms: Vec<Arm<'_>> = schedules
                .iter()
                .zip(&launchers)
                .map(|((name, _), launch)| Arm::new(name.clone(), launch))
                .collect();
            let protocol = Protocol {
                rounds,
                ..Protocol::default()
            };
            let figures = gpu.measure(&mut arms, &protocol)?;
            drop(arms);
            drop(launchers);
            let first = figures[0].nanoseconds().map_or(f64::NAN, |ns| ns.median);
            let tile = first * f64::from(at_a_time) / f64::from(parameters.tiles) / 1e3;
            println!("\n{mean} steps, {at_a_time} blocks at a time: a tile lasts {tile:.1} us");
            for (figure, one) in figures.iter().zip(&ready) {
                let right =
                    one.control.read()?[0] == 0 && synthetic.verify(&one.output.read()?).is_ok();
                all_right &= right;
                let group = if figure.name.starts_with("early") {
                    "early greedy"
                } else {
                    "late greedy"
                };
                let base = figures.iter().find(|other| other.name == group);
                let ratio = base.and_then(|base| figure.times_as_long_as(base));
                println!(
                    "  {:<36} {:>9.1} us  {:>7.4} of greedy built in{}",
                    figure.name,
                    figure.nanoseconds().map_or(f64::NAN, |ns| ns.median) / 1e3,
                    ratio.map_or(f64::NAN, |ratio| ratio.median),
                    if right { "" } else { "   WRONG" }
                );
            }
        }
    }
    println!("every result right: {all_right}");
    Ok(all_right)
}
