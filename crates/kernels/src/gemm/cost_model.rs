//! The cost model: about how long a problem takes in tiles of a shape, from waves and bytes.
//!
//! The parts of the estimate:
//!
//! * **A step** of a block, one stage deep, takes a little longer than the slowest of the
//!   tensor cores, shared memory (which the copies write and the products read), the bandwidth
//!   of L2 and the copy engine, and than a stage's share of the latency of memory. Rows that do not begin with a line cost L2 and the copy
//!   engine more, and those that do not begin with a sector of 32 bytes much more. Rows outside of a matrix are
//!   zeros that the copy engine writes, slower than others, where boxes do not end with the matrix (few stages, and
//!   operands stored across the depth). Blocks of a cluster that share the depth read parts of it that lie apart, and take longer, the more
//!   of them there are; those of four tiles wait for each other at every stage, which costs where one warpgroup multiplies.
//! * **A wave** is as many blocks as fit on the GPU. Each has its steps and the fixed costs of a
//!   tile: the first stage's latency, the epilogue (that of swapped operands is transposed), the transition to the next tile, a part of which
//!   the next tile's copies hide; where two warpgroups have a tile each, the other's products hide the epilogue, as far as they take as long. A last wave that is nearly empty takes as long as a full one, but
//!   has L2 to itself.
//! * **Memory** moves every matrix once at least, beside the steps, not beside the first latency and the last epilogue. Where operands
//!   come again, L2 has kept them, up to its size: a plan is judged by the geometric mean of both times.
//! * **Words across the depth** (tf32) that go through registers cost shared memory what the tensor cores would read. Where operands are written anew by a launch
//!   before, that reads and writes all of them.
//! * **Split-K**: the partial sums are written, and read again by a second launch (across their rows, where operands are swapped);
//!   or the blocks of a cluster send them to each other.
//!
//! The constants were fitted to times that an H200 took: 10,201 plans of 211 shapes, mostly drawn at random, with 1 to 8192 rows,
//! in up to 72 plans each (`gemm_tiles DIR many`), each with operands in memory and in L2. docs/measurements/gemm.md has what they
//! choose for other shapes. What shows of a short tile's stores where warpgroups store in turns was fitted later to 45 shapes of several waves (2026-11-18): fitted to either half the choice in the
//! other took 1.022 for 1.029 and 1.029 for 1.048 of the best. What four blocks wait for each other and what a single staging buffer costs were added later, each by itself, to 356 shapes
//! (11,600 plans, up to 72 a shape, in one wave or more): chosen plans took 1.0201 times as long as the best instead of 1.0214, either half of the shapes gained (the same with
//! other values near them), and short depths in many waves 1.007 instead of 1.031. To fit all constants again gained nothing in the half that was left out. All of these were products of
//! layout nt. What operands stored across the depth cost (their tiles begin inside of lines, whole boxes are copied, and rows outside cost more) and what pieces of the last tiles cost came with 51 shapes of the
//! other layouts, of which a half had been slow in the survey: chosen plans took 1.034 times as long as the best (2026-11-19). What L2 answers to blocks that
//! ask for the same rows came with 62 shapes (1.0435 for 1.0563), and seven constants (`second`, `apart`, `tile_rows`, `many`, `met`, `asked`, `asked_sectors`) were fitted again with 149 more,
//! drawn at random in all layouts: of all 211 chosen plans took 1.0250 for 1.0310, and fitted to either half 1.0209 for 1.0272 in the other. To fit all constants lost there. They are of Hopper, which is the only architecture with warpgroups.

