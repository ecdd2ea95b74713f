//! Multiplications of 8-bit floats on the simulated GPU, all checks on, against f64.

mod common;

use heist_kernels::gemm::{
    Activation, Epilogue, FAMILY, Gemm, Input, Layout, Output, Scales, Summing, Tiling,
    job_with_tiling, prepared,
};
use heist_run::Settings;

fn problem(m: u32, n: u32, k: u32, scales: Scales) -> Gemm {
    Gemm::new(m, n, k, Input::E4m3, Output::Bf16, Layout::Nt).scales(scales)
}

/// Those that warpgroups have.
const HOPPERS: [Scales; 4] = [Scales::None, Scales::Tensor, Scales::Rows, Scales::Blocks];

/// Runs a multiplication in tiles of this shape and compares.
fn right(problem: Gemm, tiling: &str) {
    let (device, mut target) = common::device("h200");
    target.sms = 2;
    let tiling: Tiling = tiling.parse().expect("a tile shape");
    let job = job_with_tiling(&problem, tiling, None, target);
    let job = job.unwrap_or_else(|error| panic!("{problem} {tiling}: {error}"));
    let mut prepared = prepared(job, problem, 4);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(
        difference.within(prepared.bound),
        "{problem} {tiling}: {difference}"
    );
}

#[test]
fn every_kind_of_scales_at_every_edge() {
    for (tiling, m, n, k) in [
        ("wgmma:64x64x64/3", 70, 72, 400),
        ("wgmma:128x128x64/4", 130, 264, 144),
        ("wgmma:64x32x128/2", 66, 40, 528),
        // A whole part of the depth and a rest, of rows that end inside of a tile.
        ("wgmma:128x64x64/4/cluster=2", 300, 104, 912),
        ("wgmma:256x64x64/3", 260, 72, 656),
        ("wgmma:64x8x64/4", 1, 1, 16),
        ("wgmma:64x16x128/3/swapped", 9, 200, 272),
        ("wgmma:128x32x64/3/swapped", 33, 130, 144),
        ("wgmma:64x64x64/3/split=3", 70, 71, 656),
        ("wgmma:64x8x64/3/swapped/split=2", 5, 130, 272),
    ] {
        for scales in HOPPERS {
            right(problem(m, n, k, scales), tiling);
        }
    }
}

#[test]
fn both_types_both_ways_to_sum_and_f32() {
    for input in [Input::E4m3, Input::E5m2] {
        for &sums in Summing::ALL {
            let problem = Gemm {
                sums,
                output: Output::F32,
                ..Gemm::new(100, 136, 272, input, Output::Bf16, Layout::Nt)
            };
            right(problem.scales(Scales::Rows), "wgmma:128x128x64/3");
            right(problem.scales(Scales::Tensor), "wgmma:64x64x64/3/cluster=2");
        }
    }
}

#[test]
fn factors_of_rows_for_halves_and_beside_an_epilogue() {
    let epilogue = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Silu,
    };
    for (output, n) in [(Output::Bf16, 72), (Output::F16, 67), (Output::F32, 70)] {
        for input in [Input::Bf16, Input::E5m2] {
            let problem = Gemm::new(70, n, 80, input, output, Layout::Nt).epilogue(epilogue);
            for scales in [Scales::Rows, Scales::Tensor] {
                right(problem.scales(scales), "wgmma:64x64x64/3");
                right(problem.scales(scales), "wgmma:64x24x64/3/swapped");
            }
        }
    }
}

#[test]
fn a_scale_belongs_to_its_block() {
    // Scales that differ by far: a block that took its neighbour's would be seen.
    let problem = problem(130, 260, 400, Scales::Blocks);
    let (device, target) = common::device("h200");
    for tiling in [
        "wgmma:128x64x64/3",
        "wgmma:64x192x64/3",
        "wgmma:64x32x64/3/swapped",
    ] {
        let tiling: Tiling = tiling.parse().expect("a tile shape");
        let job = job_with_tiling(&problem, tiling, None, target).expect("a job");
        let mut prepared = prepared(job, problem, 4);
        common::run(&mut prepared.job, &device, &Settings::default());
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(difference.within(2e-3), "{tiling}: {difference}");
    }
}

#[test]
fn the_family_takes_them() {
    let (_, target) = common::device("h200");
    for (m, n, k) in [(16, 4096, 4096), (4096, 4096, 4096), (100, 104, 1008)] {
        for scales in HOPPERS {
            let problem = problem(m, n, k, scales);
            let plan = FAMILY.plan(None, &problem, target).expect("a plan");
            let named = |name: &str| plan.buffers.iter().find(|buffer| buffer.name == name);
            assert_eq!(named("scale_a").is_some(), scales != Scales::None);
            if let Some(scale) = named("scale_b") {
                assert_eq!(scale.len, problem.scale_counts()[1]);
            }
        }
    }
}

#[test]
fn what_can_t_be_is_told() {
    let says = |problem: Gemm, device: &str| {
        let (_, target) = common::device(device);
        let plan = FAMILY.plan(None, &problem, target);
        plan.expect_err("no plan").to_string()
    };
    let good = problem(64, 64, 64, Scales::None);
    assert!(says(good, "a100").contains("warpgroups (sm_90a)"));
    let turned = Gemm::new(64, 64, 64, Input::E4m3, Output::Bf16, Layout::Nn);
    assert!(says(turned, "h200").contains("in layout nt, not nn"));
    let odd = problem(64, 64, 72, Scales::None);
    assert!(says(odd, "h200").contains("multiples of 16 bytes"));
    let halves = Gemm::new(64, 64, 64, Input::Bf16, Output::Bf16, Layout::Nt);
    let text = says(halves.scales(Scales::Blocks), "h200");
    assert!(text.contains("for e4m3 and e5m2, not bf16"), "{text}");
    let text = says(halves.scales(Scales::Mx), "b200");
    assert!(text.contains("for e4m3 and e5m2, not bf16"), "{text}");
    let text = says(problem(64, 64, 64, Scales::Mx), "h200");
    assert!(text.contains("tcgen05 has them (sm_100a)"), "{text}");
    let text = says(problem(64, 64, 64, Scales::Mx).batch(2), "b200");
    assert!(text.contains("scales=mx is for one product"), "{text}");
    let (_, target) = common::device("h200");
    let blocks = problem(512, 512, 512, Scales::Blocks);
    for (tiling, why) in [
        ("wgmma:128x256x64/4", "two levels do not fit"),
        ("wgmma:64x96x64/4", "do not begin where its columns do"),
    ] {
        let job = job_with_tiling(&blocks, tiling.parse().expect("a shape"), None, target);
        let text = job.expect_err("it does not fit").to_string();
        assert!(text.contains(why), "{text}");
    }
}
