//! `mma.sync.m8n8k4` of `f16`: four products at once.
//!
//! Each quad pair, four lanes of the lower half-warp and the four sixteen above,
//! multiplies matrices of its own. The fragments depend on the matrices' layout
//! in a way that no later shape's do.

use super::element::{Accumulator, Element, round_f16, round_f32};
use crate::lanes::Lanes;

/// How an operand of this shape lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Major {
    /// `.row`
    Row,
    /// `.col`
    Column,
}

/// Row and column of element `i` (0 to 3) of A, 8 by 4.
pub const fn place_a(major: Major, lane: usize, i: usize) -> (usize, usize) {
    let below = if lane < 16 { 0 } else { 4 };
    match major {
        Major::Row => (lane % 4 + below, i),
        Major::Column => (i % 4 + below, lane % 4),
    }
}

/// Row and column of element `i` (0 to 3) of B, 4 by 8.
pub const fn place_b(major: Major, lane: usize, i: usize) -> (usize, usize) {
    let beyond = if lane < 16 { 0 } else { 4 };
    match major {
        Major::Row => (lane % 4, i + beyond),
        Major::Column => (i, lane % 4 + beyond),
    }
}

/// Row and column of element `i` (0 to 7) of C or D, 8 by 8.
pub const fn place_c(of: Accumulator, lane: usize, i: usize) -> (usize, usize) {
    let below = if lane < 16 { 0 } else { 4 };
    match of {
        Accumulator::F16 => (lane % 4 + below, i),
        _ => ((lane & 1) + (i & 2) + below, (i & 4) + (lane & 2) + (i & 1)),
    }
}

/// The types and layouts of one `mma.sync.m8n8k4`. Accumulators are `F16` (four
/// registers) or `F32` (eight).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuadPair {
    /// The layout of A.
    pub a: Major,
    /// The layout of B.
    pub b: Major,
    /// The type of C.
    pub c: Accumulator,
    /// The type of D.
    pub d: Accumulator,
}

/// The quad pair a lane belongs to.
const fn pair_of(lane: usize) -> usize {
    (lane % 16) / 4
}

/// Element `i` of registers that hold two halves each, zero if it is not there.
fn half(registers: &[Lanes<u32>], lane: usize, i: usize) -> f64 {
    let word = registers.get(i / 2).map_or(0, |r| r[lane]);
    Element::F16.float(word >> (16 * (i % 2))).into()
}

