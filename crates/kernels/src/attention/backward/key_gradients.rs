//! The gradients of keys and values, where tiles were cut into parts: these, added in their order and rounded.

use super::prepare::RowShape;
use super::query_gradient::{QueryGradientArgs, sequence, whole_part};
use super::warpgroup::layout;
use crate::attention::params::Element;
use heist_builder::{Global, Kernel, On, Ptr, Val};

/// Columns of a block.
const COLUMNS: u32 = 4 * layout::COLUMNS;

/// Blocks for the columns of a key head, for dK and for dV.
pub(super) fn blocks(dim: u32) -> u32 {
    2 * dim.div_ceil(COLUMNS)
}

/// 64 keys, some columns of dK or dV: `number` counts them, for all key heads.
pub(super) fn add_up<'k, T: Element>(
    k: &Kernel<'k>,
    args: &QueryGradientArgs<On<'k>>,
    shape: RowShape,
    number: Val<'k, u32>,
) {
    let dim = shape.head_dim;
    let chunks = dim.div_ceil(COLUMNS);
    let [chunk, which] = [number % chunks, number / chunks % 2];
    let (head, batch) = (number / (2 * chunks), k.block().z);
    let of = sequence(args, &shape, batch);
    let first = k.block().x * layout::ROWS;
    k.if_(first.lt(of.keys), || {
        let tile = (batch * args.kv_heads + head) * args.key_tiles + (k.block().x >> 1);
        let piece = layout::part(dim, [tile, which, k.block().x & 1], args.parts);
        let from = args.partials.at(piece);
        let (thread, columns) = (k.thread_index(), dim / layout::COLUMNS);
        let sums = [(); 4].map(|()| [(); 4].map(|()| k.var(0.0f32)));
        k.for_unrolled::<4>(0u32, args.parts, |part| {
            let from = from.at(part.mul_wide(layout::ROWS * dim));
            for (at, sums) in (0..).zip(&sums) {
                // What is behind the last column is not stored.
                let index = (chunk * 4 + at).min(columns - 1);
                let values: [Val<'k, f32>; 4] =
                    layout::four(from, thread, index).load_vec_readonly();
                for (sum, value) in sums.iter().zip(values) {
                    sum.update(|sum| sum + value);
                }
            }
        });
        let factor = which.eq(0).select(args.scale, 1.0);
        let lane = thread & 3;
        for half in 0..2 {
            let words = sums.iter().map(|values| {
                let pair =
                    [values[2 * half], values[2 * half + 1]].map(|value| value.get() * factor);
                Val::pack_as::<T>(pair[0], pair[1]).bitcast::<u32>()
            });
            let words = whole_part(&words.collect::<Vec<_>>());
            let row = first + (thread / 32) * 16 + ((thread & 31) >> 2) + 8 * half as u32;
            let inside = k.c(dim.is_multiple_of(COLUMNS)) | (chunk * 4 + lane).lt(columns);
            k.if_(inside & row.lt(of.keys), || {
                let at = batch.mul_wide(args.k_batch)
                    + (of.k_start + row).mul_wide(args.k_row)
                    + head.mul_wide(args.k_head);
                let at = at + (chunk * COLUMNS + lane * 8).cast::<u64>();
                let store = |to: Ptr<'k, Global, u16>| {
                    to.at(at).cast::<u32>().store_vec(words);
                };
                k.if_else(which.eq(0), || store(args.dk), || store(args.dv));
            });
        }
    });
}
