//! Where a tile is: its sequence and head, the keys it sees, and which of them
//! every row of it sees.

use super::config::Config;
use super::params::{AttentionArgs, Element};
use super::problem::{MaskKind, Output};
use heist_build::{Accumulator, Bool, Global, Kernel, On, Ptr, SharedArray, Val, WarpTile};
use heist_sched::Tile;
use std::marker::PhantomData;

/// A tile's part of the problem, while its keys are gone through.
pub(crate) struct Place<'k, T> {
    /// Where the tile's first query row is, and its results; and where the
    /// sequence's first key is, and its value. Offsets and no pointers: the
    /// parameters cost no registers, and two tensors share an offset.
    queries: Val<'k, u64>,
    key_rows: Val<'k, u64>,
    args: AttentionArgs<On<'k>>,
    element: PhantomData<T>,
    /// Query rows of the sequence from the tile's first on: none, where the
    /// tile lies past the end of a shorter sequence.
    pub(crate) rows: Val<'k, u32>,
    /// The tile's first query row, in its sequence.
    first_row: Val<'k, u32>,
    /// Keys of the sequence.
    keys: Val<'k, u32>,
    /// How many more keys than queries there are: row `i` has the place of key
    /// `i + shift`.
    shift: Val<'k, i32>,
    /// The number of the tile's first row among all rows.
    pub(crate) row_number: Val<'k, u32>,
    /// Which part of the keys.
    pub(crate) split: Val<'k, u32>,
    mask: MaskKind,
}

/// Where a tile's results go.
pub(crate) struct Destination<'k> {
    /// Where the tile's first row is.
    pub(crate) queries: Val<'k, u64>,
    /// Rows of the sequence from the tile's first on.
    pub(crate) rows: Val<'k, u32>,
    /// The number of the tile's first row among all rows.
    pub(crate) row_number: Val<'k, u32>,
    /// Which part of the keys.
    pub(crate) split: Val<'k, u32>,
}

/// A destination in shared memory: while the keys are gone through, registers are
/// dear.
pub(crate) struct SetAside<'k> {
    memory: SharedArray<'k, u32>,
    split: Val<'k, u32>,
}

/// Words that a [`SetAside`] takes.
pub(crate) const SET_ASIDE: u32 = 4;

impl<'k> Destination<'k> {
    /// Puts it into shared memory. A barrier must follow before it is taken, and
    /// one after that before the next is set aside.
    pub(crate) fn set_aside(self, k: &Kernel<'k>) -> SetAside<'k> {
        let memory = k.shared::<u32>("destination", SET_ASIDE);
        k.one_thread(|| {
            memory.at(0).cast::<u64>().store(self.queries);
            memory.at(2).store(self.rows);
            memory.at(3).store(self.row_number);
        });
        SetAside {
            memory,
            split: self.split,
        }
    }
}

impl<'k> SetAside<'k> {
    /// Takes it back.
    pub(crate) fn take(&self) -> Destination<'k> {
        Destination {
            queries: self.memory.at(0).cast::<u64>().load(),
            rows: self.memory.at(2).load(),
            row_number: self.memory.at(3).load(),
            split: self.split,
        }
    }
}

/// The blocks of keys that a tile goes through, `width` keys each, from the last
/// to the first.
///
/// Those at an edge of the mask come before the others, most of them, which run
/// in a loop that tests nothing. A block is known by a number that counts up:
/// minus its place, so that the loop holds one register and no bounds.
pub(crate) struct Blocks<'k> {
    /// The first number.
    pub(crate) begin: Val<'k, i32>,
    /// One past the last number of a block at an edge.
    masked: Val<'k, i32>,
    /// One past the last number.
    end: Val<'k, i32>,
    left: Option<LeftEdge<'k>>,
    width: u32,
}

/// Where a window begins, some blocks at the left edge are masked too: their
/// numbers follow those at the right edge.
struct LeftEdge<'k> {
    /// The number of the first of them.
    begin: Val<'k, i32>,
    /// How many they are.
    count: Val<'k, i32>,
    /// The first block's place.
    first: Val<'k, i32>,
}

