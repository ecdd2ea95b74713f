//! Heuristics: the tiles of a problem on warpgroups, their order, and where warpgroups are faster
//! than the ladder.

use super::causal;
use super::clusters::{self, small_tiles};
use super::full;
use super::seen::is_listed;
use super::shape::{Sharing, WarpgroupShape};
use super::staying::{staying, strips, with_levels};
use super::wide;
use crate::attention::kernel::heads_at_once;
use crate::attention::order::HeaviestFirst;
use crate::attention::panels::PANEL;
use crate::attention::problem::{Mask, MaskKind, Problem, Weights};
use crate::attention::score::PairElement;
use crate::family::Target;
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
    // Numbers in f32 come two at a time as 8 bytes.
    let pairs = problem.scoring.pairs().map(|mask| mask.element);
    let wide = pairs == Some(PairElement::F32);
    let (groups, keys) = match (problem.head_dim, queries) {
        // With 128 keys registers have no room for levels that sums raise: 3 to 5 in a hundred behind.
        (..=64, 2048..) if mods < 2 && !wide => (3, 96),
        (65..=112, 2048..) if !split && mods == 0 => (3, 96),
        (..=128, _) => (2, if mods < 2 { 128 } else { 96 }),
        _ if problem.value_dim() < problem.head_dim => (2, keys_with_room(problem, target)),
        (..=192, _) => (2, 80),
        _ => (2, 64),
    };
    let (groups, keys) = match problem.scoring.blocks {
        None => (groups, keys),
        // Tiles divide the blocks of the mask.
        Some(blocks) => match blocks.keys.is_multiple_of(128) && keys >= 128 {
            true => (2, 128),
            false => (2, 64),
        },
    };
    let shape = WarpgroupShape {
        head_dim: problem.head_dim,
        value_dim: problem.value_dim(),
        groups,
        sharing: Sharing::None,
        keys,
        stages: 2,
        strip: strip(problem, 64 * groups, keys, target),
        stay: None,
        pausing: false,
        interprets: false,
        turns: false,
        lazy: false,
        mask: problem.mask.kind(),
        ragged: problem.is_ragged(),
        listed: listed(problem, target),
        prefix: problem.scoring.prefix.is_some(),
        seen: is_listed(problem, keys),
        layout: problem.layout,
        weights: problem.weights,
        output: problem.output,
    };
    let modelled = match problem.mask {
        _ if sees_few(problem) => full::fastest(problem, shape, target),
        Mask::Causal if deals(problem, target) => causal::fastest(problem, shape, target),
        _ => None,
    };
    let tiles = match (shared_out(problem, shape, modelled, target), modelled) {
        (Some(tiles), _) => Some(tiles),
        (None, Some((shape, _))) => return shape,
        (None, None) if stays(problem, target) => Some(short_tiles(problem, shape, target)),
        (None, None) => wide_tiles(problem, target),
    };
    if let (None, true) = (tiles, plain(problem))
        && let Some(shape) = causal::many_long(problem, shape, target)
    {
        return shape;
    }
    let Some(tiles) = tiles else {
        return with_levels(problem, shape);
    };
    let shape = WarpgroupShape {
        groups: tiles.groups,
        sharing: tiles.sharing,
        keys: tiles.keys,
        ..shape
    };
    with_levels(problem, staying(problem, shape, tiles.resident, target))
}

/// Keys of a block for heads of values that are narrower than those of keys, in tiles of 128 rows: as
/// many as shared memory has room for, and registers, which hold the sums of results and scores, and
/// the scores as halves.
fn keys_with_room(problem: &Problem, target: Target) -> u32 {
    let (dim, values) = (problem.head_dim, problem.value_dim());
    let terms = if problem.weights == Weights::Split {
        2
    } else {
        1
    };
    let registers = if problem.scoring.mods.len() < 2 {
        192
    } else {
        160
    };
    let shared = target.arch.limits().shared_opt_in - 2048;
    let row = |dim: u32| dim.next_multiple_of(PANEL) * 2;
    let fits = |keys: &u32| {
        let sums = values / 2 + keys / 2 + terms * keys / 4;
        let stages = 128 * row(dim) + 2 * keys * (row(dim) + row(values));
        sums <= registers && stages <= shared
    };
    let best = (64..=128).rev().step_by(16).find(fits);
    best.unwrap_or(64)
}

