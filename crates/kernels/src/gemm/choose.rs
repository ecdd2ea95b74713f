//! Which tiles suit a problem: a model of waves and bytes.
//!
//! Every tile shape that may suit is given an estimate of its time, and the lowest
//! wins. The parts of the estimate:
//!
//! * **A step** of a block, one stage deep, takes a little longer than the slowest of the
//!   tensor cores, shared memory (which the copies write and the products read), the bandwidth
//!   of L2 and the copy engine, and than a stage's share of the latency of memory. Rows that do not begin with a line cost L2 and the copy
//!   engine more, and those that do not begin with a sector of 32 bytes much more. Rows outside of a matrix are
//!   zeros that the copy engine writes, slower than others, where boxes do not end with the matrix (few stages, and
//!   operands stored across the depth). Blocks of a cluster that share the depth read parts of it that lie apart, and take longer, the more
//!   of them there are.
//! * **A wave** is as many blocks as fit on the GPU. Each has its steps and the fixed costs of a
//!   tile: the first stage's latency, the epilogue (that of swapped operands is transposed), the transition to the next tile, a part of which
//!   the next tile's copies hide; where two warpgroups have a tile each, the other's products hide the epilogue. A last wave that is nearly empty takes as long as a full one, but
//!   has L2 to itself.
//! * **Memory** moves every matrix once at least, beside the steps, not beside the first latency and the last epilogue. Where operands
//!   come again, L2 has kept them, up to its size: a plan is judged by the geometric mean of both times.
//! * **Split-K**: the partial sums are written, and read again by a second launch (across their rows, where operands are swapped);
//!   or the blocks of a cluster send them to each other.
//!
//! The constants were fitted to times that an H200 took: 10,201 plans of 211 shapes, mostly drawn at random, with 1 to 8192 rows,
//! in up to 72 plans each (`gemm_tiles DIR many`), each with operands in memory and in L2. docs/measurements.md has what they
//! choose for other shapes. They are of Hopper, which is the only architecture with warpgroups.

use super::leave::Staging;
use super::problem::{Gemm, Major, Scales};
use super::tail::Tail;
use super::tiling::{Cluster, Tiling};
use super::wgmma::{edges, fits_levels, unshared};
use crate::family::Target;
use heist_sched::{AnyOrder, Grouped, Schedule, Submit, TileSource};

/// The largest tiles.
pub(crate) const LARGE: Tiling = Tiling::new(128, 256, 64, 4);
/// The tiles of three warpgroups for scales of blocks.
const SHARED: Tiling = Tiling::new(192, 128, 64, 5);

/// What the parts of a multiplication cost: the constants of the model, for one GPU. `gemm_fit` in `bench` fits
/// them to measured times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Cycles in a microsecond at the clock of short kernels.
    pub clock: f64,
    /// Cycles of a product of 64 rows and 16 halves of depth, for each column; at the peak rate 0.5.
    pub product: f64,
    /// Cycles that it takes at least.
    pub least_product: f64,
    /// Bytes that shared memory moves in a cycle.
    pub shared: f64,
    /// Bytes that come from L2 in a cycle, for all multiprocessors.
    pub l2: f64,
    /// Cycles in which the copy engine brings a row of 128 bytes.
    pub row: f64,
    /// The same where it lies outside of the matrix.
    pub outside: f64,
    /// Cycles from asking for a stage to having it, where every multiprocessor asks.
    pub latency: f64,
    /// As many more where it comes from memory.
    pub far: f64,
    /// The part of them where only one does.
    pub alone: f64,
    /// Cycles of a step besides.
    pub beat: f64,
    /// How much more a row astride of lines costs L2.
    pub astride: f64,
    /// How much more it costs the copy engine.
    pub row_astride: f64,
    /// How much more a row astride of sectors costs L2 besides.
    pub sectors: f64,
    /// How much more it costs the copy engine.
    pub row_sectors: f64,
    /// How much longer steps take where blocks of a cluster share the depth, and all multiprocessors have some.
    pub apart: f64,
    /// Cycles that the first stage takes longer where it comes from memory.
    pub first: f64,
    /// Cycles that a tile costs besides its steps.
    pub tile: f64,
    /// The same for each row, of 128 columns.
    pub tile_rows: f64,
    /// How much longer that takes where operands are swapped.
    pub turned: f64,
    /// Cycles of a tile's that go by while a block's next tile begins.
    pub next: f64,
    /// Cycles from tile to tile where two warpgroups have one each.
    pub turn: f64,
    /// Cycles in which threads store the columns of 128 rows behind the last whole panel.
    pub rest: f64,
    /// Megabytes that memory moves in a microsecond.
    pub memory: f64,
    /// Megabytes of partial sums (split-K) that are written and read in a microsecond.
    pub sums: f64,
    /// How much longer that takes where operands are swapped.
    pub sums_turned: f64,
    /// Microseconds of a second launch.
    pub second: f64,
    /// Microseconds that a cluster of blocks that share the depth takes longer to begin and to meet.
    pub meeting: f64,
    /// The same where two of them may share a multiprocessor.
    pub crowded: f64,
    /// Microseconds in which they add up their sums of 128 x 128.
    pub met: f64,
    /// Microseconds that a cluster takes longer to begin and to end.
    pub cluster: f64,
    /// The same of four or eight tiles.
    pub many: f64,
    /// Microseconds of a launch.
    pub launch: f64,
}

