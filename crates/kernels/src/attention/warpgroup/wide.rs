//! Tiles of heads above 128 elements: of one warpgroup, of which a multiprocessor holds two blocks, or of two.
//!
//! The model's constants are those of least squares of log time over the set `broad` of `attention_plans` on an H200: 20 problems of 36 to 532
//! tokens, heads of 144 to 256 and 32 to 8352 tiles of 64 rows. Times of one problem compared with each other are 4 in a hundred off in the mean
//! (root of squares). What it chooses takes 1.002 of the best arm in the mean and 1.02 at worst; with constants from half of the problems,
//! 1.015 in the other half and 1.36 at worst (8 halves). Before, guessed constants had 1.12 and 1.65.

use crate::attention::problem::{Mask, Problem};
use crate::family::Target;

/// Tiles, and microseconds that a block takes for one: in any case, and for each key of its blocks of keys, masked ones too.
#[derive(Clone, Copy)]
pub(super) struct WideTiles {
    pub groups: u32,
    pub keys: u32,
    tile: f64,
    key: f64,
}

impl WideTiles {
    /// Blocks on a multiprocessor.
    pub(super) fn resident(self) -> u32 {
        if self.groups == 1 { 2 } else { 1 }
    }
}

/// For heads of up to 192 elements. Blocks of 32 keys leave room for the next tile's queries.
const UP_TO_192: [WideTiles; 3] = [
    WideTiles {
        groups: 1,
        keys: 32,
        tile: 2.41,
        key: 0.0256,
    },
    WideTiles {
        groups: 1,
        keys: 48,
        tile: 3.21,
        key: 0.0221,
    },
    WideTiles {
        groups: 2,
        keys: 80,
        tile: 4.45,
        key: 0.0162,
    },
];

/// For heads of up to 256.
const UP_TO_256: [WideTiles; 2] = [
    WideTiles {
        groups: 1,
        keys: 32,
        tile: 5.2,
        key: 0.0243,
    },
    WideTiles {
        groups: 2,
        keys: 64,
        tile: 4.65,
        key: 0.0232,
    },
];

/// To launch.
const BEGIN: f64 = 1.5;

/// Under a causal mask the heaviest tiles come first, so the last round is a part of one.
const CAUSAL_END: f64 = 0.37;

/// The fastest tiles.
pub(super) fn fastest(problem: &Problem, target: Target) -> WideTiles {
    let all = tiles_of(problem.head_dim);
    let time = |tiles: &&WideTiles| time(problem, tiles, target);
    let best = all.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
    *best.unwrap_or(&all[0])
}

/// Those that heads of so many elements have.
pub(super) fn tiles_of(head_dim: u32) -> &'static [WideTiles] {
    match head_dim {
        ..=192 => &UP_TO_192,
        _ => &UP_TO_256,
    }
}

/// Microseconds that all tiles take.
pub(super) fn time(problem: &Problem, tiles: &WideTiles, target: Target) -> f64 {
    let (queries, keys) = problem.longest();
    let rows = 64 * tiles.groups;
    let along = queries.div_ceil(rows).max(1);
    let causal = problem.mask == Mask::Causal;
    // Blocks of keys that a tile has are whole.
    let filled = |tile: u32| {
        let seen = match causal {
            true => keys.min((keys + (tile + 1) * rows).saturating_sub(queries)),
            false => keys,
        };
        f64::from(seen.next_multiple_of(tiles.keys))
    };
    let mean = (0..along).map(filled).sum::<f64>() / f64::from(along);
    let one = |keys: f64| tiles.tile + tiles.key * keys;
    let lines = f64::from(problem.heads) * problem.sequences().len() as f64;
    let (count, sms) = (lines * f64::from(along), f64::from(target.sms));
    let resident = f64::from(tiles.resident());
    let rounds = count / (sms * resident);
    // A block that is alone on a multiprocessor is faster.
    let part = |blocks: f64| (1.0 + blocks) / (1.0 + resident);
    if !causal || along == 1 {
        let last = match (rounds.fract() * resident).ceil() {
            0.0 => 0.0,
            blocks => part(blocks),
        };
        return BEGIN + (rounds.floor() + last) * one(mean);
    }
    let longest = one(filled(along - 1)) * part(if count <= sms { 1.0 } else { resident });
    BEGIN + longest.max((rounds + CAUSAL_END) * one(mean))
}
