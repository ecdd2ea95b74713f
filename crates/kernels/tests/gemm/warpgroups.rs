//! Warpgroups: tile shapes, who multiplies what, how blocks go on from tile to tile and from launch to launch.

use super::*;

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
        ..Epilogue::default()
    };
    let problem = Gemm::new(70, 40, 80, Input::F16, Output::F16, Layout::Nt);
    right_on_warpgroups(problem.epilogue(epilogue), None);
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
        ..Epilogue::default()
    };
    for output in [Output::F16, Output::F32] {
        let problem = Gemm::new(13, 72, 64, Input::F16, output, Layout::Nt).epilogue(epilogue);
        right_in_tiles(problem, "wgmma:64x16x64/3/swapped", None, 132);
    }
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
fn batches() {
    let epilogue = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Gelu,
        ..Epilogue::default()
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
