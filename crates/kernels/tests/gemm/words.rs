//! tf32 on warpgroups.

use super::*;

#[test]
fn warpgroups_multiply_tf32() {
    for (tiling, m, n, k) in [
        ("wgmma:64x64x64/3", 70, 72, 100),
        ("wgmma:128x128x64/4", 130, 136, 36),
        ("wgmma:64x16x128/3/swapped", 9, 70, 68),
        ("wgmma:64x32x64/3/split=2", 40, 40, 264),
    ] {
        for output in [Output::F32, Output::Bf16] {
            let problem = Gemm::new(m, n, k, Input::Tf32, output, Layout::Nt);
            right_in_tiles(problem, tiling, None, 2);
        }
    }
}

/// The operand with the tile's rows goes through registers where it is stored across the depth.
#[test]
fn warpgroups_multiply_tf32_through_registers() {
    use Layout::{Nn, Tt};
    for (tiling, m, n, k, layout) in [
        ("wgmma:64x64x64/3/swapped", 70, 68, 100, Nn),
        ("wgmma:64x16x128/3/swapped", 9, 72, 68, Nn),
        ("wgmma:256x32x64/3/swapped", 33, 264, 36, Nn),
        ("wgmma:192x16x64/3/swapped/split=2", 9, 200, 264, Nn),
        (
            "wgmma:64x32x64/3/swapped/split=2/cluster=depth",
            30,
            68,
            136,
            Nn,
        ),
        ("wgmma:128x32x64/3/swapped/cluster=2x2", 60, 200, 40, Nn),
        ("wgmma:64x32x64/3/swapped/pingpong", 70, 132, 104, Nn),
        ("wgmma:64x64x64/3", 72, 70, 100, Tt),
        ("wgmma:256x32x64/3/cluster=2", 300, 40, 40, Tt),
    ] {
        let problem = Gemm::new(m, n, k, Input::Tf32, Output::F32, layout);
        right_in_tiles(problem, tiling, None, 2);
        if tiling.contains("64x64") {
            let halves = Gemm::new(m, n, k, Input::Tf32, Output::Bf16, layout);
            right_in_tiles(halves, tiling, Some(&Schedule::new(TileSource::Ticket)), 2);
        }
    }
    let cut = Gemm::new(500, 30, 2044, Input::Tf32, Output::F32, Tt);
    right_in_tiles(cut, "wgmma:128x16x64/4/tail", None, 5);
}

/// The copy engine rounds to nearest, so a result is as near as with operands that were rounded before, and not 7e-4 of the norm too small.
#[test]
fn tf32_is_rounded_on_its_way() {
    let (device, target) = common::device("h200");
    for layout in [Layout::Nt, Layout::Nn] {
        let problem = Gemm::new(64, 64, 512, Input::Tf32, Output::F32, layout);
        let variant = FAMILY.choose(None, &problem, target).expect("one");
        let job = variant.job(&problem, None, target).expect("a job");
        let mut prepared = prepared(job, problem, 3);
        common::run(&mut prepared.job, &device, &Settings::default());
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(difference.within(3.5e-4), "{problem}: {difference}");
    }
}
