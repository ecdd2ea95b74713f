//! Tiles on Hopper's warpgroups: the widest of each kind, and some drawn at random.

use super::{
    Draw, HARD, OTHERS, SIZES, Stage, WITH_CLASSES, group_kinds, kinds, layer, shaped, target,
    with_rows, words,
};
use heist_kernels::catalogue::Settings;
use heist_kernels::gemm::{Cluster, Gemm, Tiling, ranked};
use std::collections::BTreeMap;

/// How many tiles a product has in a tile shape, where no blocks of a cluster have some together.
pub(super) fn count(told: &Settings, tiling: &str) -> Option<usize> {
    let tiling: Tiling = tiling.parse().ok()?;
    let number = |name| told.get(name)?.parse::<u32>().ok();
    let (m, n, batch) = (number("m")?, number("n")?, number("batch")?);
    let [high, wide] = if tiling.swapped { [n, m] } else { [m, n] };
    let tiles = high.div_ceil(tiling.rows) * wide.div_ceil(tiling.cols) * batch * tiling.split;
    (tiling.cluster == Cluster::Alone).then_some(tiles as usize)
}

/// What tiles have in common that differ in their columns and stages alone, and in whether half of 16 columns is left.
fn kind_of(tiling: &Tiling) -> String {
    let half = if tiling.cols.is_multiple_of(16) { 0 } else { 8 };
    let alike = Tiling {
        cols: half,
        stages: 2,
        split: tiling.split.min(2),
        ..*tiling
    };
    alike.to_string()
}

/// The tile shapes that may suit a product, the widest first, by kind.
fn by_kind(problem: &Gemm) -> Vec<Vec<Tiling>> {
    let Ok(target) = target("sm_90a") else {
        return Vec::new();
    };
    let mut kinds: BTreeMap<String, Vec<Tiling>> = BTreeMap::new();
    for (_, tiling) in ranked(problem, target) {
        kinds.entry(kind_of(&tiling)).or_default().push(tiling);
    }
    let sorted = kinds.into_values().map(|mut tilings| {
        tilings.sort_by_key(|tiling| std::cmp::Reverse(tiling.cols));
        tilings
    });
    sorted.collect()
}

/// Texts of tile shapes.
fn texts(tilings: &[Tiling]) -> Vec<String> {
    tilings.iter().map(Tiling::to_string).collect()
}

/// A schedule that takes registers, most of the time, or another.
fn any(draw: &mut Draw) -> &'static str {
    match draw.random.u8(..10) {
        0 => draw.one(&WITH_CLASSES),
        1..=3 => draw.one(&OTHERS),
        _ => draw.one(&HARD),
    }
}

/// Of each kind of tiles the widest that a schedule lets be built.
pub(super) fn widest(draw: &mut Draw) {
    for kind in &kinds() {
        for size in [0, draw.random.usize(1..SIZES.len())] {
            let shape = super::drawn(draw, kind, size);
            let problem = shaped(kind, shape);
            for tilings in by_kind(&problem) {
                let (schedule, told) = (any(draw), words(&problem));
                let tilings = (texts(&tilings), Some(schedule));
                draw.push(Stage::Widest, "sm_90a", "gemm", &told, tilings);
            }
        }
    }
    for kind in group_kinds() {
        for size in 0..4 {
            let masked = draw.random.bool();
            let told = words(&with_rows(draw, &kind, size, masked));
            for (rows, pingpong, blocks) in GROUPED {
                let (tilings, schedule) = (columns(draw, rows, pingpong, blocks), any(draw));
                let tilings = (texts(&tilings), Some(schedule));
                draw.push(Stage::Widest, "sm_90a", "grouped-gemm", &told, tilings);
            }
        }
    }
    for size in 0..48 {
        let told = layer(draw, size);
        let (rows, _, blocks) = draw.one(&GROUPED[..4]);
        let wide = columns(draw, rows, false, blocks);
        let (up, down) = (draw.random.bool(), "wgmma:64x128x64/4*2");
        let pairs = wide.iter().map(|tiling| match up {
            true => format!("{tiling},{down}"),
            false => format!("{down},{tiling}"),
        });
        let tilings = (pairs.collect(), Some(any(draw)));
        draw.push(Stage::Widest, "sm_90a", "experts", &told, tilings);
    }
}

/// Rows of tiles of groups, whether two warpgroups have one each, and blocks on a multiprocessor.
const GROUPED: [(u32, bool, u32); 7] = [
    (64, false, 1),
    (64, false, 2),
    (128, false, 1),
    (256, false, 1),
    (192, false, 1),
    (64, true, 1),
    (128, true, 1),
];

/// Tiles of all widths, the widest first, with stages to fill shared memory or fewer.
fn columns(draw: &mut Draw, rows: u32, pingpong: bool, blocks: u32) -> Vec<Tiling> {
    let most = draw.random.u32(3..=8);
    let half = if draw.random.u8(..4) == 0 { 8 } else { 0 };
    let tiling = move |cols, stages| Tiling {
        pingpong,
        ..Tiling::new(rows, cols, 64, stages).blocks(blocks)
    };
    let each = (2..=16).rev().map(move |step| 16 * step - half);
    each.flat_map(move |cols| (2..=most).rev().map(move |stages| tiling(cols, stages)))
        .filter(|tiling| tiling.check().is_ok())
        .collect()
}

/// How many cases are drawn.
const DRAWN: usize = 6000;

/// Any tiles that may suit, and any that are some, of any product under any schedule.
pub(super) fn drawn(draw: &mut Draw) {
    let kinds = kinds();
    for number in 0..DRAWN {
        let kind = kinds[draw.random.usize(..kinds.len())];
        let shape = super::drawn(draw, &kind, number);
        let (problem, schedule) = (shaped(&kind, shape), any(draw));
        let tiling = Tiling {
            rows: 64 * draw.random.u32(1..=4),
            cols: 8 * draw.random.u32(1..=32),
            depth: draw.one(&[64, 64, 64, 128]),
            stages: draw.random.u32(2..=8),
            swapped: draw.random.u8(..3) == 0,
            split: draw.one(&[1, 1, 1, 2, 4]),
            blocks: draw.one(&[1, 1, 1, 2]),
            cluster: draw.one(&CLUSTERS),
            tail: draw.random.u8(..8) == 0,
            halves: draw.random.u8(..8) == 0,
            pingpong: draw.random.u8(..3) == 0,
        };
        // Most are none: the plain ones of the same sides then.
        let plain = Tiling::new(tiling.rows, tiling.cols, 64, tiling.stages);
        let swapped = if tiling.swapped {
            plain.swapped()
        } else {
            plain
        };
        let mut tilings = vec![tiling, swapped, plain];
        tilings.retain(|tiling| tiling.check().is_ok());
        if !tilings.is_empty() {
            let tilings = (texts(&tilings), Some(schedule));
            draw.push(Stage::Drawn, "sm_90a", "gemm", &words(&problem), tilings);
        }
    }
}

/// Mostly alone.
const CLUSTERS: [Cluster; 9] = [
    Cluster::Alone,
    Cluster::Alone,
    Cluster::Alone,
    Cluster::Alone,
    Cluster::Alone,
    Cluster::Below,
    Cluster::Beside,
    Cluster::Tiles { down: 2, across: 2 },
    Cluster::Depth,
];
