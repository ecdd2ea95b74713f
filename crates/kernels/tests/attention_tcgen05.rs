//! Attention on the tensor cores of a simulated B200, all checks on, against f64.

mod common;

use heist_builder::{Arch, f16};
use heist_kernels::Target;
use heist_kernels::attention::*;
use heist_oracle::{Ptxas, parallel, sample};
use heist_run::Settings;
use heist_sched::Schedule;

/// Runs a problem on `sms` multiprocessors and compares every result and log-sum-exp.
fn right_under(problem: &Problem, schedule: Option<&Schedule>, sms: u32, settings: &Settings) {
    let (device, target) = common::small("b200", sms);
    let named = schedule.map(ToString::to_string);
    let what = format!("{problem}, {named:?}, seed {}", settings.seed);
    let kernel = FAMILY
        .choose(Some("tcgen05"), problem, target)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut job = kernel
        .job(problem, schedule, target)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    randomise(&mut job, problem, 7);
    common::run(&mut job, &device, settings);
    let verdict = verify(&job, problem, Sample::All).expect("its buffers");
    if let Err(wrong) = verdict.judge(problem) {
        panic!("{what}: {wrong}");
    }
}

fn right(problem: &Problem) {
    right_under(problem, None, 2, &Settings::default());
}

fn problem(queries: u32, keys: u32, dim: u32) -> Problem {
    let mut problem = Problem::new(1, 1, queries, dim);
    problem.lengths = Lengths::Same {
        batch: 1,
        queries,
        keys,
    };
    problem
}

const MASKS: [Mask; 3] = [
    Mask::Full,
    Mask::Causal,
    Mask::Window { left: 17, right: 3 },
];

/// Lengths around tiles of 128 rows and blocks of 128 keys, fewer keys than queries and more; one
/// block of keys and more than there are buffers.
#[test]
fn every_edge_type_and_mask() {
    for (index, (queries, keys)) in [
        (1, 1),
        (2, 300),
        (63, 65),
        (127, 129),
        (128, 128),
        (129, 500),
        (200, 16),
        (130, 257),
    ]
    .into_iter()
    .enumerate()
    {
        let mut problem = problem(queries, keys, [64, 128][index % 2]);
        problem.mask = MASKS[index % 3];
        problem.dtype = Dtype::ALL[index / 2 % 2];
        problem.output = [Output::Same, Output::F32][index / 3 % 2];
        right(&problem);
    }
}

/// Heads that share keys, both layouts, several sequences and tiles.
#[test]
fn shared_heads_and_layouts() {
    for (index, dim) in [64, 128].into_iter().enumerate() {
        let mut problem = Problem::new(2, 4, 140, dim);
        problem.kv_heads = [2, 1][index];
        problem.layout = [Layout::Rows, Layout::Heads][index];
        problem.dtype = Dtype::ALL[index];
        problem.mask = Mask::Causal;
        right(&problem);
    }
}

#[test]
fn every_head_dimension() {
    for (index, dim) in [16, 48, 80, 96, 192, 256].into_iter().enumerate() {
        let mut problem = problem(70, 150, dim);
        problem.mask = MASKS[index % 3];
        problem.dtype = Dtype::ALL[index % 2];
        problem.output = [Output::Same, Output::F32][index / 2 % 2];
        right(&problem);
    }
}

#[test]
fn weights_in_two_terms() {
    for dim in [64, 128, 256] {
        let mut problem = problem(100, 200, dim);
        (problem.dtype, problem.weights) = (Dtype::Bf16, Weights::Split);
        right(&problem);
    }
}

/// Levels that rise from block to block, by far more than the slack, and levels that never do.
#[test]
fn results_are_brought_to_levels_that_rise() {
    for scale in [8.0, 1e-6] {
        let mut problem = problem(128, 512, 64);
        problem.scale = Some(scale);
        right(&problem);
    }
}

