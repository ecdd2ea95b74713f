//! Which tiles suit a problem: a model of waves.
//!
//! A tile has 128 rows, since a product of one block does, or 256 of a pair's. More rows and columns
//! read less for each product; fewer make more tiles, so that every multiprocessor has work and the
//! last wave is full. The shape with the lowest estimate is taken:
//!
//! * **A step**, 128 bytes of depth, takes as long as the slowest of the tensor cores, of shared
//!   memory, which both operands are read from and written to, and of L2.
//!   With too few bytes in flight it takes the latency of memory instead. A block of a pair
//!   holds only half of the columns.
//! * **A wave** is a block on each multiprocessor; a pair takes two. All of its blocks have a tile's steps; the first
//!   tile waits for memory, and the last one stores with nothing beside it.
//!
//! The rates are those that NVIDIA and public microbenchmarks give for B200, per multiprocessor and
//! cycle: 8192 dense 16-bit operations (2.25 PFLOP/s over 148 at 1.85 GHz), 128 bytes of shared
//! memory, about 64 bytes of L2. No Blackwell GPU has confirmed the choice: `heist qualify` runs
//! it on one, and `heist tune` searches.

use super::kernel::tiles;
use super::scaled::has_scales;
use super::tiling::{ACCUMULATORS, ROW_BYTES, ROWS, TensorTiling};
use crate::family::Target;
use crate::gemm::Gemm;
use heist_sched::{AnyOrder, Grouped, Schedule, Submit, TileSource};

/// Columns of a tile.
pub(super) const WIDTHS: [u32; 4] = [256, 192, 128, 64];
/// Blocks and columns of a tile.
const SHAPES: [(u32, u32); 6] = [(1, 256), (1, 192), (1, 128), (1, 64), (2, 256), (2, 128)];

/// Operations of a cycle on operands of 16 bits; twice as many on 8, half as many on 32.
const OPERATIONS: f64 = 8192.0;
/// Bytes that shared memory moves in a cycle.
const SHARED: f64 = 128.0;
/// Bytes that come from L2 in a cycle.
const L2: f64 = 64.0;
/// Cycles of a tile beside its steps: what the mainloop waits between two tiles.
const TILE: f64 = 500.0;
/// Cycles from asking for a stage to having it.
const LATENCY: f64 = 2000.0;
/// Cycles of the last epilogue, for each column.
const STORE: f64 = 8.0;
/// Cycles of a microsecond.
const CLOCK: f64 = 1850.0;

/// Microseconds that a problem takes in these tiles, about.
pub(super) fn time(problem: &Gemm, tiling: &TensorTiling, target: Target) -> f64 {
    let depth = problem.k * problem.input.bytes();
    let time = estimate(depth, blocks(problem, tiling), tiling, target);
    // With one accumulator no tile is multiplied while the one before is stored.
    let alone = has_scales(problem) && tiling.scaled_accumulators() < ACCUMULATORS;
    let waves = waves(blocks(problem, tiling), target);
    time + f64::from(u32::from(alone)) * (waves - 1.0) * STORE * f64::from(tiling.cols) / CLOCK
}

/// Tiles that a multiprocessor has at most.
fn waves(blocks: u64, target: Target) -> f64 {
    (blocks as f64 / f64::from(target.sms)).ceil()
}

/// The same for so many blocks with a tile of so many bytes of depth each.
fn estimate(depth: u32, blocks: u64, tiling: &TensorTiling, target: Target) -> f64 {
    let [rows, wide] = [ROWS, tiling.cols].map(f64::from);
    // An operand of 128 bytes has 64 halves, or 128 elements of 8 bits: as many operations a cycle.
    let halves = f64::from(ROW_BYTES) / 2.0;
    let bytes = (rows + f64::from(tiling.own_cols())) * f64::from(ROW_BYTES);
    let step = [
        2.0 * rows * wide * halves / OPERATIONS,
        2.0 * bytes / SHARED,
        bytes / L2,
        LATENCY / f64::from(tiling.stages),
    ];
    let step = step.into_iter().fold(0.0, f64::max);
    let steps = f64::from(depth.div_ceil(ROW_BYTES));
    let waves = waves(blocks, target);
    (waves * (steps * step + TILE) + LATENCY + STORE * wide) / CLOCK
}