/// Whether there is no mask and keys are few, so that blocks stay and their tiles are chosen by [`full`].
fn sees_few(problem: &Problem) -> bool {
    let (_, keys) = problem.longest();
    let takes = (64..=128).contains(&problem.head_dim) && problem.mask == Mask::Full;
    takes && plain(problem) && keys <= full::MOST_KEYS
}

/// Whether blocks stay under a causal mask, in more than a wave, so that their tiles are chosen by [`causal`].
fn deals(problem: &Problem, target: Target) -> bool {
    plain(problem) && stays(problem, target) && !in_one_wave(problem, target)
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
    // Tiles of other sizes would not divide the blocks of a mask.
    let whole = problem.scoring.blocks.is_none();
    (64..=128).contains(&problem.head_dim) && room && short && !window && alike && whole
}

/// Tiles of short sequences, in blocks that stay.
#[derive(Clone, Copy)]
struct ShortTiles {
    groups: u32,
    /// The blocks that have the same rows, and each a part of the keys.
    sharing: Sharing,
    keys: u32,
    /// Blocks on a multiprocessor.
    resident: u32,
}

/// More rows for the same keys.
const WIDE: ShortTiles = ShortTiles {
    groups: 3,
    sharing: Sharing::None,
    keys: 96,
    resident: 1,
};

/// Where every tile has a place at once: small ones, so that more multiprocessors work.
const ONE_WAVE: ShortTiles = ShortTiles {
    groups: 1,
    sharing: Sharing::None,
    keys: 128,
    resident: 2,
};

/// The same of wider heads.
const ONE_WAVE_OF_WIDE_HEADS: ShortTiles = ShortTiles {
    keys: 64,
    ..ONE_WAVE
};

/// How long a round of tiles of two warpgroups takes on a multiprocessor in microseconds: in any case, and for each key that a row sees. From the set
/// `short` of `attention_plans`.
const TWO_ROUND: [f64; 2] = [1.9, 0.0078];
/// The same of three warpgroups.
const WIDE_ROUND: [f64; 2] = [2.63, 0.0101];
/// The same of heads above 64 elements.
const ROUND_OF_WIDE_HEADS: [f64; 2] = [3.87, 0.00945];

/// With up to so many keys a tile is not shared: two blocks were level with one (set `few` of `attention_plans`).
const LEAST_SHARED: u32 = 256;

/// What one block for each tile, or larger tiles, must lose by the model.
const SHARING_GAINS: f64 = 1.05;

/// Whether nothing takes registers besides the scores, sequences are alike, and no blocks of keys are listed: then blocks may
/// have one warpgroup.
fn plain(problem: &Problem) -> bool {
    let scoring = &problem.scoring;
    let exact = problem.weights == Weights::Split || scoring.prefix.is_some();
    !problem.is_ragged() && !exact && scoring.mods.is_empty() && scoring.blocks.is_none()
}

/// Whether tiles of 64 rows all have a place at once, two on a multiprocessor: there larger tiles leave multiprocessors
/// idle, and such a launch was 1.1 to 1.8 times as fast as cuDNN (set `few` of `attention_plans`).
fn in_one_wave(problem: &Problem, target: Target) -> bool {
    let (_, keys) = problem.longest();
    plain(problem) && keys >= 128 && small_tiles(problem) <= 2 * u64::from(target.sms)
}

/// Tiles whose keys a cluster shares, where that is faster than the tiles that a model has chosen (`full`, `causal`), and elsewhere than one block a tile or large tiles.
///
/// Warpgroups of one block that share the keys of a tile (`WarpgroupShape::shared`) were 6 and 15 in a hundred behind two blocks with 112 and 92 tiles of
/// heads of 128, and are not chosen.
fn shared_out(
    problem: &Problem,
    shape: WarpgroupShape,
    staying: Option<(WarpgroupShape, f64)>,
    target: Target,
) -> Option<ShortTiles> {
    let (_, keys) = problem.longest();
    let window = matches!(problem.mask, Mask::Window { .. });
    let takes = (64..=128).contains(&problem.head_dim) && !window && plain(problem);
    if !takes || keys <= LEAST_SHARED {
        return None;
    }
    let (sharing, time) = clusters::fastest(problem, target)?;
    let other = match staying {
        Some((_, time)) => time,
        None => match stays(problem, target) && in_one_wave(problem, target) {
            true => clusters::time(problem, Sharing::None, target),
            false => large_time(problem, shape, target),
        },
    };
    (other > SHARING_GAINS * time).then(|| clustered(problem, sharing))
}

