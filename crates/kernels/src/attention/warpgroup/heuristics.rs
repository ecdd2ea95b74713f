//! Heuristics: the tiles of a problem on warpgroups, their order, and where warpgroups are faster
//! than the ladder.

use super::list::most_tiles;
use super::shape::{Stay, WarpgroupShape};
use crate::attention::kernel::heads_at_once;
use crate::attention::order::HeaviestFirst;
use crate::attention::problem::{Mask, MaskKind, Problem, Weights};
use crate::family::Target;
use heist_launch::Dim3;
use heist_sched::{AnyOrder, Schedule, TileSource};

/// The tiles that suit a problem: those that were fastest (`attention_warpgroups`, an
/// example of `heist`, and the sets `short` and `long` of `attention_plans`).
pub fn warpgroup_shape(problem: &Problem, target: Target) -> WarpgroupShape {
    let (queries, _) = problem.longest();
    // Tiles of 192 rows have the most to do for what they copy; short sequences
    // leave too much of the last one empty. Blocks of keys are as large as
    // registers and shared memory have room for.
    let split = problem.weights == Weights::Split;
    // Changes of scores take registers of their own.
    let mods = problem.scoring.mods.len();
    let (groups, keys) = match (problem.head_dim, queries) {
        (..=64, 2048..) if mods < 2 => (3, if split || mods > 0 { 96 } else { 128 }),
        (65..=112, 2048..) if !split && mods == 0 => (3, 96),
        (..=128, _) => (2, if mods < 2 { 128 } else { 96 }),
        (..=192, _) => (2, 80),
        _ => (2, 64),
    };
    let shape = WarpgroupShape {
        head_dim: problem.head_dim,
        groups,
        keys,
        stages: 2,
        strip: strip(problem, 64 * groups, keys, target),
        stay: None,
        turns: false,
        mask: problem.mask.kind(),
        ragged: problem.is_ragged(),
        listed: listed(problem, target),
        prefix: problem.scoring.prefix.is_some(),
        layout: problem.layout,
        weights: problem.weights,
        output: problem.output,
    };
    match stays(problem, target) {
        true => staying(problem, fewest_rounds(problem, shape, target), target),
        false => shape,
    }
}

/// Whether blocks stay, with the next tile's copies under way while this one is
/// multiplied and stored.
///
/// That was ahead of new blocks from 128 tokens on: by 2 to 30 in a hundred up to 1024
/// tokens, by 0 to 3 beyond. There new blocks are better neighbours: they leave the GPU to
/// others after every strip (`docs/sharing.md`). Heads of 64 elements and 2048 tokens have
/// tiles of 192 rows, which leave no room for the next one's queries.
fn stays(problem: &Problem, target: Target) -> bool {
    let (queries, _) = problem.longest();
    let window = matches!(problem.mask, Mask::Window { .. });
    let room = problem.head_dim > 64 || queries < 2048;
    let short = u64::from(seen_keys(problem)) * u64::from(problem.head_dim) <= 2 * SHORT;
    let alike = !problem.is_ragged() || listed(problem, target).is_some();
    (64..=128).contains(&problem.head_dim) && room && short && !window && alike
}

/// Tiles of 128 or 192 rows: whichever leaves less of the last round of tiles, and of the
/// last tile of a head, empty.
fn fewest_rounds(problem: &Problem, shape: WarpgroupShape, target: Target) -> WarpgroupShape {
    // Under a causal mask strips even out the rounds.
    if problem.head_dim > 64 || problem.mask != Mask::Full {
        return shape;
    }
    let wide = WarpgroupShape {
        groups: 3,
        keys: 96,
        ..shape
    };
    // Changes of scores take the registers of a warpgroup.
    if problem.scoring.mods.len() > 1 {
        return shape;
    }
    let two = WarpgroupShape {
        groups: 2,
        keys: 128,
        ..shape
    };
    let rounds = |shape: &WarpgroupShape| {
        let tiles = strips(problem, &WarpgroupShape { strip: 1, ..*shape }).count();
        tiles.div_ceil(target.sms.into()) as f64
    };
    match rounds(&wide) * WIDE_TILE < rounds(&two) {
        true => wide,
        false => two,
    }
}

/// How long a tile of 192 rows and blocks of 96 keys takes, in tiles of 128 rows.
const WIDE_TILE: f64 = 1.37;

/// The strips of a problem: along the rows of a sequence, heads, sequences.
pub(super) fn strips(problem: &Problem, shape: &WarpgroupShape) -> Dim3 {
    let (queries, _) = problem.longest();
    let sequences = problem.sequences().len() as u32;
    if let Some(heads) = shape.listed {
        let sections = problem.heads / heads.max(1);
        return Dim3::new(heads, entries(problem, shape), sections);
    }
    Dim3::new(
        queries.div_ceil(shape.rows()).div_ceil(shape.strip),
        problem.heads,
        sequences,
    )
}

