//! Multiplications on the simulated GPU, all checks on, against f64.

mod common;

use heist_kernels::Job;
use heist_kernels::gemm::{
    Activation, Cluster, Config, Epilogue, FAMILY, Gemm, Input, Layout, Major, Output, Scales,
    Tiling, job_with, job_with_tiling, prepared, schedule,
};
use heist_launch::{Arg, Buffer, BufferRef, Role};
use heist_run::Settings;
use heist_sched::{AnyOrder, Grouped, Schedule, Submit, TileSource};

const TINY: &str = "32x32x32/16x16/3";

/// Runs a multiplication and compares.
fn right(problem: Gemm, config: &str, schedule: Option<&Schedule>, device: &str) {
    let (device, target) = common::device(device);
    let config: Config = config.parse().expect("a tile shape");
    let own = heist_kernels::gemm::schedule(target);
    let schedule = schedule.unwrap_or(&own);
    let job = job_with(&problem, config, schedule, target)
        .unwrap_or_else(|error| panic!("{problem} {config} {schedule}: {error}"));
    let mut prepared = prepared(job, problem, 3);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(
        difference.within(prepared.bound),
        "{problem} {config} {schedule}: {difference}"
    );
    assert_eq!(
        difference.count,
        (problem.m * problem.n) as usize,
        "every element was looked at"
    );
}

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
                    let lacks = ["shared memory", "has no wgmma", "has no tcgen05"];
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

/// Runs a multiplication on warpgroups and compares.
fn right_on_warpgroups(problem: Gemm, schedule: Option<&Schedule>) {
    let (device, target) = common::device("h200");
    let variant = FAMILY.choose(Some("wgmma-128x256"), &problem, target);
    let variant = variant.unwrap_or_else(|error| panic!("{problem}: {error}"));
    let job = variant.job(&problem, schedule, target).expect("a job");
    let mut prepared = prepared(job, problem, 4);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(difference.within(prepared.bound), "{problem}: {difference}");
}

#[test]
fn warpgroups_with_every_edge_and_type() {
    // Stored rows start at multiples of 16 bytes; the other axes have every edge.
    let sizes = [
        (Layout::Nt, [(1, 1, 8), (129, 257, 72), (61, 300, 200)]),
        (Layout::Nn, [(1, 8, 8), (129, 264, 72), (61, 296, 200)]),
        (Layout::Tn, [(8, 8, 1), (136, 264, 67), (128, 256, 127)]),
        (Layout::Tt, [(8, 1, 8), (136, 257, 72), (64, 300, 200)]),
    ];
    for (layout, sizes) in sizes {
        for (m, n, k) in sizes {
            for (input, output) in [(Input::F16, Output::F32), (Input::Bf16, Output::Bf16)] {
                right_on_warpgroups(Gemm::new(m, n, k, input, output, layout), None);
            }
        }
    }
    let epilogue = Epilogue {
        alpha: 0.5,
        beta: -1.0,
        bias: true,
        activation: Activation::Silu,
    };
    let problem = Gemm::new(70, 40, 80, Input::F16, Output::F16, Layout::Nt);
    right_on_warpgroups(problem.epilogue(epilogue), None);
}

/// The tiles that were chosen, as the job's name ends with them.
fn chosen_tiles(m: u32, n: u32, k: u32) -> Tiling {
    let (_, target) = common::device("h200");
    let problem = Gemm::new(m, n, k, Input::Bf16, Output::Bf16, Layout::Nt);
    let variant = FAMILY.choose(Some("wgmma"), &problem, target);
    let job = variant.expect("it suits").job(&problem, None, target);
    let name = job.expect("a job").name;
    let tiling = name.split(' ').next_back().expect("a name");
    tiling.parse().expect("a tile shape")
}

#[test]
fn tiles_of_one_wave_go_in_the_order_in_which_neighbours_read_the_same() {
    let (_, target) = common::device("h200");
    let problem = Gemm::new(1280, 640, 5120, Input::Bf16, Output::Bf16, Layout::Nt);
    let text = |tiling: &str, order: Option<&str>| {
        let schedule = order.map(|order| {
            let mut schedule = Schedule::new(TileSource::Direct).submit(Submit::Late);
            schedule.order = order.parse().expect("an order");
            schedule
        });
        let tiling = tiling.parse().expect("a tile shape");
        let job = job_with_tiling(&problem, tiling, schedule.as_ref(), target);
        job.expect("it suits").steps[0].ptx()
    };
    // Ten tiles down, ten across: 16 in a column of ten ask L2 for 1408 rows and columns, in bands of four for 768, and 20.7 us became 15.9.
    let own = text("wgmma:128x64x64/8", None);
    assert_eq!(own, text("wgmma:128x64x64/8", Some("grouped(4)")));
    assert_ne!(own, text("wgmma:128x64x64/8", Some("grouped(16)")));
    // Five tiles down, which is few enough: bands of 16 stay.
    let turned = "wgmma:128x64x64/8/swapped";
    assert_eq!(text(turned, None), text(turned, Some("grouped(16)")));
}

