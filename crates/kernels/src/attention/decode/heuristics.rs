//! Heuristics: the tiles of a decoding kernel, and the distribution of its work.
//!
//! Memory bounds decoding, so a choice is good if all multiprocessors read all the
//! time, with enough bytes in flight (50 to 64 KB each), and nothing is read twice:
//!
//! * **Rows**: 16, 32 or 64, the least that holds the query heads of a group times the
//!   queries of a sequence. `mma.sync` needs 16; what is empty costs nothing, since
//!   multiplying 16 rows takes a tenth of the time that the keys take to come. More have eight
//!   warps: one on a scheduler would wait for itself.
//! * **Heads**: two or four of a tile where they adjoin, so that copies have 256 bytes and more of each key;
//!   or two keys of 64 bytes a row, where keys adjoin.
//! * **Stages**: three of 32 KB (64 KB for heads above 128 elements, and two of these for 32 rows and more): large enough for
//!   copies of 8 KB each and for 16 keys a warp. Two were 1 in a hundred slower, four and
//!   six no faster.
//! * **Blocks**: where tiles are cut, one a multiprocessor, which has copies on their way
//!   while it finishes a tile. Where they are whole, more: as one ends the next
//!   begins, and a late one costs less.
//! * **Shares**: see [`decode_grid`].

use super::combine::{TOGETHER, fours};
use super::phase;
use super::shape::{Appended, Appender, Combine, DecodeShape, Grid, Storage};
use crate::attention::cache::Cache;
use crate::attention::problem::{Lengths, Mask, Problem};
use crate::attention::score::Scoring;
use crate::family::Target;
use heist_builder::Feature;

/// Bytes of a key block that a multiprocessor reads in a nanosecond when all read:
/// 4.4 TB/s over 132 of them.
const FAIR_RATE: f64 = 33.0;
/// How much faster a multiprocessor goes when few read: 96 of them took 61 us for 226 MB, begin and end included, with heads of 128.
const ALONE: f64 = 1.3;
/// Nanoseconds that combining takes.
const COMBINE: f64 = 2500.0;
/// Nanoseconds that the block which ends last takes for a byte of the parts of its tile, behind the time that either way takes: 11 shapes, whole and
/// in pages, of 4 KB to 256 KB.
const LAST_BLOCK_BYTE: f64 = 0.0183;
/// Nanoseconds until the block that ends last of those which combine some parts each knows that it is.
const NEXT_LEVEL: f64 = 1500.0;
/// Nanoseconds that a second launch takes longer, with nothing to combine.
const SECOND_LAUNCH: f64 = 900.0;
/// Nanoseconds for each row of a tile, where lengths are alike.
const SECOND_LAUNCH_ROW: f64 = 0.1;
/// Nanoseconds in which its blocks find their sequences, where lengths are on the device.
const SECOND_LAUNCH_SEARCH: f64 = 1500.0;
/// How much the parts that a tile has at the most count beside those that it has as a rule.
const AT_THE_MOST: f64 = 0.125;
/// Nanoseconds that it waits where the first leaves no registers for its blocks.
const SECOND_LAUNCH_BEHIND: f64 = 1500.0;
/// Blocks of whole tiles for each multiprocessor, at the most: two at a time, so that as one ends the next begins. Of 1024 and 2048 tiles 512 blocks
/// and more were up to 1.4 in a hundred faster than 256, and in one case of seven 0.3 slower.
const MOST_WHOLE: u64 = 8;
/// Bytes of keys and values that a stage is for.
const STAGE_BYTES: u32 = 32 << 10;
/// Bytes of a share below which a block takes longer to start than to read.
const LEAST_BYTES: u32 = 64 << 10;