/// Whether the tiles of packed sequences are listed, and how many heads go through the list at a
/// time. A single sequence has no empty tiles and no other to be evened out with.
///
/// Tiles of the same sequence and head that run at a time read their keys from memory once. Where
/// many sequences are about as long, their tiles alternate in the list: then fewer heads go at a time,
/// so that two tiles or more share their keys. Of short sequences keys are too few to be the bound.
fn listed(problem: &Problem, target: Target) -> Option<u32> {
    let sequences = problem.sequences();
    if !problem.is_ragged() || sequences.len() < 2 {
        return None;
    }
    if typical_length(&sequences) <= 512 {
        return Some(problem.heads);
    }
    let group = f64::from(problem.heads / problem.kv_heads);
    let most = f64::from(target.sms) * group / (2.0 * alike(&sequences));
    let divides = |heads: &u32| f64::from(*heads) <= most && problem.heads.is_multiple_of(*heads);
    let heads = (1..=problem.heads).rev().find(divides);
    Some(heads.unwrap_or(1))
}

/// How many sequences of the same length would have their products so spread: of one long sequence
/// among short ones, about one.
fn alike(sequences: &[(u32, u32)]) -> f64 {
    let products = sequences.iter().map(|&(q, k)| f64::from(q) * f64::from(k));
    let (sum, squares) = products.fold((0.0, 0.0), |(sum, squares), own| {
        (sum + own, squares + own * own)
    });
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / squares
    }
}

