//! A kernel that counts how often each tile runs, on the simulated GPU.

use heist_builder::{Arch, BuildError, Global, kernel_params};
use heist_launch::{Arg, Dim3};
use heist_run::company::Budget;
use heist_run::{Device, DeviceName, Program, Settings};
use heist_sched::*;
use std::time::Duration;

kernel_params! {
    /// How often each tile ran, and how long the prologue takes.
    pub struct Count { runs: Global<u32>, prologue: u32 }
}

/// Counts the runs of each tile: every block at its own tile, one thread each.
pub(crate) fn count(tiled: Tiled<Count>, arch: Arch) -> Result<TiledKernel<Count>, BuildError> {
    tiled.build(arch, |k, args, tiles| {
        let weight = k.var(1u32);
        k.for_range(0u32, args.prologue, |i| weight.set(weight.get() * 3 + i));
        let scratch = k.shared::<u32>("scratch", 1);
        tiles.each(|tile| {
            // Shared memory is written and read in every tile, so that blocks
            // that do not meet between tiles race.
            k.one_thread(|| scratch.at(0).store(tile.number()));
            k.sync();
            let number = scratch.at(0).load();
            k.if_(k.thread_index().eq(k.threads() - 1), || {
                args.runs.at(number).atomic_add(weight.get() | 1);
            });
        })
    })
}

/// What a run gave.
pub(crate) struct Run {
    /// How often each tile ran, times the odd weight of its block: 1 without a
    /// prologue.
    pub(crate) runs: Vec<u32>,
    /// What the scheduler said.
    pub(crate) report: LaunchReport,
}

/// Runs it on a simulated device; everything that the simulator finds is an
/// error here.
pub(crate) fn run(
    kernel: &TiledKernel<Count>,
    device: &str,
    resident: u32,
    settings: &Settings,
    what: &dyn std::fmt::Display,
) -> Run {
    run_on(
        kernel,
        device.parse().expect("a name"),
        resident,
        settings,
        what,
    )
}

/// A simulated device with few multiprocessors, so that a small grid has several waves.
#[allow(dead_code, reason = "not every program of tests has small grids")]
pub(crate) fn few(device: &str, sms: u32) -> DeviceName {
    match device.parse().expect("a name") {
        DeviceName::Sim(gpu) => DeviceName::Sim(heist_ptx::arch::Gpu { sms, ..gpu }),
        other => other,
    }
}

/// The same on any simulated device.
pub(crate) fn run_on(
    kernel: &TiledKernel<Count>,
    device: DeviceName,
    resident: u32,
    settings: &Settings,
    what: &dyn std::fmt::Display,
) -> Run {
    let device = Device::open(device).expect("it is simulated");
    let plan = kernel.plan(resident).expect("a launch");
    let tiles = Dim3::from(plan.numbers.tiles).count() as usize;
    let arguments = kernel.arguments(
        &plan,
        Count {
            runs: Arg::in_out(&vec![0u32; tiles]),
            prologue: 0,
        },
    );
    let entry = &kernel.built.launch.entry;
    let program = Program::from_module(&**entry, &kernel.built.module);
    // A busy machine is no reason to fail.
    let settings = Settings {
        limit: Duration::from_secs(600),
        // Whoever takes so much hangs.
        budget: Budget {
            warp_instructions: 10_000_000 + 20_000 * tiles as u64,
            ..Budget::default()
        },
        ..settings.clone()
    };
    let execution = device
        .inspect(&program, entry, &plan.launch, &arguments, &settings)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = &execution.findings;
    assert!(found.is_empty(), "{what}: {found:#?}\n{}", kernel.ptx());
    let runs = kernel
        .output(&execution.outcome, "runs")
        .expect("the counts");
    let runs = runs.to_vec::<u32>().expect("words");
    let place = TraceDevice {
        device: device.label(),
        sms: device.sms(),
        clock: device.clock(),
    };
    let report = kernel
        .report(&plan, &execution.outcome, &place)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    Run { runs, report }
}
