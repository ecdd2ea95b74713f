//! Tiles by `mma.sync`: types, layouts, edges, epilogues, schedules, and what is refused.

use super::*;

#[test]
fn every_type_and_layout() {
    for input in [Input::F16, Input::Bf16, Input::Tf32] {
        for &layout in Layout::ALL {
            let output = match (input, layout) {
                (Input::Tf32, _) | (_, Layout::Nn) => Output::F32,
                (Input::F16, _) => Output::F16,
                _ => Output::Bf16,
            };
            right(
                Gemm::new(32, 64, 96, input, output, layout),
                TINY,
                None,
                "h200",
            );
            right(
                Gemm::new(33, 40, 56, input, output, layout),
                TINY,
                None,
                "l4",
            );
        }
    }
}

#[test]
fn every_edge() {
    let sizes = [1, 7, 31, 32, 33, 61];
    for (index, &m) in sizes.iter().enumerate() {
        for (other, &n) in sizes.iter().enumerate() {
            let k = sizes[(index + other) % sizes.len()];
            let layout = Layout::ALL[(index + 2 * other) % 4];
            let (input, output) = if (index + other) % 2 == 0 {
                (Input::Bf16, Output::Bf16)
            } else {
                (Input::F16, Output::F32)
            };
            right(
                Gemm::new(m, n, k, input, output, layout),
                TINY,
                None,
                "h200",
            );
        }
    }
    for k in [1, 5, 16, 17, 33] {
        for &layout in Layout::ALL {
            right(
                Gemm::new(17, 19, k, Input::Tf32, Output::F32, layout),
                TINY,
                None,
                "a100",
            );
        }
    }
}

#[test]
fn no_depth_is_zero() {
    right(
        Gemm::new(5, 6, 0, Input::F16, Output::F16, Layout::Nt),
        TINY,
        None,
        "h200",
    );
}

#[test]
fn every_epilogue() {
    for &activation in Activation::ALL {
        for (alpha, beta, bias) in [(1.0, 0.0, true), (-0.5, 2.0, false), (2.0, 1.0, true)] {
            for (output, n) in [(Output::F16, 33), (Output::Bf16, 40), (Output::F32, 34)] {
                let epilogue = Epilogue {
                    alpha,
                    beta,
                    bias,
                    activation,
                    ..Epilogue::default()
                };
                let problem = Gemm::new(35, n, 40, Input::F16, output, Layout::Nn);
                right(problem.epilogue(epilogue), TINY, None, "h200");
            }
        }
    }
}

#[test]
fn every_source_policy_and_order() {
    let problem = Gemm::new(100, 130, 40, Input::Bf16, Output::Bf16, Layout::Nt);
    for source in TileSource::ALL {
        for policy in ["greedy", "never", "max-steals(1)", "every(2)"] {
            for order in ["linear", "grouped(2)", "hilbert"] {
                let mut schedule = Schedule::new(source).policy(policy.parse().expect("a policy"));
                schedule.order = order.parse().expect("an order");
                right(problem, TINY, Some(&schedule), "b200");
            }
        }
    }
}

#[test]
fn every_tile_shape() {
    for config in [
        "16x64x64/16x32/4",
        "32x64x16/16x32/2",
        "64x32x64/32x16/3",
        "64x64x32/32x32/4*2",
        "48x96x32/48x48/3",
        "16x128x128/16x32/2",
    ] {
        for &layout in Layout::ALL {
            let problem = Gemm::new(65, 97, 72, Input::F16, Output::F16, layout);
            right(problem, config, None, "h200");
        }
    }
}

#[test]
fn every_variant_on_every_device() {
    for device in ["l4", "a100", "h200", "b200", "rtx5090"] {
        let (simulated, target) = common::device(device);
        let problem = Gemm::new(130, 70, 48, Input::F16, Output::F32, Layout::Nt);
        for variant in FAMILY.variants {
            let job = match FAMILY.choose(Some(variant.name()), &problem, target) {
                Ok(variant) => variant.job(&problem, None, target).expect("a job"),
                Err(error) => {
                    let text = error.to_string();
                    let lacks = [
                        "shared memory",
                        "has no wgmma",
                        "has no tcgen05",
                        "it is for at most 96 rows",
                        "clusters, which came with sm_90",
                    ];
                    assert!(
                        lacks.iter().any(|lack| text.contains(lack)),
                        "{device}: {text}"
                    );
                    continue;
                }
            };
            let mut prepared = prepared(job, problem, 9);
            common::run(&mut prepared.job, &simulated, &Settings::default());
            let difference = (prepared.verify)(&prepared.job).expect("a comparison");
            assert!(
                difference.within(2e-3),
                "{} on {device}: {difference}",
                variant.name()
            );
        }
    }
}

#[test]
fn rows_further_apart_than_they_are_long() {
    let mut schedule = schedule(common::device("h200").1);
    schedule.order = AnyOrder::new(Grouped { rows: 2 });
    for pitch in [40, 42, 41] {
        let mut problem = Gemm::new(33, 32, 32, Input::F16, Output::F32, Layout::Nt);
        (problem.lda, problem.ldb, problem.ldc) = (pitch, pitch + 6, pitch + 1);
        problem.epilogue.beta = 1.0;
        right(problem, TINY, Some(&schedule), "h200");
    }
}

#[test]
fn what_can_t_be_is_told() {
    let (_, target) = common::device("h200");
    let config: Config = TINY.parse().expect("a tile shape");
    let says = |problem: Gemm| {
        let job = job_with(&problem, config, &schedule(target), target);
        job.expect_err("no job").to_string()
    };
    let good = Gemm::new(8, 8, 8, Input::F16, Output::F16, Layout::Nt);
    assert!(says(Gemm { m: 0, ..good }).contains("no elements"));
    assert!(says(Gemm { lda: 7, ..good }).contains("a row of A has 8 elements"));
    assert!(
        says(Gemm {
            ldc: 1 << 24,
            ..good
        })
        .contains("too far")
    );
    assert!(
        "96x96x24/32x32/3".parse::<Config>().is_err(),
        "a depth of 24"
    );
    assert!("64x64x32/24x32/3".parse::<Config>().is_err(), "24 rows");
    let error = FAMILY
        .choose(Some("wgmma-64"), &good, target)
        .err()
        .expect("no such");
    assert!(error.to_string().contains("mma-128x256"), "{error}");
}