/// The tiles of clusters: with blocks of keys that two blocks on a multiprocessor have room for.
pub fn clustered_keys(problem: &Problem, sharing: Sharing) -> u32 {
    match (problem.head_dim, sharing) {
        (..=64, _) => 128,
        (_, Sharing::Eight) => 48,
        _ => 64,
    }
}

fn clustered(problem: &Problem, sharing: Sharing) -> ShortTiles {
    ShortTiles {
        sharing,
        keys: clustered_keys(problem, sharing),
        ..ONE_WAVE
    }
}

/// Microseconds that large tiles take, about.
fn large_time(problem: &Problem, shape: WarpgroupShape, target: Target) -> f64 {
    if problem.mask == Mask::Causal {
        return clusters::large_time(problem, shape.groups, target);
    }
    let round = match (problem.head_dim, shape.groups) {
        (..=64, 3) => WIDE_ROUND,
        (..=64, _) => TWO_ROUND,
        _ => ROUND_OF_WIDE_HEADS,
    };
    round_time(problem, (shape, shape.groups), round, target)
}

/// Wide heads whose tiles one warpgroup has, of which a multiprocessor holds two.
fn wide_tiles(problem: &Problem, target: Target) -> Option<ShortTiles> {
    let window = matches!(problem.mask, Mask::Window { .. });
    let alike = problem.value_dim() == problem.head_dim;
    if problem.head_dim <= 128 || window || !alike || !plain(problem) {
        return None;
    }
    let tiles = wide::fastest(problem, target);
    (tiles.groups == 1).then_some(ShortTiles {
        keys: tiles.keys,
        resident: tiles.resident(),
        ..ONE_WAVE
    })
}

/// What suits short sequences whose tiles no model chooses: the least time of whole rounds.
fn short_tiles(problem: &Problem, shape: WarpgroupShape, target: Target) -> ShortTiles {
    let wide_heads = problem.head_dim > 64;
    if in_one_wave(problem, target) {
        return if wide_heads {
            ONE_WAVE_OF_WIDE_HEADS
        } else {
            ONE_WAVE
        };
    }
    let usual = ShortTiles {
        groups: shape.groups,
        keys: shape.keys,
        ..WIDE
    };
    // Under a causal mask strips even out the rounds.
    if wide_heads || problem.mask != Mask::Full || problem.scoring.mods.len() > 1 {
        return usual;
    }
    let wide = round_time(problem, (shape, WIDE.groups), WIDE_ROUND, target);
    let two = round_time(problem, (shape, usual.groups), TWO_ROUND, target);
    if wide < two { WIDE } else { usual }
}

