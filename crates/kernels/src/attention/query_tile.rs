//! Where a tile is in memory: its sequence and head, its queries and results, its
//! keys and values.

use super::config::Config;
use super::mask::{MaskArgs, TileMask};
use super::params::{AttentionArgs, Element};
use super::problem::Output;
use super::score::{Rules, ScoreRow, Scores};
use heist_builder::{Global, Kernel, On, Ptr, SharedArray, Val};
use heist_sched::Tile;
use std::marker::PhantomData;
use std::ops::Deref;

/// A tile's part of the problem, while its keys are gone through.
pub(crate) struct QueryTile<'k, T> {
    /// Where the tile's first query row is, and its results; and where the
    /// sequence's first key is, and its value. Offsets and no pointers: the
    /// parameters cost no registers, and two tensors share an offset.
    queries: Val<'k, u64>,
    key_rows: Val<'k, u64>,
    args: AttentionArgs<On<'k>>,
    element: PhantomData<T>,
    mask: TileMask<'k>,
    /// The number of the tile's first row among all rows.
    pub(crate) row_number: Val<'k, u32>,
    sequence: Val<'k, u32>,
    head: Val<'k, u32>,
    /// The first key row of the sequence, where sequences are packed.
    k_start: Option<Val<'k, u32>>,
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

impl<'k, T> Deref for QueryTile<'k, T> {
    type Target = TileMask<'k>;
    fn deref(&self) -> &TileMask<'k> {
        &self.mask
    }
}

impl<'k, T: Element> QueryTile<'k, T> {
    /// Of a tile of `rows` query rows: along x the rows and the splits, along y
    /// the heads, along z the sequences.
    pub(crate) fn of(
        k: &Kernel<'k>,
        args: &AttentionArgs<On<'k>>,
        config: &Config,
        scores: &Scores<'_, 'k>,
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
        let mask = MaskArgs {
            kind: config.mask,
            left: args.left,
            right: args.right,
            prefix: scores.prefix(sequence),
        };
        QueryTile {
            queries,
            key_rows: kv,
            args: *args,
            element: PhantomData,
            mask: TileMask::new(first_row, q_len, keys, split, mask),
            row_number: sequence * args.lse_batch + head * args.lse_head + q_start + first_row,
            sequence,
            head,
            k_start: config.ragged.then_some(k_start),
        }
    }

    /// What becomes of the scores of a row of the tile, where something does.
    pub(crate) fn rules(
        &self,
        scores: &Scores<'_, 'k>,
        row: impl FnOnce() -> Val<'k, u32>,
    ) -> Option<Rules<'k>> {
        scores.rules(|tables| ScoreRow {
            sequence: self.sequence,
            head: self.head,
            position: self.mask.position(row()),
            keys: self.mask.keys(),
            shift: self.mask.shift(),
            first_key: self
                .k_start
                .unwrap_or_else(|| self.sequence * self.args.k_len),
            tables,
        })
    }

    /// The score of no key of the tile's head, where it has one.
    pub(crate) fn sink(&self, scores: &Scores<'_, 'k>) -> Option<Val<'k, f32>> {
        scores.sink(self.head)
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
}
