//! `agree`: whether the simulator ranks schedules as the GPU did.
//!
//! Every (workload, schedule) of a table is run on the simulated GPU, with the
//! same tiles and the same data, and all pairs whose measured times differ by more
//! than 5% are looked at: is the modelled order the same? `--part N` simulates
//! 1/N of the SMs with 1/N of the tiles instead, in a fraction of the time.

use super::table::{Table, schedules};
use super::{Failure, flag, number};
use heist_builder::Arch;
use heist_kernels::synthetic::{Parameters, Synthetic, THREADS, Workload, build};
use heist_ptx::arch::{Footprint, Gpu};
use heist_sched::Schedule;
use heist_sim::{Checks, Device, Options, Program};
use serde::Serialize;
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Pairs that differ by less are too close to call.
const APART: f64 = 0.05;
/// The part of the pairs that must agree.
const ENOUGH: f64 = 0.85;

/// One (workload, schedule), measured and modelled.
#[derive(Clone, Debug, Serialize)]
struct Point {
    workload: Workload,
    prologue: u32,
    schedule: String,
    measured_us: f64,
    modelled_us: f64,
}

/// Pairs looked at, and those whose order agrees.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Agreement {
    pairs: u64,
    agreeing: u64,
    share: f64,
}

impl Agreement {
    fn of(points: &[Point], counts: impl Fn(&Point, &Point) -> bool) -> Agreement {
        let mut found = Agreement::default();
        for (index, a) in points.iter().enumerate() {
            for b in &points[..index] {
                let close = APART * a.measured_us.min(b.measured_us);
                if (a.measured_us - b.measured_us).abs() <= close || !counts(a, b) {
                    continue;
                }
                found.pairs += 1;
                let same = (a.measured_us < b.measured_us) == (a.modelled_us < b.modelled_us);
                found.agreeing += u64::from(same);
            }
        }
        found.share = found.agreeing as f64 / found.pairs.max(1) as f64;
        found
    }
}

/// The modelled time of one run, in microseconds.
fn modelled(
    device: &Device,
    workload: Workload,
    parameters: Parameters,
    schedule: &Schedule,
) -> Result<f64, String> {
    let synthetic = Synthetic::new(workload, parameters);
    let kernel = build(&synthetic, schedule, Arch::SM_90A).map_err(|e| e.to_string())?;
    let resident = device.gpu().resident_blocks(Footprint {
        threads: THREADS,
        registers: 32,
        shared: 0,
    });
    let plan = kernel.plan(resident).map_err(|e| e.to_string())?;
    let program = Program::new(kernel.built.module.clone()).map_err(|e| format!("{e:?}"))?;
    // All cores are busy with other runs already.
    let options = Options {
        checks: Checks::FEWEST,
        threads: 1,
        ..Options::default()
    };
    let entry = &kernel.built.launch.entry;
    let arguments = kernel.arguments(&plan, synthetic.arguments());
    let ran = program
        .run(device, entry, &plan.launch, &arguments, &options)
        .map_err(|errors| format!("{errors:?}"))?;
    let output = kernel.output(&ran.outcome, Synthetic::OUTPUT);
    let output = output.and_then(|buffer| buffer.to_vec::<u32>());
    synthetic
        .verify(&output.unwrap_or_default())
        .map_err(|wrong| wrong.to_string())?;
    let trace = ran.outcome.trace.ok_or("the run has no trace")?;
    Ok(trace.makespan().ns() / 1e3)
}

/// Compares; whether enough of the pairs agree.
pub(super) fn run(words: &[String]) -> Result<bool, Failure> {
    let path = words.first().ok_or("which table? `agree table.json`")?;
    let table: Table = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let part = number(words, "--part", 1)?.max(1);
    let only = flag(words, "--only");
    let began = Instant::now();
    let mut gpu = Gpu::H200;
    gpu.sms = (table.sms / part).max(1);
    let device = Device::of(gpu);
    let mut tasks = Vec::new();
    for row in &table.rows {
        if only
            .as_ref()
            .is_some_and(|name| *name != row.workload.as_str())
        {
            continue;
        }
        for schedule in schedules() {
            let name = schedule.to_string();
            // A number of SMs means something else on a part of the GPU.
            if part > 1 && name.contains("sm-limit") {
                continue;
            }
            if let Some(entry) = row.entries.iter().find(|entry| entry.schedule == name) {
                tasks.push((row.workload, row.parameters, schedule, entry.median_us));
            }
        }
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Point, String>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((workload, parameters, schedule, measured_us)) = tasks.get(index)
                    else {
                        return;
                    };
                    let scaled = Parameters {
                        tiles: parameters.tiles * gpu.sms / table.sms,
                        ..*parameters
                    };
                    let point = modelled(&device, *workload, scaled, schedule)
                        .map(|modelled_us| Point {
                            workload: *workload,
                            prologue: parameters.prologue,
                            schedule: schedule.to_string(),
                            measured_us: *measured_us,
                            modelled_us,
                        })
                        .map_err(|error| format!("{workload} {schedule}: {error}"));
                    if let Ok(point) = &point {
                        eprintln!(
                            "{:<19} {:>5} {:<34} {:>8.1} us measured {:>8.1} us modelled",
                            workload.as_str(),
                            point.prologue,
                            point.schedule,
                            point.measured_us,
                            point.modelled_us
                        );
                    }
                    let mut results = match results.lock() {
                        Ok(results) => results,
                        Err(poisoned) => poisoned.into_inner(),
                    };
                    results.push((index, point));
                }
            });
        }
    });
    let mut results = results.into_inner()?;
    results.sort_by_key(|(index, _)| *index);
    let points: Vec<Point> = results
        .into_iter()
        .map(|(_, point)| point)
        .collect::<Result<_, _>>()?;
    let all = Agreement::of(&points, |_, _| true);
    let within = Agreement::of(&points, |a, b| {
        (a.workload, a.prologue) == (b.workload, b.prologue)
    });
    let answer = json!({
        "table": path,
        "simulated_sms": gpu.sms,
        "seconds": began.elapsed().as_secs(),
        "runs": points.len(),
        "all": all,
        "within_a_row": within,
    });
    println!("{answer:#}");
    if let Some(path) = flag(words, "--json") {
        let whole = json!({ "summary": answer, "points": points });
        std::fs::write(path, format!("{whole:#}\n"))?;
    }
    Ok(all.pairs > 0 && all.share >= ENOUGH)
}