#[test]
fn tiles_follow_the_shape() {
    // What measured ahead by far, not by a hair: few rows swap the operands, few tiles
    // share the depth, and nothing runs on a part of the GPU.
    let decode = chosen_tiles(16, 8192, 8192);
    assert!(decode.swapped && decode.rows == 64, "{decode}");
    let deep = chosen_tiles(256, 256, 65536);
    assert!((8..=33).contains(&deep.split), "{deep}");
    for (m, n, k) in [(512, 4096, 4096), (128, 8192, 8192), (1024, 1024, 1024)] {
        let tiling = chosen_tiles(m, n, k);
        let (high, wide) = if tiling.swapped { (n, m) } else { (m, n) };
        let tiles = high.div_ceil(tiling.rows) * wide.div_ceil(tiling.cols) * tiling.split;
        assert!((100..=264).contains(&tiles), "{m}x{n}x{k}: {tiling}");
    }
    let large = chosen_tiles(4096, 4096, 4096);
    assert!(large.rows * large.cols >= 128 * 192, "{large}");
    // Rows outside cost what others do: five in tiles of 64 took 1.5 times as long as five columns of eight, and
    // 160 in three tiles of 64 rows 1.3 times as long as in two of 80 columns.
    for (m, n, k) in [(5, 3224, 10616), (160, 2048, 6144), (160, 3392, 1376)] {
        let tiling = chosen_tiles(m, n, k);
        assert!(tiling.swapped, "{m}x{n}x{k}: {tiling}");
    }
    // Four blocks of one warpgroup each wait for each other: 1.06 and 1.04 times as long as what is chosen.
    for (m, n, k) in [(499, 1792, 3776), (373, 2896, 3168)] {
        let tiling = chosen_tiles(m, n, k);
        let four = tiling.rows == 64 && tiling.cluster.count() == 4;
        assert!(!four, "{m}x{n}x{k}: {tiling}");
    }
    // Widths beside whose stages two staging buffers fit store 1.05 to 1.11 times as fast where the depth is short.
    for (m, n, k) in [(6964, 6448, 280), (5286, 3584, 256), (6146, 2880, 384)] {
        let tiling = chosen_tiles(m, n, k);
        let one = tiling.pingpong && [136, 144, 184, 192].contains(&tiling.cols);
        assert!(!one, "{m}x{n}x{k}: {tiling}");
    }
    // There warpgroups that share a tile store in turns, which hides most of it: 192 x 144 and 128 x 208 were 1.07 to 1.14 times as fast as pairs of tiles.
    for (m, n, k) in [(3753, 3712, 128), (6466, 1952, 144), (7157, 4352, 128)] {
        let tiling = chosen_tiles(m, n, k);
        let shared = !tiling.pingpong && tiling.rows >= 128;
        assert!(shared, "{m}x{n}x{k}: {tiling}");
    }
    // Widths of a tile fill a wave where rows in steps of 64 do not, however many there are.
    let wide = chosen_tiles(3334, 1488, 10264);
    assert!(wide.swapped, "{wide}");
    // In more than a wave pairs of tiles were 0.5 to 2.7% slower than the same tiles alone, where the model has them a little ahead.
    for (m, n, k) in [
        (4096, 4096, 4096),
        (4096, 4096, 14336),
        (3072, 6144, 4096),
        (4096, 6144, 4096),
    ] {
        let alone = chosen_tiles(m, n, k);
        assert_eq!(alone.cluster, Cluster::Alone, "{m}x{n}x{k}: {alone}");
    }
    // Where a few multiprocessors that others hold would cost a whole wave more, the last tiles are halves; not of a short depth, nor in many waves.
    for (m, n, k, halves) in [
        (4096, 4096, 4096, true),
        (2048, 6144, 4096, true),
        (4096, 4096, 1024, false),
        (8192, 8192, 8192, false),
        (3072, 4096, 4096, false),
    ] {
        let tiling = chosen_tiles(m, n, k);
        assert_eq!(tiling.halves, halves, "{m}x{n}x{k}: {tiling}");
    }
    // Rows astride of sectors go to clusters of tiles, which copy them once; rows that only straddle lines cost little.
    let sectors = chosen_tiles(2767, 7768, 2728);
    assert_ne!(sectors.cluster, Cluster::Alone, "{sectors}");
    // Few rows and columns of a deep product are one launch: a second one took 1.4 times as long.
    for (m, n, k) in [(4, 1112, 4736), (6, 1216, 5240), (1, 1040, 6240)] {
        let tiling = chosen_tiles(m, n, k);
        let meet = tiling.split > 1 && tiling.cluster == Cluster::Depth;
        assert!(meet && tiling.swapped, "{m}x{n}x{k}: {tiling}");
    }
    // At full power large tiles are faster than what a few columns less gain in the last of many waves.
    for (m, n, k) in [(8192, 8192, 8192), (16384, 16384, 16384)] {
        let many = chosen_tiles(m, n, k);
        assert!(many.rows * many.cols >= 128 * 192, "{many}");
    }
    // Of a short depth one warpgroup stores while the other multiplies: 1.1 times as fast.
    for (m, n, k) in [(8192, 3072, 768), (2048, 50264, 768)] {
        let short = chosen_tiles(m, n, k);
        assert!(short.pingpong, "{m}x{n}x{k}: {short}");
    }
    // Where tiles fill a wave by themselves, halves of a deep k were 1.2 times as slow.
    for (m, n, k) in [(256, 5120, 13824), (300, 3072, 8192)] {
        let tiling = chosen_tiles(m, n, k);
        assert_eq!(tiling.split, 1, "{m}x{n}x{k}: {tiling}");
    }
}

