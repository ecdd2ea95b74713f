//! `mma.sync`: shapes, fragments, products.
//!
//! [`Mma::new`] says whether a combination exists; [`Mma::run`] computes it. The
//! shape `m8n8k4` of `f16` is different in kind and in [`super::quad_pair`];
//! sparse matrices are in [`super::sparse`].

mod floats;

use std::borrow::Borrow;
use std::fmt;

use super::element::{Accumulator, Doubles, Element, Sum};
use super::gemm::gemm_inline;
use super::layout::Layout;
use crate::float::{Rounding, f64 as double};
use crate::lanes::{Lanes, multiversion};

/// A shape: `m` rows of A, `n` columns of B, `k` products an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Shape {
    pub m: u16,
    pub n: u16,
    pub k: u16,
}

impl Shape {
    /// The shape `mMnNkK`.
    pub const fn new(m: u16, n: u16, k: u16) -> Shape {
        Shape { m, n, k }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}n{}k{}", self.m, self.n, self.k)
    }
}

/// How one-bit elements are combined before they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitOp {
    /// `.and.popc`
    And,
    /// `.xor.popc`
    Xor,
}

/// A combination that does not exist in PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchShape {
    pub(super) shape: Shape,
    pub(super) a: Element,
    pub(super) b: Element,
    pub(super) c: Accumulator,
}

impl fmt::Display for NoSuchShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoSuchShape { shape, a, b, c } = self;
        write!(
            f,
            "there is no {shape} product of {a:?} and {b:?} into {c:?}"
        )
    }
}

impl std::error::Error for NoSuchShape {}

/// One kind of `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mma {
    shape: Shape,
    a: Element,
    b: Element,
    c: Accumulator,
    d: Accumulator,
    satfinite: bool,
    bit_op: BitOp,
    rounding: Rounding,
}

/// Large enough for the operands of every shape.
const OPERAND: usize = 1024;
const RESULT: usize = 16 * 8;

impl Mma {
    /// The product of that shape and those types (`c` and `d` are the types of the
    /// accumulator before and after), if there is one.
    pub fn new(
        shape: Shape,
        a: Element,
        b: Element,
        c: Accumulator,
        d: Accumulator,
    ) -> Result<Mma, NoSuchShape> {
        use Accumulator as Acc;
        let none = NoSuchShape { shape, a, b, c };
        let eight_bit_float = |e| matches!(e, Element::E4m3 | Element::E5m2);
        let small_float = matches!((c, d), (Acc::F16 | Acc::F32, Acc::F16 | Acc::F32));
        let same_family = match (a, b) {
            (x, y) if eight_bit_float(x) && eight_bit_float(y) => small_float,
            (Element::F16, Element::F16) => small_float,
            (Element::Bf16, Element::Bf16) | (Element::Tf32, Element::Tf32) => {
                (c, d) == (Acc::F32, Acc::F32)
            }
            (Element::F64, Element::F64) => (c, d) == (Acc::F64, Acc::F64),
            (Element::B1, Element::B1) => (c, d) == (Acc::S32, Acc::S32),
            (x, y) if x.is_integer() && y.is_integer() => {
                x.bits() == y.bits() && (c, d) == (Acc::S32, Acc::S32)
            }
            _ => false,
        };
        let shapes: &[(u16, u16)] = match a {
            Element::F16 | Element::Bf16 => &[(16, 8), (16, 16)],
            Element::Tf32 => &[(16, 4), (16, 8)],
            Element::E4m3 | Element::E5m2 => &[(16, 16), (16, 32)],
            Element::S8 | Element::U8 => &[(8, 16), (16, 16), (16, 32)],
            Element::S4 | Element::U4 => &[(8, 32), (16, 32), (16, 64)],
            Element::B1 => &[(8, 128), (16, 128), (16, 256)],
            Element::F64 => &[(8, 4), (16, 4), (16, 8), (16, 16)],
        };
        if !same_family || shape.n != 8 || !shapes.contains(&(shape.m, shape.k)) {
            return Err(none);
        }
        Ok(Mma {
            shape,
            a,
            b,
            c,
            d,
            satfinite: false,
            bit_op: BitOp::Xor,
            rounding: Rounding::Nearest,
        })
    }

