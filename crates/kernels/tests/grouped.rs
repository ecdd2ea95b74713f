//! Grouped multiplications on the simulated GPU, all checks on, against f64.

mod common;

use heist_builder::Arch;
use heist_kernels::gemm::{Config, Input, Layout, Output};
use heist_kernels::grouped::{
    BadTile, FAMILY, Group, Grouped, Wrong, job_with, prepared, schedule,
};
use heist_kernels::{Target, Tuned};
use heist_launch::{Buffer, Dim3};
use heist_run::Settings;
use heist_sched::{Schedule, TileSource};
use heist_tune::Candidate;

const TINY: &str = "32x32x32/16x16/3";
/// Tiles of which few rows have code of their own.
const FLAT: &str = "64x64x32/32x32/3";

fn right(problem: &Grouped, config: &str, schedule: &Schedule, device: &str, settings: &Settings) {
    let (device, target) = common::device(device);
    let config: Config = config.parse().expect("a tile shape");
    let what = format!("{problem} {config} {schedule}");
    let job = job_with(problem, config, schedule, target)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut prepared = prepared(job, problem.clone(), 3);
    common::run(&mut prepared.job, &device, settings);
    let difference = (prepared.verify)(&prepared.job).unwrap_or_else(|bad| panic!("{what}: {bad}"));
    assert!(difference.within(prepared.bound), "{what}: {difference}");
    let elements: usize = problem.groups().iter().map(|g| (g.m * g.n) as usize).sum();
    assert_eq!(difference.count, elements, "{what}: all were looked at");
}

fn shape(m: u32, n: u32, k: u32) -> Group {
    Group { m, n, k }
}

#[test]
fn groups_that_differ_in_rows() {
    let lists: [&[u32]; 5] = [
        &[1],
        &[0, 5, 0, 0, 64, 33, 0],
        &[32, 31, 33, 1, 65],
        &[0, 0, 97],
        &[40; 9],
    ];
    for (index, rows) in lists.into_iter().enumerate() {
        for (config, n, k) in [(TINY, 64, 40), (FLAT, 56, 33), (FLAT, 64, 64)] {
            for source in [TileSource::Ticket, TileSource::Static, TileSource::Direct] {
                let (input, output) = match index % 3 {
                    0 => (Input::Bf16, Output::Bf16),
                    1 => (Input::F16, Output::F32),
                    _ => (Input::F16, Output::F16),
                };
                let problem = Grouped::rows(rows.to_vec(), n, k, input, output);
                let schedule = Schedule::new(source);
                right(&problem, config, &schedule, "h200", &Settings::default());
            }
        }
    }
}

#[test]
fn groups_of_their_own_shapes() {
    let groups = vec![
        shape(1, 1, 1),
        shape(40, 70, 64),
        shape(0, 64, 32),
        shape(33, 31, 17),
        shape(7, 130, 0),
        shape(65, 32, 32),
        shape(5, 0, 8),
    ];
    for &layout in &[Layout::Nt, Layout::Nn] {
        for input in [Input::F16, Input::Bf16, Input::Tf32] {
            let mut problem = Grouped::own(groups.clone(), input, Output::F32);
            problem.layout = layout;
            let schedule = schedule(common::device("h200").1);
            right(&problem, TINY, &schedule, "h200", &Settings::default());
            right(&problem, FLAT, &schedule, "a100", &Settings::default());
        }
    }
}

#[test]
fn every_cluster_source_and_policy() {
    let problem = Grouped::rows(
        vec![40, 129, 40, 0, 3, 70],
        96,
        40,
        Input::Bf16,
        Output::Bf16,
    );
    for cluster in [[1, 1, 1], [1, 2, 1], [2, 1, 1], [2, 2, 1]] {
        for source in TileSource::ALL {
            for policy in ["greedy", "max-steals(1)", "never"] {
                let mut schedule = Schedule::new(source).policy(policy.parse().expect("a policy"));
                schedule.cluster = Dim3::from(cluster);
                schedule.order = "grouped(2)".parse().expect("an order");
                right(&problem, TINY, &schedule, "b200", &Settings::default());
                if source == TileSource::Ticket {
                    right(&problem, FLAT, &schedule, "h200", &Settings::default());
                }
            }
        }
    }
}

