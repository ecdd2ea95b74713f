//! How long groups take in tiles, about: a model of waves like that of a single product
//! (`gemm/cost_model.rs`), with constants of its own.
//!
//! Groups are many waves of tiles that lie alone and whole, and the model's parts for few blocks, swapped operands,
//! clusters and shares of the depth have no meaning there. These constants were fitted to an H200's times before the others were
//! fitted to those parts, and are left: with the others' Mixtral's prefill would have gone to tiles that took 1.06 times as long. With
//! loops for each role and tiles for each warpgroup, which came later, the choice in 13 sets of groups took 1.012 of the best of eight tile shapes.

use crate::family::Target;
use crate::gemm::{GROUP_ROWS, Tiling};

/// Cycles in a microsecond.
const CLOCK: f64 = 1755.0;
/// Cycles of a product of 64 rows and 16 halves of depth, for each column, and at least.
const PRODUCT: [f64; 2] = [0.521, 33.1];
/// Bytes that shared memory moves in a cycle.
const SHARED: f64 = 138.2;
/// Bytes that come from L2 in a cycle, for all multiprocessors and for one at most.
const L2: [f64; 2] = [8011.0, 98.7];
/// Cycles from asking for a stage to having it, where every multiprocessor asks.
const LATENCY: f64 = 2328.0;
/// Cycles of a tile besides its steps, and for each row of 128 columns.
const TILE: [f64; 2] = [1433.0, 16.1];
/// Cycles of these that go by while a block's next tile begins.
const NEXT: f64 = 1107.0;
/// Cycles from tile to tile where two warpgroups have one each: one stores while the other multiplies, as far as that takes as long.
const TURN: f64 = 800.0;
/// Megabytes that memory moves in a microsecond.
const MEMORY: f64 = 3.68;
/// Microseconds of a launch.
const LAUNCH: f64 = 1.58;

/// What blocks have to do.
pub(super) struct Load {
    /// Tiles by how many times 64 of their rows are multiplied, from once on: the last of a group may have fewer than the others.
    pub(super) tiles: Vec<f64>,
    /// Steps of each.
    pub(super) steps: f64,
    /// Bytes that must cross the memory bus once.
    pub(super) bytes: f64,
    /// The part of rows that do not start with a line.
    pub(super) astride: f64,
    /// Cycles that a step takes longer, where something else is done in it.
    pub(super) longer: f64,
}

/// Overlapping parts take a little longer than the slowest of them.
fn beside<const N: usize>(parts: [f64; N], sharp: f64) -> f64 {
    let sum: f64 = parts.iter().map(|part| part.powf(sharp)).sum();
    sum.powf(1.0 / sharp)
}

impl Load {
    /// Microseconds that it takes in these tiles, about.
    pub(super) fn time(&self, tiling: &Tiling, target: Target) -> f64 {
        let [rows, cols, depth] = [tiling.rows, tiling.cols, tiling.depth].map(f64::from);
        let stage = (rows + cols) * depth * 2.0;
        // A row that does not start with a line is a line more.
        let astride = 1.0 + self.astride;
        let step = |active: f64, rows: f64| {
            let products = rows / 64.0 * depth / 16.0;
            let parts = [
                products * (cols * PRODUCT[0]).max(PRODUCT[1]),
                (products * (64.0 + cols) * 32.0 + stage) / SHARED,
                stage * astride / (L2[0] / active).min(L2[1]),
            ];
            beside(parts, 12.2)
        };
        let (sms, blocks) = (f64::from(target.sms), f64::from(tiling.blocks));
        // Blocks on one multiprocessor share all of that, but not the latency.
        let wave_of = |blocks: f64, active: f64, rows: f64| {
            let waiting = LATENCY * active / sms * astride / f64::from(tiling.stages);
            self.steps * (step(active, rows) * blocks + self.longer).max(waiting)
        };
        let wave = |blocks: f64, active: f64| wave_of(blocks, active, rows);
        let tile = TILE[0] + TILE[1] * rows * cols / 128.0;
        let shown = match tiling.pingpong {
            true => TURN.max((tile - wave(1.0, sms)) / 2.0),
            false => tile - NEXT,
        };
        // Where warpgroups share tiles, one with fewer rows is a part of one.
        let parts = (1u32..).zip(&self.tiles).map(|(times, count)| {
            let used = match tiling.sharing() {
                1 => rows,
                _ => f64::from(times * GROUP_ROWS),
            };
            let own = wave_of(1.0, sms, used) + shown;
            count * own / (wave(1.0, sms) + shown)
        });
        let tiles: f64 = parts.sum();
        let whole = (tiles / (sms * blocks)).floor();
        let rest = tiles - whole * sms * blocks;
        let mut cycles = whole * (wave(blocks, sms) + shown) + tile - shown;
        if rest > 0.0 {
            cycles += wave((rest / sms).ceil(), rest.min(sms)) + shown;
        }
        beside([cycles / CLOCK, self.bytes / 1e6 / MEMORY], 2.45) + LAUNCH
    }
}
