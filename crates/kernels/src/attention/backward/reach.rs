//! The mask, seen from the keys: which queries see a tile's keys.

use crate::attention::mask::MaskArgs;
use crate::attention::problem::MaskKind;
use heist_builder::{Accumulator, Bool, Val, WarpTile};

/// A tile of keys, and the queries of its sequence.
#[derive(Clone, Copy)]
pub(super) struct Reach<'k> {
    /// The tile's first key, in its sequence.
    pub(super) first_key: Val<'k, u32>,
    /// Keys of the sequence.
    pub(super) keys: Val<'k, u32>,
    /// Queries of the sequence.
    pub(super) queries: Val<'k, u32>,
    mask: MaskArgs<'k>,
    /// Row `i` has the place of key `i + shift`.
    shift: Val<'k, i32>,
    /// Keys of a tile.
    width: u32,
}

/// Some query blocks, one after the other.
#[derive(Clone, Copy)]
pub(super) struct QueryBlocks<'k> {
    /// The first.
    pub(super) begin: Val<'k, u32>,
    /// How many.
    pub(super) count: Val<'k, u32>,
}

/// How many blocks of `height` queries see some of the keys of a tile, on the host: as
/// [`Reach::blocks`].
pub(super) fn blocks_that_see(
    first_key: u32,
    width: u32,
    (queries, keys): (u32, u32),
    mask: MaskKind,
    (left, right): (i32, i32),
    height: u32,
) -> u32 {
    let [queries, keys, first_key] = [queries, keys, first_key].map(i64::from);
    let shift = keys - queries;
    let clamp = |row: i64| row.clamp(0, queries);
    let low = match mask {
        MaskKind::Full => 0,
        _ => clamp(first_key - shift - i64::from(right)),
    };
    let high = match mask {
        MaskKind::Window => {
            clamp((first_key + i64::from(width)).min(keys) - shift + i64::from(left))
        }
        _ => queries,
    };
    let height = i64::from(height);
    match high > low {
        true => ((high + height - 1) / height - low / height) as u32,
        false => 0,
    }
}

impl<'k> Reach<'k> {
    /// The same of a tile whose first key is kept elsewhere.
    pub(super) fn from(self, first_key: Val<'k, u32>) -> Self {
        Reach { first_key, ..self }
    }

    pub(super) fn new(
        first_key: Val<'k, u32>,
        width: u32,
        [queries, keys]: [Val<'k, u32>; 2],
        mask: MaskArgs<'k>,
    ) -> Reach<'k> {
        Reach {
            first_key,
            keys,
            queries,
            mask,
            shift: keys.cast::<i32>() - queries.cast::<i32>(),
            width,
        }
    }

    /// The blocks of `height` queries that see some of the tile's keys.
    pub(super) fn blocks(&self, height: u32) -> QueryBlocks<'k> {
        let k = self.keys.kernel();
        let queries = self.queries.cast::<i32>();
        let clamp = |row: Val<'k, i32>| row.max(0).min(queries).cast::<u32>();
        let low = match self.mask.kind {
            MaskKind::Full => k.c(0),
            _ => clamp(self.first_key.cast::<i32>() - self.shift - self.mask.right),
        };
        let high = match self.mask.kind {
            MaskKind::Window => {
                let past = (self.first_key + self.width).min(self.keys).cast::<i32>();
                clamp(past - self.shift + self.mask.left)
            }
            _ => self.queries,
        };
        let begin = low / height;
        let end = high.gt(low).select(high.div_ceil(height), begin);
        QueryBlocks {
            begin,
            count: end - begin,
        }
    }

    /// Whether each of the `height` queries from `first` on is there and sees all of
    /// the tile's keys, which are all there.
    pub(super) fn whole(&self, first: Val<'k, u32>, height: u32) -> Bool<'k> {
        let there = (first + height).le(self.queries) & (self.first_key + self.width).le(self.keys);
        let own = first.cast::<i32>() + self.shift;
        let key = self.first_key.cast::<i32>();
        let right = (key + (self.width as i32 - 1)).le(own + self.mask.right);
        let left = key.ge(own + (height as i32 - 1) - self.mask.left);
        match self.mask.kind {
            MaskKind::Full => there,
            MaskKind::Causal => there & right,
            MaskKind::Window => there & right & left,
        }
    }

    /// How far after the place of a thread's first query its first key is, in a tile of scores whose rows are keys from the tile's key `row`
    /// on and whose columns are queries from `first` on.
    pub(super) fn after(&self, row: Val<'k, u32>, first: Val<'k, u32>) -> Val<'k, i32> {
        let [key, query] = self.corner(row, first);
        key - query - self.shift
    }

    /// A thread's first key and query there.
    fn corner(&self, row: Val<'k, u32>, first: Val<'k, u32>) -> [Val<'k, i32>; 2] {
        let k = row.kernel();
        let key = (self.first_key + row + Accumulator::row(&k)).cast::<i32>();
        let query = (first + Accumulator::col(&k)).cast::<i32>();
        [key, query]
    }

    /// Hides scores of keys that a query does not see, or that are not there. Rows of
    /// the scores are keys, from the tile's key `row` on, and columns queries from
    /// `first` on.
    pub(super) fn hide_masked(
        &self,
        scores: &WarpTile<'k>,
        row: Val<'k, u32>,
        first: Val<'k, u32>,
    ) {
        let (_, cols) = scores.shape();
        let [key, query] = self.corner(row, first);
        let (keys, queries) = (self.keys.cast::<i32>(), self.queries.cast::<i32>());
        // How far after a query's own place a key is.
        let after = key - query - self.shift;
        for n in 0..cols {
            let Some(block) = scores.block(0, n) else {
                continue;
            };
            let n = 8 * n as i32;
            let mut values = block.get();
            for (at, value) in values.iter_mut().enumerate() {
                let (down, across) = (8 * (at as i32 / 2), at as i32 % 2);
                let after = after + (down - across - n);
                let there = (key + down).lt(keys) & (query + (n + across)).lt(queries);
                let seen = match self.mask.kind {
                    MaskKind::Full => there,
                    MaskKind::Causal => there & after.le(self.mask.right),
                    MaskKind::Window => {
                        there & after.le(self.mask.right) & after.ge(-self.mask.left)
                    }
                };
                *value = seen.select(*value, f32::NEG_INFINITY);
            }
            block.set(values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As counted pair by pair.
    #[test]
    fn the_host_counts_the_blocks_that_see_a_tile() {
        let masks = [
            (MaskKind::Full, (1000, 1000)),
            (MaskKind::Causal, (1000, 0)),
            (MaskKind::Window, (9, 2)),
            (MaskKind::Window, (0, 30)),
        ];
        let (width, height) = (16u32, 8u32);
        for (queries, keys) in [(1u32, 1u32), (40, 40), (24, 50), (50, 24), (7, 90), (0, 5)] {
            for (kind, (left, right)) in masks {
                for first in (0..keys).step_by(width as usize) {
                    let sees = |query: u32| {
                        let own = query as i32 + keys as i32 - queries as i32;
                        (first..keys.min(first + width)).any(|key| {
                            let after = key as i32 - own;
                            kind == MaskKind::Full || (after <= right && after >= -left)
                        })
                    };
                    let blocks = 0..queries.div_ceil(height);
                    let block = |at: u32| (at * height..queries.min((at + 1) * height)).any(sees);
                    let found =
                        blocks_that_see(first, width, (queries, keys), kind, (left, right), height);
                    let right = blocks.filter(|&at| block(at)).count();
                    assert_eq!(found as usize, right, "{queries} {keys} {kind:?} {first}");
                }
            }
        }
    }
}
