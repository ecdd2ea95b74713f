//! All workloads, on the simulated GPUs, from every source: every element right
//! and every tile run exactly once.

use heist_kernels::synthetic::{Grouped, Parameters, Synthetic, Workload, build};
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

/// Rows of sparse attention see more keys the later they are, and each keeps a part of them.
#[test]
fn sparse_rows_cost_at_most_the_imbalance() {
    let parameters = Parameters {
        tiles: 4096,
        mean: 4000,
        imbalance: 8.0,
        ..Parameters::default()
    };
    let costs = Workload::SparseAttention.costs(&parameters);
    let (least, most) = (costs.iter().min(), costs.iter().max());
    let spread = f64::from(*most.expect("tiles")) / f64::from(*least.expect("tiles"));
    assert!((6.0..8.1).contains(&spread), "{spread}");
}

#[test]
fn a_product_of_groups_has_the_rows_of_all() {
    let grouped = Grouped::new(&[3, 0, 2], 4, 2, 1);
    let product = grouped.reference();
    assert_eq!(product.len(), 5 * 4);
    assert!(grouped.verify(&product).is_ok());
    let mut wrong = product;
    wrong[17] ^= 1;
    let found = grouped.verify(&wrong).expect_err("an element is wrong");
    assert_eq!((found.row, found.column, found.wrong), (4, 1, 1));
}
