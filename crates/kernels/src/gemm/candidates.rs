//! Tile shapes that may suit a problem on warpgroups: the candidates that the cost model ranks.
//!
//! Every shape has as many stages as fit, alone and in clusters. Then its depth is cut in shares, where a wave has room
//! for them, and the last tiles in pieces. What was measured to lose is left out, with the measurement beside it.

use super::anew::{Anew, majors, through_registers};
use super::cost_model::{adds, astride, sides, steps, tiles, waves};
use super::leave::Staging;
use super::problem::{Gemm, Major, Scales};
use super::tail::Tail;
use super::tiling::{Cluster, Tiling};
use super::wgmma::{fits_levels, unshared};
use crate::family::Target;

/// The largest tiles.
pub(crate) const LARGE: Tiling = Tiling::new(128, 256, 64, 4);
/// Larger tiles for scales of blocks: of three warpgroups, and of two that have twice 64 rows each.
const SCALED: [Tiling; 3] = [
    Tiling::new(192, 128, 64, 5),
    Tiling::new(256, 128, 64, 4),
    Tiling::new(256, 128, 64, 4).cluster(Cluster::Below),
];

/// Rows, depths and blocks on a multiprocessor of tiles with swapped operands.
const SWAPPED: [(u32, u32, u32); 7] = [
    (64, 64, 1),
    (64, 128, 1),
    (64, 128, 2),
    (128, 64, 1),
    (128, 128, 1),
    (192, 64, 1),
    (256, 64, 1),
];

/// Rows of the result up to which every tile with swapped operands may suit: 64 of these, or 128, may fill a tile badly.
/// More rows are for tiles of 128 and more, whose widths, in steps of 8, fill a wave where rows in steps of 64 do not.
pub(super) const SWAPPED_ROWS: u32 = 1024;

/// Columns of tiles with swapped operands: so many rows of a result in as few tiles as fit, or more, down to 64.
/// With more than 240 columns the transposed epilogue spills.
fn swapped_widths(m: u32) -> impl Iterator<Item = u32> {
    let parts = 1..m.div_ceil(64).max(1) + 1;
    let width = move |parts| m.div_ceil(parts).next_multiple_of(8);
    let mut widths: Vec<u32> = parts.map(width).collect();
    widths.retain(|cols| *cols <= 240 && *cols >= 64.min(m));
    widths.dedup();
    widths.into_iter()
}

/// Tile shapes without swapped operands: rows, columns, blocks on a multiprocessor. Every width
/// makes another number of tiles, and one of them nearly fills the last wave. For 64 rows, below each other, other
/// widths than multiples of 32 were mixed: 1280 x 640 x 5120 has 1.03 of cuBLAS's speed in 128 columns and 0.86 in 112,
/// which is not explained.
fn tile_shapes(m: u32) -> impl Iterator<Item = (u32, u32, u32)> {
    let twice = [(64, 64, 2), (64, 128, 2)];
    let wide = |rows, most, step| {
        let cols = (64..=most).step_by(step);
        cols.map(move |cols| (rows, cols, 1))
    };
    let once = wide(64, 256, if m <= 64 { 8 } else { 32 })
        .chain(wide(128, 256, 8))
        .chain(wide(192, 192, 8))
        .chain(wide(256, 192, 8));
    twice.into_iter().chain(once)
}

/// Waves above which tiles are alone, if rows begin with lines.
const MANY_WAVES: u64 = 8;

/// Rows, and columns at most, of tiles of which each of two warpgroups has one.
const PINGPONG: [(u32, u32); 2] = [(64, 256), (128, 192)];

/// Waves in which every width may suit, where warps meet from tile to tile or operands are swapped.
pub(super) const FEW_WAVES: u64 = 4;

/// In how many shares the depth may be cut.
const SHARES: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 33, 44, 66];

/// Stages without which a step waits for its copies: a fourth one made a tile of 192 x 192 6% faster.
const ENOUGH: u32 = 4;