/// Others may hold multiprocessors, and tiles that are dealt out in advance wait for those.
#[test]
fn tiles_of_more_than_a_wave_are_asked_for_in_clusters_too() {
    let (_, target) = common::device("h200");
    let gemm = heist_kernels::catalogue::entry("gemm").expect("it is there");
    let source = |m: u32, n: u32, k: u32| {
        let words = [format!("m={m}"), format!("n={n}"), format!("k={k}")];
        let words = words.iter().map(String::as_str).chain(["dtype=bf16"]);
        let told = heist_kernels::catalogue::Settings::from_words(words).expect("sizes");
        let schedule = gemm.schedule(&told, target).expect("a kernel");
        schedule.expect("it is known").source
    };
    for [m, n, k] in [
        [8192, 8192, 8192],
        [8192, 8192, 4096],
        [4096, 14336, 4096],
        [16384, 4096, 4096],
        [5000, 5000, 5000],
        [4096, 4096, 4096],
    ] {
        assert_eq!(source(m, n, k), TileSource::Ticket, "{m}x{n}x{k}");
    }
    let problem = Gemm::new(8192, 8192, 4096, Input::Bf16, Output::Bf16, Layout::Nt);
    let clusters = "wgmma:128x224x64/4/cluster=2"
        .parse()
        .expect("a tile shape");
    let job = job_with_tiling(&problem, clusters, None, target).expect("a job");
    let text = heist_ptx::print(&job.steps[0].module);
    assert!(text.contains("atom."), "no tickets are drawn");
    assert_eq!(source(1024, 1024, 1024), TileSource::Direct);
}

/// Pieces cost up to a tenth where the last wave is nearly full.
#[test]
fn the_last_tiles_are_cut_where_the_last_wave_leaves_a_third_idle() {
    let (_, target) = common::device("h200");
    for (m, n, k, cut) in [
        (8192, 3328, 5632, true),
        (8192, 8192, 8192, true),
        (4096, 4096, 14336, false),
        (2048, 8192, 28672, false),
    ] {
        // Of tf32, for which no two warpgroups with a tile each are chosen.
        let problem = Gemm::new(m, n, k, Input::Tf32, Output::F32, Layout::Nt);
        let chosen = FAMILY.choose(None, &problem, target).expect("one");
        let job = chosen.job(&problem, None, target).expect("a job");
        assert_eq!(job.name.contains("/tail"), cut, "{}", job.name);
    }
}

#[test]
fn the_variant_follows_the_device() {
    let large = Gemm::new(4096, 4096, 4096, Input::Bf16, Output::Bf16, Layout::Nt);
    let chosen = |problem: &Gemm, device| {
        let (_, target) = common::device(device);
        FAMILY.choose(None, problem, target).expect("one").name()
    };
    assert_eq!(chosen(&large, "h200"), "wgmma");
    assert_eq!(chosen(&large, "a100"), "mma-128x256");
    assert_eq!(chosen(&large, "l4"), "mma-128x128");
    let other = Gemm::new(4096, 4096, 4095, Input::Bf16, Output::Bf16, Layout::Nt);
    assert_eq!(chosen(&other, "h200"), "wgmma");
    assert_eq!(chosen(&other, "a100"), "mma-128x256");
    let small = Gemm::new(64, 64, 64, Input::Bf16, Output::Bf16, Layout::Nn);
    assert_eq!(chosen(&small, "h200"), "wgmma");
    assert_eq!(chosen(&small, "a100"), "mma-64x64");
}

#[test]
fn warpgroups_go_on_from_tile_to_tile() {
    for source in [TileSource::Direct, TileSource::Static, TileSource::Ticket] {
        // Few at a time, so that each takes several tiles.
        let (device, mut target) = common::device("h200");
        target.sms = 2;
        let problem = Gemm::new(500, 600, 136, Input::Bf16, Output::F32, Layout::Nt);
        let variant = FAMILY.choose(Some("wgmma-128x256"), &problem, target);
        let variant = variant.expect("it suits");
        let job = variant.job(&problem, Some(&Schedule::new(source)), target);
        let mut prepared = prepared(job.expect("a job"), problem, 4);
        common::run(&mut prepared.job, &device, &Settings::default());
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(difference.within(prepared.bound), "{source}: {difference}");
    }
}

#[test]
fn warpgroups_in_clusters() {
    let (device, mut target) = common::device("h200");
    for (layout, [m, n, k]) in [
        (Layout::Nt, [500, 600, 136]),
        (Layout::Nn, [300, 520, 72]),
        (Layout::Tn, [264, 264, 67]),
        (Layout::Tt, [136, 257, 200]),
        (Layout::Nt, [256, 512, 64]),
    ] {
        let problem = Gemm::new(m, n, k, Input::Bf16, Output::Bf16, layout);
        for (source, cluster, sms) in [
            (TileSource::Static, "1x2", 2),
            (TileSource::Static, "2x1", 4),
            (TileSource::Ticket, "1x2", 4),
            (TileSource::Ticket, "2x1", 2),
            (TileSource::Direct, "1x2", 132),
            (TileSource::Static, "2x2", 4),
        ] {
            target.sms = sms;
            let mut schedule = Schedule::new(source);
            schedule.cluster = cluster.parse().expect("a shape");
            let variant = FAMILY.choose(Some("wgmma-128x256"), &problem, target);
            let job = variant
                .expect("it suits")
                .job(&problem, Some(&schedule), target);
            let mut prepared = prepared(job.expect("a job"), problem, 4);
            common::run(&mut prepared.job, &device, &Settings::default());
            let difference = (prepared.verify)(&prepared.job).expect("a comparison");
            assert!(
                difference.within(prepared.bound),
                "{problem} {schedule}: {difference}"
            );
        }
    }
}

/// Runs a multiplication on warpgroups in tiles of this shape and compares; gives the bytes of the result.
fn right_in_tiles(problem: Gemm, tiling: &str, schedule: Option<&Schedule>, sms: u32) -> Vec<u8> {
    right_on(&common::device("h200").0, problem, tiling, schedule, sms)
}

