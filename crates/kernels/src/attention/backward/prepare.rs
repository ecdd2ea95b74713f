//! The first launch, for each query row: the dot product of its result and its gradient, its
//! log-sum-exp to base 2, the unit of its fixed-point accumulators; and its accumulators set to
//! zero.

use super::largest::MOST_PARTS;
use super::numbers::{Numbers, Sequences};
use super::problem::Sums;
use crate::attention::params::Element;
use crate::attention::problem::Dtype;
use crate::overlap::wait;
use heist_builder::{
    Arch, BuildError, BuiltKernel, Feature, Global, Group, Kernel, KernelSpec, On, Ptr, Val, bf16,
    f16, kernel_params,
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

/// Rows of a block: a part of every block of queries of the main kernels.
pub(super) const ROWS: u32 = 32;
const WARPS: u32 = 8;
/// Elements that a lane loads at a time: 16 bytes.
const PIECE: u32 = 8;
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
        .block(32 * WARPS)
        .build(arch, |k, args| match shape.dtype {
            Dtype::F16 => rows::<f16>(k, &args, shape, arch),
            Dtype::Bf16 => rows::<bf16>(k, &args, shape, arch),
        })
}

/// The rows of a block, some to a warp and as many of these at a time as it has lanes for. Rows past the end of the sequence, up to the end
/// of its last block, have no weight and no gradient.
fn rows<'k, T: Element>(k: &Kernel<'k>, args: &PrepareArgs<On<'k>>, shape: RowShape, arch: Arch) {
    let (head, sequence) = (k.block().y, k.block().z);
    let first = (k.block().x * ROWS).named("first");
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
    let (dim, height) = (shape.head_dim, shape.numbers.height);
    k.if_(first.lt(of.queries.div_ceil(height) * height), || {
        let number = of.number + head * args.number_head + first;
        let (lanes, group) = match dim / PIECE {
            ..=8 => (8, Group::Eight),
            9..=16 => (16, Group::Sixteen),
            _ => (32, Group::Warp),
        };
        let chunk = k.lane() % lanes;
        let inside = k.c(dim == lanes * PIECE) | chunk.lt(dim / PIECE);
        let col = (chunk * PIECE).min(dim - PIECE);
        let line = sequence.mul_wide(args.q_batch) + head.mul_wide(args.q_head);
        let trips = ROWS * lanes / (32 * WARPS);
        // All loads before the first of them is waited for; those of rows that there are not give what nobody uses.
        let loaded: Vec<_> = (0..trips)
            .map(|trip| {
                let place = (k.warp() * trips + trip) * (32 / lanes) + k.lane() / lanes;
                let row = of.q_start + (first + place).min(of.queries - 1);
                let at = line + row.mul_wide(args.q_row);
                let load = |from: Ptr<'k, Global, u16>| {
                    let from = from.at(at).at(col).cast::<u32>();
                    from.load_vec::<4>()
                };
                (place, load(args.out), load(args.d_out))
            })
            .collect();
        clear(k, args.sums.at(number.mul_wide(dim)), ROWS * dim);
        let largest = (shape.sums == Sums::Fixed).then(|| {
            // A block begins when all of the search for the largest have seen the end of what was launched before it: all but its
            // results may be read before.
            if !shape.ragged && arch.supports(Feature::GridDependency) {
                wait(k);
            }
            largest(k, args, shape, [head, sequence])
        });
        for (place, out, d_out) in loaded {
            let there = (first + place).lt(of.queries);
            let (mut delta, mut size) = (k.c(0.0f32), k.c(0.0f32));
            for (out, d_out) in out.into_iter().zip(d_out) {
                for (out, d_out) in halves::<T>(out).into_iter().zip(halves::<T>(d_out)) {
                    delta = out.mul_add(d_out, delta);
                    size = size + d_out.abs();
                }
            }
            let [delta, size] = [delta, size].map(|sum| {
                let own = (inside & there).select(sum, 0.0);
                own.sum(group)
            });
            k.if_(chunk.eq(0), || {
                let number = number + place;
                args.delta.at(number).store(delta);
                let level = k.var(NO_WEIGHT);
                k.if_(there, || {
                    let line = sequence * args.lse_batch + head * args.lse_head;
                    let lse = args.lse.at(line + of.q_start + first + place);
                    let lse = lse.load();
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
        }
    });
}

/// The two numbers of a word.
fn halves<'k, T: Element>(word: Val<'k, u32>) -> [Val<'k, f32>; 2] {
    [word, word >> 16].map(|word| word.cast::<u16>().bitcast::<T>().cast())
}

/// All threads of the block set so many numbers to zero.
fn clear<'k>(k: &Kernel<'k>, from: Ptr<'k, Global, f32>, count: u32) {
    let threads = 32 * WARPS;
    for first in (0..count / 4).step_by(threads as usize) {
        let index = k.thread_index() + first;
        let whole = first + threads <= count / 4;
        k.if_(k.c(whole) | index.lt(count / 4), || {
            from.at(index * 4).store_vec([k.c(0.0f32); 4]);
        });
    }
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
    let both = args.largest.at(part * 2).load_vec::<2>();
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