/// As many stages as fit beside the epilogue's staging buffers: two of each warp, or one where that
/// makes [`ENOUGH`] stages.
fn deepest(tiling: Tiling, majors: [Major; 2], target: Target) -> Option<Tiling> {
    let one = Tiling {
        stages: 1,
        ..tiling
    };
    // While one of two warpgroups stores, the other multiplies: it may take its time, and stages gain more.
    let most = if tiling.pingpong { 1 } else { 2 };
    let panels = tiling.cols.div_ceil(64).min(most);
    let staging = tiling.groups() * 4 * 2048 * panels + 2048;
    let room = tiling.room(target.arch).checked_sub(staging)?;
    let most = if tiling.depth == 64 { 12 } else { 8 };
    let stages = (room / one.ring_bytes(majors)).min(most);
    let enough = Tiling {
        stages: ENOUGH,
        ..tiling
    };
    let left = tiling
        .room(target.arch)
        .checked_sub(enough.ring_bytes(majors) + 1024);
    let fits = left
        .and_then(|room| Staging::new(&tiling, room, 1))
        .is_some();
    let stages = if fits { stages.max(ENOUGH) } else { stages };
    let deep = Tiling { stages, ..tiling };
    (stages >= 3 && deep.check().is_ok()).then_some(deep)
}

/// Clusters of so many blocks, one on a multiprocessor, that run at a time. A cluster lies inside of a GPC, whose
/// multiprocessors are no multiple of most sizes: on an H200 a launch of 40 clusters of three, 32 of four,
/// 18 of six or 16 of eight took a second wave, and one of 36, 30, 17 or 15 did not.
fn clusters_at_once(blocks: u32, target: Target) -> u64 {
    let sms = u64::from(target.sms);
    match blocks {
        1 | 2 => sms / u64::from(blocks),
        4 | 8 => sms * 10 / 11 / u64::from(blocks),
        _ => sms * 10 / 13 / u64::from(blocks),
    }
}

/// The same with the blocks that share the depth in a cluster, and as many stages as fit beside the sums that
/// they send each other.
fn deep(tiling: Tiling, majors: [Major; 2], target: Target) -> Option<Tiling> {
    let tiling = tiling.cluster(Cluster::Depth);
    let one = Tiling {
        stages: 1,
        ..tiling
    };
    let room = tiling.room(target.arch);
    let room = room.checked_sub(tiling.sent_bytes() + 2048)?;
    let stages = (room / one.ring_bytes(majors)).min(tiling.stages);
    let deep = Tiling { stages, ..tiling };
    (stages >= 3 && deep.check().is_ok()).then_some(deep)
}

/// The same tiles, and in clusters that may suit.
fn alone_or_clustered(problem: &Gemm, alone: Tiling, target: Target) -> Vec<Tiling> {
    let Tiling { rows, cols, .. } = alone;
    let ([high, wide], majors) = (sides(problem, &alone), majors(problem, alone.swapped));
    if alone.blocks > 1 || alone.depth > 64 {
        return vec![alone];
    }
    // Two blocks that copy together read less from L2: worth it where copies are the bound.
    let below = cols >= 96 && high > rows;
    let beside = rows >= 128 && wide > cols;
    let mut all = vec![alone];
    for (cluster, useful) in [(Cluster::Below, below), (Cluster::Beside, beside)] {
        all.extend(useful.then(|| alone.cluster(cluster)));
    }
    // Four are for one wave, and less than half of their tiles lie outside. Eight were the best of 4 shapes of 211, by little, and
    // chosen for 11.
    for cluster in Cluster::LARGER
        .into_iter()
        .filter(|cluster| cluster.count() == 4)
    {
        let [down, across] = cluster.sides();
        let whole = high > rows * (down / 2) && wide > cols * (across / 2);
        let many = alone.cluster(cluster);
        let at_once = clusters_at_once(cluster.count(), target) * u64::from(cluster.count());
        all.extend((whole && tiles(problem, &many) <= at_once).then_some(many));
    }
    all.retain(|tiling| tiling.check().is_ok() && unshared(tiling, majors).is_none());
    all
}