use super::anew::{Anew, majors};
use super::leave::Staging;
use super::problem::{Gemm, Major, Scales};
use super::tail::Tail;
use super::tiling::{Cluster, SPAN, Tiling};
use super::wgmma::{SHORT, edges};
use crate::family::Target;

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
    /// How much longer that takes where the operand is stored across the depth.
    pub outside_across: f64,
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
    /// Cycles in which L2 answers a block of those that ask for the same row of a stage, where it is astride of lines.
    pub asked: f64,
    /// The same where it is astride of sectors.
    pub asked_sectors: f64,
    /// How much longer steps take where blocks of a cluster share the depth, and all multiprocessors have some.
    pub apart: f64,
    /// How much longer products take in clusters of four tiles and more whose blocks have one warpgroup each that multiplies.
    pub lockstep: f64,
    /// How much longer products take in one warpgroup where rows are astride of lines and the result has more than 64.
    pub uneven: f64,
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
    /// Cycles from tile to tile where two warpgroups have one each, at least.
    pub turn: f64,
    /// The part of what storing takes longer there than multiplying that shows.
    pub ahead: f64,
    /// Cycles that 64 rows of a panel wait there until the panel before has left, where a warp has one staging buffer.
    pub panel: f64,
    /// Cycles from tile to tile where warpgroups share it and the depth is short.
    pub brief: f64,
    /// The part of the cycles in which its rows are stored that shows there.
    pub leaving: f64,
    /// As much more where a warp has one staging buffer.
    pub one_buffer: f64,
    /// Where panels have fewer than 64 columns.
    pub narrow: f64,
    /// In clusters, whose blocks wait for each other.
    pub waiting: f64,
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
    /// Microseconds that it takes longer where the last tiles are cut: pieces save their sums, and the last of a tile adds them up.
    pub pieces: f64,
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
    l2: 19195.0,
    row: 1.221,
    outside: 2.431,
    outside_across: 0.85,
    latency: 2300.0,
    far: 451.6,
    alone: 0.8966,
    beat: 1.124,
    astride: 1.646,
    row_astride: 0.7795,
    sectors: 3.306,
    row_sectors: 1.863,
    asked: 0.0946,
    asked_sectors: 0.0863,
    apart: 0.358,
    lockstep: 0.15,
    uneven: 0.08,
    first: 495.9,
    tile: 1622.0,
    tile_rows: 16.1,
    turned: 0.2098,
    next: 734.3,
    turn: 400.0,
    ahead: 0.67,
    panel: 250.0,
    brief: 210.0,
    leaving: 0.35,
    one_buffer: 0.285,
    narrow: 0.27,
    waiting: 0.3,
    rest: 493.6,
    memory: 4.3,
    sums: 3.088,
    sums_turned: 1.662,
    second: 3.83,
    meeting: 1.05,
    crowded: 2.126,
    met: 1.094,
    pieces: 7.0,
    cluster: 1.322,
    many: 0.375,
    launch: 0.0011,
};

/// Steps of a block for which `apart` is said: the longer blocks read parts of the depth that lie apart, the less what they ask for is what others just have.
const DRIFTED: f64 = 32.0;

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
pub(super) fn tiles(problem: &Gemm, tiling: &Tiling) -> u64 {
    let [high, wide] = sides(problem, tiling);
    let [below, beside] = tiling.cluster.sides();
    let down = high.div_ceil(tiling.rows).next_multiple_of(below);
    let across = wide.div_ceil(tiling.cols).next_multiple_of(beside);
    u64::from(down) * u64::from(across) * u64::from(problem.batch)
}

/// How often all multiprocessors have a tile, and the last time some of them.
pub(super) fn waves(problem: &Gemm, tiling: &Tiling, target: Target) -> u64 {
    tiles(problem, tiling).div_ceil(target.sms.into())
}

/// Steps of the depth, each a stage.
pub(super) fn steps(problem: &Gemm, tiling: &Tiling) -> u64 {
    // In halves: an f32 is two.
    let halves = u64::from(problem.k) * u64::from(problem.input.bytes()) / 2;
    halves.div_ceil(tiling.depth.into())
}

