//! Combines the partial results of blocks with the same rows and different keys (split keys).

use super::config::Config;
use super::params::Element;
use super::problem::{Dtype, Output};
use super::softmax::NO_LEVEL;
use heist_builder::{
    Arch, BuildError, BuiltKernel, Global, Kernel, KernelSpec, On, Val, bf16, f16, kernel_params,
};

kernel_params! {
    /// What the joining kernel works on: rows are numbered through all sequences
    /// and heads, as the log-sum-exps are.
    pub struct CombineArgs {
        /// Results of each part, normalised.
        partial: Global<f32>,
        /// Log-sum-exps of each part.
        partial_lse: Global<f32>,
        /// Results; halves or f32.
        out: Global<u16>,
        /// Log-sum-exps.
        lse: Global<f32>,
        /// Log-sum-exps of a part.
        lse_count: u32,
        /// Rows of a head that follow each other.
        lse_head: u32,
        /// Heads of a sequence.
        heads: u32,
        /// From one sequence's results to the next.
        out_batch: u32,
        /// From one row to the next.
        out_row: u32,
        /// From one head to the next.
        out_head: u32,
    }
}

/// Rows of a block: one to a warp.
pub(crate) const ROWS: u32 = 4;

/// Builds the kernel that joins the parts of `config`.
pub(crate) fn build(config: &Config, arch: Arch) -> Result<BuiltKernel<CombineArgs>, BuildError> {
    KernelSpec::<CombineArgs>::new("attention_combine")
        .block(32 * ROWS)
        .build(arch, |k, args| match config.dtype {
            Dtype::F16 => row::<f16>(k, &args, config),
            Dtype::Bf16 => row::<bf16>(k, &args, config),
        })
}

/// One row, by the warp that asks.
fn row<'k, T: Element>(k: &Kernel<'k>, args: &CombineArgs<On<'k>>, config: &Config) {
    let number = (k.block().x * ROWS + k.warp()).named("row");
    k.if_(number.lt(args.lse_count), || {
        let parts: Vec<(Val<'k, f32>, Val<'k, u64>)> = (0..config.splits)
            .map(|part| {
                let at = args.lse_count.mul_wide(part) + number.cast::<u64>();
                (args.partial_lse.at(at).load_readonly(), at)
            })
            .collect();
        // Where no part saw a key, all weights are zero.
        let highest = parts
            .iter()
            .fold(k.c(NO_LEVEL), |highest, (lse, _)| highest.max(*lse));
        let weights: Vec<Val<'k, f32>> = parts
            .iter()
            .map(|(lse, _)| ((*lse - highest) * std::f32::consts::LOG2_E).exp2_approx())
            .collect();
        let sum = weights
            .iter()
            .fold(k.c(0.0f32), |sum, weight| sum + *weight);
        let factor = sum.gt(0.0).select(sum.recip_approx(), 0.0);
        k.if_(k.lane().eq(0), || {
            let lse = highest + sum.log2_approx() * std::f32::consts::LN_2;
            args.lse.at(number).store(lse);
        });
        let (line, row) = (number / args.lse_head, number % args.lse_head);
        let (sequence, head) = (line / args.heads, line % args.heads);
        let to = sequence.mul_wide(args.out_batch)
            + row.mul_wide(args.out_row)
            + head.mul_wide(args.out_head);
        let pairs = config.head_dim / 2;
        for first in (0..pairs).step_by(32) {
            let col = (k.lane() + first) * 2;
            k.if_(k.c(first + 32 <= pairs) | col.lt(config.head_dim), || {
                let mut sums = [k.c(0.0f32); 2];
                for ((_, at), weight) in parts.iter().zip(&weights) {
                    let from = args.partial.at(*at * u64::from(config.head_dim)).at(col);
                    for (sum, value) in sums.iter_mut().zip(from.load_vec_readonly::<2>()) {
                        *sum = value.mul_add(*weight, *sum);
                    }
                }
                let pair = sums.map(|sum| sum * factor);
                match config.output {
                    Output::Same => {
                        let packed = Val::pack_as::<T>(pair[0], pair[1]);
                        let to = args.out.cast::<T>().at(to).at(col);
                        to.cast::<T::Pair>().store(packed);
                    }
                    Output::F32 => args.out.cast::<f32>().at(to).at(col).store_vec(pair),
                }
            });
        }
    });
}
