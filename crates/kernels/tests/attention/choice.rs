//! What is chosen and launched, and what is refused.

use super::*;

/// Narrow values leave room for more keys, in registers and in shared memory; the kernels without a width
/// of their own for values say so.
#[test]
fn narrow_values_have_larger_blocks_of_keys_on_warpgroups_alone() {
    let problem = |dim, values| {
        let mut problem = Problem::new(4, 16, 4096, dim);
        problem.value_dim = Some(values);
        problem
    };
    let keys = |dim, values| warpgroup_shape(&problem(dim, values), target()).keys;
    assert_eq!(
        [keys(192, 192), keys(192, 128), keys(256, 128)],
        [80, 128, 96]
    );
    assert_eq!([keys(192, 176), keys(256, 256)], [112, 64]);
    let narrow = problem(192, 128);
    assert_eq!(
        FAMILY.choose(None, &narrow, target()).expect("one").name(),
        "wgmma"
    );
    for other in ["scalar", "large", "decode"] {
        let refused = FAMILY.choose(Some(other), &narrow, target());
        let why = refused.err().expect("it has one width").to_string();
        assert!(why.contains("variant=wgmma alone"), "{other}: {why}");
    }
}

#[test]
fn warpgroups_are_chosen_where_they_are_ahead() {
    let chosen = |problem: &Problem, device| {
        let target = common::device(device).1;
        let variant = FAMILY.choose(None, problem, target).expect("a variant");
        variant.name()
    };
    let mut large = Problem::new(4, 16, 4096, 128);
    assert_eq!(chosen(&large, "sim:h200"), "wgmma");
    assert_eq!(chosen(&large, "sim:a100"), "large");
    assert_eq!(chosen(&large, "sim:b200"), "tcgen05");
    assert_eq!(chosen(&Problem::new(1, 8, 512, 64), "sim:h200"), "wgmma");
    assert_eq!(chosen(&Problem::new(1, 8, 256, 64), "sim:h200"), "wgmma");
    // Few tiles, few queries, few keys, and keys of another number.
    assert_eq!(chosen(&Problem::new(1, 3, 256, 64), "sim:h200"), "wgmma");
    assert_eq!(chosen(&Problem::new(2, 12, 100, 64), "sim:h200"), "wgmma");
    let mut across = Problem::new(10, 4, 353, 128);
    across.lengths = Lengths::Same {
        batch: 10,
        queries: 353,
        keys: 1222,
    };
    assert_eq!(chosen(&across, "sim:h200"), "wgmma");
    // Wide heads with few tiles and many keys have them shared out; narrow ones have the ladder but for long full masks.
    assert_eq!(chosen(&Problem::new(1, 4, 300, 192), "sim:h200"), "wgmma");
    assert_eq!(chosen(&Problem::new(1, 1, 2153, 192), "sim:h200"), "large");
    assert_eq!(chosen(&Problem::new(8, 16, 512, 32), "sim:h200"), "large");
    assert_eq!(chosen(&Problem::new(8, 16, 1024, 32), "sim:h200"), "wgmma");
    let packed = Problem::ragged(vec![(4096, 4096); 16], 16, 128);
    assert_eq!(chosen(&packed, "sim:h200"), "wgmma");
    let short = Problem::ragged(vec![(100, 100); 64], 16, 128);
    assert_eq!(chosen(&short, "sim:h200"), "large");
    let middling = Problem::ragged(vec![(350, 350); 64], 16, 64);
    assert_eq!(chosen(&middling, "sim:h200"), "wgmma");
    assert_eq!(chosen(&Problem::new(4, 16, 4096, 256), "sim:h200"), "wgmma");
    let named = FAMILY.choose(Some("wgmma"), &large, common::device("sim:a100").1);
    let error = named.err().expect("a refusal").to_string();
    assert!(error.contains("it needs sm_90a"), "{error}");
    large.weights = Weights::Split;
    assert_eq!(chosen(&large, "sim:h200"), "wgmma");
}

