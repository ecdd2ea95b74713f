//! Multiplications, and grouped ones, against sums in f64.

use crate::ringer::{PAUSING, Ring, TARGET, ring_beside, ring_once, schedule};
use heist_kernels::catalogue::Prepared;
use heist_kernels::gemm::{Gemm, Input, Layout, Output, Scales, job_with_tiling, prepared};
use heist_kernels::{Job, grouped};

fn job(problem: &Gemm, tiling: &str, text: &str) -> Job {
    let tiling = tiling.parse().expect("a tile shape");
    job_with_tiling(problem, tiling, Some(&schedule(text)), TARGET)
        .unwrap_or_else(|error| panic!("{problem} {tiling} {text}: {error}"))
}

/// Runs it rung for and not, and compares both results with each other and with the reference. How
/// many slots tiles were saved in.
fn right(made: impl Fn() -> Prepared, what: &str, seed: u64) -> usize {
    let run = |rung| {
        let mut prepared = made();
        let saved = ring_beside(&mut prepared.job, what, seed, rung);
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(difference.within(prepared.bound), "{what}: {difference}");
        let result = prepared.job.data("d").expect("results").to_vec::<u16>();
        (result.expect("halves"), saved)
    };
    let ((resumed, saved), (whole, none)) = (run(true), run(false));
    assert_eq!(none, 0, "{what}: nobody rang");
    assert!(resumed == whole, "{what}: a tile that was resumed differs");
    saved
}

/// Depths that end inside of a piece, with one and two warpgroups, one and two sums of each, both
/// levels of sums, a depth in shares, and policies that stay and leave.
#[test]
fn every_way_to_add_is_resumed_where_it_was_left() {
    let halves = |m, n, k| Gemm::new(m, n, k, Input::F16, Output::F16, Layout::Nn);
    let tiny = |m, n, k| Gemm::new(m, n, k, Input::E4m3, Output::Bf16, Layout::Nt);
    let mut saved = 0;
    for (seed, (problem, tiling, text)) in [
        (halves(192, 56, 1600), "wgmma:64x32x64/4", PAUSING),
        (
            halves(300, 32, 1480),
            "wgmma:128x32x64/5",
            "ticket late pausing greedy",
        ),
        (halves(512, 32, 1160), "wgmma:256x16x64/3", PAUSING),
        // Two warpgroups with a tile each: either goes on with what the other has left.
        (halves(320, 64, 1160), "wgmma:64x32x64/4/pingpong", PAUSING),
        // Three tiles, of which the last is in pieces.
        (halves(192, 32, 2560), "wgmma:64x32x64/4/tail", PAUSING),
        (
            halves(128, 40, 1160),
            "wgmma:64x32x64/4",
            "ticket late pausing never",
        ),
        (
            halves(24, 128, 4352),
            "wgmma:64x24x128/4/swapped/split=2",
            PAUSING,
        ),
        (tiny(256, 56, 3216), "wgmma:128x32x64/4", PAUSING),
        (
            tiny(128, 64, 3200).scales(Scales::Blocks),
            "wgmma:64x32x64/4",
            "ticket late pausing max-steals(1)",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("{problem} {tiling} {text}");
        let made = || prepared(job(&problem, tiling, text), problem, 5);
        saved += right(made, &what, seed as u64 + 1);
    }
    assert!(saved > 10, "{saved} slots were used");
}

/// Whoever rings launches a kernel a moment later. A block that left at once would make room for
/// another one of its own launch.
#[test]
fn a_tile_is_left_at_the_second_look_that_hears_the_bell() {
    let problem = Gemm::new(128, 32, 3200, Input::F16, Output::F16, Layout::Nn);
    let job = prepared(job(&problem, "wgmma:64x32x64/4", PAUSING), problem, 5).job;
    let (_, whole) = ring_once(&job, None, "not rung");
    // Two tiles at a time, each of six pieces and a bit.
    let piece = whole / 7;
    let rung = |lasts, launched| {
        let at = whole / 3;
        let ring = Ring {
            at,
            lasts,
            launched,
        };
        ring_once(&job, Some(ring), "rung").0
    };
    assert_eq!(rung(piece * 7 / 10, false), 0, "rung for less than a piece");
    assert_eq!(rung(piece * 3, false), 2, "rung for three");
    // A visitor that was launched with the ring is there before a block could have left.
    let one = piece * 12 / 10;
    assert_eq!([rung(one, false), rung(one, true)], [0, 2], "for one look");
}

#[test]
fn groups_are_resumed_too() {
    let rows = vec![70, 0, 130, 64];
    let problem = grouped::Grouped::rows(rows, 64, 1480, Input::Bf16, Output::Bf16);
    let made = || {
        let schedule = schedule(PAUSING);
        let job = grouped::FAMILY
            .choose(Some("wgmma-64x128"), &problem, TARGET)
            .and_then(|variant| variant.job(&problem, Some(&schedule), TARGET))
            .unwrap_or_else(|error| panic!("{problem}: {error}"));
        grouped::prepared(job, problem.clone(), 5)
    };
    let saved = right(made, &problem.to_string(), 3);
    assert!(saved > 0, "{saved} slots were used");
}

/// A large grid has a block for every so many tiles, the more the longer these take, beside those that run at a time.
#[test]
fn blocks_without_work_are_few() {
    let blocks = |k, text| {
        let problem = Gemm::new(4096, 4096, k, Input::F16, Output::F16, Layout::Nn);
        let job = job(&problem, "wgmma:128x256x64/4", text);
        job.steps[0].launch.grid.x
    };
    // 23 us a tile, and 93.
    assert_eq!(blocks(2048, PAUSING), 2 + 512 / 25 + 2 * 2);
    assert_eq!(blocks(8192, PAUSING), 2 + 512 / 6 + 2 * 2);
    assert_eq!(blocks(2048, "ticket late pausing never"), 512 + 2 * 2);
}

#[test]
fn a_cluster_does_not_pause() {
    let problem = Gemm::new(256, 256, 256, Input::F16, Output::F16, Layout::Nn);
    let tiling = "wgmma:128x128x64/4/cluster=2"
        .parse()
        .expect("a tile shape");
    let error = job_with_tiling(&problem, tiling, Some(&schedule(PAUSING)), TARGET);
    let said = error.expect_err("a cluster").to_string();
    assert!(said.contains("blocks without clusters"), "{said}");
}