/// Those of an H200.
pub const H200: Costs = Costs {
    clock: 1755.0,
    product: 0.5182,
    least_product: 24.32,
    shared: 198.7,
    l2: 21054.0,
    row: 1.221,
    outside: 2.431,
    latency: 2300.0,
    far: 451.6,
    alone: 0.8966,
    beat: 1.124,
    astride: 1.091,
    row_astride: 0.7795,
    sectors: 3.306,
    row_sectors: 1.863,
    apart: 0.1711,
    first: 495.9,
    tile: 1622.0,
    tile_rows: 18.27,
    turned: 0.2098,
    next: 734.3,
    turn: 400.0,
    rest: 493.6,
    memory: 4.3,
    sums: 3.736,
    sums_turned: 1.662,
    second: 3.707,
    meeting: 1.213,
    crowded: 2.338,
    met: 1.304,
    cluster: 1.718,
    many: 0.5153,
    launch: 0.0011,
};

/// How sharply the slowest part decides, among those of a step, beside the latency, and beside memory: the
/// exponents of [`beside`].
const PARTS: f64 = 3.863;
const LATENCY: f64 = 8.494;
const MEMORY: f64 = 2.234;

/// How much longer two launches are taken to last than modelled: it makes no difference to the shapes that were fitted to.
const TWICE: f64 = 1.05;

/// Overlapping parts take a little longer than the slowest of them.
fn beside<const N: usize>(parts: [f64; N], sharp: f64) -> f64 {
    let sum: f64 = parts.iter().map(|part| part.powf(sharp)).sum();
    sum.powf(1.0 / sharp)
}

/// Rows and columns of the result as the tiles have them.
pub(super) fn sides(problem: &Gemm, tiling: &Tiling) -> [u32; 2] {
    match tiling.swapped {
        false => [problem.m, problem.n],
        true => [problem.n, problem.m],
    }
}

/// Tiles that run: clusters are whole, so some tiles may lie past the last row.
fn tiles(problem: &Gemm, tiling: &Tiling) -> u64 {
    let [high, wide] = sides(problem, tiling);
    let [below, beside] = tiling.cluster.sides();
    let down = high.div_ceil(tiling.rows).next_multiple_of(below);
    let across = wide.div_ceil(tiling.cols).next_multiple_of(beside);
    u64::from(down) * u64::from(across) * u64::from(problem.batch)
}

fn majors(problem: &Gemm, swapped: bool) -> [Major; 2] {
    let (a, b) = (problem.layout.a(), problem.layout.b());
    if swapped { [b, a] } else { [a, b] }
}

/// The part of rows, so many bytes apart, that do not start with a line of 128 bytes.
pub(crate) fn off_lines(pitch: u32) -> f64 {
    let aligned = 1 << pitch.trailing_zeros().min(7);
    1.0 - f64::from(aligned) / 128.0
}