/// What follows a sequence are the next one's values, infinite ones too: a weight of zero must not
/// meet them.
#[test]
fn packed_sequences() {
    let lengths = vec![
        (5, 5),
        (0, 7),
        (130, 133),
        (1, 300),
        (140, 3),
        (17, 0),
        (3, 128),
    ];
    for (index, dim) in [64, 128].into_iter().enumerate() {
        let mut problem = Problem::ragged(lengths.clone(), 2, dim);
        problem.kv_heads = 1 + index as u32;
        problem.mask = MASKS[index];
        right(&problem);
    }
    // The second sequence has no queries: nobody may look at its values.
    let problem = Problem::ragged(vec![(100, 70), (0, 50)], 1, 64);
    let (device, target) = common::device("b200");
    let kernel = FAMILY
        .choose(Some("tcgen05"), &problem, target)
        .expect("suits");
    let mut job = kernel.job(&problem, None, target).expect("a job");
    randomise(&mut job, &problem, 7);
    let values = job.buffers.iter_mut().find(|buffer| buffer.name == "v");
    let values = values.expect("values");
    let mut halves = values.data.to_vec::<f16>().expect("halves");
    halves[70 * 64..].fill(f16::INFINITY);
    values.data = heist_launch::Buffer::from_slice(&halves);
    common::run(&mut job, &device, &Settings::default());
    let verdict = verify(&job, &problem, Sample::All).expect("its buffers");
    assert!(verdict.judge(&problem).is_ok(), "{problem}: not finite");
}

#[test]
fn what_models_add() {
    let mods = [
        vec![softcap(3.0)],
        vec![alibi()],
        vec![softcap(9.0), documents()],
    ];
    for (index, mods) in mods.into_iter().enumerate() {
        let mut problem = problem(140, 200, [64, 128, 64][index]);
        problem.mask = MASKS[(index + 1) % 3];
        problem.scoring = Scoring {
            mods,
            sinks: index > 0,
            prefix: (index < 2).then_some(30),
            blocks: None,
        };
        right(&problem);
    }
}

/// A block has several tiles, in whatever order; all rings go on from one to the next.
#[test]
fn every_policy_and_source_with_chaos() {
    let mut problem = Problem::new(1, 3, 260, 64);
    (problem.mask, problem.kv_heads) = (Mask::Causal, 1);
    for (seed, schedule) in [
        "clc early greedy",
        "clc late max-steals(2)",
        "clc early every(2)",
        "clc early first-half",
        "clc late time-budget(5us)",
        "clc early never",
        "ticket late greedy",
        "static",
        "direct reversed",
    ]
    .into_iter()
    .enumerate()
    {
        let schedule: Schedule = schedule.parse().expect("a schedule");
        let settings = Settings {
            seed: seed as u64,
            chaos: seed % 4 != 3,
            ..Settings::default()
        };
        right_under(&problem, Some(&schedule), 2, &settings);
    }
}

/// Blocks of a cluster work each for itself; those past the edge have no tile.
#[test]
fn every_cluster() {
    let problem = Problem::new(1, 3, 140, 64);
    for (cluster, source) in [
        ("2x1", "clc early greedy"),
        ("1x2", "clc late max-steals(1)"),
        ("2x2", "clc early greedy"),
        ("2x2", "static"),
    ] {
        let mut schedule: Schedule = source.parse().expect("a schedule");
        schedule.cluster = cluster.parse().expect("a shape");
        let settings = Settings {
            chaos: true,
            ..Settings::default()
        };
        right_under(&problem, Some(&schedule), 4, &settings);
    }
}

/// Every mask, type and layout, whole tiles and edges, under launch control with every policy and in
/// every cluster, with chaos. A few of them unless `HEIST_CASES=all`.
#[test]
fn every_promise_at_once() {
    let mut problems = Vec::new();
    for (index, &mask) in MASKS.iter().enumerate() {
        for dtype in Dtype::ALL {
            for output in [Output::Same, Output::F32] {
                for layout in [Layout::Rows, Layout::Heads] {
                    for (queries, keys, dim) in [(256, 256, 64), (130, 257, 128), (300, 65, 64)] {
                        let mut problem = problem(queries, keys, dim);
                        (problem.heads, problem.kv_heads) = (2, 1 + index as u32 % 2);
                        (problem.mask, problem.dtype) = (mask, dtype);
                        (problem.output, problem.layout) = (output, layout);
                        problems.push(problem);
                    }
                }
            }
        }
    }
    let with_each = |problem: &Problem| {
        let each = common::launch_control().into_iter();
        each.map(|case| (problem.clone(), case)).collect::<Vec<_>>()
    };
    let cases: Vec<_> = problems.iter().flat_map(with_each).collect();
    parallel(&common::few(cases, 421), |(settings, case)| {
        let (problem, (schedule, sms)) = case;
        right_under(problem, Some(schedule), *sms, settings);
    });
}

