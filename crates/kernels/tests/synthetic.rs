//! All workloads, on the simulated GPUs, from every source: every element right
//! and every tile run exactly once.

use heist_kernels::synthetic::{Parameters, Synthetic, Workload, build};
use heist_run::{Device, Program, Settings};
use heist_sched::{Schedule, Submit, TileSource, TraceDevice, Watch};
use std::time::Duration;

fn verified(workload: Workload, parameters: Parameters, schedule: &Schedule, device: &str) {
    let what = format!("{workload} {schedule} on {device}");
    let device = Device::open(device.parse().expect("a name")).expect("it is simulated");
    let synthetic = Synthetic::new(workload, parameters);
    let arch = device.arch().expect("known");
    let kernel =
        build(&synthetic, schedule, arch).unwrap_or_else(|error| panic!("{what}: {error}"));
    let plan = kernel.plan(8).expect("a launch");
    let entry = &kernel.built.launch.entry;
    let arguments = kernel.arguments(&plan, synthetic.arguments());
    let program = Program::from_module(&**entry, &kernel.built.module);
    let settings = Settings {
        limit: Duration::from_secs(600),
        ..Settings::default()
    };
    let execution = device
        .run(&program, entry, &plan.launch, &arguments, &settings)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let output = kernel
        .output(&execution.outcome, Synthetic::OUTPUT)
        .expect("an output");
    let checked = synthetic
        .verify(&output.to_vec::<u32>().expect("words"))
        .unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    assert_eq!(checked, synthetic.input().len(), "{what}");
    let place = TraceDevice {
        device: device.label(),
        sms: device.sms(),
        clock: device.clock(),
    };
    let report = kernel
        .report(&plan, &execution.outcome, &place)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let trace = report.trace.expect("it was traced");
    assert_eq!(trace.miscounted_tiles(synthetic.tiles()), [], "{what}");
    assert!(report.counter_is_zero, "{what}");
}

#[test]
fn every_workload_is_right_from_every_source() {
    for (index, workload) in Workload::ALL.into_iter().enumerate() {
        let parameters = Parameters {
            tiles: 41,
            mean: 12,
            prologue: if index % 2 == 0 { 25 } else { 0 },
            seed: 5 + index as u64,
            ..Parameters::default()
        };
        for source in TileSource::ALL {
            let device = match source {
                TileSource::Clc => "sim:b200",
                _ => ["sim:h200", "sim:b200", "sim:a100"][index % 3],
            };
            let submit = [Submit::Early, Submit::Late][index % 2];
            let policy = ["greedy", "max-steals(2)", "every(3)"][index % 3];
            let schedule = Schedule::new(source)
                .policy(policy.parse().expect("a policy"))
                .submit(submit)
                .watch(Watch::Trace);
            verified(workload, parameters, &schedule, device);
        }
    }
}