/// The part of the operands' rows that do not start with a line: of the operand with the most.
fn astride(problem: &Gemm) -> f64 {
    let pitches = [problem.lda, problem.ldb].map(|pitch| pitch * problem.input.bytes());
    pitches.map(off_lines).into_iter().fold(0.0, f64::max)
}

/// The part of the operands' rows that do not start with a sector: of the operand with the most.
fn off_sectors(problem: &Gemm) -> f64 {
    let pitches = [problem.lda, problem.ldb].map(|pitch| pitch * problem.input.bytes());
    let off = pitches.iter().any(|pitch| !pitch.is_multiple_of(32));
    if off { 0.5 } else { 0.0 }
}

/// Microseconds that a problem takes in these tiles, about: the geometric mean of those with operands in memory and in L2, since
/// nobody knows where they will be.
pub(crate) fn time(problem: &Gemm, tiling: &Tiling, target: Target) -> f64 {
    let [cold, hot] = times_at(problem, tiling, target, &H200);
    (cold * hot).sqrt()
}

/// The same with operands in memory, and in L2 as far as they fit, where the parts cost this.
pub fn times_at(problem: &Gemm, tiling: &Tiling, target: Target, costs: &Costs) -> [f64; 2] {
    let megabytes = problem.work().bytes / 1e6;
    let missing = ((megabytes - KEPT[0]) / (KEPT[1] - KEPT[0])).clamp(0.0, 1.0);
    [1.0, missing].map(|missing| time_of(problem, tiling, target, costs, missing))
}

/// Megabytes of operands and result that are all in L2 when they come again, and of which none is.
const KEPT: [f64; 2] = [40.0, 65.0];

/// The same where such a part of the operands is not in L2.
fn time_of(problem: &Gemm, tiling: &Tiling, target: Target, costs: &Costs, missing: f64) -> f64 {
    let [high, wide] = sides(problem, tiling);
    let tiles = tiles(problem, tiling) as f64;
    // The depth in halves: an f32 is two.
    let halves = u64::from(problem.k) * u64::from(problem.input.bytes()) / 2;
    let steps = halves.div_ceil(tiling.depth.into());
    let [below, beside] = tiling.cluster.sides();
    let units = tiles * f64::from(tiling.split);
    // Of more waves than one the part that has the edge.
    let last = (f64::from(target.sms * tiling.blocks) / units).min(1.0);
    let [end_rows, end_cols] = edges(problem, tiling);
    let of = |own: u32, peers: u32, all: u32, ends: Option<u32>| match ends {
        Some(_) => Copied::inside(own, all),
        None => Copied::new(own, peers, all, last),
    };
    let rows = of(tiling.rows, below, high, end_rows);
    let cols = of(tiling.cols, beside, wide, end_cols);
    let both =
        |part: fn(&Copied) -> f64| part(&rows) / f64::from(beside) + part(&cols) / f64::from(below);
    let load = Load {
        units,
        steps: steps.div_ceil(tiling.split.into()) as f64,
        fetched: both(|copied| copied.mean),
        inside: both(|copied| copied.inside),
        outside: both(|copied| copied.outside),
        bytes: problem.work().bytes * missing,
        missing,
        added: match adds(problem, target) && !tiling.swapped {
            true => ADDED,
            false => 0.0,
        },
        cut: match tiling.tail {
            false => None,
            true => Tail::new(tiles as u32, steps as u32, target.sms),
        },
        astride: astride(problem),
        sectors: off_sectors(problem),
        // Threads store what is left of a row behind the last panel of 16.
        tail: match tiling.split == 1 && !tiling.swapped && !tiling.cols.is_multiple_of(16) {
            true => costs.rest * f64::from(tiling.rows) / 128.0,
            false => 0.0,
        },
    };
    let mut time = load.time_at(tiling, target, costs);
    time += match tiling.cluster.count() {
        1 => 0.0,
        2 => costs.cluster,
        _ => costs.many,
    };
    if tiling.cluster == Cluster::Depth {
        // Each thread sends its sums, and adds up as many, or more where not all blocks add.
        let added = f64::from(tiling.sent_bytes()) / 4.0;
        time += match tiling.blocks {
            1 => costs.meeting,
            _ => costs.crowded,
        };
        time += costs.met * added / (128.0 * 128.0);
    } else if tiling.split > 1 {
        let sums = [problem.m, problem.n, problem.batch].map(f64::from);
        let sums = sums.iter().product::<f64>() * 4.0;
        let turned = if tiling.swapped {
            costs.sums_turned
        } else {
            0.0
        };
        // What is left out makes plans of one launch the safer ones: 256 x 4096 x 14336 in two shares took 1.11 times as long.
        time *= TWICE;
        time += f64::from(tiling.split) * sums / 1e6 / costs.sums * (1.0 + turned) + costs.second;
    }
    time
}