#[test]
fn it_is_chosen_where_there_are_such_tensor_cores() {
    let (_, target) = common::device("b200");
    let chosen = |problem: &Problem| FAMILY.choose(None, problem, target).expect("one").name();
    assert_eq!(chosen(&Problem::new(2, 16, 4096, 128)), "tcgen05");
    // One query is decoding.
    assert_eq!(chosen(&problem(1, 4096, 128)), "decode");
    let plain = Target {
        arch: Arch::SM_100,
        sms: 148,
    };
    let why = FAMILY.choose(Some("tcgen05"), &problem(128, 128, 64), plain);
    let why = why.err().expect("plain sm_100").to_string();
    assert!(why.contains("it needs sm_100a"), "{why}");
}

#[test]
fn wrong_shapes_are_told() {
    let (_, target) = common::device("b200");
    let problem = problem(128, 128, 256);
    let suited = TensorShape::suited(&problem, target.arch);
    assert_eq!((suited.keys, suited.stages), (64, 2));
    for (shape, why) in [
        (TensorShape { keys: 96, ..suited }, "64 or 128 keys"),
        (
            TensorShape {
                keys: 128,
                ..suited
            },
            "640 columns of tensor memory",
        ),
        (
            TensorShape {
                stages: 3,
                ..suited
            },
            "bytes of shared memory",
        ),
        (
            TensorShape {
                stages: 0,
                ..suited
            },
            "1 to 16 stages",
        ),
    ] {
        let schedule = tensor_schedule(&problem, target);
        let error = tensor_plan(&problem, shape, &schedule, target).expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// The kernels whose machine code is looked at.
fn assembled() -> Vec<(Target, heist_kernels::Job)> {
    let mut all = Vec::new();
    for (index, dim) in [64, 128, 256, 64, 128, 80].into_iter().enumerate() {
        let mut problem = Problem::new(4, 16, 2048, dim);
        problem.mask = MASKS[index % 3];
        problem.dtype = Dtype::ALL[index % 2];
        problem.weights = [Weights::Rounded, Weights::Split][index / 4];
        problem.output = [Output::Same, Output::F32][index / 3];
        match index {
            3 => problem.scoring.mods = vec![softcap(9.0), alibi()],
            4 => problem = Problem::ragged(vec![(900, 900), (1, 700)], 8, dim),
            _ => {}
        }
        let arch = [Arch::SM_100A, Arch::SM_103A, Arch::SM_100F][index % 3];
        let target = Target { arch, sms: 148 };
        let kernel = FAMILY
            .choose(Some("tcgen05"), &problem, target)
            .expect("suits");
        all.push((target, kernel.job(&problem, None, target).expect("a job")));
    }
    all
}

#[test]
fn ptxas_spills_nothing_and_attends_in_tensor_memory() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let wrong = parallel(&sample(assembled()), |(target, job)| {
        let name = format!("{} for {}", job.name, target.arch);
        let cubin = match ptxas.assemble(&job.steps[0].ptx(), target.arch.name()) {
            Ok(cubin) => cubin,
            Err(rejected) => return Some(format!("{name}: {}", rejected.log)),
        };
        for usage in cubin.usage().values() {
            println!("{name}: {} registers", usage.registers);
            if usage.spill_stores + usage.spill_loads + usage.stack > 0 {
                return Some(format!("{name}: {usage:?}"));
            }
        }
        let Some(listing) = cubin.disassembly() else {
            println!("skipped: nvdisasm not found");
            return None;
        };
        let count = |word: &str| listing.lines().filter(|line| line.contains(word)).count();
        let seen = ["UTCHMMA", "UTCBAR", "LDTM", "STTM"].map(|word| (word, count(word)));
        println!("{name}: {seen:?}");
        let some = seen.iter().all(|(_, count)| *count > 0);
        (!some).then(|| format!("{name}: {seen:?}"))
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
