//! Blocks that stay for tile after tile: how many there are, and what each takes one after the other.

use super::list::most_tiles;
use super::shape::{Stay, WarpgroupShape};
use crate::attention::problem::{Mask, Problem, Weights};
use crate::attention::softmax::MOST_KEYS;
use crate::family::Target;
use heist_launch::Dim3;

/// The same with blocks that stay, `resident` on each multiprocessor, and as many stages as there
/// is room for. Under a
/// causal mask a strip is two tiles, a long one and a short one: all strips then take
/// about as long, and can be dealt in turns.
pub fn staying(
    problem: &Problem,
    shape: WarpgroupShape,
    resident: u32,
    target: Target,
) -> WarpgroupShape {
    let stay = Stay {
        blocks: target.sms * resident,
        resident,
        ahead: !shape.sharing.is_some(),
    };
    // A block that is alone has two warpgroups or more.
    let shape = match resident {
        1 => shape.scheduled(),
        _ => shape,
    };
    let shape = WarpgroupShape {
        stay: Some(stay),
        strip: 1,
        ..shape
    };
    let waits = strips(problem, &shape).count() > u64::from(stay.blocks);
    let shape = WarpgroupShape {
        strip: match problem.mask {
            // A list is in order, and evens out by itself; so does a block for each tile.
            Mask::Causal if shape.listed.is_none() && !shape.sharing.is_some() && waits => {
                causal_strip(&shape, problem.longest().0.div_ceil(shape.rows()))
            }
            _ => 1,
        },
        ..shape
    };
    // Queries of the next tile come ahead where there is room for two tiles' at all.
    let ways = [stay.ahead, false].map(|ahead| {
        let more = (2..=4).rev();
        more.map(move |stages| WarpgroupShape {
            stages,
            stay: Some(Stay { ahead, ..stay }),
            ..shape
        })
    });
    ways.into_iter()
        .flatten()
        .find(|shape| shape.fits(target))
        .unwrap_or(shape)
}

/// How many of so many tiles of a sequence a block that stays does as one, under a causal mask: a long and a short one, or each for itself. Of one
/// warpgroup, where several blocks share a multiprocessor and even out by themselves, each for itself was 1 to 12% faster, but for
/// three tiles (3% slower) and an even number from eight on (level to 2% slower): 16 shapes, heads of 64 and 128.
fn causal_strip(shape: &WarpgroupShape, tiles: u32) -> u32 {
    let odd = !tiles.is_multiple_of(2);
    match shape.groups == 1 && tiles != 3 && (odd || tiles < 8) {
        true => 1,
        false => 2,
    }
}

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

/// Entries of the list of tiles.
pub(super) fn entries(problem: &Problem, shape: &WarpgroupShape) -> u32 {
    let (queries, _) = problem.longest();
    let (rows, _) = problem.rows();
    let sequences = problem.sequences().len() as u64;
    let most = most_tiles(rows as u64, sequences, queries, shape.rows());
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// The same with levels that sums raise, where registers hold the weights of another block, too: besides the sums of results and
/// scores and the weights in halves a thread takes 32, and more where scores are changed. Without the search for maxima, which the weights
/// wait for, attention was 2 to 11 in a hundred faster (set `levels` of `attention_plans`).
pub fn with_levels(problem: &Problem, shape: WarpgroupShape) -> WarpgroupShape {
    let changes = if problem.scoring.mods.is_empty() {
        0
    } else {
        24
    };
    let taken = problem.value_dim() / 2 + shape.keys + 32 + changes;
    let rounded = problem.weights == Weights::Rounded;
    WarpgroupShape {
        lazy: rounded && shape.keys <= MOST_KEYS && taken <= shape.registers().multiplying,
        ..shape
    }
}