impl QuadPair {
    /// `d = a * b + c` in each quad pair. A and B have two registers; a register
    /// that is missing reads as zeros.
    pub fn run(&self, a: &[Lanes<u32>], b: &[Lanes<u32>], c: &[Lanes<u32>], d: &mut [Lanes<u32>]) {
        let (mut left, mut right) = ([[[0f64; 4]; 8]; 4], [[[0f64; 8]; 4]; 4]);
        for lane in 0..32 {
            for i in 0..4 {
                let (row, column) = place_a(self.a, lane, i);
                left[pair_of(lane)][row][column] = half(a, lane, i);
                let (row, column) = place_b(self.b, lane, i);
                right[pair_of(lane)][row][column] = half(b, lane, i);
            }
        }
        let mut sums = [[[0f64; 8]; 8]; 4];
        for lane in 0..32 {
            for i in 0..8 {
                let (row, column) = place_c(self.c, lane, i);
                sums[pair_of(lane)][row][column] = match self.c {
                    Accumulator::F16 => half(c, lane, i),
                    _ => c.get(i).map_or(0.0, |r| f32::from_bits(r[lane]).into()),
                };
            }
        }
        for ((left, right), sums) in left.iter().zip(&right).zip(&mut sums) {
            for (left, sums) in left.iter().zip(sums) {
                for (x, right) in left.iter().zip(right) {
                    for (sum, y) in sums.iter_mut().zip(right) {
                        *sum += x * y;
                    }
                }
            }
        }
        for lane in 0..32 {
            for i in 0..8 {
                let (row, column) = place_c(self.d, lane, i);
                let sum = sums[pair_of(lane)][row][column];
                let (register, shift) = match self.d {
                    Accumulator::F16 => (i / 2, 16 * (i % 2)),
                    _ => (i, 0),
                };
                if let Some(register) = d.get_mut(register) {
                    register[lane] = match (self.d, shift) {
                        (Accumulator::F16, 0) => round_f16(sum).into(),
                        (Accumulator::F16, _) => register[lane] | (round_f16(sum) as u32) << 16,
                        _ => round_f32(sum),
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::f16;
    use crate::sample::Random;

    fn half_bits(x: i32) -> u32 {
        f16::from_f32((x as f32).to_bits()).into()
    }

    #[test]
    fn every_pair_has_each_element_once() {
        for major in [Major::Row, Major::Column] {
            let (mut a, mut b) = ([[0; 32]; 4], [[0; 32]; 4]);
            for lane in 0..32 {
                for i in 0..4 {
                    let (row, column) = place_a(major, lane, i);
                    a[pair_of(lane)][row * 4 + column] += 1;
                    let (row, column) = place_b(major, lane, i);
                    b[pair_of(lane)][row * 8 + column] += 1;
                }
            }
            assert_eq!((a, b), ([[1; 32]; 4], [[1; 32]; 4]));
        }
        for of in [Accumulator::F16, Accumulator::F32] {
            let mut c = [[0; 64]; 4];
            for lane in 0..32 {
                for i in 0..8 {
                    let (row, column) = place_c(of, lane, i);
                    c[pair_of(lane)][row * 8 + column] += 1;
                }
            }
            assert_eq!(c, [[1; 64]; 4]);
        }
        // From the ISA's figures.
        assert_eq!(place_c(Accumulator::F32, 0, 2), (2, 0));
        assert_eq!(place_c(Accumulator::F32, 2, 5), (0, 7));
        assert_eq!(place_c(Accumulator::F32, 17, 0), (5, 0));
    }

    #[test]
    fn pairs_multiply_their_own_matrices() {
        let mut random = Random(81);
        for (a, b) in [
            (Major::Row, Major::Column),
            (Major::Column, Major::Row),
            (Major::Row, Major::Row),
        ] {
            for d in [Accumulator::F16, Accumulator::F32] {
                let mut draw = || (random.next() % 9) as i32 - 4;
                let left: [[i32; 32]; 4] = std::array::from_fn(|_| std::array::from_fn(|_| draw()));
                let right: [[i32; 32]; 4] =
                    std::array::from_fn(|_| std::array::from_fn(|_| draw()));
                let pack = |place: &dyn Fn(usize, usize) -> i32| -> [Lanes<u32>; 2] {
                    std::array::from_fn(|r| {
                        std::array::from_fn(|lane| {
                            half_bits(place(lane, 2 * r)) | half_bits(place(lane, 2 * r + 1)) << 16
                        })
                    })
                };
                let ra = pack(&|lane, i| {
                    let (row, column) = place_a(a, lane, i);
                    left[pair_of(lane)][row * 4 + column]
                });
                let rb = pack(&|lane, i| {
                    let (row, column) = place_b(b, lane, i);
                    right[pair_of(lane)][row * 8 + column]
                });
                let mma = QuadPair {
                    a,
                    b,
                    c: Accumulator::F32,
                    d,
                };
                let mut out = [[0xffff_ffff; 32]; 8];
                mma.run(&ra, &rb, &[[1f32.to_bits(); 32]; 8], &mut out);
                for lane in 0..32 {
                    for i in 0..8 {
                        let (row, column) = place_c(d, lane, i);
                        let (l, r) = (&left[pair_of(lane)], &right[pair_of(lane)]);
                        let sum = 1
                            + (0..4)
                                .map(|s| l[row * 4 + s] * r[s * 8 + column])
                                .sum::<i32>();
                        let got = match d {
                            Accumulator::F16 => out[i / 2][lane] >> (16 * (i % 2)) & 0xffff,
                            _ => out[i][lane],
                        };
                        let expect = match d {
                            Accumulator::F16 => half_bits(sum),
                            _ => (sum as f32).to_bits(),
                        };
                        assert_eq!(got, expect);
                    }
                }
            }
        }
    }
}