    /// With `.satfinite`, which integers obey: the sum clamps instead of wrapping.
    pub fn satfinite(self, on: bool) -> Mma {
        Mma {
            satfinite: on,
            ..self
        }
    }

    /// With `.and.popc` or `.xor.popc`, for one-bit elements.
    pub fn bit_op(self, bit_op: BitOp) -> Mma {
        Mma { bit_op, ..self }
    }

    /// With a rounding of its own, which `f64` has: every fused step rounds so.
    pub fn rounding(self, rounding: Rounding) -> Mma {
        Mma { rounding, ..self }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where the elements of A are: rows are m, columns k.
    pub fn a_layout(&self) -> Layout {
        operand_a(self.shape, self.a)
    }

    /// Where the elements of B are: rows are k, columns n.
    pub fn b_layout(&self) -> Layout {
        operand_b(self.shape, self.b)
    }

    /// Where the elements of C are.
    pub fn c_layout(&self) -> Layout {
        accumulator(self.shape.m, self.c)
    }

    /// Where the elements of D are.
    pub fn d_layout(&self) -> Layout {
        accumulator(self.shape.m, self.d)
    }

    /// `d = a * b + c` of all but `f64` elements. A register that is missing from
    /// an operand reads as zeros.
    pub fn run<R: Borrow<Lanes<u32>>>(&self, a: &[R], b: &[R], c: &[R], d: &mut [Lanes<u32>]) {
        match self.a {
            Element::F64 => {}
            Element::B1 => self.run_bits(a, b, c, d),
            _ if self.a.is_integer() => run_integers(self, a, b, c, d),
            _ => floats::run(self, a, b, c, d),
        }
    }

    fn run_bits<R: Borrow<Lanes<u32>>>(&self, a: &[R], b: &[R], c: &[R], d: &mut [Lanes<u32>]) {
        let (m, words) = (self.shape.m as usize, self.shape.k as usize / 32);
        // A register is 32 consecutive bits of k, so a lane's place in words is its
        // place in bits over 32.
        let (mut left, mut right) = ([0u32; 16 * 8], [0u32; 16 * 8]);
        let (of_a, of_b) = (self.a_layout(), self.b_layout());
        for (r, register) in a.iter().enumerate().take(of_a.registers()) {
            for (lane, word) in register.borrow().iter().enumerate() {
                let (row, column) = of_a.place(lane, r, 0);
                left[row * words + column / 32] = *word;
            }
        }
        for (r, register) in b.iter().enumerate().take(of_b.registers()) {
            for (lane, word) in register.borrow().iter().enumerate() {
                let (row, column) = of_b.place(lane, r, 0);
                right[column * words + row / 32] = *word;
            }
        }
        let mut sums = [0; RESULT];
        for row in 0..m {
            for column in 0..8 {
                let pairs = left[row * words..]
                    .iter()
                    .zip(&right[column * words..])
                    .take(words);
                let count: u32 = pairs
                    .map(|(x, y)| match self.bit_op {
                        BitOp::And => (x & y).count_ones(),
                        BitOp::Xor => (x ^ y).count_ones(),
                    })
                    .sum();
                sums[row * 8 + column] = count as i32;
            }
        }
        add_integers(&self.c_layout(), false, c, &sums, 8, d);
    }

    /// `d = a * b + c` of `f64` elements: fused, in the order of k.
    pub fn run_f64(
        &self,
        a: &[Lanes<u64>],
        b: &[Lanes<u64>],
        c: &[Lanes<u64>],
        d: &mut [Lanes<u64>],
    ) {
        let (m, k) = (self.shape.m as usize, self.shape.k as usize);
        let (mut left, mut right, mut sums) = ([0.0; 256], [0.0; 128], [0.0; RESULT]);
        self.a_layout().gather(a, &mut left, k, &Doubles);
        self.b_layout().gather(b, &mut right, 8, &Doubles);
        self.c_layout().gather(c, &mut sums, 8, &Doubles);
        for (row, sums) in sums.chunks_exact_mut(8).enumerate().take(m) {
            for step in 0..k {
                let factor = left[row * k + step];
                for (column, sum) in sums.iter_mut().enumerate() {
                    let other = right[step * 8 + column];
                    *sum = match self.rounding {
                        Rounding::Nearest => factor.mul_add(other, *sum),
                        directed => f64::from_bits(double::fma_with(
                            directed,
                            factor.to_bits(),
                            other.to_bits(),
                            sum.to_bits(),
                        )),
                    };
                }
            }
        }
        self.d_layout().scatter(&sums, 8, d, &Doubles);
    }
}

multiversion! {
    fn run_integers[R: Borrow<Lanes<u32>>][R](
        of: &Mma,
        a: &[R],
        b: &[R],
        c: &[R],
        d: &mut [Lanes<u32>],
    ) {
        let (m, k) = (of.shape.m as usize, of.shape.k as usize);
        let (mut left, mut right) = ([0; OPERAND], [0; OPERAND]);
        let mut sums = [0; RESULT];
        of.a_layout().gather(a, &mut left, k, &of.a);
        of.b_layout().gather(b, &mut right, 8, &of.b);
        gemm_inline::<FUSES, i32>(m, 8, k, &left, &right, &mut sums);
        add_integers(&of.c_layout(), of.satfinite, c, &sums, 8, d);
    }
}

/// The A operand: registers alternate between the upper and the lower eight rows,
/// then go on along k.
pub(super) const fn operand_a(shape: Shape, of: Element) -> Layout {
    let per = of.per_register() as u8;
    let mut offsets = [(0, 0); 8];
    let tall = shape.m == 16;
    let count = shape.k as usize / (4 * per as usize) * if tall { 2 } else { 1 };
    let mut i = 0;
    while i < 8 {
        let block = if tall { i / 2 } else { i };
        offsets[i] = (
            if tall { 8 * (i as u8 % 2) } else { 0 },
            (block as u8).wrapping_mul(4).wrapping_mul(per),
        );
        i += 1;
    }
    Layout::by_rows(
        per,
        per,
        offsets.split_at(if count < 8 { count } else { 8 }).0,
    )
}

/// The B operand: registers go along k.
pub(super) const fn operand_b(shape: Shape, of: Element) -> Layout {
    let per = of.per_register() as u8;
    let mut offsets = [(0, 0); 8];
    let count = shape.k as usize / (4 * per as usize);
    let mut i = 0;
    while i < 8 {
        offsets[i] = ((i as u8).wrapping_mul(4).wrapping_mul(per), 0);
        i += 1;
    }
    Layout::by_columns(
        per,
        per,
        offsets.split_at(if count < 8 { count } else { 8 }).0,
    )
}

/// C or D of eight columns: pairs of columns, the upper eight rows first.
pub(super) const fn accumulator(m: u16, of: Accumulator) -> Layout {
    match (of, m) {
        (Accumulator::F16, 16) => Layout::by_rows(2, 2, &[(0, 0), (8, 0)]),
        (Accumulator::F16, _) => Layout::by_rows(2, 2, &[(0, 0)]),
        (_, 16) => Layout::by_rows(2, 1, &[(0, 0), (0, 1), (8, 0), (8, 1)]),
        (_, _) => Layout::by_rows(2, 1, &[(0, 0), (0, 1)]),
    }
}

/// `d = c + sums`, wrapping or clamping. A register missing from `c` is zeros.
#[inline(always)]
pub(super) fn add_integers(
    layout: &Layout,
    satfinite: bool,
    c: &[impl Borrow<Lanes<u32>>],
    sums: &[i32],
    width: usize,
    d: &mut [Lanes<u32>],
) {
    for (i, register) in d.iter_mut().enumerate() {
        *register = c.get(i).map_or([0; 32], |register| *register.borrow());
    }
    layout.scatter(sums, width, d, &Sum { satfinite });
}

#[cfg(test)]
mod tests;