/// Every tile shape that may suit, with all shares of the depth.
pub(super) fn candidates(problem: &Gemm, target: Target) -> Vec<Tiling> {
    let mut shapes = swapped_shapes(problem, target);
    shapes.extend(plain_shapes(problem, target));
    shapes.extend(pingpong_shapes(problem, target));
    if problem.scales == Scales::Blocks {
        let others = SCALED.into_iter().filter(|tiling| !shapes.contains(tiling));
        shapes.extend(others.collect::<Vec<_>>());
    }
    shapes.retain(|tiling| suits(problem, tiling, target));
    let shared = |tiling| in_shares(problem, tiling, target);
    let mut all: Vec<_> = shapes.into_iter().flat_map(shared).collect();
    all.retain(|tiling| !through_registers(problem, tiling.swapped) || tiling.can_go_through());
    all
}

/// Rows of the result up to which operands are swapped where blocks have scales: threads load these there, one by one, and otherwise they come with their stages. 16 to 32 rows
/// took 1.01 to 1.22 times as long swapped in seven of seven shapes, up to 8 rows as long or less in three of four.
const SWAPPED_SCALED: u32 = 8;

/// Whether tiles with swapped operands read both as they are stored, and others do not.
fn swapped_alone_reads(problem: &Gemm) -> bool {
    let anew = [false, true].map(|swapped| Anew::of(problem, swapped).is_some());
    anew == [true, false]
}

/// Those with swapped operands.
fn swapped_shapes(problem: &Gemm, target: Target) -> Vec<Tiling> {
    if problem.scales == Scales::Blocks && problem.m > SWAPPED_SCALED {
        return Vec::new();
    }
    let few = problem.m <= SWAPPED_ROWS;
    let only = swapped_alone_reads(problem);
    let mut shapes = Vec::new();
    for cols in swapped_widths(problem.m) {
        for (rows, depth, blocks) in SWAPPED {
            if !few && (rows == 64 || depth == 128) {
                continue;
            }
            let tiling = Tiling::new(rows, cols, depth, 2).swapped().blocks(blocks);
            let alone = deepest(tiling, majors(problem, true), target)
                // Three stages of 128 took up to 1.24 times as long as six of 64, and four up to 1.09 times as long as eight.
                .filter(|alone| depth == 64 || alone.stages > ENOUGH)
                .filter(|alone| few || only || waves(problem, alone, target) <= FEW_WAVES);
            shapes.extend(alone.map(|alone| alone_or_clustered(problem, alone, target)));
        }
    }
    shapes.concat()
}

/// Those whose rows are rows of the result, and whose warpgroups share a tile.
fn plain_shapes(problem: &Gemm, target: Target) -> Vec<Tiling> {
    let alone = tile_shapes(problem.m).filter_map(|(rows, cols, blocks)| {
        let tiling = Tiling::new(rows, cols, 64, 2).blocks(blocks);
        deepest(tiling, majors(problem, false), target)
    });
    let shapes = alone.flat_map(|alone| alone_or_clustered(problem, alone, target));
    shapes.collect()
}

/// Those of which each of two warpgroups has one, for more than a wave.
fn pingpong_shapes(problem: &Gemm, target: Target) -> Vec<Tiling> {
    let widths = PINGPONG.into_iter().flat_map(|(rows, most)| {
        let cols = (96..=most).step_by(8);
        cols.map(move |cols| Tiling::new(rows, cols, 64, 2).pingpong())
    });
    let alone = widths
        .filter_map(|tiling| deepest(tiling, majors(problem, false), target))
        .filter(|alone| waves(problem, alone, target) > 1);
    let shapes = alone.flat_map(|alone| alone_or_clustered(problem, alone, target));
    shapes.collect()
}