/// Microseconds that all rounds of tiles of so many warpgroups take under no mask, about.
fn round_time(
    problem: &Problem,
    (shape, groups): (WarpgroupShape, u32),
    [round, key]: [f64; 2],
    target: Target,
) -> f64 {
    let shape = WarpgroupShape {
        groups,
        strip: 1,
        ..shape
    };
    let rounds = strips(problem, &shape).count().div_ceil(target.sms.into());
    rounds as f64 * (round + key * f64::from(seen_keys(problem)))
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

/// How warpgroups compare with the other variants: 6 where they are ahead of the ladder, else 0.
pub(super) fn rank(problem: &Problem, target: Target) -> u32 {
    let ahead = match problem.is_ragged() {
        true => list_is_ahead(problem, target),
        false => tiles_are_ahead(problem, target),
    };
    if ahead { 6 } else { 0 }
}

/// Of 80 problems drawn at random, with 33 to 3000 queries, as many keys or others, 1 to 1500 lines and heads of 64 to 256
/// elements, warpgroups took 0.35 to 0.96 of the ladder's time in 74 (set `either` of `attention_plans`). The ladder was 8 and 13 in a
/// hundred ahead in two short ones of heads of 192, which no rule tells from others, and where wide heads have few tiles and many keys,
/// which it shares out.
fn tiles_are_ahead(problem: &Problem, target: Target) -> bool {
    let (_, keys) = problem.longest();
    match problem.head_dim {
        ..64 => {
            let even = problem.mask == Mask::Full && problem.longest().0 >= 768;
            even && large_tiles(problem) >= 2 * u64::from(target.sms) / 3
        }
        64..=128 => true,
        _ => keys < 1024 || large_tiles(problem) >= u64::from(target.sms) / 5,
    }
}

/// The list of packed sequences takes its time before, and short ones have little else to do.
fn list_is_ahead(problem: &Problem, target: Target) -> bool {
    let (tiles, sms) = (large_tiles(problem), u64::from(target.sms));
    let (enough, long) = match problem.head_dim {
        ..=64 => (2 * sms / 3, 768),
        65..=128 => (2 * sms / 5, 512),
        _ => (sms / 5, 512),
    };
    // With blocks that stay shorter ones are ahead too, where there is a tile for every multiprocessor.
    let long = match stays(problem, target) && tiles >= sms {
        true => 256,
        false => long,
    };
    let narrow = problem.head_dim < 64 && problem.mask != Mask::Full;
    tiles >= enough && typical_length(&problem.sequences()) >= long && !narrow
}

/// Tiles of 128 rows.
fn large_tiles(problem: &Problem) -> u64 {
    let tiles =
        |(queries, _): &(u32, u32)| u64::from(queries.div_ceil(128)) * u64::from(problem.heads);
    problem.sequences().iter().map(tiles).sum()
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
    use super::{Sharing, alike, typical_length, warpgroup_shape};
    use crate::attention::problem::{Lengths, Mask, Problem, Weights};
    use crate::attention::score::BlockMask;
    use crate::family::Target;
    use heist_builder::Arch;

    const H200: Target = Target {
        arch: Arch::SM_90A,
        sms: 132,
    };

    const BLOCKS: BlockMask = BlockMask {
        rows: 128,
        keys: 128,
        by_sequence: false,
        by_head: false,
    };

    #[test]
    fn a_strip_earns_the_time_that_others_wait_for_it() {
        let strip = |keys| warpgroup_shape(&Problem::new(1, 16, keys, 128), H200).strip;
        // The more keys a tile has, the less there is to gain, and the longer others wait.
        assert_eq!([4096, 8192, 16384, 32768].map(strip), [2, 2, 1, 1]);
    }

    /// Short sequences of heads of 64 elements have three blocks on a multiprocessor, unless wide
    /// tiles fit them better or sequences are long; wider heads two, where rows see few keys under a causal mask.
    #[test]
    fn short_sequences_share_a_multiprocessor() {
        let resident = |batch, heads, length, dim, mask| {
            let mut problem = Problem::new(batch, heads, length, dim);
            problem.mask = mask;
            let shape = warpgroup_shape(&problem, H200);
            (shape.groups, shape.resident())
        };
        let (full, causal) = (Mask::Full, Mask::Causal);
        assert_eq!(resident(64, 12, 128, 64, full), (1, 3));
        assert_eq!(resident(32, 16, 256, 64, causal), (1, 3));
        assert_eq!(resident(16, 12, 384, 64, full), (3, 1));
        assert_eq!(resident(16, 32, 256, 128, causal), (1, 2));
        assert_eq!(resident(8, 32, 512, 128, full), (3, 1));
        assert_eq!(resident(4, 32, 4096, 64, full), (3, 1));
        // One tile for each block.
        assert_eq!(resident(1, 8, 512, 64, full), (1, 2));
        assert_eq!(resident(2, 16, 512, 128, causal), (1, 2));
    }

    /// The more blocks share the keys of a tile the fewer tiles there are and the more keys, unless something else takes registers.
    #[test]
    fn few_tiles_are_shared_by_blocks() {
        let problem = |heads, length, dim| Problem::new(1, heads, length, dim);
        let blocks = |problem: &Problem| warpgroup_shape(problem, H200).sharing.blocks();
        assert_eq!(blocks(&problem(8, 256, 64)), 1, "two blocks of keys");
        assert_eq!(blocks(&problem(8, 512, 64)), 2);
        assert_eq!(blocks(&problem(8, 512, 128)), 2);
        // Each tile has less than two multiprocessors, and its keys are still shared.
        assert_eq!(blocks(&problem(9, 512, 64)), 2, "72 tiles");
        assert_eq!(blocks(&problem(8, 1024, 64)), 2, "128 tiles");
        assert_eq!(
            blocks(&problem(17, 512, 64)),
            1,
            "136 tiles would be more than a wave"
        );
        assert_eq!(blocks(&problem(1, 2048, 128)), 4, "however few there are");
        assert_eq!(
            blocks(&problem(1, 4096, 64)),
            2,
            "64 clusters of four would be two waves"
        );
        assert_eq!(blocks(&problem(8, 512, 80)), 2, "halves of 40 elements");
        let mut few = problem(1, 64, 80);
        few.lengths = Lengths::Same {
            batch: 1,
            queries: 64,
            keys: 9000,
        };
        assert_eq!(
            blocks(&few),
            2,
            "a quarter of 80 elements is no whole chunk"
        );
        few.head_dim = 64;
        assert_eq!(blocks(&few), 8);
        let mut causal = problem(8, 1152, 64);
        causal.mask = Mask::Causal;
        assert_eq!(blocks(&causal), 2, "144 tiles, half of which are light");
        let mut packed = Problem::ragged(vec![(512, 512); 4], 2, 64);
        assert_eq!(blocks(&packed), 1, "packed sequences");
        packed.mask = Mask::Causal;
        assert_eq!(blocks(&packed), 1, "packed sequences");
        let mut exact = problem(8, 512, 64);
        exact.weights = Weights::Split;
        assert_eq!(blocks(&exact), 1);
        let mut masked = problem(8, 512, 64);
        masked.scoring.blocks = Some(BLOCKS);
        assert_eq!(blocks(&masked), 1, "a mask of blocks");
    }

    /// Blocks of a mask are listed for blocks of keys that divide them.
    #[test]
    fn masks_of_blocks_have_tiles_of_two_warpgroups() {
        for (dim, tokens) in [(64, 512), (128, 2048), (192, 95), (256, 300)] {
            let mut problem = Problem::new(1, 8, tokens, dim);
            problem.scoring.blocks = Some(BLOCKS);
            let shape = warpgroup_shape(&problem, H200);
            assert_eq!(
                (shape.groups, 128 % shape.keys),
                (2, 0),
                "{problem}: {shape}"
            );
            let checked = shape.check().map_err(|error| error.to_string());
            assert_eq!(checked, Ok(()), "{problem}: {shape}");
        }
    }

    /// What is built for sharing refuses what it can't do, with the reason.
    #[test]
    fn sharing_refuses_what_it_can_not_do() {
        let problem = Problem::new(1, 8, 512, 64);
        let shape = warpgroup_shape(&problem, H200);
        assert_eq!((shape.sharing, shape.check().is_ok()), (Sharing::Two, true));
        let refused = |change: &dyn Fn(&mut super::WarpgroupShape)| {
            let mut shape = shape;
            change(&mut shape);
            let error = shape.check().expect_err("a refusal").to_string();
            assert!(error.contains("blocks that share keys"), "{error}");
        };
        refused(&|shape| shape.ragged = true);
        refused(&|shape| shape.seen = true);
        refused(&|shape| shape.pausing = true);
        refused(&|shape| shape.strip = 2);
        refused(&|shape| shape.value_dim = 40);
        refused(&|shape| shape.stay.as_mut().expect("it stays").ahead = true);
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

    /// Every schedule can be asked for, whatever the shape that suits the problem without one.
    #[test]
    fn what_is_chosen_can_be_scheduled_and_paused() {
        for (batch, heads) in [(1, 1), (1, 8), (2, 4), (3, 8), (16, 32)] {
            for (queries, keys) in [
                (64, 64),
                (159, 1229),
                (776, 1319),
                (1024, 1024),
                (300, 4096),
            ] {
                for (dim, mask) in [64, 128].into_iter().zip([Mask::Full, Mask::Causal]) {
                    let mut problem = Problem::new(batch, heads, queries, dim);
                    problem.lengths = Lengths::Same {
                        batch,
                        queries,
                        keys,
                    };
                    problem.mask = mask;
                    let shape = warpgroup_shape(&problem, H200);
                    for shape in [shape, shape.scheduled(), shape.scheduled().paused()] {
                        let checked = shape.check().map_err(|error| error.to_string());
                        assert_eq!(checked, Ok(()), "{problem}: {shape}");
                    }
                }
            }
        }
    }

    /// Three tiles of 128 rows, of which the last is mostly empty, are five of 64.
    #[test]
    fn rows_are_filled_under_a_causal_mask() {
        let shape = |batch, heads, tokens| {
            let mut problem = Problem::new(batch, heads, tokens, 128);
            problem.mask = Mask::Causal;
            let shape = warpgroup_shape(&problem, H200);
            (shape.rows(), shape.keys)
        };
        assert_eq!(shape(20, 20, 304), (64, 64));
        assert_eq!(shape(8, 32, 512), (128, 128));
    }
}
