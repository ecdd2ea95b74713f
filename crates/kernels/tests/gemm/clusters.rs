//! Blocks of a cluster that copy together.

use super::*;

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
