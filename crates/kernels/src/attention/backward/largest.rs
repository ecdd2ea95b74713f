//! The largest key and the largest value of each head, which bound the gradient of a query.
//!
//! The weights of a row add up to one, no `|dP|` and no `|delta|` exceeds the sum of
//! the row's `|dO|` times the largest `|V|`; so no element of `dS K`, nor any part of
//! its sum, exceeds twice that times the largest `|K|`. A fixed-point sum with a unit
//! of that bound over 2^29 or more can't overflow, whatever the order.

use crate::attention::params::Element;
use crate::attention::problem::Dtype;
use crate::overlap::overlap;
use heist_builder::{
    Arch, BuildError, BuiltKernel, Feature, Global, Kernel, KernelSpec, On, Ptr, Val, Var, bf16,
    block_reduce, f16, kernel_params,
};

kernel_params! {
    /// What the kernel works on.
    pub(crate) struct LargestArgs {
        /// Keys.
        k: Global<u16>,
        /// Values.
        v: Global<u16>,
        /// The largest key of each part of each head of each sequence, or of all packed ones, and
        /// the largest value: [`MOST_PARTS`] places for each head.
        largest: Global<f32>,
        /// Rows of a sequence, or of all packed ones.
        rows: u32,
        /// From one sequence to the next.
        k_batch: u32,
        /// From one row to the next.
        k_row: u32,
        /// From one head to the next.
        k_head: u32,
    }
}

const THREADS: u32 = 512;

/// Parts that the rows of a head are at the most: as many as a warp has lanes.
pub(super) const MOST_PARTS: u32 = 32;

/// Parts of each of so many heads: blocks for all multiprocessors.
pub(super) fn parts(heads: u32, rows: u32, sms: u32) -> u32 {
    const BLOCKS_OF_ONE: u32 = 4;
    let wanted = (BLOCKS_OF_ONE * sms).div_ceil(heads.max(1));
    wanted.min(rows.div_ceil(64)).clamp(1, MOST_PARTS)
}

/// Builds the kernel: a block for each key head (x) of each sequence (y), and for each part of its rows (z).
pub(super) fn build(
    dim: u32,
    dtype: Dtype,
    arch: Arch,
) -> Result<BuiltKernel<LargestArgs>, BuildError> {
    KernelSpec::<LargestArgs>::new("attention_largest")
        .block(THREADS)
        .build(arch, |k, args| {
            if arch.supports(Feature::GridDependency) {
                overlap(k);
            }
            match dtype {
                Dtype::F16 => head::<f16>(k, &args, dim),
                Dtype::Bf16 => head::<bf16>(k, &args, dim),
            }
        })
}

fn head<'k, T: Element>(k: &Kernel<'k>, args: &LargestArgs<On<'k>>, dim: u32) {
    let (head, sequence) = (k.block().x, k.block().y);
    let first = sequence.mul_wide(args.k_batch) + head.mul_wide(args.k_head);
    let number = (sequence * k.grid_dim().x + head) * MOST_PARTS + k.block().z;
    let both = largest_bits(k, args, [args.k, args.v].map(|from| from.at(first)), dim);
    for (at, bits) in both.into_iter().enumerate() {
        let bits = block_reduce(bits, 0, Val::max);
        k.one_thread(|| {
            let largest: Val<'k, T> = bits.cast::<u16>().bitcast();
            args.largest
                .at(number * 2 + at as u32)
                .store(largest.cast());
        });
    }
}

/// The bits of halves without their signs are ordered as their sizes, NaNs last. Keys and values are asked for together: of short sequences this is
/// one wait for memory.
fn largest_bits<'k>(
    k: &Kernel<'k>,
    args: &LargestArgs<On<'k>>,
    from: [Ptr<'k, Global, u16>; 2],
    dim: u32,
) -> [Val<'k, u32>; 2] {
    let chunks = dim / 8;
    let largest = [k.var(0u32), k.var(0u32)];
    let step = THREADS / chunks;
    let (row, chunk) = (k.thread_index() / chunks, k.thread_index() % chunks);
    k.if_(row.lt(step), || {
        let row = k.block().z * step + row;
        let apart = k.grid_dim().z * step;
        let own = (args.rows.max(row) - row + apart - 1) / apart;
        k.for_unrolled::<4>(0u32, own, |trip| {
            let row = trip.mul_add(apart, row);
            let words = from.map(|from| {
                let at = from.at(row.mul_wide(args.k_row)).at(chunk * 8);
                at.cast::<u32>().load_vec::<4>()
            });
            for (largest, words) in largest.iter().zip(words) {
                for word in words {
                    let halves = (word & 0x7FFF).max((word >> 16) & 0x7FFF);
                    largest.update(|largest| largest.max(halves));
                }
            }
        });
    });
    largest.map(Var::get)
}
