//! Tiles of several classes: every tile once, the urgent first, and a share for the rest.

use heist_builder::{Arch, Global, kernel_params};
use heist_launch::{Arg, BufferRef, Clock};
use heist_run::company::Budget;
use heist_run::{Device, Program, Settings};
use heist_sched::*;
use std::time::Duration;

kernel_params! {
    /// How often each tile ran.
    pub struct Count { runs: Global<u32>, sleep: u32 }
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    source: TileSource,
    submit: Submit,
    tiles: u32,
    cluster: u32,
    seed: u64,
    chaos: bool,
}

/// One in ten urgent, three in ten background, the others normal; all over the grid.
fn mixed(count: u32, seed: u64) -> Vec<Class> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut throw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % 10
    };
    let class = |thrown| match thrown {
        0 => Class::Urgent,
        1..=3 => Class::Background,
        _ => Class::Normal,
    };
    (0..count).map(|_| class(throw())).collect()
}

/// When each tile began and ended, in nanoseconds. That each ran exactly once, and that the
/// launch left its words at zero, is part of it.
fn run(policy: &str, classes: Classes, setting: Setting) -> Vec<(f64, f64)> {
    let what = format!("{policy} {setting:?}");
    let (device, arch) = match setting.source {
        TileSource::Clc => ("sim:b200", Arch::SM_100A),
        _ => ("sim:h200", Arch::SM_90A),
    };
    let device = Device::open(device.parse().expect("a name")).expect("it is simulated");
    let policy: AnyPolicy = policy.parse().unwrap_or_else(|error| panic!("{error}"));
    let kernel = Tiled::<Count>::new("count", setting.tiles)
        .source(setting.source)
        .submit(setting.submit)
        .policy(policy)
        .classes(classes)
        .cluster([setting.cluster, 1, 1])
        .watch(Watch::Trace)
        .block(32)
        .build(arch, |k, args, tiles| {
            // One block a multiprocessor.
            let room = k.shared::<u32>("room", 30_000);
            k.one_thread(|| room.at(0).store(0u32));
            tiles.each(|tile| {
                k.one_thread(|| {
                    args.runs.at(tile.x).atomic_add(1u32);
                });
                k.nanosleep(args.sleep);
            })
        })
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let resident = device.sms() / setting.cluster;
    let plan = kernel.plan(resident).expect("a launch");
    let own = Count {
        runs: Arg::in_out(&vec![0u32; setting.tiles as usize]),
        sleep: 4_000,
    };
    let arguments = kernel.arguments(&plan, own);
    let settings = Settings {
        seed: setting.seed,
        chaos: setting.chaos,
        limit: Duration::from_secs(600),
        // Whoever takes so much hangs.
        budget: Budget {
            warp_instructions: 10_000_000,
            time_ns: 1_000_000_000,
            ..Budget::default()
        },
        ..Settings::default()
    };
    let entry = &kernel.built.launch.entry;
    let program = Program::from_module(&**entry, &kernel.built.module);
    let ran = device
        .inspect(&program, entry, &plan.launch, &arguments, &settings)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!ran.has_errors(), "{what}: {:#?}", ran.findings);
    let runs = kernel.output(&ran.outcome, "runs").expect("the counts");
    let runs = runs.to_vec::<u32>().expect("words");
    assert!(runs.iter().all(|runs| *runs == 1), "{what}: {runs:?}");
    let control = ran.outcome.output(BufferRef::Argument(2)).expect("words");
    let control = control.to_vec::<u64>().expect("words");
    assert!(control.iter().all(|word| *word == 0), "{what}: {control:?}");
    let place = TraceDevice {
        device: device.label(),
        sms: device.sms(),
        clock: Clock::Modelled,
    };
    let report = kernel
        .report(&plan, &ran.outcome, &place)
        .expect("a report");
    let trace = report.trace.expect("a trace");
    let mut times = vec![(0.0, 0.0); setting.tiles as usize];
    for tile in &trace.tiles {
        times[tile.tile.x as usize] = (tile.start.ns(), tile.end.ns());
    }
    times
}

fn settings(seed: u64, tiles: u32) -> Vec<Setting> {
    let mut all = Vec::new();
    for source in [TileSource::Clc, TileSource::Ticket] {
        for submit in [Submit::Early, Submit::Late] {
            all.push(Setting {
                source,
                submit,
                tiles,
                cluster: 1,
                seed,
                chaos: false,
            });
        }
    }
    all
}