/// Entries of the list of tiles.
pub(super) fn entries(problem: &Problem, shape: &WarpgroupShape) -> u32 {
    let (queries, _) = problem.longest();
    let (rows, _) = problem.rows();
    let sequences = problem.sequences().len() as u64;
    let most = most_tiles(rows as u64, sequences, queries, shape.rows());
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// How many keys a row sees, about.
fn seen_keys(problem: &Problem) -> u32 {
    let all = match problem.is_ragged() {
        false => problem.longest().1,
        true => u32::try_from(typical_length(&problem.sequences())).unwrap_or(u32::MAX),
    };
    match problem.mask {
        Mask::Full => all,
        Mask::Causal => all / 2,
        Mask::Window { left, right } => all.min(left.saturating_add(right)),
    }
}

/// Keys times the head's dimension up to which a strip is short.
const SHORT: u64 = 1024 * 64;

/// How many tiles of `rows` rows a block should do one after the other.
fn strip(problem: &Problem, rows: u32, keys: u32, target: Target) -> u32 {
    // Wide heads leave no room for the queries of the next tile, and short
    // sequences none to even out.
    // The thread that copies has few registers: not enough to find the blocks of a prefix and
    // of a window for several tiles.
    if problem.head_dim > 128 || problem.is_ragged() || problem.scoring.prefix.is_some() {
        return 1;
    }
    let (queries, _) = problem.longest();
    let lines = u64::from(problem.heads) * problem.sequences().len() as u64;
    let tiles = queries.div_ceil(rows);
    let seen = seen_keys(problem);
    let blocks = f64::from(seen.div_ceil(keys).max(1));
    let share = f64::from(tiles) * lines as f64 / f64::from(target.sms);
    // In tiles: how long the multiprocessor with the most of them takes, and how
    // much of it is gained where all tiles of a strip but the last are finished
    // while the next one's copies run.
    let time = |strip: u32| {
        let even = tiles.is_multiple_of(strip);
        let most = match problem.mask {
            // The heaviest tiles come first, so the end is even.
            Mask::Causal if strip == 1 => share + 0.3,
            _ if even => (share / f64::from(strip)).ceil() * f64::from(strip),
            // Shorter strips between the others fill part of the gap.
            _ => share + f64::from(strip) / 2.0,
        };
        let finished_aside = 1.0 - 1.0 / f64::from(strip);
        most / (1.0 + FINISH * finished_aside / blocks)
    };
    let choices = [1, 2, 4];
    let best = choices.map(time).into_iter().fold(f64::INFINITY, f64::min);
    let good = |strip: &u32| time(*strip) <= best * (1.0 + PATIENCE);
    choices.into_iter().find(good).unwrap_or(1)
}

/// What a strip must gain over a shorter one. Others wait for its end: a strip of four tiles over
/// 16 thousand keys gains 3 in a thousand, and keeps its multiprocessor for 850 us.
const PATIENCE: f64 = 0.005;

/// How long it takes to begin and finish a tile, in blocks of keys.
const FINISH: f64 = 0.6;

/// The same with blocks that stay, and as many stages as there is room for. Under a
/// causal mask a strip is two tiles, a long one and a short one: all strips then take
/// about as long, and can be dealt in turns.
pub fn staying(problem: &Problem, shape: WarpgroupShape, target: Target) -> WarpgroupShape {
    let shape = WarpgroupShape {
        stay: Some(Stay { blocks: target.sms }),
        strip: match problem.mask {
            // A list is in order, and evens out by itself.
            Mask::Causal if shape.listed.is_none() => 2,
            _ => 1,
        },
        ..shape
    };
    // A little room for barriers and alignment.
    let room = target.arch.limits().shared_opt_in - 2048;
    let more = (2..=4)
        .rev()
        .map(|stages| WarpgroupShape { stages, ..shape });
    more.into_iter()
        .find(|shape| shape.stage_bytes() <= room)
        .unwrap_or(shape)
}

/// How warpgroups compare with the other variants: 6 where they were measured ahead of the
/// ladder, else 0. Small problems share out their keys there.
pub(super) fn rank(problem: &Problem, target: Target) -> u32 {
    let sequences = problem.sequences();
    let tiles: u64 = sequences
        .iter()
        .map(|(queries, _)| u64::from(queries.div_ceil(128)) * u64::from(problem.heads))
        .sum();
    let length = typical_length(&sequences);
    let sms = u64::from(target.sms);
    let (enough, long) = match problem.head_dim {
        ..=64 => (2 * sms / 3, 768),
        65..=128 => (2 * sms / 5, 512),
        _ => (sms / 5, 512),
    };
    // With blocks that stay, short sequences are ahead too, where there is a tile for
    // every multiprocessor.
    let long = match (stays(problem, target) && tiles >= sms, problem.is_ragged()) {
        (true, false) => 100,
        // The list takes its time before.
        (true, true) => 256,
        (false, _) => long,
    };
    let narrow = problem.head_dim < 64 && problem.mask != Mask::Full;
    match tiles >= enough && length >= long && !narrow {
        true => 6,
        false => 0,
    }
}

/// The length of the sequence in which a product of a query and a key lies on average: one long
/// sequence among many short ones has nearly all of the work.
fn typical_length(sequences: &[(u32, u32)]) -> u64 {
    let (weighted, pairs) = sequences.iter().fold((0, 0), |(weighted, pairs), &(q, k)| {
        let own = u128::from(q) * u128::from(k);
        (weighted + own * u128::from(q.min(k)), pairs + own)
    });
    u64::try_from(weighted / pairs.max(1)).unwrap_or(u64::MAX)
}

/// The schedule that suits it.
///
/// A block a strip is as fast as blocks that take strips by ticket, or faster, wherever
/// strips are long, and leaves the GPU to others after every strip: a small kernel beside
/// it waits a third of the time, and with multiprocessors held by others it is ahead
/// (`docs/sharing.md`). Tickets are ahead by 1 to 2 in a hundred where strips are short; not
/// under a causal mask with a long tile and a short one in turns. Tiles of packed sequences are
/// taken by ticket in the order of their list.
pub fn warpgroup_schedule(problem: &Problem, target: Target) -> Schedule {
    let shape = warpgroup_shape(problem, target);
    if shape.stay.is_some() {
        return Schedule::new(TileSource::Direct);
    }
    let strips = strips(problem, &shape).count();
    let causal = problem.mask.kind() == MaskKind::Causal;
    let even = causal && shape.strip > 1;
    let short = u64::from(seen_keys(problem)) * u64::from(problem.head_dim) <= SHORT;
    let many = strips > u64::from(target.sms);
    if shape.listed.is_some() {
        return Schedule::new(match many {
            true => TileSource::Ticket,
            false => TileSource::Direct,
        });
    }
    let tickets = short && many && !even && !problem.is_ragged();
    let mut schedule = Schedule::new(if tickets {
        TileSource::Ticket
    } else {
        TileSource::Direct
    });
    if problem.is_ragged() || causal && shape.strip == 1 {
        schedule.order = AnyOrder::new(HeaviestFirst {
            heads: heads_at_once(problem),
        });
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::{alike, typical_length, warpgroup_shape};
    use crate::attention::problem::Problem;
    use crate::family::Target;
    use heist_builder::Arch;

    #[test]
    fn a_strip_earns_the_time_that_others_wait_for_it() {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let strip = |keys| warpgroup_shape(&Problem::new(1, 16, keys, 128), target).strip;
        // The more keys a tile has, the less there is to gain, and the longer others wait.
        assert_eq!([4096, 8192, 16384, 32768].map(strip), [2, 2, 1, 1]);
    }

    #[test]
    fn sequences_that_are_alike_are_counted() {
        assert_eq!(alike(&[(512, 512); 7]), 7.0);
        let mut skewed = vec![(128, 128); 60];
        skewed.push((8192, 8192));
        assert!(alike(&skewed) < 1.1);
        assert_eq!(alike(&[(0, 9)]), 1.0);
    }

    #[test]
    fn one_long_sequence_among_short_ones_decides() {
        assert_eq!(typical_length(&[(512, 512); 7]), 512);
        let mut skewed = vec![(128, 128); 60];
        skewed.push((8192, 8192));
        assert!(typical_length(&skewed) > 8000);
        assert_eq!(typical_length(&[(1, 4096), (0, 9), (1, 4096)]), 1);
        assert_eq!(typical_length(&[]), 0);
    }
}
