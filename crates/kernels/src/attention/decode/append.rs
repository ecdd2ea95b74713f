//! New keys and values, put into the cache behind those that it has.
//!
//! The block of a tile has the keys of a stage in shared memory before it multiplies them. In a stage with new keys it
//! writes these there, over what was copied, and into the cache: nobody reads them from the cache in this launch, so
//! nobody waits. Where several tiles have the same keys, one would copy what another writes; there a
//! launch before appends ([`emit`]).

use super::DecodeArgs;
use super::shape::{DecodeShape, Storage};
use super::work::{Part, Sequence, Work};
use crate::attention::params::Element;
use crate::attention::score::Scores;
use heist_builder::{E4m3, Global, Kernel, On, Ptr, SharedTile, Val, f16};

/// Threads of a block of the launch.
pub(super) const THREADS: u32 = 128;

/// The launch: a block for each sequence along x, of each key head along y.
pub(super) fn emit<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    scores: &Scores<'_, 'k>,
) {
    let sequence = Work::of(k, shape, args, scores).sequence(k.block().x);
    let new = New {
        shape,
        args,
        sequence,
        kv_head: k.block().y,
    };
    let all = [sequence.held, sequence.keys];
    new.each_piece::<T>(all, (k.thread_index(), THREADS), |_| {});
}

/// Puts the new rows of a stage, whose first key is `first`, into the stage and into the cache: `threads` threads, of
/// which this is number `thread`. They must meet before anyone reads the stage.
pub(super) fn into_stage<'k, T: Element>(
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    (stage, first): (&SharedTile<'k, f16>, Val<'k, u32>),
    by: (Val<'k, u32>, u32),
) {
    let Part {
        sequence, kv_head, ..
    } = *part;
    let end = sequence.keys.min(first + shape.keys);
    let rows = [sequence.held.max(first).min(end), end];
    let new = New {
        shape,
        args,
        sequence,
        kv_head,
    };
    new.each_piece::<T>(rows, by, |piece| {
        let panel = piece.chunk / stage.chunks() * shape.panel_rows();
        let which = piece.which * shape.panels() * shape.keys;
        let row = panel + shape.row_of(piece.key - first) + which;
        let to = stage.chunk(row, piece.chunk % stage.chunks());
        to.cast::<u32>().store_vec(piece.words);
    });
}

/// The new rows of a key head.
struct New<'a, 'k> {
    shape: &'a DecodeShape,
    args: &'a DecodeArgs<On<'k>>,
    sequence: Sequence<'k>,
    kv_head: Val<'k, u32>,
}

/// 16 bytes of a new row, as the cache has them.
struct Piece<'k> {
    /// 0: of a key, 1: of a value.
    which: u32,
    key: Val<'k, u32>,
    chunk: Val<'k, u32>,
    words: [Val<'k, u32>; 4],
}

impl<'k> New<'_, 'k> {
    /// Puts the rows from one key to another into the cache, and calls `also` with every piece of them.
    fn each_piece<T: Element>(
        &self,
        [from, to]: [Val<'k, u32>; 2],
        (thread, threads): (Val<'k, u32>, u32),
        also: impl Fn(&Piece<'k>),
    ) {
        let (k, args, chunks) = (from.kernel(), self.args, self.shape.row_chunks());
        k.for_step(thread, (to - from) * chunks, threads, |index| {
            let (key, chunk) = (from + index / chunks, index % chunks);
            let row = self.sequence.number * args.new + (key - self.sequence.held);
            let given = (
                row.mul_wide(args.kv_heads) + self.kv_head.cast::<u64>(),
                chunk,
            );
            let place = self.place(key).mul_wide(args.kv_heads) + self.kv_head.cast::<u64>();
            let at = place * u64::from(4 * chunks) + (chunk * 4).cast::<u64>();
            for (which, new, cache, scale) in [
                (0, args.k_new, args.k_cache, args.k_scale),
                (1, args.v_new, args.v_cache, args.v_scale),
            ] {
                let words = self.words::<T>(new, scale, given);
                cache.at(at).store_vec(words);
                also(&Piece {
                    which,
                    key,
                    chunk,
                    words,
                });
            }
        });
    }

    /// The row of all pages that a key is.
    fn place(&self, key: Val<'k, u32>) -> Val<'k, u32> {
        let Storage::Paged(size) = self.shape.storage else {
            return key;
        };
        let table = self.sequence.number.mul_wide(self.args.table_row);
        let page = self.args.pages.at(table).at(key / size).load_readonly();
        page * size + key % size
    }

    /// Piece `chunk` of a row, as the cache has it.
    fn words<T: Element>(
        &self,
        new: Ptr<'k, Global, u32>,
        scale: Ptr<'k, Global, f32>,
        (row, chunk): (Val<'k, u64>, Val<'k, u32>),
    ) -> [Val<'k, u32>; 4] {
        let chunks = self.shape.row_chunks();
        let rounds = self.shape.append.is_some_and(|append| append.rounds);
        if !rounds {
            let at = row * u64::from(4 * chunks);
            return new.at(at).at(chunk * 4).load_vec_readonly::<4>();
        }
        let head = self.kv_head * self.shape.heads + chunk / self.shape.head_chunks();
        let scale = scale.at(head).load_readonly();
        let from = new
            .cast::<T>()
            .at(row * u64::from(16 * chunks))
            .at(chunk * 16);
        [0u32, 4, 8, 12].map(|four| {
            let values = from.at(four).load_vec::<4>();
            let [a, b, c, d] = values.map(|value| value.cast::<f32>() / scale);
            let [low, high] =
                [(a, b), (c, d)].map(|(a, b)| Val::pack_tiny::<E4m3>(a, b).cast::<u32>());
            low | high << 16
        })
    }
}
