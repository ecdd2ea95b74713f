//! `heist demo`: the tour.

use super::run::{BLACKWELL, HOPPER, as_json, not_run};
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::timeline::{draw, drawable};
use clap::Args;
use heist::tiled::TiledError;
use heist::workload::{self, WorkloadRun};
use heist_kernels::synthetic::{Parameters, Synthetic, Workload};
use heist_run::{Device, DeviceName, Settings};
use heist_sched::{AnyPolicy, Schedule, Source, Submit};
use heist_view::Run as Named;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// One uneven workload under several policies: a table, and a timeline to open.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist demo                        on simulated GPUs, and on a real one if there is one
  heist demo --trace /tmp/demo.html --workload mixture-of-experts")]
pub(crate) struct Demo {
    /// The workload: see `heist run --help`.
    #[arg(long, default_value = "sequence-lengths")]
    workload: String,
    /// Where to write the timeline (.html or .json).
    #[arg(long, value_name = "FILE", default_value = "heist-demo.html")]
    trace: PathBuf,
}

const POLICIES: [&str; 5] = [
    "greedy",
    "max-steals(2)",
    "every(2)",
    "first-half",
    "fair-share",
];

fn schedules(source: Source) -> Vec<Schedule> {
    let mut all = vec![Schedule::new(Source::Direct), Schedule::new(Source::Static)];
    let policies = POLICIES
        .iter()
        .filter_map(|text| text.parse::<AnyPolicy>().ok());
    all.extend(policies.map(|policy| Schedule::new(source).policy(policy)));
    all.push(Schedule::new(source).submit(Submit::Late));
    all
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
        let mut verdict = Verdict::Clean;
        let mut answers = Vec::new();
        let mut drawn: Vec<(String, WorkloadRun)> = Vec::new();
        if !out.json {
            println!(
                "Tiles of `{workload}` ({}), with a prologue once a block.\n\
                 A block that ends its tile may take another one over; the policy says when.\n",
                workload.summary()
            );
        }
        let mut devices = vec![(BLACKWELL, Source::Clc, 450), (HOPPER, Source::Ticket, 450)];
        if heist_gpu::devices().is_ok_and(|list| !list.is_empty()) {
            devices.push((DeviceName::Gpu(0), Source::Ticket, 16384));
        }
        for (name, source, tiles) in devices {
            let real = matches!(name, DeviceName::Gpu(_));
            let synthetic = Synthetic::new(
                workload,
                Parameters {
                    tiles,
                    mean: if real { 2000 } else { 1000 },
                    prologue: if real { 2000 } else { 700 },
                    imbalance: 8.0,
                    seed: 3,
                    shared: if real { 0 } else { 150_000 },
                },
            );
            let runs = run_all(name, &schedules(source), &synthetic)?;
            if runs.iter().any(|ran| !ran.is_right(&synthetic)) {
                verdict = Verdict::Found;
            }
            if out.json {
                answers.extend(runs.iter().map(|ran| as_json(ran, &synthetic)));
            } else {
                let named: Vec<Named<'_>> = runs.iter().map(name_of).collect();
                println!("{tiles} tiles on {name}, from {source}");
                println!("{}", heist_view::table::runs(&named, synthetic.tiles()));
            }
            let label = |ran: WorkloadRun| (format!("{} on {name}", ran.schedule), ran);
            drawn.extend(runs.into_iter().map(label));
        }
        let named: Vec<Named<'_>> = drawn
            .iter()
            .map(|(name, ran)| Named::new(name, &ran.trace))
            .collect();
        draw(
            &self.trace,
            &format!("{workload} under several policies"),
            &named,
        )?;
        let seconds = started.elapsed().as_secs_f64();
        if out.json {
            out.json(&json!({ "runs": answers, "timeline": self.trace, "seconds": seconds }));
            return Ok(verdict);
        }
        println!(
            "timeline: {} (open it in a browser; {seconds:.1} s in all)\n\n\
             Try next:\n  \
             heist policies\n  \
             heist run power-law --policy 'max-steals(4) & first-half' --trace run.html\n  \
             heist run {workload} --device sim:h200 --submit late --chaos\n  \
             heist run clustered-heavy --order longest-first",
            self.trace.display()
        );
        Ok(verdict)
    }
}

fn name_of(ran: &WorkloadRun) -> Named<'_> {
    Named::new(&ran.schedule, &ran.trace)
}

/// Runs all schedules: side by side on the simulator, one by one on a GPU.
fn run_all(
    name: DeviceName,
    schedules: &[Schedule],
    synthetic: &Synthetic,
) -> Result<Vec<WorkloadRun>, BadQuestion> {
    let threads = match name {
        DeviceName::Gpu(_) => 1,
        DeviceName::Sim(_) => std::thread::available_parallelism().map_or(2, usize::from),
    };
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<WorkloadRun, TiledError>)>> = Mutex::new(Vec::new());
    let opened = Device::open(name).map_err(|error| BadQuestion::Sentence(error.to_string()))?;
    let work = |device: &Device| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(schedule) = schedules.get(at) else {
                return;
            };
            let ran = workload::run(synthetic, schedule, device, &Settings::default(), true);
            match results.lock() {
                Ok(mut results) => results.push((at, ran)),
                Err(poisoned) => poisoned.into_inner().push((at, ran)),
            }
        }
    };
    if threads == 1 {
        work(&opened);
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