/// Rows of a tile that are copied, or its columns.
struct Copied {
    /// Those inside of the matrix, in the mean.
    mean: f64,
    /// Those of the tile that a wave waits for.
    inside: f64,
    /// The others of that tile.
    outside: f64,
}

impl Copied {
    /// Where the last tile's box ends with the matrix: nothing outside is copied.
    fn inside(rows: u32, all: u32) -> Copied {
        let tiles = all.div_ceil(rows).max(1);
        Copied {
            mean: f64::from(all) / f64::from(tiles),
            inside: rows.min(all).into(),
            outside: 0.0,
        }
    }

    /// In tiles of so many `rows`, in clusters of `peers`, of a matrix of so many; `last` is the part of the waves
    /// that has its edge.
    fn new(rows: u32, peers: u32, all: u32, last: f64) -> Copied {
        let tiles = all.div_ceil(rows).max(1);
        let padded = tiles.next_multiple_of(peers);
        let mean = f64::from(all) / f64::from(padded);
        // A cluster's last tile may have none.
        let edge = match padded == tiles {
            true => f64::from(all - (tiles - 1) * rows),
            false => 0.0,
        };
        let inside = mean + (edge.min(mean) - mean) * last;
        Copied {
            mean,
            inside,
            outside: f64::from(rows) - inside,
        }
    }
}

/// What blocks have to do.
struct Load {
    /// Tiles, or shares of tiles.
    units: f64,
    /// Steps of each.
    steps: f64,
    /// Rows and columns of a tile that a block copies, in the mean.
    fetched: f64,
    /// Those of the tile that a wave waits for.
    inside: f64,
    /// Those of it that lie outside of the matrices.
    outside: f64,
    /// Bytes that must cross the memory bus once.
    bytes: f64,
    /// The part of the operands that is not in L2.
    missing: f64,
    /// Cycles that a step takes longer, where its sums are multiplied by scales.
    added: f64,
    /// How the last tiles are cut.
    cut: Option<Tail>,
    /// The part of rows that do not start with a line.
    astride: f64,
    /// The part of rows that do not start with a sector of 32 bytes.
    sectors: f64,
    /// Cycles that a tile takes longer.
    tail: f64,
}

