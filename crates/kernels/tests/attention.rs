//! Attention on the simulated GPU: every rung against softmax in f64, with all
//! checks on.

mod common;

use heist_kernels::Target;
use heist_kernels::attention::*;
use heist_sched::{Schedule, Source, Submit};
use heist_sim::Options;

/// Runs a problem with a configuration; both differences within the bound.
fn right(problem: &Problem, config: &Config, schedule: Option<&Schedule>, device: &str) {
    let (device, target) = common::device(device);
    let own = heist_kernels::attention::schedule(config, problem, target.arch);
    let mut job = job(problem, config, schedule.unwrap_or(&own), target)
        .unwrap_or_else(|error| panic!("{problem}, {config}: {error}"));
    randomise(&mut job, problem, 7);
    common::run(&mut job, &device, &Options::default());
    let verdict = verify(&job, problem).expect("its buffers");
    let bound = bound(problem.dtype);
    assert!(verdict.out.within(bound), "{}: {}", job.name, verdict.out);
    assert!(
        verdict.lse.within(bound),
        "{}: lse {}",
        job.name,
        verdict.lse
    );
}

fn target() -> Target {
    common::device("sim:h200").1
}

/// The rung's configuration with a tile small enough for short sequences.
fn small(rung: Rung, problem: &Problem) -> Config {
    let mut config = Config::suited(rung, problem, target());
    if rung >= Rung::Buffered {
        config.down = 1;
        config.cols = 16;
    }
    config
}

#[test]
fn every_rung_type_and_mask() {
    for (index, rung) in Rung::ALL.into_iter().enumerate() {
        for dtype in Dtype::ALL {
            let masks = [Mask::Full, Mask::Causal, Mask::Window { left: 5, right: 0 }];
            for (mask_index, mask) in masks.into_iter().enumerate() {
                let mut problem = Problem::new(1, 2, 37, 32);
                problem.dtype = dtype;
                problem.mask = mask;
                problem.layout = [Layout::Heads, Layout::Rows][(index + mask_index) % 2];
                right(&problem, &small(rung, &problem), None, "sim:h200");
            }
        }
    }
}

#[test]
fn every_head_dimension_with_its_own_tiles() {
    for (index, dim) in [16, 32, 48, 64, 80, 96, 128, 160, 256]
        .into_iter()
        .enumerate()
    {
        for rung in Rung::ALL {
            let mut problem = Problem::new(1, 1, 20 + dim / 4, dim);
            problem.dtype = Dtype::ALL[index % 2];
            problem.mask = [Mask::Full, Mask::Causal][index % 2];
            let config = Config::suited(rung, &problem, target());
            right(&problem, &config, None, "sim:h200");
        }
    }
}

#[test]
fn lengths_at_the_edges_of_tiles() {
    // The small tile of the later rungs is 32 x 16; of the earlier, up to 64 x 32.
    let lengths = [1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 65, 97];
    let masks = [
        Mask::Full,
        Mask::Causal,
        Mask::Window { left: 17, right: 3 },
    ];
    for (index, &queries) in lengths.iter().enumerate() {
        let keys = lengths[(index * 5 + 3) % lengths.len()];
        for (which, rung) in Rung::ALL.into_iter().enumerate() {
            let mut problem = Problem::new(1, 1, queries, 32);
            problem.mask = masks[(index + which) % 3];
            let config = small(rung, &problem);
            right(&problem, &config, None, "sim:h200");
            problem.lengths = Lengths::Same {
                batch: 1,
                queries,
                keys,
            };
            right(&problem, &config, None, "sim:h200");
        }
    }
}

#[test]
fn heads_that_share_keys() {
    for rung in Rung::ALL {
        let mut problem = Problem::new(2, 6, 19, 32);
        problem.kv_heads = 2;
        problem.layout = Layout::Rows;
        right(&problem, &small(rung, &problem), None, "sim:h200");
        problem.kv_heads = 1;
        problem.layout = Layout::Heads;
        problem.mask = Mask::Causal;
        right(&problem, &small(rung, &problem), None, "sim:h200");
    }
}

#[test]
fn packed_sequences_with_lengths_of_their_own() {
    let lengths = vec![
        (5, 5),
        (0, 7),
        (33, 33),
        (1, 50),
        (40, 3),
        (17, 0),
        (16, 64),
    ];
    for rung in Rung::ALL {
        for mask in [Mask::Full, Mask::Causal, Mask::Window { left: 8, right: 8 }] {
            let mut problem = Problem::ragged(lengths.clone(), 2, 32);
            problem.kv_heads = 1;
            problem.mask = mask;
            right(&problem, &small(rung, &problem), None, "sim:h200");
        }
    }
}