impl<'k, T: Element> Place<'k, T> {
    /// Of a tile of `rows` query rows: along x the rows and the splits, along y
    /// the heads, along z the sequences.
    pub(crate) fn of(
        k: &Kernel<'k>,
        args: &AttentionArgs<On<'k>>,
        config: &Config,
        tile: &Tile<'k>,
    ) -> Self {
        let (sequence, head) = (tile.z, tile.y);
        let splits = config.splits.max(1);
        let (across, split) = (tile.x / splits, tile.x % splits);
        let first_row = (across * config.rows()).named("first_row");
        let (q_start, q_len, k_start, keys) = if config.ragged {
            let (q, kv) = (args.q_starts.at(sequence), args.k_starts.at(sequence));
            let (q_start, k_start) = (q.load_readonly(), kv.load_readonly());
            let q_len = q.at(1).load_readonly() - q_start;
            (q_start, q_len, k_start, kv.at(1).load_readonly() - k_start)
        } else {
            (k.c(0), args.q_len, k.c(0), args.k_len)
        };
        let kv_head = head / args.group;
        let queries = sequence.mul_wide(args.q_batch)
            + (q_start + first_row).mul_wide(args.q_row)
            + head.mul_wide(args.q_head);
        let kv = sequence.mul_wide(args.k_batch)
            + k_start.mul_wide(args.k_row)
            + kv_head.mul_wide(args.k_head);
        Place {
            queries,
            key_rows: kv,
            args: *args,
            element: PhantomData,
            rows: q_len.max(first_row) - first_row,
            first_row,
            keys,
            shift: keys.cast::<i32>() - q_len.cast::<i32>(),
            row_number: sequence * args.lse_batch + head * args.lse_head + q_start + first_row,
            split,
            mask: config.mask,
        }
    }

