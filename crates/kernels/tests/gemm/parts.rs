//! Tiles in parts: pieces, halves, and shares of the depth.

use super::*;

/// Tiles in two and three pieces, one and two waves of them, both sides of the result at an edge, halves and floats: whoever ends last, the bits
/// are the same.
#[test]
fn the_last_tiles_in_pieces_have_the_same_bits_under_every_schedule() {
    // All pieces at once, where the longest ends last; and one after the other, where the shortest does.
    let devices = [common::device("h200").0, common::small("h200", 1).0];
    for (tiling, [m, n, k], output, sms) in [
        ("wgmma:64x16x64/4/tail", [250, 30, 4096], Output::F32, 5),
        ("wgmma:128x16x64/4/tail", [500, 30, 4088], Output::Bf16, 5),
        (
            "wgmma:64x16x64/3/swapped/tail",
            [30, 250, 4096],
            Output::Bf16,
            5,
        ),
    ] {
        let problem = Gemm::new(m, n, k, Input::Bf16, output, Layout::Nt);
        let bits = ["direct", "ticket late"].map(|schedule| {
            let schedule = schedule.parse().expect("a schedule");
            let on = |device| right_on(device, problem, tiling, Some(&schedule), sms);
            devices.each_ref().map(on)
        });
        let bits = bits.as_flattened();
        assert!(bits.iter().all(|one| *one == bits[0]), "{problem} {tiling}");
    }
}

/// Tiles in halves of 64 and 128 rows, whose warpgroups share them or have one each, edges along the columns, C that is the result: the bits are those of
/// whole tiles, where all blocks run at a time and where one after the other does.
#[test]
fn tiles_in_halves_have_the_bits_of_whole_ones() {
    let devices = [common::device("h200").0, common::small("h200", 1).0];
    for (tiling, [m, n, k], layout, sms) in [
        // Five tiles: one wave of four, one more, and three of these are halved.
        ("wgmma:128x16x64/4", [640, 16, 200], Layout::Nt, 4),
        ("wgmma:256x16x64/3", [768, 24, 72], Layout::Nn, 4),
        // Six of a warpgroup each.
        ("wgmma:128x64x64/3/pingpong", [384, 104, 136], Layout::Nt, 4),
    ] {
        let mut problem = Gemm::new(m, n, k, Input::Bf16, Output::Bf16, layout);
        problem.epilogue.beta = 0.5;
        let bits = ["", "/halves"].map(|halves| {
            let tiling = format!("{tiling}{halves}");
            ["static", "ticket late"].map(|schedule| {
                let schedule = schedule.parse().expect("a schedule");
                let on = |device| right_on(device, problem, &tiling, Some(&schedule), sms);
                devices.each_ref().map(on)
            })
        });
        let bits = bits.as_flattened().as_flattened();
        assert!(bits.iter().all(|one| *one == bits[0]), "{problem} {tiling}");
    }
    // A tile that may be left half done is whole, and so is one of a grid without a wave that is not full.
    let problem = Gemm::new(512, 16, 72, Input::Bf16, Output::Bf16, Layout::Nt);
    let halves = "wgmma:128x16x64/4/halves".parse().expect("a tile shape");
    for (schedule, sms, why) in [
        ("ticket late pausing until-asked", 3, "tile after tile"),
        ("ticket late loaded: greedy", 3, "tile after tile"),
        ("ticket late every(2)", 3, "tile after tile"),
        ("direct", 3, "tile after tile"),
        ("ticket late", 4, "no multiprocessor idle"),
        ("ticket late", 5, "no multiprocessor idle"),
    ] {
        let schedule: Schedule = schedule.parse().expect("a schedule");
        let (_, mut target) = common::device("h200");
        target.sms = sms;
        let refused = job_with_tiling(&problem, halves, Some(&schedule), target);
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains(why), "{schedule}: {error}");
    }
}

#[test]
fn the_depth_in_shares() {
    let epilogue = Epilogue {
        alpha: 2.0,
        beta: 0.5,
        bias: true,
        activation: Activation::Silu,
        ..Epilogue::default()
    };
    for (tiling, m, n, k) in [
        ("wgmma:64x64x64/3/split=2", 70, 71, 400),
        ("wgmma:64x64x64/3/split=5", 64, 64, 640),
        // More shares than steps.
        ("wgmma:64x32x128/2/split=9", 30, 40, 264),
        ("wgmma:64x8x64/3/swapped/split=3", 5, 130, 264),
        ("wgmma:128x64x64/3/split=20", 65, 66, 2048),
        // The shares of a tile are a cluster.
        ("wgmma:64x64x64/3/split=2/cluster=depth", 70, 71, 400),
        ("wgmma:128x96x64/3/split=3/cluster=depth", 130, 104, 456),
        ("wgmma:256x64x64/3/split=8/cluster=depth", 264, 72, 2048),
        ("wgmma:192x32x64/2/split=4/cluster=depth", 65, 40, 136),
        (
            "wgmma:64x32x128/3/swapped/split=4/cluster=depth",
            29,
            130,
            264,
        ),
        ("wgmma:64x16x64/3/swapped/split=2/cluster=depth", 9, 67, 264),
        // Not all of them add up, or the last one has fewer columns.
        ("wgmma:64x8x64/3/swapped/split=3/cluster=depth", 5, 130, 264),
        (
            "wgmma:64x8x128/2/swapped/split=8/cluster=depth*2",
            8,
            64,
            1032,
        ),
        (
            "wgmma:64x24x64/2/swapped/split=2/cluster=depth",
            21,
            72,
            264,
        ),
        ("wgmma:64x40x64/2/split=4/cluster=depth", 70, 80, 520),
        ("wgmma:128x72x64/2/split=5/cluster=depth", 130, 78, 392),
    ] {
        for (output, epilogue) in [(Output::Bf16, Epilogue::default()), (Output::F32, epilogue)] {
            let problem = Gemm::new(m, n, k, Input::Bf16, output, Layout::Nt).epilogue(epilogue);
            right_in_tiles(problem, tiling, None, 4);
        }
    }
}

/// Shares in a cluster and shares in memory are the same numbers, added in the same order.
#[test]
fn a_cluster_adds_its_shares_in_their_order() {
    let problem = Gemm::new(70, 96, 520, Input::Bf16, Output::F32, Layout::Nt);
    for tiling in ["wgmma:64x96x64/3/split=3", "wgmma:64x56x64/3/split=3"] {
        let one = right_in_tiles(problem, tiling, None, 4);
        let other = right_in_tiles(problem, &format!("{tiling}/cluster=depth"), None, 4);
        assert!(one == other, "other bits");
    }
    let (_, target) = common::device("h200");
    let tiling = "wgmma:64x96x64/3/split=3/cluster=depth".parse();
    let ticket = Schedule::new(TileSource::Ticket);
    let tiling = tiling.expect("a tile shape");
    let error = job_with_tiling(&problem, tiling, Some(&ticket), target).expect_err("one tile");
    assert!(error.to_string().contains("take direct"), "{error}");
    for wrong in [
        "wgmma:64x64x64/3/cluster=depth",
        "wgmma:64x64x64/3/split=16/cluster=depth",
        "wgmma:64x192x64/3/split=2/cluster=depth*2",
    ] {
        assert!(wrong.parse::<Tiling>().is_err(), "{wrong}");
    }
}
