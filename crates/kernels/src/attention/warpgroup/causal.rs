//! Tiles under a causal mask in more than a wave: how many rows and keys, how many blocks stay on a multiprocessor, and whether a long tile and a short one are dealt
//! as one.
//!
//! Tiles of a causal mask are uneven, and they are dealt before it is known how long they take: so the model deals them as the kernel does, adds up what each
//! block gets, and asks when the last multiprocessor is done. Its constants are those of least squares of log time over the set `causal` of `attention_plans` on an H200
//! (2026-11-19): 52 problems of 48 to 2048 tokens, 16 to 880 lines and heads of 64, 96 and 128 elements. What it chooses takes 1.014 of the best of all arms
//! in the mean; with constants from half of the problems 1.014 to 1.024 in the other half (6 halves). Before, rules had 1.044, and 1.38 at worst.

#[cfg(test)]
mod timed;

use super::shape::WarpgroupShape;
use super::staying::{staying, with_levels};
use crate::attention::problem::{Mask, Problem};
use crate::family::Target;
use std::ops::RangeInclusive;

/// Tiles in blocks that stay, and microseconds that they take.
struct Tiles {
    groups: u32,
    keys: u32,
    /// Blocks on a multiprocessor.
    resident: u32,
    /// For a tile, in any case.
    tile: f64,
    /// For each block of keys.
    block: f64,
}

/// What was timed, of heads of up to so many elements.
const TIMED: [(u32, &[Tiles]); 3] = [
    (
        64,
        &[
            Tiles::new(2, 128, 1, 1.372, 1.0965),
            Tiles::new(1, 64, 3, 0.6987, 0.8794),
            Tiles::new(3, 96, 1, 1.4757, 1.164),
            Tiles::new(1, 128, 2, 1.0065, 1.1001),
        ],
    ),
    (
        96,
        &[
            Tiles::new(2, 128, 1, 2.0977, 1.2534),
            Tiles::new(1, 64, 2, 1.5009, 0.85),
            Tiles::new(3, 64, 1, 2.4167, 0.8755),
            Tiles::new(3, 96, 1, 2.2509, 1.3715),
        ],
    ),
    (
        128,
        &[
            Tiles::new(2, 128, 1, 2.2853, 1.4303),
            Tiles::new(1, 64, 2, 1.716, 0.8855),
            Tiles::new(3, 64, 1, 1.9291, 1.1207),
        ],
    ),
];

/// To launch and to store.
const BEGIN: f64 = 3.07;

/// How much of a block's time is the same however few blocks share a multiprocessor, in blocks.
const FIXED: f64 = 4.0;

/// Megabytes that memory moves in a microsecond, and how sharply the slower part decides.
const MEMORY: f64 = 4.4;
const BESIDE: i32 = 4;

/// A strip of a long tile and a short one takes a little less than both by themselves, where no other block on the multiprocessor hides what is between them.
const PAIRED: f64 = 0.99;

/// Of wider heads other tiles than those of two warpgroups are expected to take at most this part of their time: fewer rows and keys ask more of L2 than is modelled.
const AHEAD: f64 = 0.95;

/// Rounds that are dealt one by one. In more of them what a block gets differs as much as in these.
const ROUNDS: u64 = 16;

impl Tiles {
    const fn new(groups: u32, keys: u32, resident: u32, tile: f64, block: f64) -> Tiles {
        Tiles {
            groups,
            keys,
            resident,
            tile,
            block,
        }
    }

    /// Microseconds that each strip of a sequence takes.
    fn strips(&self, problem: &Problem, strip: u32) -> Vec<f64> {
        let (queries, keys) = problem.longest();
        let rows = 64 * self.groups;
        let tiles = queries.div_ceil(rows);
        let tile = |number: u32| {
            // The last row sees all keys.
            let below = queries - ((number + 1) * rows).min(queries);
            let blocks = keys.saturating_sub(below).div_ceil(self.keys);
            self.tile + self.block * f64::from(blocks)
        };
        let both = |first: u32| {
            let last = tiles - 1 - first;
            let short = if first < last { tile(first) } else { 0.0 };
            let paired = if self.resident > 1 { 1.0 } else { PAIRED };
            paired * (tile(last) + short)
        };
        match strip {
            1 => (0..tiles).map(tile).collect(),
            _ => (0..tiles.div_ceil(2)).map(both).collect(),
        }
    }

