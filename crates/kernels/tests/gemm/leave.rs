//! How results leave warpgroups, and what is read to be added to them.

use super::*;
use heist_kernels::{Job, KernelError};

#[test]
fn results_leave_in_panels_of_any_number() {
    // Five, seven and nine panels of a tile in up to four buffers, tile after tile.
    for (tiling, m, n) in [
        ("wgmma:64x80x64/3", 200, 168),
        ("wgmma:64x112x64/3", 130, 232),
        ("wgmma:128x144x64/3", 300, 296),
        ("wgmma:128x224x64/3", 140, 456),
        ("wgmma:256x112x64/3", 300, 120),
        // What is left of a tile behind its last panel: 8, 24, 40 and 56 columns.
        ("wgmma:64x72x64/3", 70, 144),
        ("wgmma:128x88x64/3", 130, 200),
        ("wgmma:192x104x64/3", 200, 112),
        ("wgmma:64x24x64/3", 64, 48),
        ("wgmma:64x120x64/3", 70, 128),
    ] {
        let problem = Gemm::new(m, n, 72, Input::Bf16, Output::Bf16, Layout::Nt);
        right_in_tiles(problem, tiling, Some(&Schedule::new(TileSource::Static)), 1);
    }
}

/// How often a kernel in these tiles loads from global memory.
fn loads(problem: &Gemm, tiling: &str, schedule: &Schedule) -> usize {
    let (_, target) = common::device("h200");
    let tiling: Tiling = tiling.parse().expect("a tile shape");
    let job = job_with_tiling(problem, tiling, Some(schedule), target).expect("a job");
    let texts: String = job.steps.iter().map(|step| step.ptx()).collect();
    texts.matches("ld.global").count()
}

/// A thread reads the bias of a pair of columns once for all of its rows, at the edge of the result as well; and not where nothing is left for it.
#[test]
fn biases_are_read_once_for_all_rows() {
    let plain = Schedule::new(TileSource::Static);
    for (tiling, [m, n, ldc], words) in [
        // So few sums that all columns are asked for at once.
        ("wgmma:64x80x64/3", [70, 168, 168], 10),
        ("wgmma:64x80x64/3", [70, 166, 168], 10),
        // 16 at a time, and 8.
        ("wgmma:128x144x64/3", [130, 296, 296], 18),
        ("wgmma:128x224x64/3", [140, 456, 456], 28),
        // Twice 64 rows.
        ("wgmma:256x112x64/3", [260, 120, 120], 2 * 14),
    ] {
        let mut problem = Gemm::new(m, n, 72, Input::Bf16, Output::Bf16, Layout::Nt);
        problem.ldc = ldc;
        let without = loads(&problem, tiling, &plain);
        problem.epilogue.bias = true;
        assert_eq!(loads(&problem, tiling, &plain) - without, words, "{tiling}");
        right_in_tiles(problem, tiling, Some(&plain), 1);
    }
    // The last pair has one column: nothing behind it is read.
    let mut problem = Gemm::new(70, 167, 72, Input::F16, Output::F16, Layout::Nt);
    (problem.ldc, problem.epilogue.bias) = (168, true);
    right_in_tiles(problem, "wgmma:64x80x64/3", Some(&plain), 1);
    // C takes what registers are left.
    problem.epilogue.beta = 2.0;
    right_in_tiles(problem, "wgmma:128x144x64/3", Some(&plain), 1);
}