    /// Where its results go.
    pub(crate) fn destination(&self) -> Destination<'k> {
        Destination {
            queries: self.queries,
            rows: self.rows,
            row_number: self.row_number,
            split: self.split,
        }
    }

    /// The tile's first query row.
    pub(crate) fn q(&self) -> Ptr<'k, Global, T> {
        self.args.q.cast::<T>().at(self.queries)
    }

    /// Writes neighbouring results, an even number of them, `at` elements after
    /// the tile's first.
    pub(crate) fn store(&self, output: Output, at: Val<'k, u32>, values: &[Val<'k, f32>]) {
        let halves = self.args.out.cast::<T>().at(self.queries).at(at);
        let wide = self.args.out.cast::<f32>().at(self.queries).at(at);
        for (index, pair) in values.chunks_exact(2).enumerate() {
            let pair = [pair[0], pair[1]];
            match output {
                Output::Same => {
                    let packed = Val::pack_as::<T>(pair[0], pair[1]);
                    halves.at(2 * index).cast::<T::Pair>().store(packed);
                }
                Output::F32 => wide.at(2 * index).store_vec(pair),
            }
        }
    }

    /// A key of the sequence.
    pub(crate) fn k(&self, key: Val<'k, u32>) -> Ptr<'k, Global, T> {
        self.args.k.cast::<T>().at(self.key_offset(key))
    }

    /// A value of the sequence.
    pub(crate) fn v(&self, key: Val<'k, u32>) -> Ptr<'k, Global, T> {
        self.args.v.cast::<T>().at(self.key_offset(key))
    }

    /// From one key to the next.
    pub(crate) fn key_pitch(&self) -> Val<'k, u32> {
        self.args.k_row
    }

    fn key_offset(&self, key: Val<'k, u32>) -> Val<'k, u64> {
        self.key_rows + key.mul_wide(self.args.k_row)
    }

    /// The blocks of `width` keys that a tile of `height` rows goes through.
    pub(crate) fn blocks(&self, height: u32, width: u32, splits: u32) -> Blocks<'k> {
        let k = self.rows.kernel();
        let keys = self.keys.cast::<i32>();
        let top = self.first_row.cast::<i32>() + self.shift;
        let bottom = top + self.rows.min(height).cast::<i32>();
        let clamp = |key: Val<'k, i32>| key.max(0).min(keys).cast::<u32>();
        // What some row sees, and what every row sees.
        let (seen, by_all) = match self.mask {
            MaskKind::Full => (self.keys, self.keys),
            _ => (
                clamp(bottom + self.args.right),
                clamp(top + self.args.right + 1),
            ),
        };
        let (from, from_all) = match self.mask {
            MaskKind::Window => (
                clamp(top - self.args.left),
                Some(clamp(bottom - 1 - self.args.left)),
            ),
            _ => (k.c(0), None),
        };
        let (mut first, mut last) = (from / width, seen.div_ceil(width));
        last = seen.gt(from).select(last, first);
        if splits > 1 {
            let each = (last - first).div_ceil(splits);
            let begin = (first + self.split * each).min(last);
            last = (begin + each).min(last);
            first = begin;
        }
        let inside = (by_all / width).max(first).min(last);
        let place = |block: Val<'k, u32>| k.c(1) - block.cast::<i32>();
        let left = from_all.map(|from| LeftEdge {
            begin: place(inside),
            count: (from.div_ceil(width).max(first).min(inside) - first).cast(),
            first: first.cast(),
        });
        let at_left = left.as_ref().map_or(k.c(0), |left| left.count);
        Blocks {
            begin: place(last),
            masked: place(inside) + at_left,
            end: place(first),
            left,
            width,
        }
    }

    /// Keys of the sequence from `first` on.
    pub(crate) fn keys_from(&self, first: Val<'k, u32>) -> Val<'k, u32> {
        self.keys - first
    }

    /// One past the last key that row `row` of the tile sees, and its first.
    pub(crate) fn seen_by(&self, row: Val<'k, u32>) -> Seen<'k> {
        let keys = self.keys.cast::<i32>();
        let own = (self.first_row + row).cast::<i32>() + self.shift;
        Seen {
            end: match self.mask {
                MaskKind::Full => keys,
                _ => keys.min(own + self.args.right + 1),
            },
            start: (self.mask == MaskKind::Window).then(|| own - self.args.left),
        }
    }
}

impl<'k> Blocks<'k> {
    /// Loops over the blocks: `body` is given a block's number, and whether it is
    /// at an edge.
    pub(crate) fn each(&self, body: impl Fn(Val<'k, i32>, bool)) {
        let k = self.begin.kernel();
        k.comment("blocks at an edge of the mask");
        k.for_range(self.begin, self.masked, |number| body(number, true));
        k.comment("blocks that every row sees");
        k.for_range(self.masked, self.end, |number| body(number, false));
    }

    /// The same with a block's first key.
    pub(crate) fn each_with_first_key(&self, body: impl Fn(Val<'k, u32>, bool)) {
        self.each(|number, masked| body(self.first_key(number), masked));
    }

    /// Whether there is a block of that number, which is not below the first.
    pub(crate) fn has(&self, number: Val<'k, i32>) -> Bool<'k> {
        number.lt(self.end)
    }

    /// The first key of a block.
    pub(crate) fn first_key(&self, number: Val<'k, i32>) -> Val<'k, u32> {
        let down = -number;
        let block = match &self.left {
            None => down,
            Some(left) => {
                let at_left = number.ge(left.begin) & number.lt(self.masked);
                let later = number.ge(self.masked).select(down + left.count, down);
                at_left.select(left.first + (number - left.begin), later)
            }
        };
        block.cast::<u32>() * self.width
    }
}

/// The keys that one row sees.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'k> {
    end: Val<'k, i32>,
    start: Option<Val<'k, i32>>,
}

impl<'k> Seen<'k> {
    /// Whether `key` is one of them.
    pub(crate) fn has(&self, key: Val<'k, i32>) -> Bool<'k> {
        let before = key.lt(self.end);
        self.start.map_or(before, |start| before & key.ge(start))
    }

    /// The score of `key`, or minus infinity where it is not seen.
    pub(crate) fn or_hidden(&self, key: Val<'k, i32>, score: Val<'k, f32>) -> Val<'k, f32> {
        self.has(key).select(score, f32::NEG_INFINITY)
    }
}

/// Hides the scores of keys that their rows do not see. `seen` has two rows for
/// each 16 of the tile of scores, whose first column is key `first`.
pub(crate) fn hide<'k>(scores: &WarpTile<'k>, seen: &[[Seen<'k>; 2]], first: Val<'k, u32>) {
    let (_, cols) = scores.shape();
    let first = (first + Accumulator::col(&first.kernel())).cast::<i32>();
    for (m, rows) in seen.iter().enumerate() {
        for n in 0..cols {
            let Some(block) = scores.block(m, n) else {
                continue;
            };
            let key = first + 8 * n as i32;
            let [a, b, c, d] = block.get();
            block.set([
                rows[0].or_hidden(key, a),
                rows[0].or_hidden(key + 1, b),
                rows[1].or_hidden(key, c),
                rows[1].or_hidden(key + 1, d),
            ]);
        }
    }
}