#[test]
fn small_groups_among_large_ones_in_clusters_whatever_the_schedule() {
    let problem = Grouped {
        check: true,
        ..Grouped::rows(
            vec![40, 200, 96, 40, 130, 1],
            64,
            32,
            Input::Bf16,
            Output::Bf16,
        )
    };
    for seed in 0..12 {
        let settings = Settings {
            seed,
            chaos: seed % 2 == 0,
            ..Settings::default()
        };
        let mut schedule = Schedule::new(TileSource::Clc);
        schedule.cluster = Dim3::new(1, 2, 1);
        right(&problem, TINY, &schedule, "b200", &settings);
        schedule.source = TileSource::Ticket;
        right(&problem, TINY, &schedule, "h200", &settings);
    }
}

#[test]
fn every_variant() {
    for device in ["l4", "h200", "b200"] {
        let (simulated, target) = common::device(device);
        for variant in FAMILY.variants {
            let input = match variant.name() {
                "wgmma-8bit" => Input::E4m3,
                _ => Input::F16,
            };
            let problem = Grouped::rows(vec![17, 0, 70], 136, 64, input, Output::F16);
            let chosen = FAMILY.choose(Some(variant.name()), &problem, target);
            let job = match chosen {
                Ok(variant) => variant.job(&problem, None, target).expect("a job"),
                Err(error) => {
                    let text = error.to_string();
                    let lacks = ["shared memory", "has no wgmma", "has no tcgen05"];
                    assert!(lacks.iter().any(|lack| text.contains(lack)), "{text}");
                    continue;
                }
            };
            let mut prepared = prepared(job, problem.clone(), 5);
            common::run(&mut prepared.job, &simulated, &Settings::default());
            let difference = (prepared.verify)(&prepared.job).expect("a comparison");
            assert!(difference.within(2e-3), "{}: {difference}", variant.name());
        }
    }
}

#[test]
fn the_variant_follows_the_rows() {
    let chosen = |rows: &[u32], target| {
        let problem = Grouped::rows(rows.to_vec(), 4096, 4096, Input::Bf16, Output::Bf16);
        FAMILY.choose(None, &problem, target).expect("one").name()
    };
    let [hopper, blackwell] = ["h200", "b200"].map(|name| common::device(name).1);
    for (rows, high) in [
        (vec![1, 3, 8, 2], 64),
        (vec![40; 8], 64),
        (vec![60; 8], 64),
        (vec![1024; 8], 128),
    ] {
        let problem = Grouped::rows(rows, 4096, 4096, Input::Bf16, Output::Bf16);
        let variant = FAMILY.choose(None, &problem, hopper).expect("one");
        let name = variant.job(&problem, None, hopper).expect("a job").name;
        assert!(name.contains(&format!(" wgmma:{high}x")), "{name}");
    }
    assert_eq!(chosen(&[1, 3, 8, 2], blackwell), "tcgen05");
    assert_eq!(chosen(&[1024; 8], blackwell), "tcgen05");
    // Without the features of its own.
    let plain = Target {
        arch: Arch::SM_100,
        ..blackwell
    };
    assert_eq!(chosen(&[1, 3, 8, 2], plain), "mma-16");
    assert_eq!(chosen(&[40; 8], plain), "mma-64");
    assert_eq!(chosen(&[60; 8], plain), "mma-128-deep");
    assert_eq!(chosen(&[1024; 8], plain), "mma-128");
}

#[test]
fn nothing_to_do_is_no_launch() {
    let (_, target) = common::device("h200");
    let config: Config = TINY.parse().expect("a tile shape");
    for problem in [
        Grouped::rows(vec![], 64, 64, Input::F16, Output::F16),
        Grouped::own(vec![shape(0, 5, 5)], Input::F16, Output::F16),
    ] {
        let job = job_with(&problem, config, &schedule(target), target).expect("a job");
        assert!(job.steps.is_empty());
    }
}

