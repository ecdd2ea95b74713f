//! The gradient of the queries: accumulators, scaled and rounded.

use super::key_gradients;
use super::numbers::{Sequence, Sequences};
use super::prepare::RowShape;
use super::problem::Sums;
use super::warpgroup::layout;
use crate::attention::params::Element;
use crate::attention::problem::Dtype;
use heist_builder::{
    Arch, BuildError, BuiltKernel, Global, Kernel, KernelSpec, On, Val, bf16, f16, kernel_params,
};

kernel_params! {
    /// What the kernel works on.
    pub(crate) struct QueryGradientArgs {
        /// The sums.
        sums: Global<f32>,
        /// Units of a fixed-point sum in one.
        step: Global<f32>,
        /// The gradient of the queries.
        dq: Global<u16>,
        /// The gradient of the keys.
        dk: Global<u16>,
        /// The gradient of the values.
        dv: Global<u16>,
        /// Parts of these two, where tiles of keys are cut.
        partials: Global<f32>,
        /// First query row of each sequence, and one past the last.
        q_starts: Global<u32>,
        /// First key row of each sequence, and one past the last.
        k_starts: Global<u32>,
        /// Query rows of every sequence, where all are alike.
        q_len: u32,
        /// Key rows of every sequence, where all are alike.
        k_len: u32,
        /// Numbers of rows from one sequence to the next.
        number_batch: u32,
        /// From one head to the next.
        number_head: u32,
        /// From one sequence of queries to the next.
        q_batch: u32,
        /// From one row to the next.
        q_row: u32,
        /// From one head to the next.
        q_head: u32,
        /// From one sequence of keys to the next.
        k_batch: u32,
        /// From one row to the next.
        k_row: u32,
        /// From one head to the next.
        k_head: u32,
        /// Query heads.
        heads: u32,
        /// Key heads.
        kv_heads: u32,
        /// Tiles of keys of a key head.
        key_tiles: u32,
        /// Parts of a tile.
        parts: u32,
        /// The factor of the scores.
        scale: f32,
    }
}

/// Rows of a block: one to a warp.
pub(super) const ROWS: u32 = 8;
/// Elements that a lane takes at a time.
const PIECE: u32 = 4;

/// Builds the kernel: [`ROWS`] rows along x, heads along y, sequences along z.
pub(super) fn build(
    shape: RowShape,
    arch: Arch,
) -> Result<BuiltKernel<QueryGradientArgs>, BuildError> {
    KernelSpec::<QueryGradientArgs>::new("attention_finish")
        .block(32 * ROWS)
        .build(arch, |k, args| match shape.dtype {
            Dtype::F16 => row::<f16>(k, &args, shape),
            Dtype::Bf16 => row::<bf16>(k, &args, shape),
        })
}

/// Builds the kernel for sums in the order of a warpgroup's registers: pieces of 64 rows
/// along x, heads along y, sequences along z. Where tiles of keys were cut, parts of dK and dV are added up by what is behind the heads
/// along y, [`key_gradients::blocks`] for each key head.
pub(super) fn build_pieces(
    shape: RowShape,
    cut: bool,
    arch: Arch,
) -> Result<BuiltKernel<QueryGradientArgs>, BuildError> {
    let mut spec = KernelSpec::<QueryGradientArgs>::new("attention_finish_pieces").block(128);
    if cut {
        // 64 registers: by itself ptxas takes 56 here, and spills.
        spec = spec.min_blocks(8);
    }
    spec.build(arch, |k, args| match shape.dtype {
        Dtype::F16 => pieces::<f16>(k, &args, shape, cut),
        Dtype::Bf16 => pieces::<bf16>(k, &args, shape, cut),
    })
}

/// One piece of dQ, or of dK or dV.
fn pieces<'k, T: Element>(
    k: &Kernel<'k>,
    args: &QueryGradientArgs<On<'k>>,
    shape: RowShape,
    cut: bool,
) {
    let y = k.block().y;
    match cut {
        true => k.if_else(
            y.lt(args.heads),
            || piece::<T>(k, args, shape),
            || key_gradients::add_up::<T>(k, args, shape, y - args.heads),
        ),
        false => piece::<T>(k, args, shape),
    }
}