    /// Microseconds that a problem takes.
    fn time(&self, problem: &Problem, strip: u32, target: Target) -> f64 {
        let strips = self.strips(problem, strip);
        let lines = u64::from(problem.heads) * problem.sequences().len() as u64;
        let (sms, resident) = (target.sms as usize, self.resident as usize);
        let blocks = sms * resident;
        let most = (ROUNDS * blocks as u64).div_ceil(strips.len().max(1) as u64);
        let dealt = lines.min(most);
        let loads = loads(&strips, dealt, blocks);
        // All multiprocessors are busy with the other lines for as long as these take in the mean.
        let line: f64 = strips.iter().sum();
        let others = (lines - dealt) as f64 * line / blocks as f64;
        let busy = last_done(loads, sms, resident) + others;
        let moved = problem.work().bytes / 1e6 / MEMORY;
        BEGIN + (busy.powi(BESIDE) + moved.powi(BESIDE)).powf(1.0 / f64::from(BESIDE))
    }
}

/// What each block gets where strips are dealt in turns, in each round in the other direction: line by line, and the last strip of a line first.
fn loads(strips: &[f64], lines: u64, blocks: usize) -> Vec<f64> {
    let mut loads = vec![0.0; blocks];
    let line = strips.iter().rev();
    let all = (0..lines).flat_map(|_| line.clone());
    for (index, time) in all.enumerate() {
        let (round, place) = (index / blocks, index % blocks);
        let block = match round % 2 {
            0 => place,
            _ => blocks - 1 - place,
        };
        loads[block] += time;
    }
    loads
}

/// When the last multiprocessor is done. Where some of its blocks have no more, the others are faster.
fn last_done(loads: Vec<f64>, sms: usize, resident: usize) -> f64 {
    let done = |sm: usize| {
        let mut own: Vec<f64> = loads.iter().skip(sm).step_by(sms).copied().collect();
        own.sort_by(f64::total_cmp);
        let (mut time, mut before) = (0.0, 0.0);
        for (at, load) in own.into_iter().enumerate() {
            let active = (resident - at) as f64;
            time += (load - before) * (FIXED + active) / (FIXED + resident as f64);
            before = load;
        }
        time
    };
    (0..sms).map(done).fold(0.0, f64::max)
}

/// The tiles that are expected to be the fastest in blocks that stay, and microseconds that they take. The other choices are those of `shape`.
pub(super) fn fastest(
    problem: &Problem,
    shape: WarpgroupShape,
    target: Target,
) -> Option<(WarpgroupShape, f64)> {
    let (_, timed) = TIMED.iter().find(|(dim, _)| problem.head_dim <= *dim)?;
    let all = timed.iter().flat_map(|tiles| [(tiles, 1), (tiles, 2)]);
    let timed = all.filter_map(|(tiles, strip)| {
        let shape = WarpgroupShape {
            groups: tiles.groups,
            keys: tiles.keys,
            ..shape
        };
        let shape = staying(problem, shape, tiles.resident, target);
        let shape = with_levels(problem, WarpgroupShape { strip, ..shape });
        let time = tiles.time(problem, strip, target);
        shape.fits(target).then_some((shape, time))
    });
    let usual = |shape: &WarpgroupShape| problem.head_dim > 64 && shape.groups == 2;
    let ranked = |(shape, time): &(WarpgroupShape, f64)| match usual(shape) {
        true => AHEAD * time,
        false => *time,
    };
    timed.min_by(|a, b| ranked(a).total_cmp(&ranked(b)))
}

/// Keys with which heads of 64 elements have a block for each tile of 64 rows, three on a multiprocessor, and lines from which on: 3 to 15 in a hundred ahead
/// of tiles of 192 rows in eight problems of the set `causal` (2178 to 4011 tokens, 88 to 336 lines); with 24 lines level, with 16 and 32 up to 12 behind. Blocks that
/// stay are as fast there, but others wait for them.
const LONG: RangeInclusive<u32> = 2048..=4096;
const LINES: u64 = 80;

/// These tiles, where they are ahead.
pub(super) fn many_long(
    problem: &Problem,
    shape: WarpgroupShape,
    target: Target,
) -> Option<WarpgroupShape> {
    let (queries, keys) = problem.longest();
    let lines = u64::from(problem.heads) * problem.sequences().len() as u64;
    let long = LONG.contains(&queries) && LONG.contains(&keys);
    if problem.mask != Mask::Causal || problem.head_dim != 64 || !long || lines < LINES {
        return None;
    }
    let shape = WarpgroupShape {
        groups: 1,
        keys: 64,
        ..shape
    };
    let shape = staying(problem, shape, 3, target);
    Some(with_levels(problem, shape.a_block_each()))
}