#[test]
fn every_tile_runs_once_whatever_policy_and_chaos_do() {
    let policies = [
        "greedy",
        "never",
        "max-steals(2)",
        "every(2)",
        "at-most(9)",
        "first-half | !max-steals(1)",
        "probability(0.5)",
    ];
    for (at, policy) in policies.into_iter().enumerate() {
        for (turn, setting) in settings(at as u64, 400).into_iter().enumerate() {
            let chaos = (turn + at) % 2 == 0;
            let cluster = if turn % 2 == at % 2 { 2 } else { 1 };
            let tiles = setting.tiles + at as u32;
            let classes = Classes::new(mixed(tiles.div_ceil(cluster), at as u64));
            let setting = Setting {
                chaos,
                cluster,
                tiles,
                ..setting
            };
            run(policy, classes, setting);
        }
    }
}

/// From the moment in which all urgent tiles before it were taken, an urgent tile has ended
/// after two tile times, but for one in a hundred.
#[test]
fn an_urgent_tile_ends_within_two_tile_times_of_the_front_of_its_queue() {
    for setting in settings(3, 3_000) {
        let classes = mixed(setting.tiles, 5);
        let times = run("greedy", Classes::new(classes.clone()), setting);
        let mut urgent: Vec<(f64, f64)> = times
            .iter()
            .zip(&classes)
            .filter(|(_, class)| **class == Class::Urgent)
            .map(|(time, _)| *time)
            .collect();
        urgent.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut waits: Vec<f64> = urgent
            .windows(2)
            .map(|pair| pair[1].1 - pair[0].0)
            .collect();
        waits.sort_by(f64::total_cmp);
        let p99 = waits[waits.len() * 99 / 100];
        let tile = times
            .iter()
            .map(|(start, end)| end - start)
            .fold(0.0, f64::max);
        assert!(p99 <= 2.0 * tile, "{p99} of {tile}: {setting:?}");
        // They are the first to end: the last one long before the last of the others.
        let last = urgent.iter().map(|(_, end)| *end).fold(0.0, f64::max);
        let all = times.iter().map(|(_, end)| *end).fold(0.0, f64::max);
        assert!(last < 0.25 * all, "{last} of {all}: {setting:?}");
    }
}

#[test]
fn every_class_makes_progress_at_its_share_while_there_are_more_urgent_ones() {
    let shares = [8, 5, 3];
    for setting in settings(4, 3_000) {
        // As many of each, so that all three last for a while.
        let classes: Vec<Class> = (0..setting.tiles as usize)
            .map(|at| Class::ALL[at % 3])
            .collect();
        let shared = Classes::new(classes.clone()).shares(shares).expect("16");
        let times = run("greedy", shared, setting);
        let started = |class: Class, until: f64| {
            let of = times.iter().zip(&classes).filter(|(_, of)| **of == class);
            of.filter(|((start, _), _)| *start < until).count() as f64
        };
        let urgent = times.iter().zip(&classes);
        let urgent = urgent.filter(|(_, class)| **class == Class::Urgent);
        let last = urgent.map(|((start, _), _)| *start).fold(0.0, f64::max);
        let all: f64 = Class::ALL.iter().map(|class| started(*class, last)).sum();
        for (class, share) in Class::ALL.into_iter().zip(shares) {
            let part = started(class, last) / all;
            let wanted = f64::from(share) / 16.0;
            assert!(
                (part - wanted).abs() < 0.03,
                "{class}: {part} of {wanted}, {setting:?}"
            );
        }
    }
}

#[test]
fn classes_need_a_source_that_asks_and_a_class_for_every_tile() {
    let build = |source, count| {
        Tiled::<Count>::new("count", 10)
            .source(source)
            .classes(Classes::new(mixed(count, 1)))
            .build(Arch::SM_90A, |_, args, tiles| {
                tiles.each(|tile| args.runs.at(tile.x).store(1))
            })
    };
    for source in [TileSource::Static, TileSource::Direct] {
        let error = build(source, 10).expect_err("it is refused").to_string();
        assert!(error.contains("classes need one that asks"), "{error}");
    }
    let short = build(TileSource::Ticket, 9).expect("a kernel").plan(4);
    assert!(matches!(
        short,
        Err(PlanError::Order(OrderError::Size { .. }))
    ));
}