/// The same on a device that has maybe not so many multiprocessors.
fn right_on(
    device: &heist_run::Device,
    problem: Gemm,
    tiling: &str,
    schedule: Option<&Schedule>,
    sms: u32,
) -> Vec<u8> {
    let (_, mut target) = common::device("h200");
    target.sms = sms;
    let tiling: Tiling = tiling.parse().expect("a tile shape");
    let job = job_with_tiling(&problem, tiling, schedule, target);
    let job = job.unwrap_or_else(|error| panic!("{problem} {tiling}: {error}"));
    let mut prepared = prepared(job, problem, 4);
    common::run(&mut prepared.job, device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(
        difference.within(prepared.bound),
        "{problem} {tiling}: {difference}"
    );
    let result = prepared.job.buffers.iter().find(|one| one.name == "d");
    result.expect("a result").data.bytes().to_vec()
}

#[test]
fn warpgroups_in_every_tile_shape() {
    for (tiling, m, n) in [
        ("wgmma:64x64x64/3", 70, 72),
        ("wgmma:64x32x128/2*2", 66, 40),
        ("wgmma:64x8x64/4", 60, 16),
        ("wgmma:128x128x64/4", 130, 136),
        ("wgmma:128x192x64/3", 64, 200),
        ("wgmma:128x160x64/4", 100, 168),
        ("wgmma:192x64x64/4", 200, 72),
        ("wgmma:256x128x64/4", 260, 64),
        ("wgmma:64x256x64/3", 64, 264),
    ] {
        for (layout, k) in [(Layout::Nt, 200), (Layout::Nn, 136), (Layout::Tt, 72)] {
            let m = if layout.a() == Major::Outer {
                m / 8 * 8
            } else {
                m
            };
            let problem = Gemm::new(m, n, k, Input::Bf16, Output::Bf16, layout);
            right_in_tiles(problem, tiling, None, 2);
        }
    }
}

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
fn warpgroups_that_multiply_take_registers_of_the_one_that_copies() {
    // Several tiles of a block, and edges in both directions. Registers move once, but for a policy that decides from tile to tile.
    for (tiling, layout, schedule, moves) in [
        ("wgmma:192x192x64/3", Layout::Nt, "static", 2),
        ("wgmma:192x192x64/3/cluster=2", Layout::Nt, "static", 2),
        ("wgmma:192x192x64/3/cluster=2", Layout::Nt, "ticket late", 2),
        ("wgmma:256x176x64/3", Layout::Nt, "ticket", 2),
        ("wgmma:256x176x64/3", Layout::Nt, "ticket every(2)", 4),
        (
            "wgmma:256x176x64/3",
            Layout::Nt,
            "ticket late loaded: greedy",
            2,
        ),
        (
            "wgmma:192x192x64/3",
            Layout::Nt,
            "ticket late loaded: every(2)",
            2,
        ),
        ("wgmma:256x192x64/2", Layout::Tt, "direct", 4),
    ] {
        let problem = Gemm::new(264, 200, 136, Input::Bf16, Output::Bf16, layout);
        let mut schedule: Schedule = schedule.parse().expect("a schedule");
        if tiling.ends_with("cluster=2") {
            schedule.cluster = "1x2".parse().expect("a shape");
        }
        right_in_tiles(problem, tiling, Some(&schedule), 2);
        let tiles = tiling.parse().expect("a tile shape");
        let job = job_with_tiling(&problem, tiles, Some(&schedule), common::device("h200").1);
        let job = job.unwrap_or_else(|error| panic!("{tiling}: {error}"));
        let ptx = heist_ptx::print(&job.steps[0].module);
        assert_eq!(
            ptx.matches("setmaxnreg").count(),
            moves,
            "{tiling} {schedule}"
        );
    }
}

/// Blocks with an odd and an even number of tiles, less tiles than stages and more, edges, registers that move and that stay, pairs.
#[test]
fn two_warpgroups_have_a_tile_each() {
    for (tiling, [m, n, k], layout, schedule) in [
        (
            "wgmma:64x64x64/3/pingpong",
            [200, 200, 456],
            Layout::Nt,
            "ticket late",
        ),
        // The other one's tile fills every stage once, or twice: its phase must not be taken for the own one's.
        (
            "wgmma:64x64x64/3/pingpong",
            [200, 200, 192],
            Layout::Nt,
            "ticket late",
        ),
        (
            "wgmma:64x64x64/3/pingpong",
            [200, 200, 192],
            Layout::Nt,
            "ticket late loaded: greedy",
        ),
        (
            "wgmma:64x64x64/2/pingpong",
            [200, 200, 256],
            Layout::Nt,
            "static",
        ),
        (
            "wgmma:64x72x64/4/pingpong",
            [130, 304, 72],
            Layout::Nn,
            "static",
        ),
        (
            "wgmma:128x136x64/3/pingpong",
            [300, 280, 200],
            Layout::Nt,
            "ticket",
        ),
        (
            "wgmma:128x128x64/3/cluster=2/pingpong",
            [500, 260, 136],
            Layout::Nt,
            "ticket late",
        ),
        (
            "wgmma:64x64x64/3/swapped/cluster=beside/pingpong",
            [260, 136, 328],
            Layout::Nt,
            "ticket late",
        ),
    ] {
        let problem = Gemm::new(m, n, k, Input::Bf16, Output::Bf16, layout);
        let mut schedule: Schedule = schedule.parse().expect("a schedule");
        let tiles: Tiling = tiling.parse().expect("a tile shape");
        schedule.cluster = match tiles.cluster {
            Cluster::Below => "1x2".parse().expect("a shape"),
            Cluster::Beside => "2x1".parse().expect("a shape"),
            _ => schedule.cluster,
        };
        right_in_tiles(problem, tiling, Some(&schedule), 2);
    }
    // One tile a block leaves one of them without any.
    let problem = Gemm::new(64, 64, 64, Input::Bf16, Output::Bf16, Layout::Nt);
    let tiling = "wgmma:64x64x64/3/pingpong".parse().expect("a tile shape");
    let direct = Schedule::new(TileSource::Direct);
    let refused = job_with_tiling(&problem, tiling, Some(&direct), common::device("h200").1);
    let why = refused.err().map(|error| error.to_string());
    assert!(
        why.as_ref()
            .is_some_and(|why| why.contains("tile after tile")),
        "{why:?}"
    );
}

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
/// 64 rows, both ways round, in a batch, at edges that lie inside of 16 bytes, and in tiles that may be left.
#[test]
fn c_is_copied_into_the_buffers_that_results_leave_from() {
    let (one_tile, tile_after_tile) = ("direct", "static");
    let paused = "ticket late pausing until-asked";
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
        ("wgmma:64x80x64/3", [70, 168, 168], 1, paused),
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
    // Beside a bias and factors of rows.
    let mut problem = Gemm::new(70, 168, 80, Input::E4m3, Output::Bf16, Layout::Nt);
    problem.scales = Scales::Rows;
    (problem.epilogue.beta, problem.epilogue.bias) = (0.5, true);
    right_in_tiles(problem, "wgmma:64x80x128/3", None, 1);
    right_in_tiles(problem, "wgmma:128x24x128/3/swapped", None, 1);
}

#[test]
fn warpgroups_with_swapped_operands() {
    for (m, tiling) in [
        (1, "wgmma:64x8x128/4/swapped"),
        (16, "wgmma:64x16x128/3/swapped"),
        (23, "wgmma:64x24x64/3/swapped"),
        (33, "wgmma:128x32x64/3/swapped"),
        (70, "wgmma:64x64x64/3/swapped*2"),
    ] {
        for (layout, output, n) in [
            (Layout::Nt, Output::Bf16, 72),
            (Layout::Nn, Output::Bf16, 136),
            (Layout::Nt, Output::F32, 70),
            (Layout::Nt, Output::F16, 67),
        ] {
            let problem = Gemm::new(m, n, 136, Input::F16, output, layout);
            right_in_tiles(problem, tiling, None, 2);
        }
    }
    let epilogue = Epilogue {
        alpha: 0.5,
        beta: -1.0,
        bias: true,
        activation: Activation::Relu,
    };
    for output in [Output::F16, Output::F32] {
        let problem = Gemm::new(13, 72, 64, Input::F16, output, Layout::Nt).epilogue(epilogue);
        right_in_tiles(problem, "wgmma:64x16x64/3/swapped", None, 132);
    }
}

#[test]
fn warpgroups_store_rows_that_start_anywhere() {
    for (tiling, m, n) in [
        ("wgmma:64x64x64/3", 70, 131),
        ("wgmma:64x32x64/3", 66, 35),
        ("wgmma:128x128x64/4", 130, 257),
        ("wgmma:64x64x64/3", 64, 66),
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
    };
    let problem = Gemm::new(65, 67, 64, Input::F16, Output::F16, Layout::Nt).epilogue(epilogue);
    right_in_tiles(problem, "wgmma:64x64x64/3", None, 132);
}

#[test]
fn clusters_copy_together() {
    for (tiling, layout, m, n, k) in [
        ("wgmma:64x64x64/3/cluster=2", Layout::Nt, 200, 72, 200),
        ("wgmma:128x128x64/3/cluster=2", Layout::Nn, 300, 264, 264),
        ("wgmma:64x32x128/2/cluster=2", Layout::Nt, 64, 40, 72),
        (
            "wgmma:128x72x64/3/cluster=beside",
            Layout::Nt,
            200,
            300,
            200,
        ),
        ("wgmma:128x64x64/3/cluster=beside", Layout::Tn, 136, 72, 264),
        ("wgmma:192x64x64/3/cluster=beside", Layout::Nn, 200, 136, 72),
        (
            "wgmma:64x16x128/3/swapped/cluster=2",
            Layout::Nt,
            9,
            300,
            264,
        ),
        (
            "wgmma:64x16x128/3/swapped/cluster=beside",
            Layout::Nt,
            40,
            72,
            264,
        ),
        // Results leave in parts: all columns at once have no room.
        (
            "wgmma:256x152x64/4/swapped/cluster=beside",
            Layout::Nt,
            200,
            264,
            72,
        ),
        (
            "wgmma:128x240x64/4/swapped/cluster=2",
            Layout::Nt,
            250,
            152,
            72,
        ),
        (
            "wgmma:64x64x64/3/split=2/cluster=2",
            Layout::Nt,
            100,
            100,
            520,
        ),
    ] {
        for output in [Output::Bf16, Output::F32] {
            let problem = Gemm::new(m, n, k, Input::Bf16, output, layout);
            right_in_tiles(problem, tiling, None, 4);
            let ticket = Schedule::new(TileSource::Ticket);
            right_in_tiles(problem, tiling, Some(&ticket), 4);
        }
    }
}

/// Four and eight tiles: rows and columns come from several blocks each. Some tiles lie outside of the result.
#[test]
fn clusters_of_many_tiles_copy_together() {
    for (tiling, layout, m, n, k) in [
        ("wgmma:64x64x64/3/cluster=2x2", Layout::Nt, 200, 72, 200),
        ("wgmma:128x128x64/2/cluster=2x2", Layout::Tn, 264, 136, 136),
        ("wgmma:64x64x64/2/cluster=4x1", Layout::Nt, 250, 71, 328),
        ("wgmma:128x40x64/3/cluster=1x4", Layout::Nt, 130, 136, 72),
        ("wgmma:64x32x64/4/cluster=4x2", Layout::Nt, 200, 40, 520),
        ("wgmma:64x48x128/2/cluster=2x4", Layout::Nt, 72, 300, 264),
        ("wgmma:128x16x64/2/cluster=2x4", Layout::Nt, 600, 200, 72),
        (
            "wgmma:128x48x64/2/swapped/cluster=2x2",
            Layout::Nt,
            150,
            300,
            136,
        ),
    ] {
        for output in [Output::Bf16, Output::F32] {
            let problem = Gemm::new(m, n, k, Input::Bf16, output, layout);
            right_in_tiles(problem, tiling, None, 8);
        }
    }
    for wrong in [
        "wgmma:64x24x64/3/cluster=4x1",
        "wgmma:64x64x64/3/cluster=4x4",
        "wgmma:64x64x64/3/cluster=3x1",
    ] {
        assert!(wrong.parse::<Tiling>().is_err(), "{wrong}");
    }
    // Columns that lie across the depth come 64 at a time.
    let problem = Gemm::new(200, 256, 72, Input::Bf16, Output::Bf16, Layout::Nn);
    let tiling = "wgmma:64x128x64/3/cluster=4x1"
        .parse()
        .expect("a tile shape");
    let (_, target) = common::device("h200");
    let error = job_with_tiling(&problem, tiling, None, target).expect_err("two pieces for four");
    assert!(error.to_string().contains("4 blocks"), "{error}");
}

/// Boxes of the last tiles end with the matrices from a ring's second round on: down, across, both, in several tiles of one
/// block, with shares of the depth, and where only one operand is stored along the depth.
#[test]
fn the_last_tiles_copy_nothing_outside() {
    for (m, n, k, layout, tiling) in [
        (70, 40, 520, Layout::Nt, "wgmma:64x32x64/2"),
        (70, 64, 520, Layout::Nt, "wgmma:64x32x64/3"),
        (64, 40, 392, Layout::Nt, "wgmma:64x32x128/2"),
        (20, 200, 520, Layout::Nt, "wgmma:64x16x64/2/swapped"),
        (130, 72, 776, Layout::Nt, "wgmma:128x64x64/2/split=2"),
        (
            12,
            72,
            1032,
            Layout::Nt,
            "wgmma:64x8x64/2/swapped/split=2/cluster=depth",
        ),
        (70, 40, 520, Layout::Nn, "wgmma:64x64x64/2"),
        // Of four blocks the last ones have nothing to copy, and some tiles nothing at all.
        (100, 40, 520, Layout::Nt, "wgmma:64x32x64/2/cluster=2"),
        (70, 136, 520, Layout::Nt, "wgmma:128x32x64/2/cluster=1x4"),
        (260, 72, 520, Layout::Nt, "wgmma:64x64x64/2/cluster=4x2"),
        (
            20,
            200,
            520,
            Layout::Nt,
            "wgmma:64x32x64/2/swapped/cluster=4x1",
        ),
        (72, 40, 520, Layout::Tt, "wgmma:64x32x64/2"),
    ] {
        let problem = Gemm::new(m, n, k, Input::Bf16, Output::Bf16, layout);
        right_in_tiles(problem, tiling, None, 132);
        // All tiles in few blocks.
        let ticket = Schedule::new(TileSource::Ticket);
        if k == 520 && n < 100 && !tiling.contains("depth") {
            right_in_tiles(problem, tiling, Some(&ticket), 8);
        }
    }
    let batch = Gemm::new(70, 40, 264, Input::F16, Output::F32, Layout::Nt);
    right_in_tiles(Gemm { batch: 3, ..batch }, "wgmma:64x32x64/2", None, 132);
}

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

/// What tiles can't read of tf32 a launch writes anew: the operand with a tile's columns where it is stored across the depth, and rows that
/// start anywhere.
#[test]
fn tf32_is_written_along_the_depth_first() {
    use Layout::{Nn, Nt, Tn, Tt};
    for (tiling, m, n, k, layout, launches) in [
        ("wgmma:64x32x64/2", 68, 40, 36, Nn, 2),
        ("wgmma:64x32x64/2/swapped", 68, 40, 36, Tt, 2),
        ("wgmma:64x32x64/2", 68, 40, 41, Tn, 2),
        ("wgmma:64x32x64/2/swapped", 36, 68, 41, Tn, 2),
        // Rows that start at multiples of 4 bytes.
        ("wgmma:64x32x64/2", 33, 35, 37, Nt, 2),
        ("wgmma:64x32x64/2/swapped", 33, 35, 40, Nn, 2),
        ("wgmma:64x32x64/2", 33, 35, 40, Nt, 1),
        ("wgmma:64x32x64/2/split=2", 33, 35, 330, Tt, 3),
    ] {
        for batch in [1, 3] {
            let one = Gemm::new(m, n, k, Input::Tf32, Output::F32, layout);
            let problem = Gemm { batch, ..one };
            right_in_tiles(problem, tiling, None, 132);
            let (_, target) = common::device("h200");
            let job = job_with_tiling(&problem, tiling.parse().expect("one"), None, target);
            assert_eq!(job.expect("a job").steps.len(), launches, "{problem}");
        }
    }
}

/// Halves whose rows do not start at multiples of 16 bytes, one launch before whatever it writes: one operand or both, in layouts that stay what they are,
/// rows of one element, of an odd number, and of so many that those that are written begin with lines.
#[test]
fn halves_whose_rows_start_anywhere_are_written_anew_first() {
    use Layout::{Nn, Nt, Tn, Tt};
    for (tiling, m, n, k, layout, launches) in [
        ("wgmma:64x32x64/2", 33, 35, 37, Nt, 2),
        ("wgmma:64x64x64/2", 33, 35, 40, Nn, 2),
        ("wgmma:64x64x64/2", 71, 72, 67, Tn, 2),
        ("wgmma:64x64x64/2/swapped", 66, 35, 9, Tt, 2),
        ("wgmma:64x8x64/3/swapped/split=3", 1, 130, 331, Nt, 3),
        ("wgmma:64x32x64/2/split=2/cluster=depth", 70, 1, 333, Nn, 2),
        ("wgmma:64x32x64/2", 1, 1, 1, Tn, 2),
        ("wgmma:64x64x64/2", 72, 72, 37, Tn, 1),
    ] {
        for (input, output, batch) in [(Input::Bf16, Output::Bf16, 1), (Input::F16, Output::F32, 3)]
        {
            let one = Gemm::new(m, n, k, input, output, layout);
            let problem = Gemm { batch, ..one };
            right_in_tiles(problem, tiling, None, 132);
            let (_, target) = common::device("h200");
            let job = job_with_tiling(&problem, tiling.parse().expect("one"), None, target);
            assert_eq!(job.expect("a job").steps.len(), launches, "{problem}");
        }
    }
}

/// One launch that waits at each step of the depth, or two: by the depth, by rounds of tiles, and by the bytes that a launch before has to move.
#[test]
fn little_depth_is_not_written_anew() {
    let (_, target) = common::device("h200");
    for (m, n, k, input, anew) in [
        (47, 59, 20, Input::F16, false),
        (1119, 32, 29, Input::Bf16, false),
        (98, 3672, 47, Input::Tf32, false),
        (98, 3672, 97, Input::Tf32, true),
        (79, 89, 6916, Input::F16, true),
        (301, 120, 401, Input::Tf32, true),
        // Rounds.
        (131, 121, 31, Input::Bf16, false),
        (2001, 3001, 31, Input::Bf16, true),
        // Bytes.
        (64, 16_833, 61, Input::Bf16, false),
        (64, 641, 61, Input::Bf16, true),
        // Rows that start where they should.
        (48, 64, 24, Input::F16, true),
    ] {
        let problem = Gemm::new(m, n, k, input, Output::F32, Layout::Nt);
        let chosen = FAMILY.choose(None, &problem, target).expect("one").name();
        assert_eq!(chosen.starts_with("wgmma"), anew, "{problem}: {chosen}");
    }
    // A batch is nothing for `mma.sync`.
    let batch = Gemm::new(47, 59, 20, Input::F16, Output::F32, Layout::Nt).batch(2);
    assert_eq!(
        FAMILY.choose(None, &batch, target).expect("one").name(),
        "wgmma"
    );
}

/// The same job over operands that begin so many elements behind the start of their buffers, and end with their last elements.
fn behind(mut job: Job, problem: &Gemm, elements: [usize; 2]) -> Job {
    let gap = |major, outer, pitch| match major {
        Major::Depth => pitch - problem.k,
        Major::Outer => pitch - outer,
    };
    let gaps = [
        gap(problem.layout.a(), problem.m, problem.lda),
        gap(problem.layout.b(), problem.n, problem.ldb),
    ];
    for ((name, elements), gap) in ["a", "b"].into_iter().zip(elements).zip(gaps) {
        let data = job.data(name).expect("an operand").clone();
        let gap = gap as usize * data.ty().bytes();
        let (ty, bytes) = (data.ty(), data.ty().bytes() * elements);
        let own = &data.bytes()[..data.bytes().len() - gap];
        let shifted = [vec![0xff; bytes], own.to_vec()].concat();
        let shifted = Buffer::from_bytes(ty, shifted).expect("whole elements");
        for step in &mut job.steps {
            for param in &mut step.params {
                if let Arg::Pointer { buffer, offset } = param
                    && *buffer == BufferRef::Named(name.to_owned())
                {
                    *offset += bytes as u64;
                }
            }
        }
        job = job.buffer(name, Role::In, shifted);
    }
    job
}

/// Runs a multiplication over views that begin at such elements, and compares.
fn right_behind(problem: Gemm, variant: &str, elements: [usize; 2], device: &str) {
    let (device, target) = common::device(device);
    let per = 16 / problem.input.bytes() as usize;
    let anywhere = elements.map(|elements| !elements.is_multiple_of(per));
    let problem = Gemm {
        anywhere,
        ..problem
    };
    let variant = FAMILY
        .choose(Some(variant), &problem, target)
        .expect("it suits");
    let job = variant.job(&problem, None, target).expect("a job");
    let mut prepared = prepared(job, problem, 5);
    prepared.job = behind(prepared.job, &problem, elements);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(
        difference.within(prepared.bound),
        "{problem} {elements:?}: {difference}"
    );
}

/// Views that begin at every element, with every pitch: by warpgroups, which read them written anew, and by `mma.sync`, which reads them as they are.
#[test]
fn operands_begin_at_any_element() {
    let inputs = [
        (Input::F16, Output::F32),
        (Input::Bf16, Output::Bf16),
        (Input::Tf32, Output::F32),
    ];
    for start in 0..8 {
        let (input, output) = inputs[start % 3];
        let layout = Layout::ALL[start % 4];
        for (variant, device) in [("wgmma", "h200"), ("mma-64x64", "a100")] {
            let mut problem = Gemm::new(40, 24, 48, input, output, layout);
            right_behind(problem, variant, [start % 8, 0], device);
            (problem.lda, problem.ldb) = (56 + start as u32, 57);
            right_behind(problem, variant, [3, start % 8], device);
            // Pairs of halves start where words do, and the last one of a row is a half.
            let mut problem = Gemm::new(39, 23, 47, input, output, layout);
            (problem.lda, problem.ldb) = (50, 58);
            right_behind(problem, variant, [0, 0], device);
        }
    }
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

#[test]
fn the_depth_in_shares() {
    let epilogue = Epilogue {
        alpha: 2.0,
        beta: 0.5,
        bias: true,
        activation: Activation::Silu,
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

#[test]
fn batches() {
    let epilogue = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Gelu,
    };
    for (tiling, m, n, k) in [
        ("wgmma:64x64x64/3", 70, 72, 136),
        ("wgmma:64x64x64/3", 65, 67, 72),
        ("wgmma:128x128x64/3/cluster=2", 130, 136, 64),
        ("wgmma:64x16x64/3/swapped", 9, 72, 72),
        ("wgmma:64x64x64/3/split=2", 70, 71, 264),
        ("wgmma:64x8x64/3/swapped/split=3", 5, 130, 264),
        ("wgmma:64x64x64/3/split=2/cluster=depth", 70, 72, 264),
    ] {
        for (batch, output, epilogue) in [
            (3, Output::Bf16, Epilogue::default()),
            (2, Output::F32, epilogue),
            (2, Output::F16, epilogue),
        ] {
            let problem = Gemm::new(m, n, k, Input::F16, output, Layout::Nt);
            let problem = problem.epilogue(epilogue).batch(batch);
            right_in_tiles(problem, tiling, None, 4);
        }
    }
    for &layout in Layout::ALL {
        let problem = Gemm::new(72, 136, 72, Input::Bf16, Output::Bf16, layout).batch(5);
        right_in_tiles(problem, "wgmma:64x64x64/3", None, 2);
        let (_, target) = common::device("a100");
        let error = FAMILY.plan(None, &problem, target).expect_err("no plan");
        assert!(error.to_string().contains("a batch is"), "{error}");
    }
}

/// Launches wait for the one before them by themselves, where they gain by it, and the second one of shares does.
#[test]
fn launches_that_overlap_read_nothing_too_early() {
    let (_, target) = common::device("h200");
    let half = |m, n, k| Gemm::new(m, n, k, Input::Bf16, Output::Bf16, Layout::Nt);
    let tiny = Gemm::new(64, 512, 1024, Input::E4m3, Output::Bf16, Layout::Nt);
    for (problem, tiling, overlapping) in [
        (half(1024, 1024, 1024), "wgmma:64x128x64/8", &[true][..]),
        (half(4096, 4096, 4096), "wgmma:128x256x64/4", &[true]),
        (half(1, 4096, 4096), "wgmma:64x8x64/12/swapped", &[true]),
        (
            half(3000, 3000, 3000),
            "wgmma:192x192x64/4/cluster=2",
            &[true],
        ),
        (
            half(256, 1024, 4096),
            "wgmma:64x64x64/12/split=2/cluster=depth",
            &[true],
        ),
        (tiny.scales(Scales::Blocks), "wgmma:64x64x64/6", &[true]),
        // Of shares the second one alone.
        (
            half(512, 512, 16384),
            "wgmma:128x128x64/6/split=8",
            &[false, true],
        ),
        // Factors that are read as data that nobody writes.
        (tiny.scales(Scales::Rows), "wgmma:64x64x64/6", &[false]),
    ] {
        let tiling: Tiling = tiling.parse().expect("a tile shape");
        let job = job_with_tiling(&problem, tiling, None, target).expect("a job");
        let found: Vec<bool> = job.steps.iter().map(|step| step.overlaps).collect();
        assert_eq!(found, overlapping, "{}", job.name);
        for step in job.steps.iter().filter(|step| step.overlaps) {
            common::waits_before_it_touches(step, &job.name);
            assert!(step.ptx().contains("griddepcontrol.launch_dependents"));
        }
    }
    // Blocks that may be let go draw their first tile behind the wait, and let the next launch begin behind their last.
    for (schedule, overlaps) in [
        ("ticket late pausing until-asked", true),
        ("ticket late loaded: greedy", true),
        ("ticket late loaded: until-asked & max-steals(4)", true),
        ("ticket late until-asked", false),
        ("ticket early loaded: greedy", false),
    ] {
        let schedule: Schedule = schedule.parse().expect("a schedule");
        let tiling: Tiling = "wgmma:128x192x64/5".parse().expect("a tile shape");
        let problem = half(1024, 1024, 1024);
        let job = job_with_tiling(&problem, tiling, Some(&schedule), target).expect("a job");
        assert_eq!(job.steps[0].overlaps, overlaps, "{schedule}");
        if overlaps {
            common::waits_before_it_touches(&job.steps[0], &schedule.to_string());
            let ptx = job.steps[0].ptx();
            let (before, _) = ptx
                .split_once("griddepcontrol.launch_dependents")
                .expect("it lets the next one begin");
            assert!(
                before.contains("cp.async.bulk.tensor"),
                "{schedule}: sooner"
            );
        }
    }
}
