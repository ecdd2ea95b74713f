//! How many blocks share the keys of a tile: a model of the time that few tiles with many keys take, and tiles of few heads under a causal mask, of which the longest is waited for.
//!
//! Its constants are those of least squares of log time over the set `spread` of `attention_plans` on an H200: 20 problems of 24 to 162 tiles
//! and 364 to 7996 keys, each shared by one to eight blocks. The model is 7 in a hundred off in the mean (root of squares) and 20 at worst. What it
//! chooses takes 1.004 of the best of all arms in the mean and 1.06 at worst; with constants from half of the problems, 1.002 and 1.06
//! in the other half (20 halves). Before, guessed constants had 1.10 and 1.48.
//!
//! What waits for a place, and large tiles, are from the set `lone`: 38 causal problems of 138 to 676 tiles of 64 rows and 372 to 34010 tokens. What is chosen takes 1.02 of the
//! best of all arms in the mean; before, tiles of more than a wave were not shared, and it was 1.21, and 2.36 at worst.

use super::shape::Sharing;
use crate::attention::problem::{Mask, Problem};
use crate::family::Target;

/// Microseconds to launch, to copy the queries and the first keys, and to store.
const BEGIN: f64 = 3.2;

/// To send results to each other block of a cluster, and to add up what it sends.
const EXCHANGE: f64 = 0.43;

/// For a key, of a block that has a multiprocessor to itself, and of two blocks on one: heads of up to 64 elements, and of up to 128.
const KEY: [[f64; 2]; 2] = [[0.0059, 0.0079], [0.0089, 0.0126]];

/// The part of a GPU's blocks that clusters of four and eight are. The parts of a GPU within which a cluster lies hold whole clusters only:
/// 56 clusters of four ran at once on an H200, 64 did not.
const PLACED: f64 = 0.85;

/// Blocks of clusters of two, in those that run at a time: of causal masks the last ones are light, and up to here it was timed.
const WAITING: f64 = 5.0;

/// Microseconds that it takes where not all blocks of a causal mask run at once, and for as many again.
const WAITED: f64 = 1.5;
const NEXT: f64 = 4.0;

/// Large tiles of a causal mask: microseconds to launch, for a tile, and for each key of one with 128 rows and with 192, of heads of up to 64
/// elements and of up to 128. Then how much of a tile multiprocessors wait for each other at the end.
const LARGE_BEGIN: f64 = 1.5;
const LARGE: f64 = 4.0;
const LARGE_KEY: [[f64; 2]; 2] = [[0.0088, 0.0111], [0.0103, 0.0135]];
const UNEVEN: f64 = 0.45;

/// Tiles of 64 rows.
pub(super) fn small_tiles(problem: &Problem) -> u64 {
    let (queries, _) = problem.longest();
    let lines = u64::from(problem.heads) * problem.sequences().len() as u64;
    u64::from(queries.div_ceil(64)) * lines
}

/// The clusters that are expected to be the fastest, and their time.
pub(super) fn fastest(problem: &Problem, target: Target) -> Option<(Sharing, f64)> {
    let places = f64::from(2 * target.sms);
    let takes = |sharing: &Sharing| {
        let most = match (sharing, problem.mask) {
            (Sharing::Two, Mask::Causal) => WAITING * places,
            (Sharing::Two, _) => places,
            _ => PLACED * places,
        };
        let blocks = u64::from(sharing.blocks()) * small_tiles(problem);
        let whole = problem.value_dim().is_multiple_of(8 * sharing.blocks());
        whole && blocks as f64 <= most
    };
    let all = Sharing::ALL[1..].iter().filter(|sharing| takes(sharing));
    let timed = all.map(|&sharing| (sharing, time(problem, sharing, target)));
    timed.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Microseconds that tiles take, two blocks on a multiprocessor: as long as one block with all keys that the last row sees, and longer where
/// not all blocks run at once.
pub(super) fn time(problem: &Problem, sharing: Sharing, target: Target) -> f64 {
    let [alone, together] = KEY[usize::from(problem.head_dim > 64)];
    let keys = f64::from(problem.longest().1);
    let [sharers, tiles, sms] = [
        u64::from(sharing.blocks()),
        small_tiles(problem),
        target.sms.into(),
    ]
    .map(|count| count as f64);
    let blocks = sharers * tiles;
    let key = if blocks <= sms { alone } else { together };
    let waves = blocks / (2.0 * sms);
    let causal = problem.mask == Mask::Causal;
    let rounds = match causal {
        // The heaviest tiles come first.
        true => (waves * seen(problem)).max(1.0),
        false => waves.ceil(),
    };
    let waits = match causal && waves > 1.0 {
        true => WAITED + NEXT * (waves - 1.0),
        false => 0.0,
    };
    BEGIN + EXCHANGE * (sharers - 1.0) + rounds * keys / sharers * key + waits
}

/// The part of all keys that rows see in the mean under a causal mask: each sees one more than the row before.
fn seen(problem: &Problem) -> f64 {
    let (queries, keys) = problem.longest();
    1.0 - f64::from(queries.min(keys)) / (2.0 * f64::from(keys))
}

/// Microseconds that tiles of two warpgroups or three take under a causal mask, a block each and the heaviest first: as long as the longest, or as all of them.
pub(super) fn large_time(problem: &Problem, groups: u32, target: Target) -> f64 {
    let key = LARGE_KEY[usize::from(problem.head_dim > 64)][usize::from(groups > 2)];
    let (queries, keys) = problem.longest();
    let lines = f64::from(problem.heads) * problem.sequences().len() as f64;
    let tiles = f64::from(queries.div_ceil(64 * groups)) * lines;
    let keys = f64::from(keys);
    let longest = LARGE + key * keys;
    let mean = LARGE + key * (seen(problem) * keys + f64::from(32 * groups));
    LARGE_BEGIN + longest.max((tiles / f64::from(target.sms) + UNEVEN) * mean)
}