/// The tiles that suit a problem on a device.
pub fn decode_shape(problem: &Problem, target: Target) -> DecodeShape {
    let rows = problem.heads / problem.kv_heads * problem.longest().0;
    let storage = match (&problem.lengths, problem.page_size) {
        (_, Some(size)) => Storage::Paged(size),
        (Lengths::Each(_), None) => Storage::Packed,
        (Lengths::Same { .. }, None) => Storage::Dense(problem.layout),
    };
    let wide = problem.head_dim > 128;
    let (down, warps) = match (rows, wide) {
        // Warpgroups have 64.
        _ if problem.cache == Cache::Latent => (4, 4),
        (..=16, _) => (1, 4),
        (..=32, false) => (2, 8),
        (..=32, true) => (2, 4),
        (_, false) => (4, 8),
        (_, true) => (4, 4),
    };
    let shape = DecodeShape {
        head_dim: problem.head_dim,
        value_dim: problem.value_dim(),
        down,
        row_blocks: 1,
        warps,
        heads: 1,
        twins: false,
        keys: 64,
        stages: 2,
        one_query: problem.longest().0 <= 1,
        rounds: 1,
        mask: problem.mask.kind(),
        storage,
        cache: problem.cache,
        weights: problem.weights,
        output: problem.output,
        append: problem.append.map(|append| Appended {
            by: match rows <= 16 * down {
                true => Appender::Tile,
                false => Appender::Launch,
            },
            rounds: problem.cache == Cache::E4m3 && !append.in_cache_type,
        }),
    };
    let of_heads = |heads: u32| DecodeShape {
        down: heads,
        warps: 8,
        heads,
        ..shape
    };
    // Four where a tile of them has two parts at the most: each has twice the rows to combine. Of nine shapes seven were 1 to 12 in a hundred faster
    // than with two then, and two 2 to 4 slower; with 8 and 16 parts it was 2 to 5 slower.
    let few_parts = |shape: &DecodeShape| 2 * most_tiles(problem, shape) >= target.sms;
    let together = [4, 2].into_iter().find(|&heads| {
        let fit = problem.kv_heads.is_multiple_of(heads) && shape.suits_heads(heads);
        fit && (heads == 2 || few_parts(&of_heads(heads)))
    });
    let shape = match together.filter(|_| rows <= 16) {
        Some(heads) => of_heads(heads),
        None => shape,
    };
    // Keys of 8 bits take longer to be turned into halves than to come: once for 32 rows.
    let tall = shape.cache == Cache::E4m3
        && shape.head_rows() > 16
        && shape.warps == 8
        && target.arch.supports(Feature::Setmaxnreg);
    let shape = match tall {
        true => DecodeShape {
            row_blocks: 2,
            down: shape.down / 2,
            ..shape
        },
        false => shape,
    };
    let twins = shape.can_have_twins()
        && problem.scoring.is_plain()
        && problem.longest().1.is_multiple_of(2);
    let shape = DecodeShape { twins, ..shape };
    let shape = DecodeShape {
        keys: keys_of_stage(&shape, &problem.scoring),
        ..shape
    };
    let room = target.arch.limits().shared_opt_in;
    let stages = room.saturating_sub(shape.other_bytes()) / shape.stage_bytes();
    let most = match shape.cache {
        Cache::Latent => 4,
        Cache::Same | Cache::E4m3 => 3,
    };
    let shape = DecodeShape {
        stages: stages.min(most),
        ..shape
    };
    let rounds = match (shape.cache, target.sms) {
        (Cache::Latent, sms @ 1..) => {
            let usual = in_step(most_tiles(problem, &shape), sms);
            phase::rounds(problem, &shape, usual, sms)
        }
        _ => 1,
    };
    DecodeShape { rounds, ..shape }
}

/// Keys of a stage: as many bytes, whatever a key has, and no more than a warp has registers for.
fn keys_of_stage(shape: &DecodeShape, scoring: &Scoring) -> u32 {
    let (bytes, most) = match shape.cache {
        // Two warpgroups have a stage each, and as many are on their way: four fit beside the queries of the widest heads.
        Cache::Latent => return 32,
        Cache::Same => (2, 128),
        Cache::E4m3 => (1, 256),
    };
    // Of 32 rows and more a warp that has 16 keys waits for itself: 128 were 5 in a hundred faster than 64. Those of 8 bits take
    // longer to be turned into halves than to come, and more of them were 10 in a hundred slower.
    let stage = match shape.head_rows() > 16 && shape.cache == Cache::Same {
        true => 2 * STAGE_BYTES,
        false => STAGE_BYTES,
    };
    let fit = stage / 2 / (shape.heads * shape.head_dim * bytes);
    let fit = 1 << fit.max(1).ilog2();
    let of_warp = match shape.crowded(scoring) {
        true => 32,
        false => 64,
    };
    fit.min(most)
        .min(of_warp * shape.across())
        .max(16 * shape.across())
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
    let each = problem.kv_heads / shape.heads * sequence_tiles(problem, shape, queries);
    let tiles = u64::from(batch) * u64::from(each);
    let seen = seen_keys(problem, [queries, keys]);
    Some((tiles, u64::from(seen.div_ceil(shape.keys).max(1))))
}

/// Tiles of each key head of a sequence of so many queries.
pub(super) fn sequence_tiles(problem: &Problem, shape: &DecodeShape, queries: u32) -> u32 {
    let rows = problem.heads / problem.kv_heads * queries;
    rows.div_ceil(shape.head_rows())
}