/// Runs with shapes on the device that are not those of the host.
fn corrupted(shapes: &[u32], problem: &Grouped) -> (BadTile, Vec<u16>) {
    let (device, target) = common::device("h200");
    let config: Config = TINY.parse().expect("a tile shape");
    let job = job_with(problem, config, &schedule(target), target).expect("a job");
    let mut prepared = prepared(job, problem.clone(), 3);
    for buffer in &mut prepared.job.buffers {
        if buffer.name == "shapes" {
            buffer.data = Buffer::from_slice(shapes);
        }
    }
    common::run(&mut prepared.job, &device, &Settings::default());
    let record = prepared.job.data("record").expect("a record");
    let bad = BadTile::read(record).expect("a bad tile");
    let error = (prepared.verify)(&prepared.job).expect_err("the check fails");
    assert!(error.to_string().contains("was not run"), "{error}");
    let d = prepared.job.data("d").expect("a result");
    (bad, d.to_vec::<u16>().unwrap_or_default())
}

#[test]
fn bad_shapes_are_reported_and_touch_nothing() {
    let mut problem = Grouped::rows(vec![40, 10, 30], 64, 32, Input::F16, Output::F16);
    problem.check = true;
    // The second group ends far behind the matrix.
    let (bad, _) = corrupted(&[40, 4000, 80], &problem);
    assert_eq!((bad.wrong, bad.group), (Wrong::A, 1), "{bad}");
    assert_eq!(bad.shape[0], 3960);
    // Its beginning lies before that of the first one: it has no rows, and the
    // third begins early. Everything is inside, and nothing is reported or
    // touched outside, so only the last group's end can be bad.
    let (bad, _) = corrupted(&[40, 20, 90], &problem);
    assert_eq!((bad.wrong, bad.group), (Wrong::A, 2), "{bad}");
    assert_eq!(bad.count, 6, "three rows of tiles of two columns");

    let mut problem = Grouped::own(
        vec![shape(33, 40, 16), shape(8, 32, 32)],
        Input::F16,
        Output::F16,
    );
    problem.check = true;
    let (bad, _) = corrupted(&[33, 40, 16, 8, 32, 32_000], &problem);
    assert_eq!((bad.wrong, bad.group), (Wrong::A, 1), "{bad}");
    let (bad, _) = corrupted(&[33, 64, 16, 8, 32, 32], &problem);
    assert_eq!((bad.wrong, bad.group, bad.col), (Wrong::D, 0, 0), "{bad}");
}

#[test]
fn groups_on_warpgroups() {
    let (device, mut target) = common::device("h200");
    for (rows, n, k, layout, input, output) in [
        (
            vec![40, 0, 129, 1],
            264,
            72,
            Layout::Nt,
            Input::Bf16,
            Output::Bf16,
        ),
        (
            vec![61, 128, 0, 7],
            264,
            72,
            Layout::Nn,
            Input::F16,
            Output::F16,
        ),
        (vec![0, 300], 31, 64, Layout::Nt, Input::F16, Output::F32),
        (
            vec![50, 130],
            256,
            64,
            Layout::Nn,
            Input::Bf16,
            Output::Bf16,
        ),
    ] {
        let mut problem = Grouped::rows(rows, n, k, input, output);
        problem.layout = layout;
        for (source, sms, cluster, check) in [
            (TileSource::Ticket, 2, "1x1", true),
            (TileSource::Ticket, 1, "1x1", false),
            (TileSource::Ticket, 4, "1x2", true),
            (TileSource::Ticket, 2, "1x2", false),
            (TileSource::Ticket, 132, "2x2", true),
            (TileSource::Static, 1, "1x1", false),
            (TileSource::Static, 2, "1x1", true),
            (TileSource::Direct, 132, "2x1", false),
        ] {
            target.sms = sms;
            problem.check = check;
            let mut schedule = Schedule::new(source);
            schedule.cluster = cluster.parse().expect("a shape");
            let variant = FAMILY.choose(Some("wgmma-128x256"), &problem, target);
            let variant = variant.expect("it suits");
            let job = variant.job(&problem, Some(&schedule), target);
            let mut prepared = prepared(job.expect("a job"), problem.clone(), 5);
            common::run(&mut prepared.job, &device, &Settings::default());
            let difference = (prepared.verify)(&prepared.job).expect("no bad tile");
            assert!(
                difference.within(2e-3),
                "{problem} {schedule}: {difference}"
            );
        }
    }
}