#[test]
fn keys_shared_out_among_warps_and_blocks() {
    for (across, splits) in [(2, 1), (4, 1), (1, 2), (1, 5), (2, 3)] {
        for feed in [Feed::Pairs, Feed::Turns] {
            for mask in [Mask::Full, Mask::Causal] {
                let mut problem = Problem::new(2, 2, 70, 32);
                problem.mask = mask;
                let config = Config {
                    across,
                    splits,
                    feed,
                    row_blocks: 1,
                    ..small(Rung::Large, &problem)
                };
                right(&problem, &config, None, "sim:h200");
            }
        }
    }
    // A step of decoding: one query a sequence, and the longest with most keys.
    let mut problem = Problem::ragged(vec![(1, 300), (1, 2), (1, 0), (1, 129)], 4, 64);
    problem.kv_heads = 2;
    problem.mask = Mask::Causal;
    let config = Config {
        splits: 4,
        row_blocks: 1,
        down: 1,
        ..small(Rung::Large, &problem)
    };
    right(&problem, &config, None, "sim:h200");
}

#[test]
fn every_way_to_feed_and_to_lay_out() {
    for feed in [Feed::Pairs, Feed::Turns] {
        for stages in [2, 3, 4] {
            for (swizzled, q_in_registers, row_blocks) in
                [(false, true, 1), (true, false, 2), (true, true, 1)]
            {
                let mut problem = Problem::new(1, 1, 75, 64);
                problem.mask = [Mask::Full, Mask::Causal][stages as usize % 2];
                let config = Config {
                    feed,
                    stages,
                    swizzled,
                    q_in_registers,
                    row_blocks,
                    ..small(Rung::Large, &problem)
                };
                right(&problem, &config, None, "sim:h200");
            }
        }
    }
}

#[test]
fn every_source_and_policy() {
    for (index, source) in Source::ALL.into_iter().enumerate() {
        for policy in ["greedy", "max-steals(2)", "never"] {
            let mut problem = Problem::ragged(vec![(40, 40), (9, 9), (70, 70)], 2, 32);
            problem.mask = Mask::Causal;
            let config = small(Rung::Persistent, &problem);
            let mut schedule = Schedule::new(source)
                .policy(policy.parse().expect("a policy"))
                .submit([Submit::Early, Submit::Late][index % 2]);
            schedule.order = heist_sched::AnyOrder::new(HeaviestFirst);
            let device = if source == Source::Clc {
                "sim:b200"
            } else {
                "sim:a100"
            };
            right(&problem, &config, Some(&schedule), device);
        }
    }
}

#[test]
fn the_whole_range_of_scores() {
    // Scores of up to a few hundred, so that levels rise often and weights span
    // the whole range; and scores that are all alike.
    for scale in [8.0, 1e-6] {
        for rung in Rung::ALL {
            let mut problem = Problem::new(1, 1, 70, 32);
            problem.scale = Some(scale);
            right(&problem, &small(rung, &problem), None, "sim:h200");
        }
    }
}

#[test]
fn what_can_not_be_is_told() {
    let mut problem = Problem::new(1, 6, 8, 64);
    problem.kv_heads = 4;
    let error = problem.check().expect_err("6 heads over 4");
    assert!(
        error.to_string().contains("multiple of the key heads"),
        "{error}"
    );
    let problem = Problem::new(1, 1, 8, 24);
    let error = problem.check().expect_err("24 elements");
    assert!(
        error.to_string().contains("multiples of 16 up to 256"),
        "{error}"
    );
    assert!(Problem::new(0, 1, 8, 64).check().is_err());
    assert!(Problem::ragged(vec![(0, 5)], 1, 64).check().is_err());
    let problem = Problem::new(1, 1, 8, 64);
    let config = Config {
        splits: 2,
        ..Config::suited(Rung::Scalar, &problem, target())
    };
    let error = config.check().expect_err("splits of a scalar kernel");
    assert!(
        error.to_string().contains("does not share out keys"),
        "{error}"
    );
    for text in ["window(1)", "windows", "causal,"] {
        assert!(text.parse::<Mask>().is_err(), "{text}");
    }
    assert_eq!(
        "window(4, 0)".parse::<Mask>().expect("a window"),
        Mask::Window { left: 4, right: 0 }
    );
}
