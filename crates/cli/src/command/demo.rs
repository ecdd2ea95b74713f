//! `heist demo`: the tour, one story in two tables and a page.

use super::launch::seconds;
use super::run::{as_json, not_run};
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::progress::Progress;
use crate::timeline::{draw, drawable, stop, stopped};
use clap::Args;
use heist::tiled::TiledError;
use heist::workload::{self, WorkloadRun};
use heist_kernels::synthetic::{Parameters, Synthetic, Workload};
use heist_launch::Time;
use heist_run::{Device, DeviceName, Settings};
use heist_sched::{AnyOrder, AnyPolicy, Greedy, MaxSteals, Schedule, Submit, Table, TileSource};
use heist_view::newcomer::Wait;
use heist_view::{Run as Named, newcomer, table};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One uneven workload under several schedules, alone and on a shared GPU: two tables, what
/// they show, and a page to open.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist demo                        on a simulated B200, a few seconds
  heist demo --device gpu           the same on the GPU of this machine
  heist demo --trace /tmp/demo.html --workload mixture-of-experts")]
pub(crate) struct Demo {
    /// The workload: see `heist run --help`.
    #[arg(long, default_value = "power-law")]
    workload: String,
    /// sim:b200, sim:h200, sim:l4, ... or gpu.
    #[arg(long, default_value = "sim:b200")]
    device: DeviceName,
    /// Where to write the page (.html, or .json for Perfetto).
    #[arg(long, value_name = "FILE", default_value = "heist-demo.html")]
    trace: PathBuf,
    /// How long each of the runs may take.
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    timeout: Duration,
}

/// The schedules, each with a sentence.
fn schedules(source: TileSource, costs: &[u32]) -> Vec<(Schedule, &'static str)> {
    let late = || Schedule::new(source).submit(Submit::Late);
    let heavy_first = |mut schedule: Schedule| {
        schedule.order = AnyOrder::new(Table::longest_first(costs));
        schedule
    };
    vec![
        (
            Schedule::new(TileSource::Static),
            "Tiles are dealt out before the start; blocks stay.",
        ),
        (
            Schedule::new(TileSource::Direct),
            "One block for each tile; each has a prologue of its own.",
        ),
        (
            Schedule::new(source),
            "A block asks for its next tile while the one before is still at work.",
        ),
        (
            late(),
            "A block asks for its next tile when it has ended the one before.",
        ),
        (
            heavy_first(late()),
            "A block asks when it has ended a tile, and the heaviest tiles go first.",
        ),
        (
            heavy_first(late().policy(AnyPolicy::new(MaxSteals { limit: 2 }))),
            "The heaviest tiles go first, and a block leaves after two tiles more than its own.",
        ),
    ]
}

