//! All workloads, on the simulated GPUs, from every source: every element right
//! and every tile run exactly once.

use heist_kernels::synthetic::{Parameters, Synthetic, Workload, build};
use heist_launch::Clock;
use heist_sched::{Place, Schedule, Source, Submit, Watch};
use heist_sim::{Device, Options, Program};

fn verified(workload: Workload, parameters: Parameters, schedule: &Schedule, device: &str) {
    let what = format!("{workload} {schedule} on {device}");
    let device = Device::named(device).expect("a device");
    let synthetic = Synthetic::new(workload, parameters);
    let arch = device.gpu().arch;
    let kernel =
        build(&synthetic, schedule, arch).unwrap_or_else(|error| panic!("{what}: {error}"));
    let plan = kernel.plan(8).expect("a launch");
    let program = Program::new(kernel.built.module.clone()).expect("a module");
    let report = program
        .run(
            &device,
            &kernel.built.launch.entry,
            &plan.launch,
            &plan.arguments(synthetic.arguments()),
            &Options::default(),
        )
        .unwrap_or_else(|errors| panic!("{what}: {errors:#?}"));
    assert!(
        report.diagnostics.is_empty(),
        "{what}: {:#?}",
        report.diagnostics
    );
    let output = report.outcome.output(Synthetic::OUTPUT).expect("an output");
    let checked = synthetic
        .verify(&output.to_vec::<u32>().expect("words"))
        .unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
    assert_eq!(checked, synthetic.input().len(), "{what}");
    let place = Place {
        device: device.to_string(),
        sms: device.gpu().sms,
        clock: Clock::Modelled,
    };
    let report = kernel
        .report(&plan, &report.outcome, &place)
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
        for source in Source::ALL {
            let device = match source {
                Source::Clc => "sim:b200",
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
