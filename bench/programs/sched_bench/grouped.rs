//! `grouped`: the grouped product with 40 rows among larger groups, for every
//! shape of cluster.

use super::{Failure, flag};
use heist::run::{Device, Settings};
use heist::tiled;
use heist_gpu::Gpu;
use heist_kernels::synthetic::Grouped;
use heist_launch::Dim3;
use heist_sched::{Schedule, Submit, TileSource};
use serde_json::json;

/// Runs them; whether all products are right.
pub(super) fn run(words: &[String]) -> Result<bool, Failure> {
    let device = Device::Gpu(Gpu::open(0)?);
    let arch = device.arch()?;
    let rows = [40, 2048, 96, 40, 512, 1536, 168, 3752, 40, 1];
    let grouped = Grouped::new(&rows, 224, 64, 5);
    let mut wrong = Vec::new();
    let mut runs = 0;
    for source in [TileSource::Ticket, TileSource::Static, TileSource::Direct] {
        for cluster in [[1, 1, 1], [1, 2, 1], [2, 1, 1], [2, 2, 1]] {
            for policy in ["greedy", "max-steals(3)", "every(2)", "never"] {
                for submit in [Submit::Early, Submit::Late] {
                    let once = policy == "greedy" && submit == Submit::Early;
                    if !source.asks() && !once {
                        continue;
                    }
                    let mut schedule = Schedule::new(source).policy(policy.parse()?).submit(submit);
                    schedule.cluster = Dim3::from(cluster);
                    let kernel = grouped.build(&schedule, arch)?;
                    let run =
                        tiled::inspect(&device, &kernel, grouped.arguments(), &Settings::default())
                            .map_err(|error| format!("{schedule}: {error}"))?;
                    runs += 1;
                    let output = run.output(Grouped::OUTPUT);
                    let output = output.and_then(|buffer| buffer.to_vec::<u32>());
                    if let Err(error) = grouped.verify(&output.unwrap_or_default()) {
                        wrong.push(format!("{schedule}: {error} {:?}", run.execution.findings));
                    }
                }
            }
        }
    }
    let answer = json!({ "rows": rows, "tiles": grouped.tiles(), "runs": runs, "wrong": wrong });
    println!("{answer:#}");
    if let Some(path) = flag(words, "--json") {
        std::fs::write(path, format!("{answer:#}\n"))?;
    }
    Ok(wrong.is_empty())
}