impl Load {
    /// Microseconds that it takes in these tiles, about.
    fn time_at(&self, tiling: &Tiling, target: Target, costs: &Costs) -> f64 {
        let [rows, cols, depth] = [tiling.rows, tiling.cols, tiling.depth].map(f64::from);
        let products = rows / 64.0 * depth / 16.0;
        let stage = (rows + cols) * depth * 2.0;
        // A row that does not start with a line is a line more.
        let astride =
            |lines: f64, sectors: f64| 1.0 + self.astride * lines + self.sectors * sectors;
        let copies = self.inside * costs.row * astride(costs.row_astride, costs.row_sectors);
        let copies = (copies + self.outside * costs.outside) * depth / 64.0;
        let step = |active: f64| {
            let parts = [
                products * (cols * costs.product).max(costs.least_product),
                (products * (64.0 + cols) * 32.0 + stage) / costs.shared,
                self.fetched * depth * 2.0 * astride(costs.astride, costs.sectors) * active
                    / costs.l2,
                copies,
            ];
            let apart = match tiling.cluster {
                Cluster::Depth => costs.apart * active / f64::from(target.sms),
                _ => 0.0,
            };
            beside(parts, PARTS) * (1.0 + apart) + costs.beat + self.added
        };
        // Blocks on one multiprocessor share all of that, but not the latency.
        let (sms, blocks) = (f64::from(target.sms), f64::from(tiling.blocks));
        let waiting = |active: f64| {
            let part = costs.alone + (1.0 - costs.alone) * active / sms;
            let latency = costs.latency + costs.far * self.missing;
            latency * part / f64::from(tiling.stages)
        };
        let wave = |blocks: f64, active: f64| {
            let step = step(active) * blocks;
            self.steps * beside([step, waiting(active)], LATENCY)
        };
        let turned = match tiling.swapped && tiling.split == 1 {
            true => 1.0 + costs.turned,
            false => 1.0,
        };
        let tile = costs.tile + costs.tile_rows * turned * rows * cols / 128.0 + self.tail;
        let next = match tiling.pingpong {
            // One warpgroup stores while the other multiplies, as far as that takes as long.
            true => tile - costs.turn.max((tile - wave(1.0, sms)) / 2.0),
            false => costs.next,
        };
        let units = self.cut.as_ref().map_or(self.units, |cut| cut.whole.into());
        let whole = (units / (sms * blocks)).floor();
        let rest = units - whole * sms * blocks;
        let mut cycles = whole * wave(blocks, sms);
        let mut waves = whole;
        if let Some(cut) = &self.cut {
            cycles += wave(blocks, sms) * f64::from(cut.steps) / self.steps;
            waves += 1.0;
        }
        if rest > 0.0 {
            cycles += wave((rest / sms).ceil(), rest.min(sms));
            waves += 1.0;
        }
        cycles += (waves - 1.0) * (tile - next);
        let moved = self.bytes / 1e6 / costs.memory;
        let first = (tile + costs.first * self.missing) / costs.clock;
        beside([cycles / costs.clock, moved], MEMORY) + first + costs.launch
    }
}

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
const SWAPPED_ROWS: u32 = 1024;

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
const FEW_WAVES: u64 = 4;

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

