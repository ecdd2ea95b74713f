//! 8-bit floats by blocks with scales (`scales=mx`). Scales beside those that there are stand for no
//! number: one that is looked at is seen in the result.

use super::{common, right, right_under};
use heist_builder::Arch;
use heist_kernels::Target;
use heist_kernels::blackwell::job_with_tiling;
use heist_kernels::gemm::{
    Activation, Epilogue, FAMILY, Gemm, Input, Layout, Output, Scales, prepared,
};
use heist_run::Settings;
use heist_sched::Schedule;

fn mx(m: u32, n: u32, k: u32, output: Output) -> Gemm {
    Gemm::new(m, n, k, Input::E4m3, output, Layout::Nt).scales(Scales::Mx)
}

/// Whole tiles and edges of rows, columns and depth, in every width: tiles of 64 and 192 columns begin
/// in the middle of the scales of 128.
#[test]
fn every_width_depth_and_edge() {
    for (m, n, k, tiling) in [
        (128, 128, 128, "tcgen05:128x64x64/2"),
        (129, 264, 16, "tcgen05:128x64x64/3"),
        (1, 8, 336, "tcgen05:128x128x64/3"),
        (130, 400, 144, "tcgen05:128x192x64/3"),
        (127, 264, 656, "tcgen05:128x256x64/3"),
    ] {
        right(mx(m, n, k, Output::F32), tiling);
    }
    // Rows of the result that start anywhere are stored by threads.
    right(mx(131, 67, 48, Output::F16), "tcgen05:128x64x64/2");
}

/// ptxas 13.0, and with it drivers of that age, ask for PTX 8.8 where the size of a block is left out;
/// a family has no other name for it than that of PTX 8.8.
#[test]
fn the_size_of_a_block_is_said_as_the_version_has_it() {
    for (arch, size, others) in [
        (Arch::SM_100A, ".block_scale.scale_vec::1X ", ".block32"),
        (Arch::SM_100F, ".block_scale.block32 ", ".scale_vec"),
    ] {
        let target = Target { arch, sms: 148 };
        let tiling = "tcgen05:128x128x64/3".parse().expect("a tiling");
        let problem = mx(128, 128, 128, Output::F32);
        let job = job_with_tiling(&problem, tiling, None, target).expect("a job");
        let ptx = job.steps[0].ptx();
        assert!(ptx.contains(size) && !ptx.contains(others), "{arch}");
    }
}

#[test]
fn every_type_and_an_epilogue() {
    for (input, output) in [
        (Input::E4m3, Output::Bf16),
        (Input::E5m2, Output::F16),
        (Input::E5m2, Output::F32),
    ] {
        let epilogue = Epilogue {
            alpha: -0.5,
            beta: 2.0,
            bias: true,
            activation: Activation::Silu,
            ..Epilogue::default()
        };
        let problem = Gemm {
            input,
            ..mx(131, 136, 272, output)
        };
        right(problem.epilogue(epilogue), "tcgen05:128x128x64/2");
    }
}

/// Both blocks of a pair have the scales of all columns, and each those of its rows; the second one
/// may have none.
#[test]
fn pairs() {
    for (m, n, k, tiling) in [
        (256, 256, 256, "tcgen05:256x256x64/2"),
        (128, 136, 144, "tcgen05:256x128x64/2"),
        (300, 264, 656, "tcgen05:256x256x64/4"),
        (1, 8, 48, "tcgen05:256x128x64/3"),
    ] {
        right(mx(m, n, k, Output::Bf16), tiling);
    }
}

/// A block has several tiles: scales, stages and accumulators go on from one to the next.
#[test]
fn every_policy_with_chaos() {
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
        let mut schedule: Schedule = schedule.parse().expect("a schedule");
        if seed % 4 == 3 {
            schedule.cluster = "2x2".parse().expect("a shape");
        }
        let settings = Settings {
            seed: seed as u64,
            chaos: true,
            ..Settings::default()
        };
        // One accumulator, and two.
        let tiling = ["tcgen05:128x256x64/3", "tcgen05:256x128x64/3"][seed % 2];
        let problem = mx(600, 300, 272, Output::Bf16);
        right_under(problem, tiling, Some(schedule), 4, &settings);
    }
}

/// Powers of two are exact, and so is each product: the sums are those of f64 but for a few last bits.
#[test]
fn scales_lose_nothing() {
    let (device, target) = common::small("b200", 2);
    let problem = mx(130, 200, 304, Output::F32);
    for tiling in ["tcgen05:128x64x64/2", "tcgen05:256x128x64/2"] {
        let tiling = tiling.parse().expect("a tile shape");
        let job = job_with_tiling(&problem, tiling, None, target).expect("a job");
        let mut prepared = prepared(job, problem, 7);
        common::run(&mut prepared.job, &device, &Settings::default());
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(difference.within(1e-6), "{tiling}: {difference}");
    }
}

#[test]
fn it_is_chosen_and_takes_bytes() {
    let (_, target) = common::device("b200");
    for (m, n, k) in [(4096, 4096, 4096), (100, 72, 336), (1, 8, 16)] {
        let problem = mx(m, n, k, Output::Bf16);
        let plan = FAMILY.plan(None, &problem, target).expect("a plan");
        assert_eq!(plan.variant, "tcgen05");
        for (name, count) in ["scale_a", "scale_b"]
            .into_iter()
            .zip(problem.scale_counts())
        {
            let scales = plan.buffers.iter().find(|buffer| buffer.name == name);
            let scales = scales.expect(name);
            assert_eq!((scales.element.bytes(), scales.len), (1, count));
        }
    }
    let plain = Target {
        arch: Arch::SM_100,
        ..target
    };
    let error = FAMILY.plan(None, &mx(64, 64, 64, Output::Bf16), plain);
    let text = error.expect_err("no tcgen05").to_string();
    assert!(text.contains("sm_100a"), "{text}");
}

/// Each block of a pair multiplies by the scales in its own tensor memory: those of columns that the
/// second one has copied wrongly spoil its rows.
#[test]
fn the_second_block_of_a_pair_has_scales_of_its_own() {
    let (device, target) = common::small("b200", 2);
    let problem = mx(200, 128, 128, Output::F32);
    let tiling = "tcgen05:256x128x64/2".parse().expect("a tile shape");
    let job = job_with_tiling(&problem, tiling, None, target).expect("a job");
    let mut prepared = prepared(job, problem, 5);
    let text = prepared.job.steps[0].ptx();
    let misplaced = |line: &str| match line.split_once("[%block_scale_b, {") {
        Some((copy, rest)) => {
            let (place, barrier) = rest.split_once("}]").expect("coordinates");
            let (along, _) = place.rsplit_once(", ").expect("several");
            format!("{copy}[%block_scale_b, {{{along}, %cluster_rank}}]{barrier}")
        }
        None => line.to_owned(),
    };
    let broken: Vec<String> = text.lines().map(misplaced).collect();
    assert_ne!(broken, text.lines().collect::<Vec<_>>());
    let broken = heist_ptx::Source::new("broken.ptx", broken.join("\n"));
    prepared.job.steps[0].module = heist_ptx::parse(&broken).expect("PTX").into();
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(!difference.within(prepared.bound), "{difference}");
}
