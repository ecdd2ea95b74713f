//! `tcgen05`: products whose accumulators lie in tensor memory.
//!
//! [`Form`] is what an instruction descriptor says of a product; [`Operand`] is a
//! factor in shared memory; [`place`] says which lane and column of tensor memory an
//! element of the result or a register of `tcgen05.ld` and `tcgen05.st` is;
//! [`Form::expand`] gives a sparse factor its zeros back;
//! [`Form::multiply`] multiplies.

mod form;
mod format;
pub mod operand;
pub mod place;
mod sparse;

pub use form::{Form, MmaKind, Usage, Wrong};
pub use format::{Format, Scale};
pub use operand::Operand;
pub use sparse::BadGroup;

use super::element::{round_f16, round_f32};
use super::gemm::gemm;
use super::wgmma::Numbers;
use super::{Accumulator, Element};

impl Form {
    /// `d = a * b + d`, or without `accumulate` `d = a * b`. `a` has m rows of k
    /// numbers, `b` k rows of n, and `d` m rows of n words, one element each. An operand
    /// of the wrong kind contributes nothing.
    pub fn multiply(
        &self,
        a: &mut Numbers,
        b: &mut Numbers,
        accumulate: Option<u32>,
        d: &mut [u32],
    ) {
        if self.negate_a {
            a.negate();
        }
        if self.negate_b {
            b.negate();
        }
        match (a, b) {
            (Numbers::Floats(a), Numbers::Floats(b)) => self.floats(a, b, accumulate, d),
            (Numbers::Integers(a), Numbers::Integers(b)) => {
                let mut sums = vec![0; self.m * self.n];
                gemm(self.m, self.n, self.k, a, b, &mut sums);
                for (word, sum) in d.iter_mut().zip(sums) {
                    let before = if accumulate.is_some() {
                        *word as i32
                    } else {
                        0
                    };
                    *word = if self.saturate {
                        before.saturating_add(sum)
                    } else {
                        before.wrapping_add(sum)
                    } as u32;
                }
            }
            _ => {}
        }
    }

    fn floats(&self, a: &[f64], b: &[f64], accumulate: Option<u32>, d: &mut [u32]) {
        let mut sums = vec![0.0; self.m * self.n];
        if let Some(shift) = accumulate {
            let factor = 0.5f64.powi(shift as i32);
            for (sum, &word) in sums.iter_mut().zip(d.iter()) {
                *sum = factor
                    * match self.d {
                        Accumulator::F16 => f64::from(Element::F16.float(word & 0xffff)),
                        _ => f64::from(f32::from_bits(word)),
                    };
            }
        }
        gemm(self.m, self.n, self.k, a, b, &mut sums);
        match self.d {
            Accumulator::F16 => {
                for (word, &sum) in d.iter_mut().zip(&sums) {
                    *word = u32::from(round_f16(sum));
                }
            }
            _ => {
                for (word, &sum) in d.iter_mut().zip(&sums) {
                    *word = round_f32(sum);
                }
            }
        }
    }
}

/// Multiplies every row of `a` (m rows of k numbers) by its scale factors, one for each
/// `block` numbers; `scale(row, block)` is the factor.
pub fn scale_rows(
    numbers: &mut Numbers,
    k: usize,
    block: usize,
    scale: impl Fn(usize, usize) -> f64,
) {
    if let Numbers::Floats(all) = numbers {
        for (row, line) in all.chunks_mut(k.max(1)).enumerate() {
            for (at, part) in line.chunks_mut(block.max(1)).enumerate() {
                let factor = scale(row, at);
                part.iter_mut().for_each(|x| *x *= factor);
            }
        }
    }
}

/// The same for a factor with `k` rows of `n` numbers: `scale(column, block)`.
pub fn scale_columns(
    numbers: &mut Numbers,
    n: usize,
    block: usize,
    scale: impl Fn(usize, usize) -> f64,
) {
    if let Numbers::Floats(all) = numbers {
        let rows = block.max(1) * n.max(1);
        for (at, part) in all.chunks_mut(rows).enumerate() {
            let factors: Vec<f64> = (0..n).map(|column| scale(column, at)).collect();
            for line in part.chunks_mut(n.max(1)) {
                line.iter_mut().zip(&factors).for_each(|(x, f)| *x *= f);
            }
        }
    }
}

#[cfg(test)]
mod tests;
