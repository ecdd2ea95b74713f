//! How many parts the work on a tile of keys is cut into.
//!
//! A tile goes through the query blocks of all query heads that share its key head, one after the other. Where there are few key heads
//! or short sequences, there are fewer tiles than multiprocessors, or a few more. Then each tile's query blocks are dealt to several
//! blocks of the grid: each adds up dK and dV of its part, stores them as they are, in f32, and the last launch adds the parts, always
//! in the same order.

use super::reach::blocks_that_see;
use super::warpgroup::{KEYS, WarpgroupShape};
use crate::attention::kernel::window;
use crate::attention::problem::Problem;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most parts of a tile.
const MOST: u32 = 32;

/// The most blocks of the grid for each multiprocessor, where tiles are cut: what bounds the memory for parts. On an H200 with heads of
/// 128 it is 66 MiB.
const MOST_ROUNDS: u32 = 4;

/// Numbers of a part: keys and values of a tile.
pub(super) fn elements(head_dim: u32) -> u32 {
    2 * KEYS * head_dim
}

/// How many parts each tile is cut into, for `sms` multiprocessors with one block each: as many as
/// the shortest time is expected of; one where more would gain less than a thirtieth.
pub(super) fn parts(problem: &Problem, shape: &WarpgroupShape, sms: u32) -> u32 {
    let group = problem.heads / problem.kv_heads;
    let heads = problem.kv_heads as usize;
    let tiles = tiles(problem, shape);
    let grid = problem.longest().1.div_ceil(KEYS) as usize * heads * problem.sequences().len();
    let longest = tiles.iter().flatten().max().map_or(0, |most| most * group);
    let room = u64::from(MOST_ROUNDS * sms) / grid.max(1) as u64;
    let most = longest.min(MOST).min(room.min(MOST.into()) as u32);
    let whole = time(&tiles, group, heads, 1, shape, sms);
    let (time, parts) = (2..=most)
        .map(|parts| (time(&tiles, group, heads, parts, shape, sms), parts))
        .fold((whole, 1), |best, other| match other.0 < best.0 {
            true => other,
            false => best,
        });
    if time < whole * (29.0 / 30.0) {
        parts
    } else {
        1
    }
}

/// Of each sequence, how many query blocks of a head see each tile.
fn tiles(problem: &Problem, shape: &WarpgroupShape) -> Vec<Vec<u32>> {
    let (left, right) = window(problem.mask, shape.mask).unwrap_or_default();
    let of_sequence = |&lengths: &(u32, u32)| {
        let first_keys = (0..lengths.1).step_by(KEYS as usize);
        let count = |first| {
            blocks_that_see(
                first,
                KEYS,
                lengths,
                shape.mask,
                (left, right),
                shape.queries(),
            )
        };
        first_keys.map(count).collect()
    };
    problem.sequences().iter().map(of_sequence).collect()
}

/// Microseconds until all gradients of keys and values are there, with tiles in so many parts: blocks begin in the order of the grid,
/// each on the multiprocessor that is free first.
fn time(
    tiles: &[Vec<u32>],
    group: u32,
    heads: usize,
    parts: u32,
    shape: &WarpgroupShape,
    sms: u32,
) -> f64 {
    let costs = Costs::of(shape);
    let own = costs.tile + if parts > 1 { costs.part } else { 0.0 };
    let mut free: BinaryHeap<_> = (0..sms.max(1)).map(|_| Reverse(0u64)).collect();
    let mut blocks = 0u64;
    for sequence in tiles {
        for _ in 0..heads {
            for part in 0..parts {
                for count in sequence {
                    let [from, to] = [part, part + 1].map(|part| part * (count * group) / parts);
                    let nanoseconds = 1e3 * (own + costs.step * f64::from(to - from));
                    if let Some(mut first) = free.peek_mut() {
                        first.0 += nanoseconds as u64;
                    }
                    blocks += 1;
                }
            }
        }
    }
    let last = free.into_iter().map(|Reverse(end)| end).max().unwrap_or(0);
    let added = if parts > 1 { costs.added } else { 0.0 };
    last as f64 / 1e3 + added * blocks as f64
}

/// Microseconds on an H200.
struct Costs {
    /// A block of queries.
    step: f64,
    /// What a tile takes besides: its keys and values, the first queries, its end.
    tile: f64,
    /// What a part takes more than a whole tile: its gradients are stored in f32.
    part: f64,
    /// To add a part, on all multiprocessors.
    added: f64,
}

impl Costs {
    fn of(shape: &WarpgroupShape) -> Costs {
        let dim = f64::from(shape.head_dim) / 128.0;
        Costs {
            step: match shape.head_dim {
                ..=64 => 1.2 + 2.8 * dim,
                _ => 0.7 + 1.6 * dim,
            },
            tile: 4.0,
            part: 2.5 * dim,
            added: 0.03 * dim,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::{Backward, Sums};
    use super::*;
    use crate::attention::problem::Mask;

    fn parts_of(problem: &Problem) -> u32 {
        let shape = WarpgroupShape::of(&Backward {
            attention: problem.clone(),
            sums: Sums::Float,
        });
        parts(problem, &shape, 132)
    }

    /// Tiles for a whole number of rounds stay whole, and so do many; few are cut into as many parts as there are multiprocessors.
    #[test]
    fn tiles_are_cut_where_they_are_few() {
        let mut problem = Problem::new(4, 4, 4224, 128);
        problem.kv_heads = 1;
        assert_eq!(parts_of(&problem), 1);
        for (batch, heads, keys, low, high) in [
            (1, 1, 3097, 5, 5),
            (2, 2, 692, 5, 6),
            (1, 2, 96, 4, 8),
            (64, 8, 4096, 1, 1),
        ] {
            let mut problem = Problem::new(batch, 4 * heads, keys, 128);
            problem.kv_heads = heads;
            let parts = parts_of(&problem);
            assert!((low..=high).contains(&parts), "{problem}: {parts}");
        }
    }

    /// A part has a query block at least.
    #[test]
    fn no_part_is_empty_where_tiles_are_alike() {
        assert_eq!(parts_of(&Problem::new(1, 1, 64, 128)), 1);
        let mut problem = Problem::new(1, 2, 64, 128);
        problem.kv_heads = 1;
        assert!(parts_of(&problem) <= 2);
    }

    /// With a causal mask the first tiles are the longest: whole ones would end long after the others.
    #[test]
    fn uneven_tiles_are_cut_too() {
        let mut problem = Problem::new(5, 4, 4441, 128);
        (problem.kv_heads, problem.mask) = (1, Mask::Causal);
        assert!(parts_of(&problem) > 1);
    }
}