/// Keys that some query of such a sequence sees.
pub(super) fn seen_keys(problem: &Problem, [queries, keys]: [u32; 2]) -> u32 {
    match problem.mask {
        Mask::Full | Mask::Causal => keys,
        Mask::Window { left, .. } => keys.min(left.saturating_add(queries)),
    }
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
        let tiles = most_tiles(problem, shape).max(1);
        let usual = in_step(tiles, sms);
        let dealt = Grid {
            blocks: match shape.cache {
                Cache::Latent => phase::blocks(problem, shape, usual, sms),
                Cache::Same | Cache::E4m3 => usual,
            },
            ..dealt
        };
        // Those that a tile has where lengths are alike, and where one sequence has all the keys.
        let most = most_parts(problem, shape, &dealt);
        let even = u64::from(
            dealt.blocks.div_ceil(tiles) + u32::from(!dealt.blocks.is_multiple_of(tiles)),
        );
        return Grid {
            combine: combined_by(problem, shape, [even.min(most), most], dealt.blocks),
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
    let in_step = u64::from(in_step(tiles as u32, sms));
    let even = total.div_ceil(in_step).max(least.into());
    let whole = tiles.div_ceil(sms.into()) * blocks;
    if time(whole) <= time(even) + COMBINE {
        let blocks_at_most = MOST_WHOLE * u64::from(sms);
        let each = tiles.div_ceil(blocks_at_most);
        return Grid {
            blocks: tiles.div_ceil(each) as u32,
            least: (each * blocks) as u32,
            combine: Combine::Nobody,
        };
    }
    // A tile of `blocks` key blocks lies in at most so many shares.
    let parts = blocks.div_ceil(even) + u64::from(!blocks.is_multiple_of(even));
    Grid {
        blocks: total.div_ceil(even) as u32,
        combine: combined_by(problem, shape, [parts; 2], total.div_ceil(even) as u32),
        ..dealt
    }
}

/// Blocks among which tiles are dealt: about one a multiprocessor. As many as make every share so many tiles, or every tile so many
/// shares, if the lengths are alike, and where that leaves few multiprocessors idle. Fewer parts have to be combined then, and blocks are
/// at the same keys of heads that lie side by side, and read them together: pages of 16 were 1 to 2 in a hundred faster with 128 blocks
/// than with 132, and whole sequences of one tile 1 to 3.
fn in_step(tiles: u32, sms: u32) -> u32 {
    let tiles = tiles.max(1);
    let blocks = match tiles <= sms {
        true => sms / tiles * tiles,
        false => tiles.div_ceil(tiles.div_ceil(sms)),
    };
    match blocks >= sms - sms / 16 {
        true => blocks,
        false => sms,
    }
}

/// Tiles, where all sequences have as many queries as the longest.
pub(super) fn most_tiles(problem: &Problem, shape: &DecodeShape) -> u32 {
    let rows = problem.heads / problem.kv_heads * problem.longest().0;
    let each = problem.kv_heads / shape.heads * rows.div_ceil(shape.head_rows());
    problem.sequences().len() as u32 * each
}

/// The most parts that a tile can have, whatever the lengths on the device are: those of the longest sequence, where it has all the work.
fn most_parts(problem: &Problem, shape: &DecodeShape, grid: &Grid) -> u64 {
    let (queries, keys) = problem.longest();
    let rows = problem.heads / problem.kv_heads * queries;
    let tiles = (problem.kv_heads / shape.heads * rows.div_ceil(shape.head_rows())).max(1);
    let blocks = keys.div_ceil(shape.keys).max(1);
    let by_length = (blocks - 1).div_ceil(grid.least) + 1;
    u64::from(by_length.min(grid.blocks.div_ceil(tiles) + 1))
}

/// Rows of a tile that there are.
pub(super) fn tile_rows(problem: &Problem, shape: &DecodeShape) -> u32 {
    let rows = problem.heads / problem.kv_heads * problem.longest().0;
    shape.heads * rows.min(shape.head_rows())
}

/// Who combines tiles of so many parts, which they have as a rule and at the most: the block that ends last where it is done before a second launch is,
/// as a rule; the most that it may be count little.
fn combined_by(problem: &Problem, shape: &DecodeShape, parts: [u64; 2], blocks: u32) -> Combine {
    let rows = tile_rows(problem, shape);
    let last = |parts: u64| {
        let together = u64::from(TOGETHER);
        // One block after another.
        let (read, levels) = match shape.ragged() && parts > together {
            true => (together + parts.div_ceil(together), 2),
            false => (parts, 1),
        };
        let bytes = read * u64::from(rows * shape.value_dim * 4);
        LAST_BLOCK_BYTE * bytes as f64 + NEXT_LEVEL * f64::from(levels - 1)
    };
    let [rule, most] = parts.map(last);
    let last = rule + (most - rule) * AT_THE_MOST;
    let launched = match shape.ragged() {
        false => f64::from(rows * most_tiles(problem, shape).min(blocks)) * SECOND_LAUNCH_ROW,
        true => SECOND_LAUNCH_SEARCH,
    };
    let behind = match (shape.row_blocks, shape.cache) {
        (1, Cache::Same | Cache::E4m3) => 0.0,
        _ => SECOND_LAUNCH_BEHIND,
    };
    // Of whole sequences the products of 32 rows leave two registers too few for more than that; of others those of 64 do.
    let most = match (shape.ragged(), shape.row_blocks) {
        (true, _) if shape.cache == Cache::Latent => u32::MAX,
        (false, 1) => 2,
        _ => 4,
    };
    let fits = fours(shape, rows) <= most;
    match fits && last <= SECOND_LAUNCH + launched + behind {
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
    let few = queries <= 16 && rows <= 16 * shape.head_rows();
    let more_keys = keys >= 4 * queries;
    let only = problem.page_size.is_some() || problem.cache != Cache::Same;
    Ok(if only || few && more_keys { 7 } else { 0 })
}