/// Tiles of which each of two warpgroups has one, and registers that move once: in loops of their own, where some groups are empty
/// and tiles of the launch stand for several.
#[test]
fn warpgroups_with_a_tile_of_a_group_each() {
    let (device, mut target) = common::device("h200");
    target.sms = 1;
    for (rows, cols, stages, pingpong) in [
        (64u32, 96u32, 4u32, 1u32),
        (128, 96, 3, 1),
        (64, 64, 2, 1),
        (256, 96, 3, 0),
    ] {
        for k in [72, 200] {
            let problem = Grouped::rows(vec![70, 0, 129, 1, 64], 200, k, Input::Bf16, Output::Bf16);
            let words = [
                ("rows", rows),
                ("cols", cols),
                ("depth", 64),
                ("stages", stages),
                ("pingpong", pingpong),
            ];
            let words = words.map(|(name, number)| (name, number.to_string()));
            let plan = problem.tuned(&Candidate::new(words), target);
            let plan = plan.expect("a plan");
            let mut prepared = prepared(plan.job(|_| None), problem.clone(), 5);
            common::run(&mut prepared.job, &device, &Settings::default());
            let difference = (prepared.verify)(&prepared.job).expect("a comparison");
            assert!(
                difference.within(2e-3),
                "{problem} {rows}x{cols}: {difference}"
            );
        }
    }
    // Blocks that do anything else have no loops of their own, and so no such tiles.
    let problem = Grouped::rows(vec![70, 3], 200, 72, Input::Bf16, Output::Bf16);
    let tiles = "config=wgmma:64x96x64/4/pingpong rows=70,3 n=200 k=72";
    let words = heist_kernels::catalogue::Settings::from_words(tiles.split(' ')).expect("words");
    let groups = heist_kernels::catalogue::entry("grouped-gemm").expect("it is there");
    let asked: Schedule = "ticket late until-asked".parse().expect("a schedule");
    let told = groups.prepare(&words, Some(&asked), target).map(|_| ());
    let told = told.expect_err("no loops").to_string();
    assert!(told.contains("in a loop of their own"), "{problem}: {told}");
}

/// Runs groups on the tensor cores of a simulated B200 with few multiprocessors.
fn right_on_tensor_memory(
    problem: &Grouped,
    schedule: Option<&Schedule>,
    sms: u32,
    settings: &Settings,
) {
    let (device, target) = common::small("b200", sms);
    let what = format!("{problem} {:?}", schedule.map(ToString::to_string));
    let kernel = FAMILY
        .choose(Some("tcgen05"), problem, target)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let job = kernel
        .job(problem, schedule, target)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut prepared = prepared(job, problem.clone(), 3);
    common::run(&mut prepared.job, &device, settings);
    let difference = (prepared.verify)(&prepared.job).unwrap_or_else(|bad| panic!("{what}: {bad}"));
    assert!(difference.within(prepared.bound), "{what}: {difference}");
    let elements: usize = problem.groups().iter().map(|g| (g.m * g.n) as usize).sum();
    assert_eq!(difference.count, elements, "{what}: all were looked at");
}

/// Groups that end inside of a tile, of a warp's rows, and at an edge of both; empty ones; columns
/// that are no multiple of a tile, nor of 16 bytes; both layouts and all types.
#[test]
fn groups_on_tensor_memory() {
    let lists: [&[u32]; 4] = [
        &[1],
        &[0, 5, 0, 160, 33, 0],
        &[128, 127, 129, 32],
        &[0, 0, 97],
    ];
    for (index, rows) in lists.into_iter().enumerate() {
        for (n, k) in [(64, 40), (200, 136), (67, 64)] {
            let (input, output) = match index % 3 {
                0 => (Input::Bf16, Output::Bf16),
                1 => (Input::F16, Output::F32),
                _ => (Input::F16, Output::F16),
            };
            let mut problem = Grouped::rows(rows.to_vec(), n, k, input, output);
            if n != 67 && index % 2 == 1 {
                problem.layout = Layout::Nn;
            }
            problem.check = index == 2;
            right_on_tensor_memory(&problem, None, 2, &Settings::default());
        }
    }
}

