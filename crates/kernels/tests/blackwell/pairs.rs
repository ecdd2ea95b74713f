//! Pairs of blocks that multiply together.

use super::{bf16, common, right, right_under};
use heist_kernels::blackwell::job_with_tiling;
use heist_kernels::gemm::{Activation, Epilogue, Gemm, Input, Layout, Output, Scales};
use heist_run::Settings;
use heist_sched::Schedule;

/// One step and several, fewer and more than stages; both widths; a pair whose
/// second block has no row, some, or all of them.
#[test]
fn every_width_depth_and_edge() {
    for (m, n, k, tiling) in [
        (256, 256, 64, "tcgen05:256x256x64/2"),
        (1, 8, 8, "tcgen05:256x128x64/2"),
        (128, 128, 200, "tcgen05:256x128x64/2"),
        (129, 72, 448, "tcgen05:256x128x64/4"),
        (300, 264, 136, "tcgen05:256x256x64/3"),
    ] {
        right(bf16(m, n, k), tiling);
    }
    // Rows of the result that start anywhere are stored by threads.
    for (n, output) in [(67, Output::F16), (131, Output::F32)] {
        let problem = Gemm::new(140, n, 72, Input::F16, output, Layout::Nt);
        right(problem, "tcgen05:256x128x64/3");
    }
    right(bf16(130, 72, 72).batch(2), "tcgen05:256x128x64/3");
}

#[test]
fn every_type_layout_and_epilogue() {
    for &layout in Layout::ALL {
        for (input, output, tiling) in [
            (Input::Bf16, Output::Bf16, "tcgen05:256x128x64/3"),
            (Input::F16, Output::F32, "tcgen05:256x256x64/3"),
        ] {
            right(Gemm::new(200, 264, 80, input, output, layout), tiling);
        }
    }
    for (input, output) in [
        (Input::Tf32, Output::F32),
        (Input::E4m3, Output::Bf16),
        (Input::E5m2, Output::F16),
    ] {
        let problem = Gemm::new(140, 136, 272, input, output, Layout::Nt);
        right(problem, "tcgen05:256x128x64/3");
    }
    for scales in [Scales::Tensor, Scales::Rows] {
        let problem = Gemm::new(131, 72, 144, Input::E4m3, Output::Bf16, Layout::Nt);
        right(problem.scales(scales), "tcgen05:256x128x64/2");
    }
    for (alpha, beta, bias) in [(1.0, 0.0, true), (-0.5, 2.0, false)] {
        for (output, n) in [(Output::F16, 67), (Output::Bf16, 72)] {
            let epilogue = Epilogue {
                alpha,
                beta,
                bias,
                activation: Activation::Gelu,
                ..Epilogue::default()
            };
            // The second block of the pair is past the edge: it reads no row of C.
            for m in [128, 131] {
                let problem = Gemm::new(m, n, 40, Input::F16, output, Layout::Nt);
                right(problem.epilogue(epilogue), "tcgen05:256x128x64/2");
            }
        }
    }
}

/// A pair has several tiles; launch control answers both blocks.
#[test]
fn every_policy_and_source_with_chaos() {
    let problem = bf16(600, 300, 136);
    for (seed, schedule) in [
        "clc early greedy grouped(16)",
        "clc late max-steals(2)",
        "clc early every(2)",
        "clc early first-half",
        "clc late time-budget(5us) hilbert",
        "ticket late greedy",
        "static",
        "direct reversed",
    ]
    .into_iter()
    .enumerate()
    {
        let schedule: Schedule = schedule.parse().expect("a schedule");
        for chaos in [false, true] {
            let settings = Settings {
                seed: seed as u64,
                chaos,
                ..Settings::default()
            };
            let tiling = "tcgen05:256x128x64/3";
            right_under(problem, tiling, Some(schedule.clone()), 4, &settings);
        }
    }
}

/// Several pairs in a cluster, side by side: also where some of them, or of their blocks, are past the
/// edge.
#[test]
fn larger_clusters() {
    for (cluster, source, m, n) in [
        ("1x2", "clc late max-steals(2)", 300, 300),
        ("2x2", "clc early greedy", 300, 300),
        ("2x2", "clc late max-steals(2)", 600, 520),
        ("2x2", "clc early first-half hilbert", 513, 130),
        ("2x2", "ticket late greedy", 300, 300),
        ("2x2", "static", 130, 100),
        ("4x2", "clc early every(2)", 300, 700),
    ] {
        let mut schedule: Schedule = source.parse().expect("a schedule");
        schedule.cluster = cluster.parse().expect("a shape");
        let settings = Settings {
            chaos: true,
            ..Settings::default()
        };
        let tiling = "tcgen05:256x128x64/2";
        right_under(bf16(m, n, 200), tiling, Some(schedule), 8, &settings);
    }
    let (_, target) = common::small("b200", 4);
    let tiling = "tcgen05:256x128x64/3".parse().expect("a tile shape");
    for cluster in ["2x1", "2x4"] {
        let mut odd: Schedule = "clc early greedy".parse().expect("a schedule");
        odd.cluster = cluster.parse().expect("a shape");
        let error = job_with_tiling(&bf16(256, 256, 64), tiling, Some(&odd), target);
        let text = error.expect_err("no pair").to_string();
        assert!(text.contains("two blocks high"), "{text}");
    }
}
