//! Attention on the simulated GPU: every rung against softmax in f64, with all
//! checks on.

#[path = "../common/mod.rs"]
mod common;

mod choice;
mod clusters;
mod decode;
mod models;

use heist_builder::f16;
use heist_kernels::attention::*;
use heist_kernels::{Job, Target};
use heist_launch::Buffer;
use heist_run::Settings;
use heist_sched::{Schedule, TileSource};

/// Runs the cases of a topic, a fifth of them where there are many; results and log-sum-exps are
/// within the bound.
fn right(topic: Topic, device: &str) {
    const MANY: usize = 16;
    let (device, target) = common::device(device);
    let cases = cases(topic, target);
    assert!(!cases.is_empty(), "{topic:?}");
    let cases = match cases.len() {
        0..MANY => cases,
        _ => heist_oracle::sample(cases),
    };
    for case in cases {
        let mut job = case
            .job(target)
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        let problem = &case.problem;
        randomise(&mut job, problem, 7);
        common::run(&mut job, &device, &Settings::default());
        let verdict = verify(&job, problem, Sample::All).expect("its buffers");
        if let Err(wrong) = verdict.judge(problem) {
            panic!("{case}: {wrong}");
        }
    }
}

/// Runs a problem on a variant with what `change` makes of its buffers; within the bound.
fn right_on(variant: &str, problem: &Problem, change: impl Fn(&str) -> Option<Buffer>) {
    let (device, target) = common::device("sim:h200");
    let chosen = FAMILY.choose(Some(variant), problem, target);
    let chosen = chosen.unwrap_or_else(|error| panic!("{variant} {problem}: {error}"));
    let mut job = chosen.job(problem, None, target).expect("a job");
    randomise(&mut job, problem, 7);
    for buffer in &mut job.buffers {
        if let Some(data) = change(&buffer.name) {
            assert_eq!(data.len(), buffer.data.len(), "{}", buffer.name);
            buffer.data = data;
        }
    }
    common::run(&mut job, &device, &Settings::default());
    let verdict = verify(&job, problem, Sample::All).expect("its buffers");
    if let Err(wrong) = verdict.judge(problem) {
        panic!("{variant} {problem}: {wrong}");
    }
}

/// Runs a job in an order that a number says; its results are right.
fn runs_right(mut job: Job, problem: &Problem, seed: u64) {
    let (device, _) = common::device("sim:h200");
    randomise(&mut job, problem, seed);
    let settings = Settings {
        seed,
        chaos: true,
        ..Settings::default()
    };
    common::run(&mut job, &device, &settings);
    let verdict = verify(&job, problem, Sample::All).expect("its buffers");
    verdict.judge(problem).expect("right");
}

fn target() -> Target {
    common::device("sim:h200").1
}

/// Nothing else than what lies where the views say is read.
#[test]
fn of_views() {
    right(Topic::Views, "sim:h200");
    let cases = cases(Topic::Views, target());
    let decoded = |case: &&Case| matches!(case.kernel, Which::Decode(..));
    assert!(cases.iter().filter(decoded).count() > 6, "{}", cases.len());
}

#[test]
fn every_rung_type_mask_and_layout_within_a_500th() {
    right(Topic::Rungs, "sim:h200");
    let cases = cases(Topic::Rungs, target());
    assert!(cases.iter().all(|case| bound(&case.problem) <= 2e-3));
}

#[test]
fn every_head_dimension_with_its_own_tiles() {
    right(Topic::HeadDimensions, "sim:h200");
    right(Topic::HeadDimensions, "sim:l4");
}

#[test]
fn the_tiles_of_large_problems() {
    right(Topic::ManyTiles, "sim:h200");
    right(Topic::ManyTiles, "sim:l4");
}

#[test]
fn lengths_at_the_edges_of_tiles() {
    right(Topic::Edges, "sim:h200");
}

#[test]
fn heads_that_share_keys() {
    right(Topic::SharedHeads, "sim:a100");
}

#[test]
fn packed_sequences_with_lengths_of_their_own() {
    right(Topic::Packed, "sim:h200");
}

#[test]
fn keys_shared_out_among_warps_and_blocks() {
    right(Topic::SharedKeys, "sim:h200");
}

#[test]
fn every_way_to_feed_and_to_lay_out() {
    right(Topic::Feeds, "sim:h200");
}

#[test]
fn every_source_and_policy() {
    right(Topic::Schedules, "sim:b200");
    right(Topic::Schedules, "sim:rtx5090");
}

#[test]
fn the_whole_range_of_scores() {
    right(Topic::Scales, "sim:h200");
}

#[test]
fn weights_in_two_terms_and_results_in_f32() {
    right(Topic::Precision, "sim:h200");
    right(Topic::Precision, "sim:a100");
}

#[test]
fn on_warpgroups() {
    right(Topic::Warpgroups, "sim:h200");
    let without = common::device("sim:b200").1;
    assert!(cases(Topic::Warpgroups, without).is_empty());
}

#[test]
fn heads_with_half_a_step_of_elements() {
    right(Topic::HalfSteps, "sim:h200");
}
