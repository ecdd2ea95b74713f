//! Small tiles of `mma.sync`, and how long a problem takes in them, about.
//!
//! They take operands as they are stored, in one launch: of little depth that is faster than to write unaligned ones anew for the copy engine.

use super::config::Config;
use super::kernel::refusal;
use super::problem::{Gemm, Input};
use crate::family::Target;

/// Tiles of 64 x 64, two blocks a multiprocessor.
pub(super) const SMALL: Config = Config {
    rows: 64,
    cols: 64,
    depth: 32,
    warp_rows: 32,
    warp_cols: 32,
    stages: 4,
    blocks: 2,
};

/// Tiles of 32 x 32, four blocks a multiprocessor: a problem of few tiles has work for four times as many blocks.
pub(super) const SMALLEST: Config = Config {
    rows: 32,
    cols: 32,
    depth: 32,
    warp_rows: 16,
    warp_cols: 16,
    stages: 4,
    blocks: 4,
};

/// Microseconds of the parts of a launch.
struct Costs {
    launch: f64,
    /// To begin a tile.
    begin: f64,
    /// A step of a tile's depth, and for each block beside it what a multiprocessor works: halves and words.
    step: f64,
    work: [f64; 2],
    /// For each block, to store a thousand results.
    store: f64,
}

// Fitted to 144 problems drawn at random on an H200 (2026-11-19): 8 to 2500 rows and columns, depths of 6 to 400, every layout, bf16 and tf32, operands in
// memory. Times are within 10% in the mean.
const OF_SMALL: Costs = Costs {
    launch: 1.776,
    begin: 0.287,
    step: 0.161,
    work: [0.244, 0.178],
    store: 0.139,
};
const OF_SMALLEST: Costs = Costs {
    launch: 1.824,
    begin: 0.326,
    step: 0.121,
    work: [0.183, 0.132],
    store: 0.106,
};

/// What of the work is left where both operands are copied 16 bytes at a time, and fragments are loaded whole.
const ALIGNED: f64 = 0.3;

/// How much of a round that is not full is lost: other blocks begin as some end.
const LOST: f64 = 0.5;

/// How long warpgroups take beside what they are modelled to, where unaligned operands are written anew for them: most of the launch before is hidden. In 131 such
/// problems of those above what is chosen so took 1.004 times as long as the best of the three kernels, and 1.046 without.
pub(super) const HIDDEN: f64 = 0.68;

/// Microseconds that a problem takes in tiles of 64 x 64, or of 32 x 32.
fn time(problem: &Gemm, config: &Config, costs: &Costs, target: Target) -> f64 {
    let tiles = problem.m.div_ceil(config.rows) * problem.n.div_ceil(config.cols);
    let on_each = f64::from(tiles) / f64::from(target.sms);
    let resident = f64::from(config.blocks);
    let beside = on_each.ceil().min(resident);
    let rounds = on_each / resident;
    let rounds = match rounds <= 1.0 {
        true => 1.0,
        false => rounds + LOST * (rounds.ceil() - rounds),
    };
    let bytes = problem.input.bytes();
    let steps = problem.k.div_ceil(config.depth * 2 / bytes);
    let [halves, words] = costs.work;
    let work = if problem.input == Input::Tf32 {
        words
    } else {
        halves
    };
    let pitches = [problem.lda, problem.ldb].into_iter().zip(problem.anywhere);
    let unaligned =
        pitches.filter(|(pitch, anywhere)| *anywhere || !pitch.is_multiple_of(16 / bytes));
    let work = work * (ALIGNED + (1.0 - ALIGNED) * unaligned.count() as f64 / 2.0);
    let step = costs.step + beside * work;
    let results = f64::from(config.rows * config.cols) / 1e3;
    let block = costs.begin + f64::from(steps) * step + beside * costs.store * results;
    costs.launch + rounds * block
}

fn times(problem: &Gemm, target: Target) -> [f64; 2] {
    [(SMALL, OF_SMALL), (SMALLEST, OF_SMALLEST)]
        .map(|(config, costs)| time(problem, &config, &costs, target))
}

/// Whether the smallest tiles are faster than those of 64 x 64.
pub(super) fn smallest_are_faster(problem: &Gemm, target: Target) -> bool {
    let [small, smallest] = times(problem, target);
    smallest < small
}

/// Microseconds that a problem takes in the faster of both; what `mma.sync` can't multiply takes for ever.
pub(super) fn modelled(problem: &Gemm, target: Target) -> f64 {
    match refusal(problem) {
        Some(_) => f64::INFINITY,
        None => times(problem, target)
            .into_iter()
            .fold(f64::INFINITY, f64::min),
    }
}
