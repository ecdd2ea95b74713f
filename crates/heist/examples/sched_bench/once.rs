//! `once`: random configurations, every tile counted.

use super::{Failure, number};
use heist::workload::arch_of;
use heist_build::{Global, kernel_params};
use heist_gpu::{Gpu, PtxText, RunOptions};
use heist_launch::{Arg, Clock, Dim3};
use heist_sched::{
    AnyPolicy, Catalogue, Place, Schedule, Source, Submit, TicketGrid, Tiled, Watch,
};
use serde_json::json;

kernel_params! { struct Count { runs: Global<u32>, steps: u32 } }

/// Runs them; whether all were right.
pub(super) fn run(words: &[String]) -> Result<bool, Failure> {
    let count: u64 = words.first().and_then(|w| w.parse().ok()).unwrap_or(1000);
    let seed = u64::from(number(words, "--seed", 1)?);
    let gpu = Gpu::open(0)?;
    let arch = arch_of(&heist::device::Device::Gpu(gpu.clone()))?;
    let mut texts: Vec<&str> = Catalogue::standard()
        .entries()
        .iter()
        .map(|e| e.example)
        .collect();
    texts.extend([
        "max-steals(1)",
        "every(3)",
        "probability(0.5)",
        "!first-half",
        "time-budget(3us)",
        "max-steals(2) & first-half | every(2)",
    ]);
    let policies: Vec<AnyPolicy> = texts.iter().filter_map(|text| text.parse().ok()).collect();
    let mut wrong = Vec::new();
    let mut by_source = std::collections::BTreeMap::<&str, u64>::new();
    for case in 0..count {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9E37_79B9).wrapping_add(case));
        let source = [
            Source::Ticket,
            Source::Ticket,
            Source::Static,
            Source::Direct,
        ][rng.usize(0..4)];
        let mut schedule = Schedule::new(source)
            .policy(policies[rng.usize(0..policies.len())].clone())
            .submit([Submit::Early, Submit::Late][rng.usize(0..2)])
            .watch([Watch::Off, Watch::Off, Watch::Stats, Watch::Trace][rng.usize(0..4)]);
        let shapes = [
            [1, 1, 1],
            [1, 1, 1],
            [2, 1, 1],
            [1, 2, 1],
            [2, 2, 1],
            [4, 1, 1],
            [1, 8, 1],
            [2, 2, 2],
        ];
        schedule.cluster = Dim3::from(shapes[rng.usize(0..shapes.len())]);
        schedule.order =
            ["linear", "reversed", "grouped(3)", "hilbert"][rng.usize(0..4)].parse()?;
        schedule.grid = [
            None,
            None,
            Some(TicketGrid::Full),
            Some(TicketGrid::Resident),
        ][rng.usize(0..4)];
        let grids = [
            [1, 1, 1],
            [7, 1, 1],
            [131, 1, 1],
            [1009, 1, 1],
            [5003, 1, 1],
            [100_000, 1, 1],
            [61, 53, 1],
            [1, 97, 1],
            [13, 7, 11],
        ];
        let tiles = Dim3::from(grids[rng.usize(0..grids.len())]);
        let threads = [32, 64, 128, 256][rng.usize(0..4)];
        let what = format!("case {case}: {schedule} {tiles} tiles, {threads} threads");
        let kernel = Tiled::<Count>::new("count", tiles)
            .schedule(&schedule)
            .block(threads)
            .build(arch, |k, args, tiles| {
                let scratch = k.shared::<u32>("scratch", 1);
                tiles.each(|tile| {
                    k.one_thread(|| scratch.at(0).store(tile.number()));
                    k.sync();
                    let number = scratch.at(0).load();
                    let spin = k.var(number);
                    k.for_range(0u32, (number % 7) * args.steps, |_| {
                        spin.set(spin.get() * 3 + 1);
                    });
                    k.if_(k.thread_index().eq(k.threads() - 1), || {
                        let one = spin.get().eq(0xFFFF_FFFF).select(1u32, 1u32);
                        args.runs.at(number).atomic_add(one);
                    });
                })
            })?;
        let plan = kernel.plan([1, 5, 64, 1056][rng.usize(0..4)])?;
        let zeros = vec![0u32; tiles.count() as usize];
        let arguments = plan.arguments([Arg::in_out(&zeros), Arg::scalar(20u32)]);
        let text = PtxText::new("count", kernel.ptx());
        let ran = match gpu.run(
            &text,
            "count",
            &plan.launch,
            &arguments,
            &RunOptions::default(),
        ) {
            Ok(ran) => ran,
            Err(error) => {
                wrong.push(format!("{what}: {error}"));
                break;
            }
        };
        let runs = ran
            .outcome
            .output(0)
            .and_then(|b| b.to_vec::<u32>())
            .unwrap_or_default();
        let bad = runs.iter().filter(|n| **n != 1).count();
        let place = Place {
            device: gpu.info().name.clone(),
            sms: gpu.info().sms,
            clock: Clock::Measured,
        };
        let report = kernel.report(&plan, &ran.outcome, &place);
        let settled = report.as_ref().is_ok_and(|report| {
            report.counter_is_zero
                && report
                    .trace
                    .as_ref()
                    .is_none_or(|t| t.miscounted_tiles(tiles).is_empty())
        });
        if bad > 0 || runs.len() as u64 != tiles.count() || !settled {
            wrong.push(format!(
                "{what}: {bad} tiles miscounted, {:?}",
                report.err()
            ));
        }
        *by_source.entry(source.as_str()).or_default() += 1;
        if (case + 1).is_multiple_of(100) {
            eprintln!("{} of {count}, {} wrong", case + 1, wrong.len());
        }
    }
    let answer = json!({ "device": gpu.info().name, "cases": count, "by_source": by_source, "wrong": wrong });
    println!("{answer:#}");
    if let Some(path) = super::flag(words, "--json") {
        std::fs::write(path, format!("{answer:#}\n"))?;
    }
    Ok(wrong.is_empty())
}