impl Demo {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let started = Instant::now();
        drawable(&self.trace)?;
        if self.trace.extension().is_some_and(|e| e == "svg") {
            return Err(question(
                "an .svg shows one launch, and these are many; write an .html",
            ));
        }
        let workload: Workload = self
            .workload
            .parse()
            .map_err(|error| BadQuestion::Sentence(format!("{error}")))?;
        let device = Device::open(self.device).map_err(question)?;
        let arch = device.arch().map_err(question)?;
        let synthetic = Synthetic::new(workload, parameters(self.device));
        let source = TileSource::auto(arch, &Greedy, true).source;
        let schedules = schedules(source, &synthetic.costs);
        if !out.json {
            introduce(workload, &synthetic, self.device);
        }
        let settings = Settings {
            limit: self.timeout,
            ..Settings::default()
        };
        let runs = run_all(self.device, &device, &schedules, &synthetic, &settings, out)?;
        let stops: Vec<_> = runs.iter().map(|ran| stop(&ran.findings)).collect();
        let all = synthetic.tiles().count();
        let named: Vec<Named<'_>> = runs
            .iter()
            .zip(&stops)
            .zip(&schedules)
            .map(|((ran, why), (_, about))| {
                let run = Named::new(&ran.schedule, &ran.trace).about(about);
                run.stopped(stopped(why, Some(all)))
            })
            .collect();
        draw(
            &self.trace,
            &format!("{workload} under several schedules"),
            &named,
        )?;
        let right = runs.iter().all(|ran| ran.is_right(&synthetic));
        let seconds = started.elapsed().as_secs_f64();
        if out.json {
            let answers: Vec<_> = runs.iter().map(|ran| as_json(ran, &synthetic)).collect();
            out.json(&json!({
                "runs": answers,
                "newcomer": named.iter().map(|run| newcomer(run.trace)).collect::<Vec<_>>(),
                "story": heist_view::story(&named),
                "timeline": self.trace,
                "seconds": seconds,
            }));
        } else {
            alone(&named);
            let ended: Vec<_> = named.iter().filter(|run| run.stopped.is_none()).collect();
            if !ended.is_empty() {
                shared(&ended);
            }
            let wrong: Vec<&str> = runs
                .iter()
                .zip(&stops)
                .filter(|(ran, why)| why.is_none() && !ran.is_right(&synthetic))
                .map(|(ran, _)| ran.schedule.as_str())
                .collect();
            if !wrong.is_empty() {
                println!("WRONG under {}: see `heist run`.", wrong.join(", "));
            } else if right {
                println!("In every run each tile ran exactly once, and every result was checked.");
            }
            end(&named, &self.trace, seconds);
        }
        Ok(match right {
            true => Verdict::Clean,
            false => Verdict::Found,
        })
    }
}

/// A simulated GPU gets a few tiles that each hold a multiprocessor; a real one many.
fn parameters(device: DeviceName) -> Parameters {
    let real = matches!(device, DeviceName::Gpu(_));
    Parameters {
        tiles: if real { 16384 } else { 900 },
        mean: if real { 2000 } else { 1000 },
        prologue: if real { 2000 } else { 400 },
        imbalance: 8.0,
        seed: 3,
        shared: if real { 0 } else { 150_000 },
    }
}

fn introduce(workload: Workload, synthetic: &Synthetic, device: DeviceName) {
    println!(
        "{} tiles of uneven length on {device}, as in `{workload}`: {}.\n\
         A block has a prologue to do before its first tile. What happens when it ends a tile?\n",
        synthetic.parameters.tiles,
        workload.summary()
    );
}