/// Every type and layout, groups that end inside of tiles and at them, under launch control with every
/// policy and in every cluster, with chaos. A few of them unless `HEIST_CASES=all`.
#[test]
fn groups_on_tensor_memory_keep_every_promise_at_once() {
    let mut cases = Vec::new();
    for (input, output) in [
        (Input::Bf16, Output::Bf16),
        (Input::Bf16, Output::F32),
        (Input::F16, Output::F32),
        (Input::F16, Output::F16),
    ] {
        for layout in [Layout::Nt, Layout::Nn] {
            for (rows, n, k) in [([128, 256, 0, 128], 128, 128), ([40, 129, 3, 270], 136, 72)] {
                let mut problem = Grouped::rows(rows.to_vec(), n, k, input, output);
                problem.layout = layout;
                let each = common::launch_control();
                cases.extend(each.into_iter().map(|case| (problem.clone(), case)));
            }
        }
    }
    heist_oracle::parallel(&common::few(cases, 121), |(settings, case)| {
        let (problem, (schedule, sms)) = case;
        right_on_tensor_memory(problem, Some(schedule), *sms, settings);
    });
}

/// A block has tiles of several groups, in whatever order, in clusters too.
#[test]
fn groups_on_tensor_memory_under_every_policy_and_cluster() {
    let rows = vec![40, 129, 0, 3, 270];
    let problem = Grouped::rows(rows, 136, 72, Input::Bf16, Output::Bf16);
    for (seed, (schedule, cluster)) in [
        ("clc early greedy", "1x1"),
        ("clc late max-steals(2)", "1x1"),
        ("clc early every(2)", "2x1"),
        ("clc late greedy", "1x2"),
        ("clc early first-half", "2x2"),
        ("clc late time-budget(5us) reversed", "1x1"),
        ("clc early never", "1x1"),
        ("ticket late greedy", "1x1"),
        ("static", "2x2"),
        ("direct", "1x1"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut schedule: Schedule = schedule.parse().expect("a schedule");
        schedule.cluster = cluster.parse().expect("a shape");
        let settings = Settings {
            seed: seed as u64,
            chaos: true,
            ..Settings::default()
        };
        right_on_tensor_memory(&problem, Some(&schedule), 4, &settings);
    }
}

#[test]
fn tensor_memory_is_chosen_where_it_can_be() {
    let (_, target) = common::device("b200");
    let chosen = |problem: &Grouped| FAMILY.choose(None, problem, target).expect("one").name();
    let rows = |n, k| Grouped::rows(vec![100, 200], n, k, Input::Bf16, Output::Bf16);
    assert_eq!(chosen(&rows(256, 128)), "tcgen05");
    assert_ne!(chosen(&rows(256, 127)), "tcgen05");
    let own = Grouped::own(vec![shape(64, 64, 64)], Input::Bf16, Output::Bf16);
    assert_ne!(chosen(&own), "tcgen05");
    let why = FAMILY.choose(Some("tcgen05"), &rows(256, 128), common::device("h200").1);
    let why = why.err().expect("Hopper has none").to_string();
    assert!(why.contains("it needs sm_100a"), "{why}");
}

#[test]
fn ptxas_spills_nothing_on_tensor_memory() {
    let Some(ptxas) = heist_oracle::Ptxas::find_or_say_skipped() else {
        return;
    };
    for (n, output, schedule) in [
        (512, Output::Bf16, "clc early greedy"),
        (520, Output::F32, "clc late max-steals(8)"),
        (515, Output::F16, "direct"),
    ] {
        let problem = Grouped::rows(vec![300; 40], n, 512, Input::F16, output);
        let target = Target {
            arch: Arch::SM_100A,
            sms: 148,
        };
        let schedule: Schedule = schedule.parse().expect("a schedule");
        let kernel = FAMILY
            .choose(Some("tcgen05"), &problem, target)
            .expect("suits");
        let job = kernel
            .job(&problem, Some(&schedule), target)
            .expect("a job");
        let cubin = ptxas.assemble(&job.steps[0].ptx(), "sm_100a");
        let cubin = cubin.unwrap_or_else(|refusal| panic!("{problem}: {refusal}"));
        for usage in cubin.usage().values() {
            let spilled = usage.spill_stores + usage.spill_loads + usage.stack;
            assert_eq!(spilled, 0, "{problem}: {usage:?}");
        }
        if let Some(listing) = cubin.disassembly() {
            let count = |word: &str| listing.lines().filter(|line| line.contains(word)).count();
            assert_eq!(count("UTCHMMA"), 4, "{problem}: four steps a stage");
            assert!(count("LDTM") >= 2, "{problem}");
        }
    }
}