/// Blocks that have work: those of a pair past the edge too.
fn blocks(problem: &Gemm, tiling: &TensorTiling) -> u64 {
    let tiles = tiles(problem, tiling.cols);
    let rows = tiles.y.next_multiple_of(tiling.blocks);
    u64::from(tiles.x) * u64::from(rows) * u64::from(tiles.z)
}

/// The tiles that suit.
pub(super) fn tiling(problem: &Gemm, target: Target) -> TensorTiling {
    let scaled = has_scales(problem);
    let deepest =
        SHAPES.map(|(blocks, cols)| TensorTiling::deepest(blocks, cols, scaled, target.arch));
    let time = |tiling: &TensorTiling| time(problem, tiling, target);
    let best = deepest
        .into_iter()
        .min_by(|one, other| time(one).total_cmp(&time(other)));
    best.unwrap_or(deepest[0])
}

/// The tiles of one block that suit tiles of so many bytes of depth, where `count` says how many
/// there are.
pub(crate) fn suited(
    depth: u32,
    count: impl Fn(&TensorTiling) -> u64,
    target: Target,
) -> TensorTiling {
    let time = |tiling: &TensorTiling| estimate(depth, count(tiling), tiling, target);
    let shapes = WIDTHS.map(|cols| TensorTiling::deepest(1, cols, false, target.arch));
    let best = shapes
        .into_iter()
        .min_by(|one, other| time(one).total_cmp(&time(other)));
    best.unwrap_or(shapes[0])
}

/// The schedule that suits. A grid of one wave is launched directly. In a larger one blocks ask
/// the hardware for each tile, early: tiles are alike, so nothing is gained by waiting, and the
/// answer takes about a microsecond. Tiles go in bands, so that their operands stay in L2.
pub(super) fn schedule(problem: &Gemm, tiling: &TensorTiling, target: Target) -> Schedule {
    let source = match blocks(problem, tiling) <= u64::from(target.sms) {
        true => TileSource::Direct,
        false => TileSource::Clc,
    };
    let mut schedule = Schedule::new(source).submit(Submit::Early);
    schedule.order = AnyOrder::new(Grouped { rows: 16 });
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Input, Layout, Output};
    use heist_builder::Arch;

    fn shape(m: u32, n: u32, k: u32) -> (u32, u32) {
        let target = Target {
            arch: Arch::SM_100A,
            sms: 148,
        };
        let problem = Gemm::new(m, n, k, Input::Bf16, Output::Bf16, Layout::Nt);
        let tiling = tiling(&problem, target);
        (tiling.blocks, tiling.cols)
    }

    #[test]
    fn large_problems_have_wide_tiles_and_small_ones_many() {
        // A pair reads half of the columns in each block.
        assert_eq!(shape(8192, 8192, 8192), (2, 256));
        assert_eq!(shape(512, 512, 512), (1, 64));
        // 64 tiles of 256 columns leave half of the GPU idle, 128 of 128 do not.
        assert_eq!(shape(2048, 1024, 4096), (2, 128));
        // A pair would have a block without rows.
        assert_eq!(shape(128, 8192, 4096), (1, 64));
    }

    #[test]
    fn every_width_fits_the_shared_memory() {
        for (blocks, cols) in SHAPES {
            for scaled in [false, true] {
                let tiling = TensorTiling::deepest(blocks, cols, scaled, Arch::SM_100A);
                assert!(tiling.stages >= 4 - u32::from(scaled), "{tiling}");
                assert!(tiling.check().is_ok() && tiling.fits(scaled, Arch::SM_100A).is_ok());
            }
        }
    }
}
