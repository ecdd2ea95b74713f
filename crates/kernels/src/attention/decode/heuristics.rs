//! Heuristics: the tiles of a decoding kernel, and the distribution of its work.
//!
//! Memory bounds decoding, so a choice is good if all multiprocessors read all the
//! time, with enough bytes in flight (50 to 64 KB each), and nothing is read twice:
//!
//! * **Rows**: 16, 32 or 64, the least that holds the query heads of a group times the
//!   queries of a sequence. `mma.sync` needs 16; what is empty costs nothing, since
//!   multiplying 16 rows takes a tenth of the time that the keys take to come.
//! * **Stages**: three of 32 KB (64 KB for heads above 128 elements): large enough for
//!   copies of 8 KB each and for 16 keys a warp. Two were 1 in a hundred slower, four and
//!   six no faster.
//! * **Blocks**: where tiles are cut, one a multiprocessor, which has copies on their way
//!   while it finishes a tile. Where they are whole, twice as many: as one ends the next
//!   begins, and a late one costs less.
//! * **Shares**: see [`decode_grid`].

use super::combine::rounds;
use super::shape::{Appended, Appender, Combine, DecodeShape, Grid, Storage};
use crate::attention::cache::Cache;
use crate::attention::problem::{Lengths, Mask, Problem};
use crate::family::Target;

/// Bytes of a key block that a multiprocessor reads in a nanosecond when all read:
/// 4.4 TB/s over 132 of them.
const FAIR_RATE: f64 = 33.0;
/// How much faster a multiprocessor goes when few read: 64 of them read 3.3 TB/s.
const ALONE: f64 = 1.5;
/// Nanoseconds that combining takes.
const COMBINE: f64 = 2500.0;
/// How often the block that ends last may wait for parts of a tile that are on their way, at the most, 0.4 us each. A second launch that
/// begins before the first has ended was 0.1 to 1.2 us slower than 1 to 3 times, and 0.5 to 1.6 faster than 4 to 6 times.
const LAST_BLOCK_ROUNDS: u64 = 3;
/// The same where a second launch begins when the first has ended: it was 0.2 to 2.4 us slower than 1 to 6 times, and level with 8.
const LAST_BLOCK_ROUNDS_APART: u64 = 8;
/// Bytes of a share below which a block takes longer to start than to read.
const LEAST_BYTES: u32 = 64 << 10;

/// The tiles that suit a problem on a device.
pub fn decode_shape(problem: &Problem, target: Target) -> DecodeShape {
    let rows = problem.heads / problem.kv_heads * problem.longest().0;
    // Changes of scores take registers: then a warp holds 16 rows alone.
    let wide = problem.head_dim > 128 || problem.scoring.mods.len() > 1;
    let (row_blocks, down) = match (rows, wide) {
        // Warpgroups have 64.
        _ if problem.cache == Cache::Latent => (1, 4),
        (..=16, _) => (1, 1),
        (..=32, false) => (2, 1),
        (..=32, true) => (1, 2),
        (_, false) => (2, 2),
        (_, true) => (1, 4),
    };
    // As many bytes, whatever a key has; but a warp's scores of 64 keys take registers that the
    // results of 32 rows need.
    let keys = match (problem.head_dim, problem.cache) {
        (..=64, Cache::Same) => 128,
        (..=64, Cache::E4m3) if (row_blocks, down) == (1, 1) => 256,
        (..=128, Cache::E4m3) if down == 1 => 128,
        _ => 64,
    };
    let shape = DecodeShape {
        head_dim: problem.head_dim,
        value_dim: problem.value_dim(),
        row_blocks,
        down,
        keys,
        stages: 2,
        mask: problem.mask.kind(),
        storage: match (&problem.lengths, problem.page_size) {
            (_, Some(size)) => Storage::Paged(size),
            (Lengths::Each(_), None) => Storage::Packed,
            (Lengths::Same { .. }, None) => Storage::Dense(problem.layout),
        },
        cache: problem.cache,
        weights: problem.weights,
        output: problem.output,
        append: problem.append.map(|append| Appended {
            by: match rows <= 16 * row_blocks * down {
                true => Appender::Tile,
                false => Appender::Launch,
            },
            rounds: problem.cache == Cache::E4m3 && !append.in_cache_type,
        }),
    };
    let room = target.arch.limits().shared_opt_in;
    let stages = room.saturating_sub(shape.other_bytes()) / shape.stage_bytes();
    DecodeShape {
        stages: stages.min(3),
        ..shape
    }
}

/// How many tiles there are, and the key blocks of each, where sequences have one length.
fn equal_tiles(problem: &Problem, shape: &DecodeShape) -> Option<(u64, u64)> {
    let Lengths::Same {
        batch,
        queries,
        keys,
    } = problem.lengths
    else {
        return None;
    };
    let rows = problem.heads / problem.kv_heads * queries;
    let tiles = u64::from(batch) * u64::from(problem.kv_heads * rows.div_ceil(shape.rows()));
    let seen = match problem.mask {
        Mask::Full | Mask::Causal => keys,
        Mask::Window { left, .. } => keys.min(left.saturating_add(queries)),
    };
    Some((tiles, u64::from(seen.div_ceil(shape.keys).max(1))))
}