/// The part of rows, so many bytes apart, that do not start with a line of 128 bytes.
pub(crate) fn off_lines(pitch: u32) -> f64 {
    let aligned = 1 << pitch.trailing_zeros().min(7);
    1.0 - f64::from(aligned) / 128.0
}

/// What the rows of a tile's left and right operand that are copied begin at multiples of, in bytes: rows of the depth where the matrix has them, and what a tile
/// has of longer ones where the operand is stored across the depth, which begins with the tile.
fn begins(problem: &Gemm, tiling: &Tiling) -> [u32; 2] {
    let pitches = match tiling.swapped {
        false => [problem.lda, problem.ldb],
        true => [problem.ldb, problem.lda],
    };
    let majors = majors(problem, tiling.swapped);
    let ([high, wide], bytes) = (sides(problem, tiling), problem.input.bytes());
    let of = |pitch: u32, major, own: u32, all: u32| {
        let inner = if major == Major::Outer && all > own {
            own
        } else {
            0
        };
        // The power of two that divides both, up to a line: without a depth nothing says where rows begin.
        1 << ((pitch | inner) * bytes).trailing_zeros().min(7)
    };
    [
        of(pitches[0], majors[0], tiling.rows, high),
        of(pitches[1], majors[1], tiling.cols, wide),
    ]
}

/// The part of the rows that tiles copy that do not start with a line: of the operand with the most.
pub(super) fn astride(problem: &Gemm, tiling: &Tiling) -> f64 {
    begins(problem, tiling)
        .map(off_lines)
        .into_iter()
        .fold(0.0, f64::max)
}