/// The same tiles in clusters that may suit.
fn in_clusters(problem: &Gemm, alone: Tiling, target: Target) -> Vec<Tiling> {
    let Tiling { rows, cols, .. } = alone;
    let ([high, wide], majors) = (sides(problem, &alone), majors(problem, alone.swapped));
    if alone.blocks > 1 || alone.depth > 64 {
        return Vec::new();
    }
    // Two blocks that copy together read less from L2: worth it where copies are the bound.
    let below = cols >= 96 && high > rows;
    let beside = rows >= 128 && wide > cols;
    let mut all = Vec::new();
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

fn candidates(problem: &Gemm, target: Target) -> Vec<Tiling> {
    let mut shapes = Vec::new();
    for cols in swapped_widths(problem.m) {
        for (rows, depth, blocks) in SWAPPED {
            let few = problem.m <= SWAPPED_ROWS;
            if !few && (rows == 64 || depth == 128) {
                continue;
            }
            let tiling = Tiling::new(rows, cols, depth, 2).swapped().blocks(blocks);
            let deep = deepest(tiling, majors(problem, true), target);
            let waves = |deep: &Tiling| tiles(problem, deep).div_ceil(target.sms.into());
            // Three stages of 128 took up to 1.24 times as long as six of 64, and four up to 1.09 times as long as eight.
            let deep = deep.filter(|deep| depth == 64 || deep.stages > ENOUGH);
            let deep = deep.filter(|deep| few || waves(deep) <= FEW_WAVES);
            shapes.extend(deep);
            shapes.extend(
                deep.into_iter()
                    .flat_map(|deep| in_clusters(problem, deep, target)),
            );
        }
    }
    for (rows, cols, blocks) in tile_shapes(problem.m) {
        let tiling = Tiling::new(rows, cols, 64, 2).blocks(blocks);
        let alone = deepest(tiling, majors(problem, false), target);
        shapes.extend(alone);
        shapes.extend(
            alone
                .into_iter()
                .flat_map(|alone| in_clusters(problem, alone, target)),
        );
    }
    for (rows, most) in PINGPONG {
        for cols in (96..=most).step_by(8) {
            let tiling = Tiling::new(rows, cols, 64, 2).pingpong();
            let alone = deepest(tiling, majors(problem, false), target)
                .filter(|alone| tiles(problem, alone) > u64::from(target.sms));
            shapes.extend(alone);
            shapes.extend(
                alone
                    .into_iter()
                    .flat_map(|alone| in_clusters(problem, alone, target)),
            );
        }
    }
    // In many waves pairs gain nothing where rows begin with lines: at full power 16384 cubed has 1.015 of cuBLAS's speed in 128 x 192 alone
    // and 0.975 in pairs, 4096 x 14336 x 4096 1.013 and 0.992.
    shapes.retain(|tiling| {
        let waves = tiles(problem, tiling).div_ceil(target.sms.into());
        tiling.cluster == Cluster::Alone || waves <= MANY_WAVES || astride(problem) > 0.0
    });
    let once = |tiling: &Tiling| tiles(problem, tiling) <= u64::from(target.sms);
    // With scales of blocks tiles of 128 x 128 ask L2 for all that it gives. Three warpgroups that share their columns ask for a sixth less:
    // 8192 cubed 1.14 times as fast.
    let shared = |tiling: &Tiling| {
        let deep = adds(problem, target) && problem.k >= DEEP_BLOCKS;
        deep && *tiling == SHARED
    };
    shapes.push(SHARED);
    // In two levels the two halves of 256 rows wait for each other: 0.79 of cuBLAS's speed
    // at 8192 where 128 rows have 0.92.
    shapes.retain(|tiling| {
        // Nor do clusters help there: 8192 cubed in blocks has 0.71 of cuBLAS's speed in pairs, 0.84 alone.
        let suits = !tiling.pingpong
            && (tiling.rows <= 128 || shared(tiling))
            && tiling.cluster.count() == 1;
        !problem.in_levels() || (suits && fits_levels(problem.scales, tiling).is_ok())
    });
    // Two warpgroups that store in turns hide their stores, which the model does not know: 128 x 256 was 1.15 to 1.3 times as fast as
    // two blocks of 64 x 128.
    let in_turns = problem.input.is_tiny() && !problem.in_levels() && problem.k <= IN_TURNS;
    shapes.retain(|tiling| *tiling != SHARED || shared(tiling));
    shapes.retain(|tiling| !in_turns || tiling.blocks == 1 || once(&LARGE));
    let mut all = Vec::new();
    for tiling in shapes {
        let tiles = tiles(problem, &tiling);
        let halves = u64::from(problem.k) * u64::from(problem.input.bytes()) / 2;
        let steps = halves.div_ceil(tiling.depth.into()) as u32;
        let slots = u64::from(target.sms * tiling.blocks);
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
                if !roomy {
                    all.push(tiling.split(shares));
                }
                let deep = deep(
                    tiling.split(shares),
                    majors(problem, tiling.swapped),
                    target,
                );
                let fits = |_: &Tiling| tiles <= at_once * u64::from(tiling.blocks);
                all.extend(deep.filter(fits));
            }
        }
    }
    all
}

/// Whether scales of blocks make steps longer: in more than a wave. Below that the model was right without it.
fn adds(problem: &Gemm, target: Target) -> bool {
    let blocks = problem.scales == Scales::Blocks;
    blocks && tiles(problem, &Tiling::new(128, 128, 64, 6)) > target.sms.into()
}

/// Cycles in which no product runs in a step that ends with scales, in tiles of 128 x 128 as in those of 192 x 128: from
/// times of 29 shapes on an H200.
const ADDED: f64 = 250.0;
/// From which depth on tiles of 192 x 128 are tried with scales of blocks: with 1536 they were level, with 512 they took 1.2 times as long.
const DEEP_BLOCKS: u32 = 2048;
/// Up to which depth in 8-bit floats two warpgroups store in turns.
const IN_TURNS: u32 = 2048;

/// Every tile shape on warpgroups that may suit a problem, with the microseconds that it takes about:
/// the fastest first.
pub fn ranked(problem: &Gemm, target: Target) -> Vec<(f64, Tiling)> {
    let all = candidates(problem, target).into_iter();
    let mut timed: Vec<_> = all
        .map(|tiling| (time(problem, &tiling, target), tiling))
        .collect();
    timed.sort_by(|one, other| one.0.total_cmp(&other.0));
    let cut: Vec<_> = timed
        .iter()
        .filter(|(_, tiling)| !tiling.pingpong)
        .filter_map(|(_, tiling)| in_pieces(problem, *tiling, target))
        .take(CUT)
        .collect();
    timed.extend(
        cut.into_iter()
            .map(|cut| (time(problem, &cut, target), cut)),
    );
    timed.sort_by(|one, other| one.0.total_cmp(&other.0));
    timed
}