/// Whether every share is of whole tiles, so that nobody has to combine parts of one.
pub(super) fn shares_are_whole(problem: &Problem, shape: &DecodeShape, grid: &Grid) -> bool {
    equal_tiles(problem, shape).is_some_and(|(tiles, blocks)| {
        let share = u64::from(grid.least);
        share.is_multiple_of(blocks) && share * u64::from(grid.blocks) >= tiles * blocks
    })
}

/// How the work of a problem is dealt.
///
/// Evenly, so that every block reads as much: no wave is half empty, whatever the
/// batch. Then tiles that several blocks had must be combined. Where there are about as many tiles as blocks, or many more, whole tiles
/// are as even and need none: the model compares both. Where lengths are on the
/// device alone, the work is dealt evenly.
///
/// A multiprocessor that reads while others are done goes faster, up to [`ALONE`],
/// so uneven shares cost less than they do where multiplying is the bound.
pub fn decode_grid(problem: &Problem, shape: &DecodeShape, target: Target) -> Grid {
    let sms = target.sms.max(1);
    let least = (LEAST_BYTES / shape.stage_bytes()).max(1);
    let dealt = Grid {
        blocks: sms,
        least,
        combine: Combine::Launch,
    };
    let Some((tiles, blocks)) = equal_tiles(problem, shape) else {
        return Grid {
            combine: combined_by(problem, shape, most_parts(problem, shape, &dealt)),
            ..dealt
        };
    };
    let total = tiles * blocks;
    let block_time = f64::from(shape.stage_bytes()) / FAIR_RATE;
    // Products over a latent cache take as long as its copies: nobody goes faster alone.
    let alone = match problem.cache {
        Cache::Latent => 1.0,
        Cache::Same | Cache::E4m3 => ALONE,
    };
    let time = |share: u64| {
        let by_memory = total as f64 / f64::from(sms) * block_time;
        by_memory.max(share as f64 * block_time / alone)
    };
    let even = total.div_ceil(sms.into()).max(least.into());
    let whole = tiles.div_ceil(sms.into()) * blocks;
    if time(whole) <= time(even) + COMBINE {
        let blocks_at_most = 2 * u64::from(sms);
        let each = tiles.div_ceil(blocks_at_most);
        return Grid {
            blocks: tiles.div_ceil(each) as u32,
            least: (each * blocks) as u32,
            combine: Combine::Nobody,
        };
    }
    // A tile of `blocks` key blocks lies in at most so many shares.
    let parts = blocks.div_ceil(even) + 1;
    Grid {
        blocks: total.div_ceil(even) as u32,
        combine: combined_by(problem, shape, parts),
        ..dealt
    }
}

/// The most parts that a tile can have, whatever the lengths on the device are: those of the longest sequence, where it has all the work.
fn most_parts(problem: &Problem, shape: &DecodeShape, grid: &Grid) -> u64 {
    let (queries, keys) = problem.longest();
    let rows = problem.heads / problem.kv_heads * queries;
    let tiles = (problem.kv_heads * rows.div_ceil(shape.rows())).max(1);
    let blocks = keys.div_ceil(shape.keys).max(1);
    let by_length = (blocks - 1).div_ceil(grid.least) + 1;
    u64::from(by_length.min(grid.blocks.div_ceil(tiles) + 1))
}

/// Who combines tiles of so many parts: the block that ends last where it reads them as fast as a second launch begins.
fn combined_by(problem: &Problem, shape: &DecodeShape, parts: u64) -> Combine {
    let rows = problem.heads / problem.kv_heads * problem.longest().0;
    let most = match shape.overlaps(&problem.scoring) {
        true => LAST_BLOCK_ROUNDS,
        false => LAST_BLOCK_ROUNDS_APART,
    };
    match rounds(shape, rows.min(shape.rows()), parts) <= most {
        true => Combine::LastBlock,
        false => Combine::Launch,
    }
}

/// Why there is no decoding kernel for a problem, or how it compares with the other
/// variants: 7 where it is ahead of them, else 0.
pub(super) fn rank(problem: &Problem, target: Target) -> Result<u32, String> {
    let shape = decode_shape(problem, target);
    if shape.stages < 2 {
        return Err(format!(
            "{} has {} bytes of shared memory a block, and two stages of {} bytes and the rest do not fit",
            target.arch,
            target.arch.limits().shared_opt_in,
            shape.stage_bytes()
        ));
    }
    shape.check().map_err(|error| error.to_string())?;
    let (queries, keys) = problem.longest();
    let rows = problem.heads / problem.kv_heads * queries;
    // A step of decoding, or of speculative decoding. Beyond, tiles of 64 rows and
    // more are full, and the kernels for prefill read keys as seldom.
    let few = queries <= 16 && rows <= 16 * shape.rows();
    let more_keys = keys >= 4 * queries;
    let only = problem.page_size.is_some() || problem.cache != Cache::Same;
    Ok(if only || few && more_keys { 7 } else { 0 })
}
