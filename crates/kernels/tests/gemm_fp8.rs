//! Multiplications of 8-bit floats, one by one and in groups, on the simulated GPU, all checks on, against
//! f64.

mod common;

use heist_kernels::gemm::{
    Activation, Epilogue, FAMILY, Gemm, Input, Layout, Output, Scales, Summing, Tiling,
    job_with_tiling, prepared,
};
use heist_kernels::grouped::{self, Group, Grouped};
use heist_kernels::{Job, Tuned};
use heist_run::Settings;
use heist_tune::Candidate;

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
fn two_levels_of_sums_take_registers_of_the_warpgroup_that_copies() {
    for (scales, tiling) in [
        (Scales::Tensor, "wgmma:128x160x64/3/cluster=2"),
        (Scales::Rows, "wgmma:128x192x64/3"),
    ] {
        right(problem(136, 200, 656, scales), tiling);
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
        ..Epilogue::default()
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
        // Tiles of a whole block of B have one scale of it.
        "wgmma:64x128x64/3",
        // Those that come with their stages, too: three warpgroups, shares of the depth, blocks that copy together.
        "wgmma:192x128x64/3",
        "wgmma:128x128x64/3/split=2/cluster=depth",
        "wgmma:128x128x64/3/cluster=2",
        // Two copies bring the scales of 256 rows.
        "wgmma:256x128x64/3",
        "wgmma:256x128x64/3/cluster=2",
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
fn blocks_that_take_several_tiles_of_few_steps() {
    // Six tiles of two steps, in five stages; four of 256 rows; and of 128 x 128, with two sets of partial sums, an odd and an even number of steps.
    for (m, k, tiling) in [
        (400, 208, "wgmma:192x128x64/5"),
        (300, 208, "wgmma:256x128x64/4"),
        (200, 336, "wgmma:128x128x64/5"),
        (200, 512, "wgmma:128x128x64/3"),
    ] {
        right(problem(m, 260, k, Scales::Blocks), tiling);
    }
}

#[test]
fn larger_tiles_multiply_by_scales_of_blocks_in_many_waves() {
    let (_, target) = common::device("h200");
    let (three, pairs) = ("wgmma:192x128x64/5", "wgmma:256x128x64/4/cluster=2");
    // Each measured ahead of the others by 3% and more: three warpgroups, pairs of 256 rows, and 128 x 128 where larger ones lie outside.
    for (m, n, k, tiles) in [
        (8192, 8192, 8192, three),
        (2048, 2112, 7168, three),
        (352, 13568, 2816, three),
        (1024, 2112, 7168, three),
        (4096, 4096, 4096, pairs),
        (4096, 7168, 2048, pairs),
        (1024, 4096, 7168, pairs),
        (512, 7168, 16384, pairs),
        (364, 8576, 6272, "wgmma:128x128x64/6"),
    ] {
        let problem = problem(m, n, k, Scales::Blocks);
        let chosen = FAMILY.choose(None, &problem, target).expect("one");
        let name = chosen.job(&problem, None, target).expect("a job").name;
        assert!(name.ends_with(tiles), "{name}");
    }
}

/// Scales that come with their stages: few rows fill a tile badly and are faster in it than swapped, whose scales threads load.
#[test]
fn few_rows_are_swapped_where_no_block_has_scales() {
    let (_, target) = common::device("h200");
    for (rows, scales, swapped) in [
        (16, Scales::Blocks, false),
        (32, Scales::Blocks, false),
        (16, Scales::Rows, true),
        (4, Scales::Blocks, true),
    ] {
        let problem = problem(rows, 8192, 8192, scales);
        let variant = FAMILY.choose(Some("wgmma"), &problem, target);
        let job = variant.expect("it suits").job(&problem, None, target);
        let name = job.expect("a job").name;
        assert_eq!(name.contains("swapped"), swapped, "{name}");
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

/// Groups of e4m3 in bf16 with these scales, contiguous or masked.
fn groups(rows: &[u32], room: Option<u32>, [n, k]: [u32; 2], scales: Scales) -> Grouped {
    let (input, output) = (Input::E4m3, Output::Bf16);
    let problem = match room {
        None => Grouped::rows(rows.to_vec(), n, k, input, output),
        Some(room) => Grouped::masked(rows.to_vec(), room, [n, k], input, output),
    };
    problem.scales(scales)
}

/// Runs the launches that were planned for `planned` on the data of `problem`, and compares: the same
/// rows and room, dealt out in another way.
fn groups_right(planned: &Grouped, problem: &Grouped, tiles: [u32; 4], sms: u32, schedule: &str) {
    let (device, target) = common::small("h200", sms);
    let [rows, cols, depth, stages] = tiles;
    let words = [
        ("rows", rows.to_string()),
        ("cols", cols.to_string()),
        ("depth", depth.to_string()),
        ("stages", stages.to_string()),
        ("schedule", schedule.to_owned()),
    ];
    let what = format!("{problem} {tiles:?} {schedule}");
    let plan = planned.tuned(&Candidate::new(words), target);
    let plan = plan.unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut prepared = grouped::prepared(plan.job(|_| None), problem.clone(), 4);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).unwrap_or_else(|why| panic!("{what}: {why}"));
    assert!(difference.within(prepared.bound), "{what}: {difference}");
    let elements: u32 = problem.groups().iter().map(|group| group.m * group.n).sum();
    assert_eq!(difference.count, elements as usize, "{what}: all");
}

/// Groups that are empty, of one row, that end inside of a tile and with it; columns and depths that end
/// inside of a block of scales; what no group uses is NaN, in rows and in scales.
#[test]
fn groups_with_every_kind_of_scales_at_every_edge() {
    for (rows, room, sizes, tiles) in [
        (vec![40, 0, 129, 1], None, [200, 272], [64, 64, 64, 3]),
        (vec![0, 128, 3], None, [264, 144], [128, 128, 64, 4]),
        (vec![7, 64], None, [33, 528], [64, 192, 64, 3]),
        (vec![0, 1, 130, 70], Some(130), [200, 272], [64, 64, 64, 3]),
        (vec![65, 0, 128], Some(131), [136, 144], [128, 64, 64, 3]),
        (vec![5, 64], Some(64), [40, 400], [64, 128, 128, 2]),
        (vec![1], Some(1), [1, 16], [64, 64, 64, 3]),
    ] {
        for scales in [Scales::None, Scales::Rows, Scales::Blocks] {
            let problem = groups(&rows, room, sizes, scales);
            groups_right(&problem, &problem, tiles, 2, "ticket late greedy");
        }
    }
}

/// The host plans for one distribution of the rows, and the device has another: with more tiles than are
/// expected, each of the launch stands for several.
#[test]
fn groups_that_were_not_expected() {
    let lists: [(Vec<u32>, Vec<u32>, Option<u32>); 3] = [
        (vec![1; 6], vec![260, 0, 1, 130, 64, 129], Some(260)),
        (vec![260; 6], vec![0, 1, 0, 0, 65, 0], Some(260)),
        (vec![150, 0, 0, 0, 0, 0], vec![25; 6], None),
    ];
    for (expected, rows, room) in lists {
        for schedule in [
            "ticket late greedy",
            "ticket early max-steals(1)",
            "static",
            "direct",
        ] {
            let of = |rows: &[u32]| groups(rows, room, [72, 144], Scales::Blocks);
            let tiles = [64, 64, 64, 3];
            groups_right(&of(&expected), &of(&rows), tiles, 1, schedule);
        }
        // The same kernel with other types.
        let halves = |rows: &[u32]| Grouped {
            input: Input::Bf16,
            ..groups(rows, room, [72, 144], Scales::None)
        };
        let tiles = [64, 64, 64, 3];
        groups_right(
            &halves(&expected),
            &halves(&rows),
            tiles,
            1,
            "ticket late greedy",
        );
    }
}

#[test]
fn groups_of_both_types_and_both_ways_to_sum() {
    for (input, sums, output) in [
        (Input::E5m2, Summing::Levels, Output::F16),
        (Input::E5m2, Summing::Fast, Output::F32),
        (Input::E4m3, Summing::Fast, Output::Bf16),
    ] {
        let problem = Grouped {
            input,
            sums,
            output,
            ..groups(&[70, 3], Some(80), [72, 656], Scales::Rows)
        };
        groups_right(&problem, &problem, [64, 64, 64, 3], 2, "static");
        let (_, target) = common::device("h200");
        // Without two levels the large tiles fit.
        let large = grouped::FAMILY.choose(Some("wgmma-128x256"), &problem, target);
        assert_eq!(large.is_ok(), sums == Summing::Fast, "{problem}");
    }
}

#[test]
fn what_groups_can_t_be_is_told() {
    let says = |problem: &Grouped, device: &str| {
        let (_, target) = common::device(device);
        let checked = problem.check_shapes();
        let plan = checked.and_then(|()| grouped::FAMILY.plan(None, problem, target));
        plan.expect_err("no plan").to_string()
    };
    let good = groups(&[64], None, [64, 64], Scales::Blocks);
    let (_, target) = common::device("h200");
    let chosen = grouped::FAMILY
        .choose(None, &good, target)
        .expect("it suits");
    assert_eq!(chosen.name(), "wgmma-8bit");
    for device in ["a100", "b200"] {
        let text = says(&good, device);
        assert!(text.contains("warpgroups (sm_90a)"), "{device}: {text}");
    }
    let odd = groups(&[64], None, [64, 72], Scales::Rows);
    assert!(says(&odd, "h200").contains("pad k to a multiple of 16"));
    let turned = Grouped {
        layout: Layout::Nn,
        ..good.clone()
    };
    assert!(says(&turned, "h200").contains("in layout nt, not nn"));
    let one = groups(&[64], None, [64, 64], Scales::Tensor);
    assert!(says(&one, "h200").contains("take scales=rows"));
    let fine = groups(&[64], None, [64, 64], Scales::Mx);
    assert!(says(&fine, "b200").contains("take scales=blocks"));
    let halves = Grouped {
        input: Input::Bf16,
        ..good.clone()
    };
    assert!(says(&halves, "h200").contains("for e4m3 and e5m2, not bf16"));
    let full = groups(&[65], Some(64), [64, 64], Scales::None);
    assert!(says(&full, "h200").contains("has room for 64"));
    let shape = Group { m: 8, n: 8, k: 16 };
    let own = Grouped::own(vec![shape], Input::E4m3, Output::Bf16).scales(Scales::Blocks);
    assert!(says(&own, "h200").contains("take groups of the same n and k"));
}

/// A row behind a group's count that was written is an error of the check.
#[test]
fn a_row_that_no_group_uses_is_left_alone() {
    let problem = groups(&[3], Some(5), [8, 16], Scales::None);
    let prepared = grouped::prepared(Job::default(), problem, 4);
    let mut job = prepared.job;
    for buffer in &mut job.buffers {
        if buffer.name == "d" {
            buffer.data.bytes_mut()[4 * 8 * 2] ^= 1;
        }
    }
    let error = (prepared.verify)(&job).expect_err("it was written");
    assert!(error.to_string().contains("row 4 of group 0"), "{error}");
}