/// The first table: times alone on the GPU.
fn alone(runs: &[Named<'_>]) {
    let rows: Vec<Vec<String>> = heist_view::story::ranked(runs)
        .into_iter()
        .map(|at| {
            let figures = runs[at].trace.summary();
            let time = match runs[at].stopped {
                Some(_) => "stopped".to_owned(),
                None => figures.makespan.to_string(),
            };
            vec![
                runs[at].name.to_owned(),
                time,
                figures.tail.to_string(),
                format!("{:.0}%", figures.busy_fraction * 100.0),
                figures.blocks.to_string(),
                figures.stolen.to_string(),
            ]
        })
        .collect();
    let head = ["schedule", "time", "tail", "busy", "blocks", "taken over"];
    println!("1. Alone on the GPU\n\n{}", table::columns(&head, &rows));
    println!(
        "tail: from the first SM that has nothing left to do, to the end. busy: SM time with a tile at \
         work.\nblocks: how many prologues were done. taken over: tiles that a block got besides its own."
    );
    println!("\n=> {}\n", heist_view::story(runs));
}

/// The second table: how long another kernel would wait, beside each run that came to its end.
fn shared(runs: &[&Named<'_>]) {
    let mut waits: Vec<_> = runs
        .iter()
        .map(|run| (*run, newcomer(run.trace), run.trace.makespan()))
        .collect();
    waits.sort_by(|a, b| a.1.p99.total_cmp(&b.1.p99));
    let rows: Vec<Vec<String>> = waits
        .iter()
        .map(|(run, wait, time)| {
            vec![
                run.name.to_owned(),
                Time::from_ns_f64(wait.typical).to_string(),
                Time::from_ns_f64(wait.p99).to_string(),
                time.to_string(),
            ]
        })
        .collect();
    let head = ["schedule", "wait, typical", "wait, p99", "time"];
    println!(
        "2. And when another kernel needs the GPU?\n\n{}",
        table::columns(&head, &rows)
    );
    println!(
        "wait: of a kernel of higher priority that comes while the GPU is full, until a block leaves it a\n\
         slot; a running block is never stopped. time: of this kernel, as above."
    );
    if let Some(sentence) = compromise(&waits) {
        println!("\n=> {sentence}\n");
    }
}

/// What the second table shows: the schedule that lets others in soonest of those that are not
/// much slower than the fastest, beside the fastest. `waits` is sorted by the wait.
fn compromise(waits: &[(&Named<'_>, Wait, Time)]) -> Option<String> {
    let (fast, their_wait, best) = waits.iter().min_by_key(|(_, _, time)| *time)?;
    let near = |(_, _, time): &&(&Named<'_>, Wait, Time)| time.ns() <= best.ns() * 1.25;
    let (run, wait, time) = waits.iter().find(near)?;
    Some(match run.name == fast.name {
        true => format!(
            "{} is the fastest, and no other near it lets others in sooner.",
            fast.name
        ),
        false => format!(
            "Under {} another kernel waits {} (p99), where it waits {} under {}; that costs {:.0}% of time.",
            run.name,
            Time::from_ns_f64(wait.p99),
            Time::from_ns_f64(their_wait.p99),
            fast.name,
            (time.ns() / best.ns() - 1.0) * 100.0
        ),
    })
}

fn end(runs: &[Named<'_>], trace: &std::path::Path, seconds: f64) {
    if runs.iter().any(|run| run.stopped.is_some()) {
        println!("A slow or busy machine needs more time for a run: `--timeout SECONDS`.");
    }
    if runs
        .iter()
        .any(|ran| ran.trace.clock == heist_launch::Clock::Modelled)
    {
        println!("Times are modelled: good for ranking, not a promise.");
    }
    println!(
        "The page: {} (open it in a browser; {seconds:.1} s in all)\n\n\
         Try next:\n  \
         heist policies                                          what there is between these\n  \
         heist run power-law --policy 'max-steals(4) & first-half' --trace run.html\n  \
         heist run attention mask=causal lengths=17,300,5        a real kernel, checked against f64\n  \
         heist check kernel.ptx                                  what is wrong with a kernel of yours",
        trace.display()
    );
}

/// Runs all schedules: side by side on the simulator, one by one on a GPU.
fn run_all(
    name: DeviceName,
    opened: &Device,
    schedules: &[(Schedule, &str)],
    synthetic: &Synthetic,
    settings: &Settings,
    out: Output,
) -> Result<Vec<WorkloadRun>, BadQuestion> {
    let threads = match name {
        DeviceName::Gpu(_) => 1,
        DeviceName::Sim(_) => std::thread::available_parallelism().map_or(2, usize::from),
    };
    let progress = Progress::new(out, "runs", schedules.len());
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<WorkloadRun, TiledError>)>> = Mutex::new(Vec::new());
    let work = |device: &Device| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((schedule, _)) = schedules.get(at) else {
                return;
            };
            let ran = workload::run(synthetic, schedule, device, settings, true);
            match results.lock() {
                Ok(mut results) => results.push((at, ran)),
                Err(poisoned) => poisoned.into_inner().push((at, ran)),
            }
            progress.step(&schedule.to_string());
        }
    };
    if threads == 1 {
        work(opened);
    } else {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    if let Ok(device) = Device::open(name) {
                        work(&device);
                    }
                });
            }
        });
    }
    let mut results = match results.into_inner() {
        Ok(results) => results,
        Err(poisoned) => poisoned.into_inner(),
    };
    results.sort_by_key(|(at, _)| *at);
    results
        .into_iter()
        .map(|(_, ran)| ran.map_err(not_run))
        .collect()
}
