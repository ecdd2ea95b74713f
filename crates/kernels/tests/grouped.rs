//! The grouped product with 40 rows among larger groups: the same result for
//! every shape of cluster, from every source, under policies that steal always,
//! sometimes and never.

use heist_kernels::synthetic::Grouped;
use heist_launch::{Clock, Dim3};
use heist_sched::{Place, Schedule, Source, Submit, Watch};
use heist_sim::{Chaos, Device, Options, Program};

/// The product of one schedule, with every tile counted.
fn product(grouped: &Grouped, schedule: &Schedule, device: &str, options: &Options) -> Vec<u32> {
    let what = format!("{schedule} on {device}, seed {}", options.seed);
    let device = Device::named(device).expect("a device");
    let kernel = grouped
        .build(schedule, device.gpu().arch)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let plan = kernel.plan(12).expect("a launch");
    let program = Program::new(kernel.built.module.clone()).expect("a module");
    let entry = &kernel.built.launch.entry;
    let arguments = plan.arguments(grouped.arguments());
    let report = program
        .run(&device, entry, &plan.launch, &arguments, options)
        .unwrap_or_else(|errors| panic!("{what}: {errors:#?}"));
    let found: Vec<_> = report
        .diagnostics
        .iter()
        .filter(|found| found.code != heist_ptx::rule::CLC_PLAIN_IN_CLUSTER)
        .collect();
    assert!(found.is_empty(), "{what}: {found:#?}");
    let place = Place {
        device: device.to_string(),
        sms: device.gpu().sms,
        clock: Clock::Modelled,
    };
    let watched = kernel
        .report(&plan, &report.outcome, &place)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let trace = watched.trace.expect("it was traced");
    assert_eq!(trace.miscounted_tiles(grouped.tiles()), [], "{what}");
    assert!(watched.counter_is_zero, "{what}");
    let output = report.outcome.output(Grouped::OUTPUT).expect("an output");
    output.to_vec::<u32>().expect("words")
}

#[test]
fn forty_rows_among_larger_ones_come_out_alike_on_every_cluster() {
    let grouped = Grouped::forty_among_larger();
    let [across, down, _] = grouped.tiles().to_array();
    assert!(across % 2 == 1 && down % 2 == 1, "{across} x {down} tiles");
    let reference = grouped.reference();
    let sources = [
        (Source::Clc, "sim:b200"),
        (Source::Ticket, "sim:h200"),
        (Source::Static, "sim:h200"),
        (Source::Direct, "sim:h200"),
    ];
    let mut cases = Vec::new();
    for (source, device) in sources {
        for cluster in [[1, 1, 1], [1, 2, 1], [2, 1, 1], [2, 2, 1]] {
            for (policy, submit) in [
                ("greedy", Submit::Early),
                ("greedy", Submit::Late),
                ("max-steals(3)", Submit::Early),
                ("every(2)", Submit::Late),
            ] {
                if source.asks() || (policy, submit) == ("greedy", Submit::Early) {
                    cases.push((source, device, cluster, policy, submit));
                }
            }
        }
    }
    heist_oracle::parallel(&cases, |&(source, device, cluster, policy, submit)| {
        let mut schedule = Schedule::new(source)
            .policy(policy.parse().expect("a policy"))
            .submit(submit)
            .watch(Watch::Trace);
        schedule.cluster = Dim3::from(cluster);
        for (seed, chaos) in [(0, Chaos::NONE), (3, Chaos::FULL)] {
            let options = Options {
                seed,
                chaos,
                ..Options::default()
            };
            let product = product(&grouped, &schedule, device, &options);
            assert_eq!(grouped.verify(&product), Ok(()), "{schedule}");
            assert!(product == reference);
        }
    });
}
