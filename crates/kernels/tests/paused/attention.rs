//! Attention, against softmax in f64.

use crate::ringer::{PAUSING, TARGET, ring_beside, schedule};
use heist_kernels::attention::*;
use heist_kernels::{Job, KernelError};
use heist_run::Program;

/// Runs a problem under a bell that is rung at random; how many slots tiles were saved in.
fn right(problem: &Problem, shape: WarpgroupShape, text: &str, seed: u64) -> usize {
    let (job, saved) = run(problem, shape, text, seed, true);
    let verdict = verify(&job, problem, Sample::All).expect("its buffers");
    if let Err(wrong) = verdict.judge(problem) {
        panic!("{problem}: {shape} {text}, seed {seed}: {wrong}");
    }
    saved
}

/// Runs it with a bell that is rung at random, or not at all.
fn run(
    problem: &Problem,
    shape: WarpgroupShape,
    text: &str,
    seed: u64,
    rung: bool,
) -> (Job, usize) {
    let what = format!("{problem}: {shape} {text}, seed {seed}");
    let mut job = warpgroup_job(problem, shape, &schedule(text), TARGET)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    randomise(&mut job, problem, 7);
    let saved = ring_beside(&mut job, &what, seed, rung);
    (job, saved)
}

fn problem(queries: u32, keys: u32, dim: u32, mask: Mask) -> Problem {
    let mut problem = Problem::new(1, 2, queries, dim);
    problem.lengths = Lengths::Same {
        batch: 1,
        queries,
        keys,
    };
    problem.mask = mask;
    problem
}

/// Its tiles, with blocks of so many keys.
fn shape(problem: &Problem, keys: u32) -> WarpgroupShape {
    WarpgroupShape {
        keys,
        ..warpgroup_shape(problem, TARGET).scheduled().paused()
    }
}

#[test]
fn every_mask_is_resumed_where_it_was_left() {
    let window = Mask::Window {
        left: 500,
        right: 20,
    };
    let mut saved = 0;
    for (seed, (dim, mask)) in [
        (64, Mask::Full),
        (128, Mask::Full),
        (64, Mask::Causal),
        (128, Mask::Causal),
        (64, window),
    ]
    .into_iter()
    .enumerate()
    {
        let problem = problem(300, 670, dim, mask);
        saved += right(&problem, shape(&problem, 16), PAUSING, seed as u64);
    }
    assert!(saved > 5, "{saved} slots were used");
}

/// Scores that are far apart, so that levels rise at every block: what was saved is brought to
/// the new ones.
#[test]
fn a_tile_that_was_resumed_is_the_same_to_the_bit() {
    let mut problem = problem(256, 660, 64, Mask::Full);
    problem.scale = Some(6.0);
    let out = |rung| {
        let (job, saved) = run(&problem, shape(&problem, 16), PAUSING, 31, rung);
        (job.data("out").expect("results").to_vec::<u16>(), saved)
    };
    let ((resumed, saved), (whole, none)) = (out(true), out(false));
    assert_eq!((saved > 0, none), (true, 0), "{saved} slots were used");
    assert_eq!(resumed, whole);
}

#[test]
fn every_policy_and_shape_pauses() {
    let mut saved = 0;
    for (seed, (policy, groups, turns)) in [
        ("greedy", 2, true),
        ("never", 3, false),
        ("max-steals(1)", 2, false),
    ]
    .into_iter()
    .enumerate()
    {
        let problem = problem(400, 500, 64, Mask::Full);
        let shape = WarpgroupShape {
            groups,
            turns,
            ..shape(&problem, 16)
        };
        let text = format!("ticket late pausing {policy}");
        saved += right(&problem, shape, &text, seed as u64 + 10);
    }
    assert!(saved > 3, "{saved} slots were used");
}

#[test]
fn packed_sequences_are_resumed_too() {
    let lengths = vec![(5, 400), (130, 333), (0, 7), (140, 300), (17, 0)];
    let mut saved = 0;
    for (seed, listed) in [None, Some(1)].into_iter().enumerate() {
        let problem = Problem::ragged(lengths.clone(), 2, 64);
        let shape = WarpgroupShape {
            listed,
            ..shape(&problem, 16)
        };
        saved += right(&problem, shape, PAUSING, seed as u64 + 20);
    }
    assert!(saved > 1, "{saved} slots were used");
}

/// A tile that is never left is the same to the bit.
#[test]
fn a_bell_that_nobody_rings_changes_nothing() {
    let problem = problem(200, 300, 64, Mask::Causal);
    let out = |text: &str| {
        let schedule = schedule(text);
        let mut job = FAMILY
            .choose(Some("wgmma"), &problem, TARGET)
            .and_then(|variant| variant.job(&problem, Some(&schedule), TARGET))
            .unwrap_or_else(|error| panic!("{error}"));
        randomise(&mut job, &problem, 7);
        let device = heist_run::Device::open("sim:h200".parse().expect("a name")).expect("it");
        let step = &job.steps[0];
        let program = Program::from_module(&*step.entry, &step.module);
        let arguments = job.arguments(0).expect("a step");
        let run = device
            .inspect(
                &program,
                &step.entry,
                &step.launch,
                &arguments,
                &Default::default(),
            )
            .expect("it runs");
        assert!(run.findings.is_empty(), "{:#?}", run.findings);
        job.absorb(&run.outcome);
        job.data("out").expect("results").to_vec::<u16>()
    };
    assert_eq!(out(PAUSING), out("ticket late until-asked"));
}

#[test]
fn what_cannot_pause_says_so() {
    let problem = problem(300, 300, 64, Mask::Full);
    let refused = |variant: &str, text: &str| -> String {
        let chosen = FAMILY.choose(Some(variant), &problem, TARGET).expect("it");
        let job: Result<_, KernelError> = chosen.job(&problem, Some(&schedule(text)), TARGET);
        job.expect_err(text).to_string()
    };
    for (variant, text, why) in [
        ("wgmma", "static pausing", "the ticket source"),
        (
            "wgmma",
            "ticket early pausing until-asked",
            "late submission",
        ),
        ("large", PAUSING, "can't be left half done"),
        (
            "wgmma",
            "ticket late pausing loaded: until-asked",
            "built in",
        ),
    ] {
        let said = refused(variant, text);
        assert!(said.contains(why), "{variant} {text}: {said}");
    }
    let shape = warpgroup_shape(&problem, TARGET).scheduled();
    let error =
        warpgroup_job(&problem, shape, &schedule(PAUSING), TARGET).expect_err("not built for it");
    assert!(error.to_string().contains("pauses"), "{error}");
}