/// C comes through the buffers that results leave from: no thread loads it. In more panels than there are buffers, a last one that is narrower, twice
/// 64 rows, both ways round, in a batch, and at edges that lie inside of 16 bytes. Where tiles can be left half done threads read it.
#[test]
fn c_is_copied_into_the_buffers_that_results_leave_from() {
    let (one_tile, tile_after_tile) = ("direct", "static");
    for (tiling, [m, n, ldc], batch, schedule) in [
        ("wgmma:64x80x64/3", [70, 168, 168], 1, tile_after_tile),
        ("wgmma:64x80x64/3", [70, 165, 168], 1, one_tile),
        // Four panels, and five and a half; stages leave room for fewer buffers.
        ("wgmma:128x256x64/4", [130, 264, 264], 1, tile_after_tile),
        ("wgmma:128x176x64/5", [130, 360, 368], 1, tile_after_tile),
        (
            "wgmma:128x64x64/3/pingpong",
            [400, 72, 72],
            1,
            tile_after_tile,
        ),
        ("wgmma:256x112x64/3", [260, 120, 120], 1, tile_after_tile),
        ("wgmma:64x16x64/3/swapped", [40, 72, 72], 2, tile_after_tile),
        ("wgmma:128x24x64/3/swapped", [30, 141, 144], 1, one_tile),
        // In parts: all rows at once have no room.
        (
            "wgmma:256x152x64/4/swapped",
            [160, 264, 264],
            1,
            tile_after_tile,
        ),
        (
            "wgmma:64x80x64/3",
            [70, 168, 168],
            2,
            "ticket late loaded: every(2)",
        ),
    ] {
        let mut problem = Gemm::new(m, n, 72, Input::Bf16, Output::Bf16, Layout::Nt).batch(batch);
        problem.ldc = ldc;
        let schedule: Schedule = schedule.parse().expect("a schedule");
        let without = loads(&problem, tiling, &schedule);
        problem.epilogue.beta = -2.0;
        assert_eq!(loads(&problem, tiling, &schedule), without, "{tiling}");
        right_in_tiles(problem, tiling, Some(&schedule), 1);
    }
    let problem = Gemm::new(70, 168, 72, Input::Bf16, Output::Bf16, Layout::Nt);
    let paused: Schedule = "ticket late pausing until-asked"
        .parse()
        .expect("a schedule");
    for tiling in ["wgmma:64x80x64/3", "wgmma:64x80x64/3/swapped"] {
        let without = loads(&problem, tiling, &paused);
        let adding = problem.epilogue(Epilogue {
            beta: -2.0,
            ..Epilogue::default()
        });
        assert!(loads(&adding, tiling, &paused) > without, "{tiling}");
        right_in_tiles(adding, tiling, Some(&paused), 1);
    }
    // Beside a bias and factors of rows.
    let mut problem = Gemm::new(70, 168, 80, Input::E4m3, Output::Bf16, Layout::Nt);
    problem.scales = Scales::Rows;
    (problem.epilogue.beta, problem.epilogue.bias) = (0.5, true);
    right_in_tiles(problem, "wgmma:64x80x128/3", None, 1);
    right_in_tiles(problem, "wgmma:128x24x128/3/swapped", None, 1);
}

#[test]
fn warpgroups_store_rows_that_start_anywhere() {
    for (tiling, m, n) in [
        ("wgmma:64x64x64/3", 70, 131),
        ("wgmma:64x32x64/3", 66, 35),
        ("wgmma:128x128x64/4", 130, 257),
        ("wgmma:64x64x64/3", 64, 66),
        // Panels of 24 and 8 columns behind the last whole one.
        ("wgmma:64x88x64/3", 64, 175),
        ("wgmma:64x136x64/3", 5, 137),
    ] {
        for output in [Output::Bf16, Output::F32] {
            let problem = Gemm::new(m, n, 72, Input::Bf16, output, Layout::Nt);
            right_in_tiles(problem, tiling, None, 2);
        }
    }
    // What is added to the sums has the same rows.
    let epilogue = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::None,
        ..Epilogue::default()
    };
    for output in [Output::F16, Output::F32] {
        let problem = Gemm::new(65, 67, 64, Input::F16, output, Layout::Nt).epilogue(epilogue);
        right_in_tiles(problem, "wgmma:64x64x64/3", None, 132);
    }
}

/// Where rows begin at odd elements a warp stores one at a time, four in each round of a loop for every panel; of eight rows at a time every element would be stored by itself.
#[test]
fn rows_that_start_anywhere_are_stored_one_at_a_time() {
    let (_, target) = common::device("h200");
    let stores = |job: Result<Job, KernelError>| {
        let job = job.unwrap_or_else(|error| panic!("{error}"));
        let text = job.steps.last().expect("a step").ptx();
        text.matches("st.global").count()
    };
    for (output, panels, each) in [(Output::Bf16, 2, 2), (Output::F32, 4, 1)] {
        let problem = |n| Gemm::new(256, n, 64, Input::Bf16, output, Layout::Nt);
        let tiling = "wgmma:64x128x64/3".parse().expect("a tile shape");
        let on_warpgroups = |n| stores(job_with_tiling(&problem(n), tiling, None, target));
        assert_eq!(on_warpgroups(129), panels * each * 4, "{output}");
        // Words do so where rows begin with lines, too; in tiles that leave no registers for it they leave in pairs.
        if output == Output::F32 {
            assert_eq!(on_warpgroups(128), panels * each * 4);
            let large = "wgmma:256x192x64/3".parse().expect("a tile shape");
            let pairs = stores(job_with_tiling(&problem(192), large, None, target));
            assert_eq!(pairs, 2 * 2 * 192 / 8);
        }
        let config = "64x128x32/64x64/3".parse().expect("a tile shape");
        let by_mma = |n| stores(job_with(&problem(n), config, &schedule(target), target));
        assert_eq!(by_mma(129), 4 * (panels / 2) * each * 4, "{output}");
        assert!(by_mma(130) >= 4 * 16, "{output}: pairs");
    }
}