/// Of how many tile shapes, the fastest whole ones, it is looked at whether to cut the last tiles.
const CUT: usize = 4;

/// The same with the last tiles in pieces, where that can be and gains anything. Pieces are read, stored
/// and added up besides: of 20 shapes on an H200 those with a last wave of at most two thirds were within
/// 1% in pieces or faster (up to 4%), and fuller ones up to 1.5% faster or up to 10% slower.
fn in_pieces(problem: &Gemm, tiling: Tiling, target: Target) -> Option<Tiling> {
    let cut = tiling.tail();
    let halves = u64::from(problem.k) * u64::from(problem.input.bytes()) / 2;
    let steps = halves.div_ceil(tiling.depth.into()) as u32;
    let plain = problem.batch == 1 && !problem.in_levels() && !tiling.swapped;
    // Beside factors of rows and columns, which are read ahead, pieces spilled three words.
    let plain = plain && problem.scales != Scales::Rows;
    let fits = plain && cut.check().is_ok();
    let tiles = u32::try_from(tiles(problem, &tiling))
        .ok()
        .filter(|tiles| fits && 3 * (tiles % target.sms) <= 2 * target.sms)?;
    Tail::new(tiles, steps, target.sms).map(|_| cut)
}

/// The tiles that suit; `alone` says that blocks take tile after tile and nothing else decides ([`wgmma::takes_tile_after_tile`]).
///
/// [`wgmma::takes_tile_after_tile`]: super::wgmma::takes_tile_after_tile
pub(crate) fn tiling(problem: &Gemm, target: Target, alone: bool) -> Tiling {
    let mut ranked = ranked(problem, target).into_iter();
    let best = ranked.find(|(_, tiling)| alone || meets(problem, tiling, target));
    best.map_or(LARGE, |(_, tiling)| tiling)
}

/// Whether such tiles suit where a block's warps meet from tile to tile: two with a tile each never do, and registers that move for each tile
/// cost more than larger ones gain. In many waves the last one matters little, and what a width gains there is less than the model's error.
fn meets(problem: &Gemm, tiling: &Tiling, target: Target) -> bool {
    let waves = tiles(problem, tiling).div_ceil(target.sms.into());
    let step = match (tiling.rows, waves) {
        (_, 0..=FEW_WAVES) => 8,
        (0..=128, 9..) => 64,
        (0..=128, _) => 32,
        _ => 16,
    };
    let moves = tiling.moved(problem.in_levels().into()).is_some();
    !tiling.pingpong && (waves == 1 || !moves) && tiling.cols.is_multiple_of(step)
}

/// The schedule that suits. A grid of one wave is launched directly: requests that find no tile
/// cost 0.5 to 4 us at the end. In a larger grid blocks ask for each tile late: alone on the GPU
/// this is 0.1 to 0.4% slower than a static schedule, and up to 1.7 times as fast where other
/// kernels hold multiprocessors. So do clusters, though their blocks then know the next tile late,
/// which costs 0.7 to 1.1 us a tile. Tiles go in bands, so that their operands stay in L2.
pub(crate) fn schedule(problem: &Gemm, tiling: &Tiling, target: Target) -> Schedule {
    let tiles = tiles(problem, tiling) * u64::from(tiling.split);
    let once = tiles <= u64::from(target.sms * tiling.blocks);
    let source = if once || tiling.cluster == Cluster::Depth {
        TileSource::Direct
    } else {
        TileSource::Ticket
    };
    let mut schedule = Schedule::new(source).submit(Submit::Late);
    if tiling.split == 1 && (!tiling.swapped || problem.m > SWAPPED_ROWS) {
        schedule.order = AnyOrder::new(Grouped { rows: 16 });
    }
    schedule.cluster = tiling.cluster_shape();
    schedule
}
