//! The first launch, for each query row: the dot product of its result and its gradient, its
//! log-sum-exp to base 2, the unit of its fixed-point accumulators; and its accumulators set to
//! zero.

use super::largest::MOST_PARTS;
use super::numbers::{Numbers, Sequences};
use super::problem::Sums;
use crate::attention::params::Element;
use crate::attention::problem::Dtype;
use heist_builder::{
    Arch, BuildError, BuiltKernel, Global, Group, Kernel, KernelSpec, On, Ptr, Val, bf16, f16,
    kernel_params,
};

kernel_params! {
    /// What the kernel works on.
    pub(crate) struct PrepareArgs {
        /// Results.
        out: Global<u16>,
        /// Their gradient.
        d_out: Global<u16>,
        /// Log-sum-exps.
        lse: Global<f32>,
        /// Log-sum-exps to base 2.
        level: Global<f32>,
        /// Products of results and their gradients.
        delta: Global<f32>,
        /// Units of a fixed-point sum in one.
        step: Global<f32>,
        /// The sums.
        sums: Global<f32>,
        /// The largest keys and values of parts of heads.
        largest: Global<f32>,
        /// First query row of each sequence, and one past the last.
        q_starts: Global<u32>,
        /// Query rows of every sequence, where all are alike.
        q_len: u32,
        /// Log-sum-exps from one sequence to the next.
        lse_batch: u32,
        /// From one head to the next.
        lse_head: u32,
        /// Numbers of rows from one sequence to the next.
        number_batch: u32,
        /// From one head to the next.
        number_head: u32,
        /// Query heads that share a key head.
        group: u32,
        /// Parts of a head.
        parts: u32,
        /// From one sequence's results to the next.
        q_batch: u32,
        /// From one row to the next.
        q_row: u32,
        /// From one head to the next.
        q_head: u32,
    }
}

/// Rows of a block: one to a warp.
pub(super) const ROWS: u32 = 8;
/// Elements that a lane takes at a time.
const PIECE: u32 = 4;
/// The level of a row that saw no key: its weights are zero.
const NO_WEIGHT: f32 = 1e30;
/// Bits of a fixed-point sum: one less than there are besides the sign, for what
/// rounding adds.
const BITS: u32 = 30;

/// What a kernel is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowShape {
    pub(super) head_dim: u32,
    pub(super) dtype: Dtype,
    pub(super) sums: Sums,
    pub(super) ragged: bool,
    pub(super) numbers: Numbers,
}

/// Builds the kernel: [`ROWS`] rows along x, heads along y, sequences along z.
pub(super) fn build(shape: RowShape, arch: Arch) -> Result<BuiltKernel<PrepareArgs>, BuildError> {
    KernelSpec::<PrepareArgs>::new("attention_prepare")
        .block(32 * ROWS)
        .build(arch, |k, args| match shape.dtype {
            Dtype::F16 => row::<f16>(k, &args, shape),
            Dtype::Bf16 => row::<bf16>(k, &args, shape),
        })
}

/// Calls `each` with the first elements of a lane's pieces of a row.
pub(super) fn each_piece<'k>(k: &Kernel<'k>, dim: u32, each: impl Fn(Val<'k, u32>)) {
    for first in (0..dim).step_by(32 * PIECE as usize) {
        let col = k.lane() * PIECE + first;
        let whole = first + 32 * PIECE <= dim;
        k.if_(k.c(whole) | col.lt(dim), || each(col));
    }
}

/// One row, by the warp that asks. Rows past the end of the sequence, up to the end of
/// its last block, have no weight and no gradient.
fn row<'k, T: Element>(k: &Kernel<'k>, args: &PrepareArgs<On<'k>>, shape: RowShape) {
    let (head, sequence) = (k.block().y, k.block().z);
    let place = (k.block().x * ROWS + k.warp()).named("row");
    let of = Sequences {
        ragged: shape.ragged,
        height: shape.numbers.height,
        q_starts: args.q_starts,
        k_starts: args.q_starts,
        q_len: args.q_len,
        k_len: args.q_len,
        number_batch: args.number_batch,
    }
    .get(sequence);
    let height = shape.numbers.height;
    k.if_(place.lt(of.queries.div_ceil(height) * height), || {
        let number = of.number + head * args.number_head + place;
        let there = place.lt(of.queries);
        let row = of.q_start + place;
        let first =
            sequence.mul_wide(args.q_batch) + row.mul_wide(args.q_row) + head.mul_wide(args.q_head);
        let (delta, size) = (k.var(0.0f32), k.var(0.0f32));
        each_piece(k, shape.head_dim, |col| {
            let load = |from: Ptr<'k, Global, u16>| {
                let at = from.cast::<T>().at(first).at(col);
                at.load_vec_readonly::<{ PIECE as usize }>()
                    .map(|value| value.cast::<f32>())
            };
            k.if_(there, || {
                for (out, d_out) in load(args.out).into_iter().zip(load(args.d_out)) {
                    delta.set(out.mul_add(d_out, delta.get()));
                    size.set(size.get() + d_out.abs());
                }
            });
            let to = args.sums.at(number.mul_wide(shape.head_dim)).at(col);
            to.store_vec([k.c(0.0f32); PIECE as usize]);
        });
        let delta = delta.get().sum(Group::Warp);
        let size = size.get().sum(Group::Warp);
        let largest =
            (shape.sums == Sums::Fixed).then(|| largest(k, args, shape, [head, sequence]));
        k.if_(k.lane().eq(0), || {
            args.delta.at(number).store(delta);
            let level = k.var(NO_WEIGHT);
            k.if_(there, || {
                let line = sequence * args.lse_batch + head * args.lse_head;
                let lse = args.lse.at(line + row).load_readonly();
                k.if_(lse.ne(f32::NEG_INFINITY), || {
                    level.set(lse * std::f32::consts::LOG2_E);
                });
            });
            args.level.at(number).store(level.get());
            if let Some([key, value]) = largest {
                // A quarter more, for rounding of weights and gradients.
                args.step.at(number).store(step(size * value * key * 2.5));
            }
        });
    });
}

/// The largest key and value of a query head's: a lane has those of a part, and NaNs are the largest of bits.
fn largest<'k>(
    k: &Kernel<'k>,
    args: &PrepareArgs<On<'k>>,
    shape: RowShape,
    [head, sequence]: [Val<'k, u32>; 2],
) -> [Val<'k, f32>; 2] {
    let kv_heads = k.grid_dim().y / args.group;
    let sequence = if shape.ragged { k.c(0) } else { sequence };
    let at = (sequence * kv_heads + head / args.group) * MOST_PARTS;
    let part = at + k.lane().min(args.parts - 1);
    let both = args.largest.at(part * 2).load_vec_readonly::<2>();
    both.map(|one| one.bitcast::<u32>().group_max(Group::Warp).bitcast())
}

/// The power of two that brings a bound to between 2^29 and 2^30. For a row without a
/// bound it is zero: its gradient is not a number.
fn step<'k>(bound: Val<'k, f32>) -> Val<'k, f32> {
    // Below it the power would be none of an f32.
    const LEAST: f32 = 1e-28;
    let exponent = bound.max(LEAST).bitcast::<u32>() >> 23;
    let step = ((bound.kernel().c(2 * 127 + BITS - 1) - exponent) << 23).bitcast::<f32>();
    bound.le(f32::MAX).select(step, 0.0)
}
