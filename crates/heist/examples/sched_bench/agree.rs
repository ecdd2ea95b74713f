//! `agree`: whether the simulator ranks schedules as the GPU did.
//!
//! A simulated GPU of 1/N of the SMs runs 1/N of the tiles, which is the same
//! load a multiprocessor, in a fraction of the time.

use super::table::{Table, schedules};
use super::{Failure, number};
use heist_build::Arch;
use heist_kernels::synthetic::{Parameters, Synthetic, THREADS, build};
use heist_ptx::arch::{Footprint, Gpu};
use heist_sim::{Checks, Device, Options, Program};
use serde_json::json;

/// Compares; whether at least 85% of the pairs agree.
pub(super) fn run(words: &[String]) -> Result<bool, Failure> {
    let path = words.first().ok_or("which table? `agree table.json`")?;
    let table: Table = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let part = number(words, "--part", 16)?.max(1);
    let mut gpu = Gpu::H200;
    gpu.sms = (table.sms / part).max(1);
    let device = Device::of(gpu);
    // Measured and modelled, for each workload and schedule.
    let mut pairs: Vec<(String, String, f64, f64)> = Vec::new();
    for row in &table.rows {
        let parameters = Parameters {
            tiles: row.parameters.tiles * gpu.sms / table.sms,
            ..row.parameters
        };
        let synthetic = Synthetic::new(row.workload, parameters);
        for schedule in schedules() {
            let name = schedule.to_string();
            let Some(entry) = row.entries.iter().find(|entry| entry.schedule == name) else {
                continue;
            };
            let kernel = build(&synthetic, &schedule, Arch::SM_90A)?;
            let resident = gpu.resident_blocks(Footprint {
                threads: THREADS,
                registers: 32,
                shared: 0,
            });
            let plan = kernel.plan(resident)?;
            let program =
                Program::new(kernel.built.module.clone()).map_err(|e| format!("{e:?}"))?;
            let options = Options {
                checks: Checks::FEWEST,
                ..Options::default()
            };
            let ran = program
                .run(
                    &device,
                    &kernel.built.launch.entry,
                    &plan.launch,
                    &plan.arguments(synthetic.arguments()),
                    &options,
                )
                .map_err(|errors| format!("{name}: {errors:?}"))?;
            let modelled = ran
                .outcome
                .trace
                .map_or(0.0, |trace| trace.makespan().ns() / 1e3);
            let workload = format!("{} prologue {}", row.workload, parameters.prologue);
            eprintln!(
                "{workload:<34} {name:<34} {:>9.1} us measured, {modelled:>9.1} us modelled",
                entry.median_us
            );
            pairs.push((workload, name, entry.median_us, modelled));
        }
    }
    let (mut all, mut agreed, mut within, mut within_agreed) = (0u64, 0u64, 0u64, 0u64);
    for (index, a) in pairs.iter().enumerate() {
        for b in &pairs[..index] {
            if (a.2 - b.2).abs() <= 0.05 * a.2.min(b.2) {
                continue;
            }
            let same = (a.2 < b.2) == (a.3 < b.3);
            all += 1;
            agreed += u64::from(same);
            if a.0 == b.0 {
                within += 1;
                within_agreed += u64::from(same);
            }
        }
    }
    let share = |agreed: u64, of: u64| agreed as f64 / of.max(1) as f64;
    let answer = json!({
        "simulated_sms": gpu.sms,
        "pairs": all, "agreeing": agreed, "share": share(agreed, all),
        "within_a_workload": { "pairs": within, "agreeing": within_agreed, "share": share(within_agreed, within) },
    });
    println!("{answer:#}");
    if let Some(path) = super::flag(words, "--json") {
        let rows: Vec<_> = pairs.iter().map(|(workload, schedule, measured, modelled)| {
            json!({ "workload": workload, "schedule": schedule, "measured_us": measured, "modelled_us": modelled })
        }).collect();
        std::fs::write(
            path,
            format!("{:#}\n", json!({ "summary": answer, "rows": rows })),
        )?;
    }
    Ok(all > 0 && share(agreed, all) >= 0.85)
}
