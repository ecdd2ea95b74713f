//! Tiles under no mask, of sequences with few keys: how many rows, how many keys a block, and how many blocks stay on a multiprocessor.
//!
//! The model's constants are those of least squares of log time over the set `cross` of `attention_plans` on an H200 (2026-11-19): 107 problems of 100 to
//! 5000 queries, 17 to 1884 keys, and heads of 64, 80, 96 and 128 elements, each in 4 to 12 arms. The model is 4 in a hundred off (root of squares). What it chooses takes 1.006 of the
//! best arm in the mean and 1.08 at worst; with constants from half of the problems, 1.004 to 1.009 and 1.08 in the other half (8 halves). Before, rules by the
//! number of keys had 1.14 and 1.68.

#[cfg(test)]
mod timed;

use super::shape::WarpgroupShape;
use super::staying::{staying, with_levels};
use crate::attention::problem::Problem;
use crate::family::Target;

/// Tiles of so many warpgroups in blocks that stay, and microseconds that they take.
struct Rows {
    groups: u32,
    /// Blocks on a multiprocessor.
    resident: u32,
    /// For a tile, in any case.
    tile: f64,
    /// For each block of keys.
    block: f64,
    /// For each key of these.
    key: f64,
}

/// What was timed, of heads of up to so many elements.
const TIMED: [(u32, &[Rows]); 3] = [
    (
        64,
        &[
            Rows::new(1, 2, 0.966, 0.1082, 0.0078),
            Rows::new(1, 3, 1.035, 0.1747, 0.01),
            Rows::new(2, 1, 1.019, 0.0574, 0.0083),
            Rows::new(3, 1, 1.329, 0.0896, 0.0101),
        ],
    ),
    (
        96,
        &[
            Rows::new(1, 2, 1.54, 0.0, 0.0144),
            Rows::new(2, 1, 1.671, 0.0237, 0.0102),
            Rows::new(3, 1, 2.047, 0.1059, 0.0124),
        ],
    ),
    (
        128,
        &[
            Rows::new(1, 2, 1.799, 0.0, 0.0138),
            Rows::new(2, 1, 1.793, 0.0587, 0.0109),
            Rows::new(3, 1, 2.259, 0.228, 0.0116),
        ],
    ),
];

/// Keys of a block.
const KEYS: [u32; 6] = [32, 48, 64, 80, 96, 128];
/// Those with three blocks on a multiprocessor, at most: more were not timed.
const KEYS_OF_THREE: u32 = 96;
/// Blocks of fewer than 64 keys, at most: more were not timed.
const SMALL_BLOCKS: u32 = 4;
/// Registers for the sums of results and of scores in tiles of three warpgroups: more were spilled.
const SUMS_OF_THREE: u32 = 144;

/// To launch and to store.
const BEGIN: f64 = 3.07;

/// For keys of a block that is not filled: they are masked.
const MASKED: f64 = 0.15;

/// The part of a key's time that the search for a row's largest score costs, where levels are not raised by sums.
const SEARCHED: f64 = 0.126;

/// How much of a round is the same however few blocks share a multiprocessor, in blocks.
const FIXED: f64 = 4.0;

/// Megabytes that memory moves in a microsecond, and how sharply the slower part decides.
const MEMORY: f64 = 4.4;
const BESIDE: i32 = 4;

/// Up to so many keys blocks stay. With more of them others would wait for long, and there is little to gain.
pub(super) const MOST_KEYS: u32 = 2048;

impl Rows {
    const fn new(groups: u32, resident: u32, tile: f64, block: f64, key: f64) -> Rows {
        Rows {
            groups,
            resident,
            tile,
            block,
            key,
        }
    }

    /// Microseconds that a problem takes in tiles of `shape`.
    fn time(&self, problem: &Problem, shape: &WarpgroupShape, target: Target) -> f64 {
        let (queries, keys) = problem.longest();
        let blocks = f64::from(keys.div_ceil(shape.keys));
        let masked = !keys.is_multiple_of(shape.keys);
        let key = if shape.lazy {
            self.key
        } else {
            self.key * (1.0 + SEARCHED)
        };
        let tile = self.tile
            + blocks * (self.block + key * f64::from(shape.keys))
            + if masked { MASKED } else { 0.0 };
        let lines = f64::from(problem.heads) * problem.sequences().len() as f64;
        let tiles = f64::from(queries.div_ceil(64 * self.groups)) * lines;
        let resident = f64::from(self.resident);
        let rounds = tiles / (f64::from(target.sms) * resident);
        // In the last round fewer blocks may share a multiprocessor, and each is faster.
        let last = match (rounds.fract() * resident).ceil() {
            0.0 => 0.0,
            blocks => (FIXED + blocks) / (FIXED + resident),
        };
        let tiles = (rounds.floor() + last) * tile;
        let moved = problem.work().bytes / 1e6 / MEMORY;
        BEGIN + (tiles.powi(BESIDE) + moved.powi(BESIDE)).powf(1.0 / f64::from(BESIDE))
    }
}

/// The tiles that are expected to be the fastest, blocks that stay, and microseconds that they take. The other choices are those of `shape`.
pub(super) fn fastest(
    problem: &Problem,
    shape: WarpgroupShape,
    target: Target,
) -> Option<(WarpgroupShape, f64)> {
    let (_, rows) = TIMED.iter().find(|(dim, _)| problem.head_dim <= *dim)?;
    let all = rows.iter().flat_map(|rows| KEYS.map(|keys| (rows, keys)));
    let all = all.filter(|(rows, keys)| {
        let sums = problem.value_dim() / 2 + keys;
        (rows.resident < 3 || *keys <= KEYS_OF_THREE)
            && (rows.groups < 3 || sums <= SUMS_OF_THREE)
            && (*keys >= 64 || problem.longest().1.div_ceil(*keys) <= SMALL_BLOCKS)
    });
    let timed = all.filter_map(|(rows, keys)| {
        let shape = WarpgroupShape {
            groups: rows.groups,
            keys,
            ..shape
        };
        let shape = staying(problem, shape, rows.resident, target);
        let shape = with_levels(problem, shape);
        let time = rows.time(problem, &shape, target);
        shape.fits(target).then_some((shape, time))
    });
    timed.min_by(|a, b| a.1.total_cmp(&b.1))
}