/// Whether it is worth to look at such tiles, by what the model does not know.
fn suits(problem: &Gemm, tiling: &Tiling, target: Target) -> bool {
    // In many waves pairs gain nothing where rows begin with lines: at full power 16384 cubed has 1.015 of cuBLAS's speed in 128 x 192 alone
    // and 0.975 in pairs, 4096 x 14336 x 4096 1.013 and 0.992.
    let clusters = tiling.cluster == Cluster::Alone
        || waves(problem, tiling, target) <= MANY_WAVES
        || Anew::of(problem, tiling.swapped).map_or(astride(problem, tiling), |anew| {
            astride(&anew.problem, tiling)
        }) > 0.0;
    // With scales of blocks tiles of 128 x 128 ask L2 and shared memory for all that these give. Larger ones ask for a sixth or a fourth less, and pairs
    // of the largest for half: 4096 cubed has 0.97 of cuBLAS's speed in 128 x 128, 0.95 in 256 x 128 and 1.03 in pairs of it.
    let scaled = SCALED.contains(tiling) && adds(problem, target);
    let in_pair = tiling.cluster == Cluster::Alone || problem.m > tiling.rows;
    // In two levels without scales the two halves of 256 rows wait for each other: 0.79 of cuBLAS's speed
    // at 8192 where 128 rows have 0.92. Where rows begin with lines clusters do not help either: 128 x 128 in pairs took up to 1.4 times as long.
    let paired = tiling.cluster.count() == 1
        || tiling.cluster.count() == 2 && astride(problem, tiling) > 0.0;
    let levels = !problem.in_levels()
        || !tiling.pingpong
            && (scaled && in_pair || tiling.rows <= 128 && paired)
            && fits_levels(problem.scales, tiling).is_ok();
    // Two warpgroups that store in turns hide their stores, which the model does not know: 128 x 256 was 1.15 to 1.3 times as fast as
    // two blocks of 64 x 128.
    let in_turns = problem.input.is_tiny() && !problem.in_levels() && problem.k <= IN_TURNS;
    let blocks = !in_turns || tiling.blocks == 1 || waves(problem, &LARGE, target) <= 1;
    clusters && levels && blocks
}

/// The same tiles with their depth in one share, and in as many as may help: in memory, or among a cluster's blocks.
fn in_shares(problem: &Gemm, tiling: Tiling, target: Target) -> Vec<Tiling> {
    let tiles = tiles(problem, &tiling);
    let steps = steps(problem, &tiling) as u32;
    let slots = u64::from(target.sms * tiling.blocks);
    let mut all = Vec::new();
    for shares in SHARES {
        // A split of few steps is mostly prologue and epilogue, and more than one wave of
        // splits does not help.
        let useful = steps / shares >= 4 && tiles * u64::from(shares) <= slots;
        // Blocks that have a multiprocessor each have its whole shared memory, too: with six stages instead of twelve
        // small products took up to 1.16 times as long. But not every cluster finds multiprocessors of its own.
        let at_once = clusters_at_once(shares, target);
        let roomy = tiling.blocks > 1 && tiles * u64::from(shares) <= u64::from(target.sms);
        if roomy && (shares == 1 || tiles <= at_once) {
            continue;
        }
        if shares == 1 {
            all.push(tiling);
        } else if useful && tiling.cluster == Cluster::Alone {
            let split = tiling.split(shares);
            all.extend((!roomy).then_some(split));
            let deep = deep(split, majors(problem, tiling.swapped), target);
            all.extend(deep.filter(|_| tiles <= at_once * u64::from(tiling.blocks)));
        }
    }
    all
}

/// Up to which depth in 8-bit floats two warpgroups store in turns.
const IN_TURNS: u32 = 2048;

/// The same with the last tiles in pieces, where that can be and gains anything. Pieces are read, stored
/// and added up besides: of 20 shapes on an H200 those with a last wave of at most two thirds were within
/// 1% in pieces or faster (up to 4%), and fuller ones up to 1.5% faster or up to 10% slower.
pub(super) fn in_pieces(problem: &Gemm, tiling: Tiling, target: Target) -> Option<Tiling> {
    let cut = tiling.tail();
    let steps = steps(problem, &tiling) as u32;
    let plain = problem.batch == 1 && !problem.in_levels() && !tiling.swapped;
    // Beside factors of rows and columns, which are read ahead, pieces spilled three words.
    let plain = plain && problem.scales != Scales::Rows;
    let fits = plain && cut.check().is_ok();
    let tiles = u32::try_from(tiles(problem, &tiling))
        .ok()
        .filter(|tiles| fits && 3 * (tiles % target.sms) <= 2 * target.sms)?;
    Tail::new(tiles, steps, target.sms).map(|_| cut)
}
