//! A gated pair: a tile has as many columns of the gate as of what passes it, and the result is
//! `silu(gate) * up`, half as many columns.

use super::epilogue::{EachRow, Sums, activate};
use super::problem::Activation;
use heist_builder::{Kernel, WgmmaResult};

/// The accumulators of such a tile: the gate's columns first. A thread has both factors of each
/// result.
pub(crate) struct Gated<'s, 'k> {
    pub(crate) k: Kernel<'k>,
    pub(crate) sums: &'s WgmmaResult<'k>,
}

impl<'k> Sums<'k> for Gated<'_, 'k> {
    fn rows(&self, each: EachRow<'_, 'k>) {
        self.sums.each_row(|row, col, pairs| {
            let (gates, ups) = pairs.split_at(pairs.len() / 2);
            let products: Vec<_> = gates
                .iter()
                .zip(ups)
                .map(|(gate, up)| {
                    [0, 1].map(|i| activate(&self.k, gate[i], Activation::Silu) * up[i])
                })
                .collect();
            each(row, col, &products);
        });
    }
}