/// One piece of dQ.
fn piece<'k, T: Element>(k: &Kernel<'k>, args: &QueryGradientArgs<On<'k>>, shape: RowShape) {
    let (head, thread) = (k.block().y, k.thread_index());
    let of = sequence(args, &shape, k.block().z);
    let first = (k.block().x >> 1) * shape.numbers.height;
    k.if_(first.lt(of.queries), || {
        let number = of.number + head * args.number_head + first;
        let which = k.block().x & 1;
        let from = args
            .sums
            .at(number.mul_wide(shape.head_dim))
            .at(layout::begin(shape.head_dim, which));
        let [row, col] = layout::corner(shape.head_dim, which, thread);
        // Two neighbours of each part become all eight of one part in four.
        let col = col + (thread & 3) * 6;
        let factors = [0, 8].map(|down| factor(args, &shape, number + row + down));
        let way = layout::Way::of(shape.sums, shape.head_dim);
        let store = |columns: u32| {
            let parts: Vec<_> = (0..columns / layout::COLUMNS)
                .map(|part| layout::load(from, way, thread, (columns / layout::COLUMNS, part)))
                .collect();
            for (at, factor) in factors.into_iter().enumerate() {
                let words = parts.iter().map(|values| {
                    let pair = [values[2 * at], values[2 * at + 1]].map(|value| value * factor);
                    Val::pack_as::<T>(pair[0], pair[1]).bitcast::<u32>()
                });
                let words: Vec<_> = words.collect();
                let words: Vec<_> = words
                    .chunks(4)
                    .map(|words| (words.len() as u32, whole_part(words)))
                    .collect();
                let row = first + row + 8 * at as u32;
                k.if_(row.lt(of.queries), || {
                    let to = k.block().z.mul_wide(args.q_batch)
                        + (of.q_start + row).mul_wide(args.q_row)
                        + head.mul_wide(args.q_head);
                    let to = args.dq.cast::<T>().at(to).at(col);
                    for (four, (parts, words)) in words.iter().enumerate() {
                        k.if_(k.c(*parts == 4) | (thread & 3).lt(*parts), || {
                            to.at(32 * four).cast::<u32>().store_vec(*words);
                        });
                    }
                });
            }
        };
        match layout::columns(shape.head_dim) {
            [first, second] if first == second => store(first),
            [first, second] => k.if_else(which.eq(0), || store(first), || store(second)),
        }
    });
}

/// Of up to four parts of which each of the four lanes of a row has a word, the one whose number is the lane's: 16 bytes to store.
pub(super) fn whole_part<'k>(words: &[Val<'k, u32>]) -> [Val<'k, u32>; 4] {
    let k = words[0].kernel();
    let words = [0, 1, 2, 3].map(|part| words.get(part).copied().unwrap_or(k.c(0)));
    let odd = (k.lane() & 1).ne(0);
    let upper = (k.lane() & 2).ne(0);
    // Of the first part of each pair, or of the second, in odd lanes.
    let [a, b] = [0, 2].map(|at| {
        let other = odd.select(words[at], words[at + 1]).shuffle_xor(1u32);
        [
            odd.select(other, words[at]),
            odd.select(words[at + 1], other),
        ]
    });
    let others = [0, 1].map(|at| upper.select(a[at], b[at]).shuffle_xor(2u32));
    let at = |at: usize| match at {
        0 | 1 => upper.select(others[at], a[at]),
        _ => upper.select(b[at - 2], others[at - 2]),
    };
    [at(0), at(1), at(2), at(3)]
}

/// Where the rows of a sequence are.
pub(super) fn sequence<'k>(
    args: &QueryGradientArgs<On<'k>>,
    shape: &RowShape,
    sequence: Val<'k, u32>,
) -> Sequence<'k> {
    Sequences {
        ragged: shape.ragged,
        height: shape.numbers.height,
        q_starts: args.q_starts,
        k_starts: args.k_starts,
        q_len: args.q_len,
        k_len: args.k_len,
        number_batch: args.number_batch,
    }
    .get(sequence)
}

/// Calls `each` with the first elements of a lane's pieces of a row.
fn each_piece<'k>(k: &Kernel<'k>, dim: u32, each: impl Fn(Val<'k, u32>)) {
    for first in (0..dim).step_by(32 * PIECE as usize) {
        let col = k.lane() * PIECE + first;
        let whole = first + 32 * PIECE <= dim;
        k.if_(k.c(whole) | col.lt(dim), || each(col));
    }
}

/// What a row's sums are multiplied with.
fn factor<'k>(
    args: &QueryGradientArgs<On<'k>>,
    shape: &RowShape,
    number: Val<'k, u32>,
) -> Val<'k, f32> {
    match shape.sums {
        Sums::Float => args.scale,
        Sums::Fixed => {
            // Powers of two, so this is exact; of no unit it is infinite, and nothing
            // times that is not a number.
            let step = args.step.at(number).load_readonly();
            args.scale.div_approx(step)
        }
    }
}

fn row<'k, T: Element>(k: &Kernel<'k>, args: &QueryGradientArgs<On<'k>>, shape: RowShape) {
    let head = k.block().y;
    let place = (k.block().x * ROWS + k.warp()).named("row");
    let of = sequence(args, &shape, k.block().z);
    k.if_(place.lt(of.queries), || {
        let number = of.number + head * args.number_head + place;
        let factor = factor(args, &shape, number);
        let first = k.block().z.mul_wide(args.q_batch)
            + (of.q_start + place).mul_wide(args.q_row)
            + head.mul_wide(args.q_head);
        each_piece(k, shape.head_dim, |col| {
            let at = args.sums.at(number.mul_wide(shape.head_dim)).at(col);
            let values: [Val<'k, f32>; 4] = match shape.sums {
                Sums::Float => at.load_vec_readonly(),
                Sums::Fixed => {
                    let whole = at.cast::<i32>().load_vec_readonly::<4>();
                    whole.map(|value| value.cast::<f32>())
                }
            };
            let [a, b, c, d] = values.map(|value| value * factor);
            let to = args.dq.cast::<T>().at(first).at(col);
            let pairs = [Val::pack_as::<T>(a, b), Val::pack_as::<T>(c, d)];
            to.cast::<T::Pair>().store_vec(pairs);
        });
    });
}
