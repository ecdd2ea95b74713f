//! Which variant, tiles and order are chosen.

use super::*;
use heist_kernels::gemm::Summing;

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
    assert_eq!(chosen(&small, "a100"), "mma-32x32");
}

/// Of little depth and rows that start anywhere: what was the fastest on an H200, by a tenth at least.
#[test]
fn small_tiles_take_unaligned_operands_of_little_depth() {
    let (_, target) = common::device("h200");
    for ([m, n, k], layout, input, fastest) in [
        ([2435, 84, 83], "tn", Input::Bf16, "mma-32x32"),
        ([219, 490, 12], "nn", Input::Tf32, "mma-32x32"),
        ([701, 172, 14], "nt", Input::Bf16, "mma-32x32"),
        // So many tiles that smaller ones gain nothing.
        ([1832, 169, 15], "nt", Input::Bf16, "mma-64x64"),
        // Few rows or columns.
        ([24, 142, 162], "nn", Input::Bf16, "thin"),
        ([138, 10, 27], "nt", Input::Tf32, "thin"),
        // More depth, or many more results.
        ([856, 147, 201], "nt", Input::Bf16, "wgmma"),
        ([1015, 2153, 141], "nt", Input::Bf16, "wgmma"),
        ([5538, 4161, 27], "nt", Input::Bf16, "wgmma"),
        // The copy engine takes these as they are.
        ([788, 52, 16], "nt", Input::Bf16, "wgmma"),
    ] {
        let output = match input {
            Input::Tf32 => Output::F32,
            _ => Output::Bf16,
        };
        let layout = layout.parse().expect("a layout");
        let problem = Gemm::new(m, n, k, input, output, layout);
        let chosen = FAMILY.choose(None, &problem, target).expect("one suits");
        assert_eq!(chosen.name(), fastest, "{problem}");
    }
}

/// 8-bit floats whose rows do not begin with lines: pairs of blocks where sums are in levels, and tiles whose factors of rows are read ahead where the depth is short. On
/// an H200 others took 1.1 to 1.35 and 1.4 to 1.65 times as long.
#[test]
fn eight_bit_floats_whose_rows_are_astride_of_lines() {
    let (_, target) = common::device("h200");
    let chosen = |[m, n, k]: [u32; 3], scales, sums| {
        let plain = Gemm::new(m, n, k, Input::E4m3, Output::Bf16, Layout::Nt);
        let problem = Gemm {
            sums,
            ..plain.scales(scales)
        };
        heist_kernels::gemm::ranked(&problem, target)[0].1
    };
    for shape in [[5360, 7152, 816], [2128, 12576, 2960], [1632, 9344, 5616]] {
        for scales in [Scales::Tensor, Scales::Rows] {
            let tiling = chosen(shape, scales, Summing::Levels);
            assert_eq!(tiling.cluster.count(), 2, "{shape:?} {scales}: {tiling}");
        }
    }
    // Where rows begin with lines pairs are slower.
    let aligned = chosen([4096, 4096, 4096], Scales::Tensor, Summing::Levels);
    assert_eq!(aligned.cluster, Cluster::Alone, "{aligned}");
    for shape in [[6688, 7888, 144], [6032, 12720, 240], [5152, 4640, 208]] {
        let tiling = chosen(shape, Scales::Rows, Summing::Fast);
        assert!(tiling.rows <= 128, "{shape:?}: {tiling}");
    }
}

/// Nothing of a problem without a depth says where its rows begin; the model has a time for it all the same.
#[test]
fn tiles_of_no_depth_are_ranked() {
    let (_, target) = common::device("h200");
    for layout in [Layout::Nt, Layout::Tn] {
        let problem = Gemm::new(70, 72, 0, Input::Bf16, Output::Bf16, layout);
        let ranked = heist_kernels::gemm::ranked(&problem, target);
        assert!(ranked.iter().all(|(time, _)| time.is_finite()), "{problem}");
    }
}