/// A kernel that waits for the launch before it touches nothing of another launch's earlier, and nothing by
/// loads of read-only data: those may have been cached before that launch ended.
#[test]
fn launches_that_overlap_read_nothing_too_early() {
    let target = common::device("sim:h200").1;
    let mut overlapping = [0, 0];
    for (which, topic) in [Topic::Warpgroups, Topic::Decode].into_iter().enumerate() {
        for case in cases(topic, target) {
            let job = case
                .job(target)
                .unwrap_or_else(|error| panic!("{case}: {error}"));
            for (at, step) in job.steps.iter().enumerate() {
                if !step.overlaps {
                    continue;
                }
                overlapping[which] += 1;
                match at > 0 && !job.steps[at - 1].overlaps {
                    false => common::waits_before_it_touches(step, &case.to_string()),
                    true => common::waits_before_it_touches_results(step, &case.to_string()),
                }
            }
        }
    }
    assert!(
        overlapping.iter().all(|&count| count >= 8),
        "{overlapping:?}"
    );
}

/// Where there are few rounds of tiles, and not where few rows are combined.
#[test]
fn short_launches_overlap() {
    let target = common::device("sim:h200").1;
    let overlaps = |problem: &Problem| {
        let plan = FAMILY.plan(None, problem, target).expect("a plan");
        plan.steps
            .iter()
            .map(|step| step.overlaps)
            .collect::<Vec<_>>()
    };
    assert_eq!(overlaps(&Problem::new(1, 8, 512, 64)), [true]);
    assert_eq!(overlaps(&Problem::new(64, 12, 128, 64)), [false]);
    assert_eq!(overlaps(&Problem::new(4, 16, 4096, 128)), [false]);
    let mut decoding = Problem::new(2, 64, 1, 128);
    for (batch, kv_heads, combined) in [(1, 8, true), (1, 1, false)] {
        decoding.kv_heads = kv_heads;
        decoding.heads = if kv_heads == 1 { 32 } else { 64 };
        decoding.lengths = Lengths::Same {
            batch,
            queries: 1,
            keys: 65536 / batch,
        };
        assert_eq!(overlaps(&decoding), [true, combined]);
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
    for dim in [8, 20, 264] {
        let error = Problem::new(1, 1, 8, dim).check().expect_err("elements");
        assert!(
            error.to_string().contains("multiples of 8 up to 256"),
            "{error}"
        );
    }
    // Half a step is filled for warpgroups alone.
    let problem = Problem::new(1, 1, 8, 24);
    for (device, variant) in [
        ("sim:h200", "large"),
        ("sim:h200", "decode"),
        ("sim:b200", "tcgen05"),
        ("sim:a100", "tensor"),
    ] {
        let refused = FAMILY.choose(Some(variant), &problem, common::device(device).1);
        let error = refused.map(|_| ()).expect_err(variant).to_string();
        assert!(error.contains("multiples of 16"), "{variant}: {error}");
    }
    let backward = Backward::of(Problem::new(1, 1, 8, 24));
    let error = backward.check().expect_err("gradients").to_string();
    assert!(error.contains("gradients of heads of 24"), "{error}");
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

#[test]
fn shared_memory_is_foretold() {
    for (index, rung) in Rung::ALL.into_iter().enumerate() {
        for dim in [32, 64, 96, 128, 256] {
            for (across, swizzled) in [(1, false), (2, false), (1, true)] {
                let problem = Problem::new(1, 1, 64, dim);
                let mut config = small_tiles(rung, &problem, target());
                if rung >= Rung::Buffered {
                    config.across = across;
                    config.swizzled = swizzled;
                    config.feed = [Feed::Pairs, Feed::Turns][index % 2];
                }
                let schedule = Schedule::new(TileSource::Direct);
                let kernel = build(&config, &schedule, target().arch).expect("a kernel");
                let launch = &kernel.built.launch;
                let bytes = launch.static_shared + launch.dynamic_shared;
                assert_eq!(bytes, config.shared(), "{config}, heads of {dim}");
            }
        }
    }
}

#[test]
fn a_problem_names_its_heads_of_keys_where_there_are_fewer() {
    let mut problem = Problem::new(2, 8, 64, 128);
    assert!(problem.to_string().contains(" H8 D128 "), "{problem}");
    problem.kv_heads = 2;
    assert!(problem.to_string().contains(" H8/2 D128 "), "{problem}");
}

/// With more columns the assembler spills registers.
#[test]
fn heads_of_96_have_two_blocks_of_rows_and_32_columns() {
    let target = common::device("sim:a100").1;
    let problem = Problem::new(8, 32, 4096, 96);
    let config = Config::suited(Rung::Large, &problem, target);
    assert_eq!((config.row_blocks, config.cols), (2, 32));
}