/// The part of rows that begin at multiples of so many bytes and do not start with a sector.
fn off_sectors(begin: u32) -> f64 {
    if begin.is_multiple_of(32) { 0.0 } else { 0.5 }
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
    let anew = Anew::of(problem, tiling.swapped);
    let problem = anew.as_ref().map_or(problem, |anew| &anew.problem);
    let [high, wide] = sides(problem, tiling);
    let tiles = tiles(problem, tiling) as f64;
    let steps = steps(problem, tiling);
    let [below, beside] = tiling.cluster.sides();
    let units = tiles * f64::from(tiling.split);
    // Of more waves than one the part that has the edge.
    let last = (f64::from(target.sms * tiling.blocks) / units).min(1.0);
    let [end_rows, end_cols] = edges(problem, tiling);
    let of = |own: u32, peers: u32, all: u32, ends: Option<u32>| match ends {
        Some(_) => Copied::inside(own, all),
        None => Copied::new(own, peers, all, last),
    };
    let [left, right] = majors(problem, tiling.swapped);
    let rows = of(tiling.rows, below, high, end_rows).in_boxes(tiling.rows, left);
    let cols = of(tiling.cols, beside, wide, end_cols).in_boxes(tiling.cols, right);
    let both = |part: fn(&Copied) -> f64| {
        [
            part(&rows) / f64::from(beside),
            part(&cols) / f64::from(below),
        ]
    };
    let begins = begins(problem, tiling);
    let outside = |copied: &Copied, major| match major {
        Major::Depth => copied.outside,
        Major::Outer => copied.outside * (1.0 + costs.outside_across),
    };
    let load = Load {
        units,
        steps: steps.div_ceil(tiling.split.into()) as f64,
        fetched: both(|copied| copied.mean),
        inside: both(|copied| copied.inside),
        outside: outside(&rows, left) / f64::from(beside)
            + outside(&cols, right) / f64::from(below),
        bytes: problem.work().bytes * missing,
        missing,
        added: match adds(problem, target) && !tiling.swapped {
            true => added(tiling),
            false => 0.0,
        },
        shown: match adds(problem, target) {
            true => SHOWN,
            false => 1.0,
        },
        cut: match tiling.tail {
            false => None,
            true => Tail::new(tiles as u32, steps as u32, target.sms),
        },
        astride: begins.map(off_lines),
        sectors: begins.map(off_sectors),
        sharers: sharers(problem, tiling, target),
        requests: [requests(&rows, left), requests(&cols, right)],
        // Threads store what is left of a row behind the last panel of 16.
        tail: match tiling.split == 1 && !tiling.swapped && !tiling.cols.is_multiple_of(16) {
            true => costs.rest * f64::from(tiling.rows) / 128.0,
            false => 0.0,
        } + factors(problem, tiling),
        panels: panels_that_wait(problem, tiling, target).into(),
        leaving: leaving(problem, tiling, target, costs),
        uneven: uneven(problem, tiling, costs),
    };
    let mut time = load.time_at(tiling, target, costs);
    if let Some(anew) = &anew {
        time += 2.0 * anew.bytes() / 1e6 / costs.sums + costs.second;
    }
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

/// Panels of 64 rows of a tile that wait until the panel before has left, since a warp has one buffer for all. It matters where two
/// warpgroups have a tile each and store longer than they multiply: with up to 512 of the depth tiles of 136, 144, 184 and 192 columns, beside whose stages one buffer fits,
/// took 1.12 to 1.14 times as long as modelled without it, and those of 112 to 128 and 152 to 176 1.06 to 1.10.
fn panels_that_wait(problem: &Gemm, tiling: &Tiling, target: Target) -> u32 {
    if !tiling.pingpong || tiling.swapped || tiling.split > 1 {
        return 0;
    }
    let staging = staging(problem, tiling, target, 2);
    staging.map_or(0, |staging| staging.waiting(tiling))
}

/// Cycles that a tile takes longer where rows and columns have factors and a thread has twice 64 rows, or three warpgroups share the registers: factors are not read
/// before the products there. Beside one factor for all 256 x 128 took 2.4 us longer a tile, 256 x 176 2.3, with operands swapped 256 x 168 1.0, and 192 x 160 1.7; tiles
/// of 128 rows at most 0.3. Products of depths of 144 to 240 had been given 256 x 192, which took 1.4 to 1.65 times as long as the best.
fn factors(problem: &Gemm, tiling: &Tiling) -> f64 {
    match problem.scales {
        Scales::Rows if !tiling.keeps() && tiling.swapped => 1800.0,
        Scales::Rows if !tiling.keeps() => 4000.0,
        Scales::Rows if tiling.groups() == 3 => 3000.0,
        _ => 0.0,
    }
}

/// How much longer products take in one warpgroup where rows are astride of lines: such stages come unevenly, and nobody else multiplies meanwhile. Of 42 shapes of middle
/// rows that nothing was fitted to what is chosen took 1.015 of the best instead of 1.021, and no other of 317 changed.
fn uneven(problem: &Gemm, tiling: &Tiling, costs: &Costs) -> f64 {
    let alone = tiling.groups() * tiling.blocks == 1 && problem.m > 64;
    match alone && astride(problem, tiling) > 0.0 {
        true => costs.uneven,
        false => 0.0,
    }
}

/// The staging buffers that fit beside a tile's stages, so many a warp at most.
fn staging(problem: &Gemm, tiling: &Tiling, target: Target, most: u32) -> Option<Staging> {
    let taken = tiling.ring_bytes(majors(problem, tiling.swapped)) + 1024;
    let room = tiling.room(target.arch).checked_sub(taken)?;
    Staging::new(tiling, room, most)
}

/// The part of the cycles in which a tile's rows are stored that shows from tile to tile, where its warpgroups store in turns: with up to 1024 of the depth
/// in halves. Each has a loop of its own, and one multiplies the next tile while another stores; before, all of it showed. `None` elsewhere.
fn leaving(problem: &Gemm, tiling: &Tiling, target: Target, costs: &Costs) -> Option<f64> {
    let short = problem.k * problem.input.bytes() <= 2 * SHORT;
    let shared = tiling.sharing() > 1 && tiling.blocks == 1 && tiling.split == 1;
    if !short || !shared || tiling.swapped || problem.scales == Scales::Blocks {
        return None;
    }
    let staging = staging(problem, tiling, target, 4);
    let of = |part: f64, counts: bool| if counts { part } else { 0.0 };
    Some(
        costs.leaving
            + of(
                costs.one_buffer,
                staging.is_none_or(|staging| staging.buffers() == 1),
            )
            + of(
                costs.narrow,
                staging.is_none_or(|staging| staging.width() < 64),
            )
            + of(costs.waiting, tiling.cluster.count() > 1),
    )
}

/// How many requests for the rows of a tile's left and right operand there are at a time: of all blocks in one wave; in more, blocks drift apart. A cluster's
/// blocks ask once.
fn sharers(problem: &Gemm, tiling: &Tiling, target: Target) -> [f64; 2] {
    let [high, wide] = sides(problem, tiling);
    let [below, beside] = tiling.cluster.sides();
    let (down, across) = (high.div_ceil(tiling.rows), wide.div_ceil(tiling.cols));
    let waves = tiles(problem, tiling) as f64 / f64::from(target.sms);
    [across.div_ceil(beside), down.div_ceil(below)].map(|all| f64::from(all) / waves.max(1.0))
}

/// For how many rows a block asks at every stage of 64 elements: across the depth for each step of it, in every span, however few of the span's elements there are.
fn requests(copied: &Copied, major: Major) -> f64 {
    let span = f64::from(SPAN);
    match major {
        Major::Depth => copied.inside,
        Major::Outer => (copied.inside / span).ceil() * span,
    }
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

    /// The same of an operand that is stored like this: across the depth whole boxes are copied, of neighbours' rows as well.
    fn in_boxes(self, rows: u32, major: Major) -> Copied {
        let boxed = match major {
            Major::Depth => rows,
            Major::Outer => rows.next_multiple_of(SPAN),
        };
        let more = f64::from(boxed) / f64::from(rows);
        Copied {
            mean: self.mean * more,
            inside: self.inside * more,
            outside: self.outside * more,
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
    fetched: [f64; 2],
    /// Those of the tile that a wave waits for.
    inside: [f64; 2],
    /// Those of it that lie outside of the matrices.
    outside: f64,
    /// Bytes that must cross the memory bus once.
    bytes: f64,
    /// The part of the operands that is not in L2.
    missing: f64,
    /// Cycles that a step takes longer, where its sums are multiplied by scales.
    added: f64,
    /// The part of a tile's own cycles that no other tile's products hide.
    shown: f64,
    /// How the last tiles are cut.
    cut: Option<Tail>,
    /// The part of either that does not start with a line.
    astride: [f64; 2],
    /// The part that does not start with a sector of 32 bytes.
    sectors: [f64; 2],
    /// How many requests for the same rows there are at a time, of either.
    sharers: [f64; 2],
    /// For how many rows of either a block asks at every stage.
    requests: [f64; 2],
    /// Cycles that a tile takes longer.
    tail: f64,
    /// Panels of 64 rows of a tile that wait for the one before.
    panels: f64,
    /// The part of a tile's stores that shows, where its warpgroups store in turns.
    leaving: Option<f64>,
    /// How much longer products take, where stages come unevenly and nobody else's go on meanwhile.
    uneven: f64,
}

impl Load {
    /// Cycles in which L2 answers all blocks that ask for the same rows of a stage, 64 elements deep.
    fn asked(&self, active: f64, costs: &Costs) -> f64 {
        let each = |at: usize| {
            let row = costs.asked * self.astride[at] + costs.asked_sectors * self.sectors[at];
            self.sharers[at].min(active) * self.requests[at] * row
        };
        each(0) + each(1)
    }

    /// Microseconds that it takes in these tiles, about.
    fn time_at(&self, tiling: &Tiling, target: Target, costs: &Costs) -> f64 {
        let [rows, cols, depth] = [tiling.rows, tiling.cols, tiling.depth].map(f64::from);
        let products = rows / 64.0 * depth / 16.0;
        let stage = (rows + cols) * depth * 2.0;
        // A row that does not start with a line is a line more.
        let astride = |rows: [f64; 2], line: f64, sector: f64| {
            let each =
                |at: usize| rows[at] * (1.0 + self.astride[at] * line + self.sectors[at] * sector);
            each(0) + each(1)
        };
        let copies = costs.row * astride(self.inside, costs.row_astride, costs.row_sectors);
        let copies = (copies + self.outside * costs.outside) * depth / 64.0;
        // A stage is free when the slowest block of a cluster has read it, and one warpgroup has no other that multiplies while it waits. With more than 64
        // rows of a result such plans took 1.04 times as long, beside the best others, as modelled without it: in 40 shapes, and in either half of them.
        // With fewer rows products are not what a step waits for.
        let lockstep = match tiling.groups() == 1 && tiling.cluster.count() > 2 {
            true => costs.lockstep,
            false => 0.0,
        } + self.uneven;
        let step = |active: f64| {
            let parts = [
                products * (cols * costs.product).max(costs.least_product) * (1.0 + lockstep),
                (products * (64.0 + cols) * 32.0 + stage) / costs.shared,
                astride(self.fetched, costs.astride, costs.sectors) * depth * 2.0 * active
                    / costs.l2,
                copies,
                self.asked(active, costs) * depth / 64.0,
            ];
            let apart = match tiling.cluster {
                Cluster::Depth => {
                    costs.apart * active / f64::from(target.sms) * (self.steps / DRIFTED).cbrt()
                }
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
        let stored = costs.tile_rows * turned * rows * cols / 128.0 + self.tail;
        let tile = costs.tile + stored;
        let next = match self.leaving {
            // One warpgroup stores while the other multiplies, as far as that takes as long.
            _ if tiling.pingpong => {
                let stores = tile + self.panels * costs.panel;
                costs.turn.max((stores - wave(1.0, sms)) * costs.ahead)
            }
            Some(part) => costs.brief + part * stored,
            None => tile - costs.next,
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
        cycles += (waves - 1.0) * next * self.shown;
        let pieces = if self.cut.is_some() {
            costs.pieces
        } else {
            0.0
        };
        let moved = self.bytes / 1e6 / costs.memory;
        let first = (tile + costs.first * self.missing) / costs.clock;
        beside([cycles / costs.clock, moved], MEMORY) + first + pieces + costs.launch
    }
}

/// Whether scales of blocks make steps longer: in more than a wave. Below that the model was right without it.
pub(super) fn adds(problem: &Gemm, target: Target) -> bool {
    let blocks = problem.scales == Scales::Blocks;
    blocks && tiles(problem, &Tiling::new(128, 128, 64, 6)) > target.sms.into()
}

/// Cycles that a step takes longer which ends with scales. A thread adds up half as many sums as a tile has columns, for each 64 rows of its warpgroup. Three warpgroups
/// hide most of that behind each other's products, one none of it, and pairs of blocks wait less for their copies. From times of 21 shapes in five tiles on an H200, each
/// beside the others of its shape: fitted to either half of them the choice in the other took 1.009 and 1.024 of the best.
pub(crate) fn added(tiling: &Tiling) -> f64 {
    let sums = (f64::from(tiling.cols) / 128.0).max(1.0)
        * f64::from(tiling.rows / tiling.sharing())
        / 64.0;
    let each = match tiling.groups() {
        1 => 120.0,
        // A step of half the products waits for them as long.
        2 if tiling.cols < 128 => 120.0,
        2 => 57.0,
        _ => 26.0,
    };
    let waits = if tiling.cluster.count() > 1 {
        0.54
    } else {
        1.0
    };
    each * sums * waits
}

/// What is left there of a tile's own cycles: with loops for each role the next tile's products begin meanwhile.
const SHOWN: f64 = 0.35;
