//! `wmma`: fragments and products of the oldest tensor-core interface.
//!
//! PTX calls these fragments opaque; code that touches their elements may rely
//! only on load, product and store agreeing. The places here are those that ptxas
//! emits for sm_80 and up. Two things follow from how it composes them of
//! `mma.sync`: the `f16` operands, which have more registers than elements, hold
//! some elements more than once, and `m8n32` is computed as the transpose of
//! `m32n8`.

use super::element::{Accumulator, Element};
use super::gemm::gemm_inline;
use super::layout::Layout;
use super::mma::{self, BitOp, Mma, NoSuchShape, Shape, add_integers};
use crate::float::Rounding;
use crate::lanes::{Lanes, multiversion};

/// One kind of `wmma` product, and through it the fragments of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wmma {
    shape: Shape,
    a: Element,
    b: Element,
    c: Accumulator,
    d: Accumulator,
    satfinite: bool,
    bit_op: BitOp,
    rounding: Rounding,
}

impl Wmma {
    /// The product of that shape and those types, if there is one.
    pub fn new(
        shape: Shape,
        a: Element,
        b: Element,
        c: Accumulator,
        d: Accumulator,
    ) -> Result<Wmma, NoSuchShape> {
        use Accumulator as Acc;
        let halves = matches!((c, d), (Acc::F16 | Acc::F32, Acc::F16 | Acc::F32));
        let both = |acc| (c, d) == (acc, acc);
        let wide = matches!(
            (shape.m, shape.n, shape.k),
            (16, 16, 16) | (32, 8, 16) | (8, 32, 16)
        );
        let exists = match (a, b) {
            (Element::F16, Element::F16) => wide && halves,
            (Element::Bf16, Element::Bf16) => wide && both(Acc::F32),
            (Element::S8, Element::S8) | (Element::U8, Element::U8) => wide && both(Acc::S32),
            (Element::Tf32, Element::Tf32) => shape == Shape::new(16, 16, 8) && both(Acc::F32),
            (Element::F64, Element::F64) => shape == Shape::new(8, 8, 4) && both(Acc::F64),
            (Element::S4, Element::S4) | (Element::U4, Element::U4) => {
                shape == Shape::new(8, 8, 32) && both(Acc::S32)
            }
            (Element::B1, Element::B1) => shape == Shape::new(8, 8, 128) && both(Acc::S32),
            _ => false,
        };
        if !exists {
            return Err(NoSuchShape { shape, a, b, c });
        }
        Ok(Wmma {
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

    /// With `.satfinite`, which integers obey.
    pub fn satfinite(self, on: bool) -> Wmma {
        Wmma {
            satfinite: on,
            ..self
        }
    }

    /// With `.and.popc` or `.xor.popc`, for one-bit elements.
    pub fn bit_op(self, bit_op: BitOp) -> Wmma {
        Wmma { bit_op, ..self }
    }

    /// With a rounding of its own, which `f64` has.
    pub fn rounding(self, rounding: Rounding) -> Wmma {
        Wmma { rounding, ..self }
    }

    /// Where the elements of A are: rows are m, columns k.
    pub fn a_layout(&self) -> Layout {
        a_layout(self.shape, self.a)
    }

    /// Where the elements of B are: rows are k, columns n.
    pub fn b_layout(&self) -> Layout {
        b_layout(self.shape, self.b)
    }

    /// Where the elements of C are.
    pub fn c_layout(&self) -> Layout {
        accumulator_layout(self.shape, self.c)
    }

    /// Where the elements of D are.
    pub fn d_layout(&self) -> Layout {
        accumulator_layout(self.shape, self.d)
    }

    /// The same product as an `mma.sync`, where its shape is one of those.
    fn as_mma(&self) -> Option<Mma> {
        let mma = Mma::new(self.shape, self.a, self.b, self.c, self.d).ok()?;
        Some(
            mma.satfinite(self.satfinite)
                .bit_op(self.bit_op)
                .rounding(self.rounding),
        )
    }

    /// `d = a * b + c` of all but `f64` elements. A register that is missing from
    /// an operand reads as zeros.
    pub fn run(&self, a: &[Lanes<u32>], b: &[Lanes<u32>], c: &[Lanes<u32>], d: &mut [Lanes<u32>]) {
        if let Some(mma) = self.as_mma() {
            mma.run(a, b, c, d);
        } else if self.a.is_integer() {
            run_integers(self, a, b, c, d);
        } else {
            run_floats(self, a, b, c, d);
        }
    }

    /// `d = a * b + c` of `f64` elements.
    pub fn run_f64(
        &self,
        a: &[Lanes<u64>],
        b: &[Lanes<u64>],
        c: &[Lanes<u64>],
        d: &mut [Lanes<u64>],
    ) {
        if let Some(mma) = self.as_mma() {
            mma.run_f64(a, b, c, d);
        }
    }

    fn sizes(&self) -> [usize; 3] {
        [self.shape.m, self.shape.n, self.shape.k].map(usize::from)
    }
}

const OPERAND: usize = 32 * 16;
const RESULT: usize = 256;

multiversion! {
    fn run_floats(
        of: &Wmma,
        a: &[Lanes<u32>],
        b: &[Lanes<u32>],
        c: &[Lanes<u32>],
        d: &mut [Lanes<u32>],
    ) {
        let [m, n, k] = of.sizes();
        let (mut left, mut right) = ([0f64; OPERAND], [0f64; OPERAND]);
        let mut sums = [0f64; RESULT];
        of.a_layout().gather(a, &mut left, k, &of.a);
        of.b_layout().gather(b, &mut right, n, &of.b);
        of.c_layout().gather(c, &mut sums, n, &of.c);
        gemm_inline::<FUSES, f64>(m, n, k, &left, &right, &mut sums);
        of.d_layout().scatter(&sums, n, d, &of.d);
    }
}

multiversion! {
    fn run_integers(
        of: &Wmma,
        a: &[Lanes<u32>],
        b: &[Lanes<u32>],
        c: &[Lanes<u32>],
        d: &mut [Lanes<u32>],
    ) {
        let [m, n, k] = of.sizes();
        let (mut left, mut right) = ([0; OPERAND], [0; OPERAND]);
        let mut sums = [0; RESULT];
        of.a_layout().gather(a, &mut left, k, &of.a);
        of.b_layout().gather(b, &mut right, n, &of.b);
        gemm_inline::<FUSES, i32>(m, n, k, &left, &right, &mut sums);
        add_integers(&of.c_layout(), of.satfinite, c, &sums, n, d);
    }
}

/// The fragment of `wmma.load.a`, which does not need the other types. For a shape
/// that does not exist, that of the `mma.sync` of the same size.
pub fn a_layout(shape: Shape, of: Element) -> Layout {
    match (shape.m, of) {
        // Four registers, and the same four again.
        (16, Element::F16) => {
            const TILE: [(u8, u8); 4] = [(0, 0), (8, 0), (0, 8), (8, 8)];
            let [p, q, r, s] = TILE;
            Layout::by_rows(2, 2, &[p, q, r, s, p, q, r, s])
        }
        (16, Element::Bf16) => Layout::by_rows(2, 2, &[(0, 0), (8, 0), (0, 8), (8, 8)]),
        (32, Element::F16 | Element::Bf16) => Layout::by_rows(
            2,
            2,
            &[
                (0, 0),
                (8, 0),
                (0, 8),
                (8, 8),
                (16, 0),
                (24, 0),
                (16, 8),
                (24, 8),
            ],
        ),
        // Two registers, four times over.
        (8, Element::F16) => {
            let (p, q) = ((0, 0), (0, 8));
            Layout::by_rows(2, 2, &[p, q, p, q, p, q, p, q])
        }
        (8, Element::Bf16) => Layout::by_rows(2, 2, &[(0, 0), (0, 8)]),
        (16, Element::S8 | Element::U8) => Layout::by_rows(4, 4, &[(0, 0), (8, 0)]),
        (32, Element::S8 | Element::U8) => {
            Layout::by_rows(4, 4, &[(0, 0), (8, 0), (16, 0), (24, 0)])
        }
        _ => mma::operand_a(shape, of),
    }
}

/// The fragment of `wmma.load.b`, which does not need the other types.
pub fn b_layout(shape: Shape, of: Element) -> Layout {
    match (shape.n, of) {
        (16, Element::F16) => {
            let (p, q, r, s) = ((0, 0), (8, 0), (0, 8), (8, 8));
            Layout::by_columns(2, 2, &[p, q, r, s, p, q, r, s])
        }
        (16, Element::Bf16) => Layout::by_columns(2, 2, &[(0, 0), (8, 0), (0, 8), (8, 8)]),
        // The transpose's A: both halves of sixteen columns before the rest of k.
        (32, Element::F16 | Element::Bf16) => Layout::by_columns(
            2,
            2,
            &[
                (0, 0),
                (0, 8),
                (8, 0),
                (8, 8),
                (0, 16),
                (0, 24),
                (8, 16),
                (8, 24),
            ],
        ),
        (8, Element::F16) => {
            let (p, q) = ((0, 0), (8, 0));
            Layout::by_columns(2, 2, &[p, q, p, q, p, q, p, q])
        }
        (16, Element::Tf32) => Layout::by_columns(1, 1, &[(0, 0), (4, 0), (0, 8), (4, 8)]),
        (16, Element::S8 | Element::U8) => Layout::by_columns(4, 4, &[(0, 0), (0, 8)]),
        (32, Element::S8 | Element::U8) => {
            Layout::by_columns(4, 4, &[(0, 0), (0, 8), (0, 16), (0, 24)])
        }
        _ => mma::operand_b(shape, of),
    }
}

/// The fragment of `wmma.load.c` and `wmma.store.d`, which does not need the other
/// types.
pub fn accumulator_layout(shape: Shape, of: Accumulator) -> Layout {
    match (shape.m, shape.n, of) {
        (16, 16, Accumulator::F16) => Layout::by_rows(2, 2, &[(0, 0), (8, 0), (0, 8), (8, 8)]),
        (16, 16, _) => Layout::by_rows(
            2,
            1,
            &[
                (0, 0),
                (0, 1),
                (8, 0),
                (8, 1),
                (0, 8),
                (0, 9),
                (8, 8),
                (8, 9),
            ],
        ),
        (32, _, Accumulator::F16) => Layout::by_rows(2, 2, &[(0, 0), (8, 0), (16, 0), (24, 0)]),
        (32, _, _) => Layout::by_rows(
            2,
            1,
            &[
                (0, 0),
                (0, 1),
                (8, 0),
                (8, 1),
                (16, 0),
                (16, 1),
                (24, 0),
                (24, 1),
            ],
        ),
        (_, 32, Accumulator::F16) => Layout::by_columns(2, 2, &[(0, 0), (0, 8), (0, 16), (0, 24)]),
        (_, 32, _) => Layout::by_columns(
            2,
            1,
            &[
                (0, 0),
                (1, 0),
                (0, 8),
                (1, 8),
                (0, 16),
                (1, 16),
                (0, 24),
                (1, 24),
            ],
        ),
        _ => mma::accumulator(shape.m, of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::{bf16, f16};
    use crate::sample::Random;
    use Accumulator as Acc;
    use Element::*;

    const WIDE: [Shape; 3] = [
        Shape::new(16, 16, 16),
        Shape::new(32, 8, 16),
        Shape::new(8, 32, 16),
    ];

    fn kinds() -> Vec<Wmma> {
        let mut all = Vec::new();
        for shape in WIDE {
            for of in [F16, Bf16] {
                all.push(Wmma::new(shape, of, of, Acc::F32, Acc::F32).unwrap());
            }
            all.push(Wmma::new(shape, F16, F16, Acc::F16, Acc::F16).unwrap());
            for of in [S8, U8] {
                all.push(Wmma::new(shape, of, of, Acc::S32, Acc::S32).unwrap());
            }
        }
        all.push(Wmma::new(Shape::new(16, 16, 8), Tf32, Tf32, Acc::F32, Acc::F32).unwrap());
        all.push(Wmma::new(Shape::new(8, 8, 32), S4, S4, Acc::S32, Acc::S32).unwrap());
        all.push(Wmma::new(Shape::new(8, 8, 128), B1, B1, Acc::S32, Acc::S32).unwrap());
        all
    }

    fn element_bits(of: Element, x: i32) -> u32 {
        match of {
            F16 => f16::from_f32((x as f32).to_bits()).into(),
            Bf16 => bf16::from_f32((x as f32).to_bits()).into(),
            Tf32 => (x as f32).to_bits(),
            S8 | U8 => (x as u8).into(),
            S4 | U4 => x as u32 & 15,
            _ => x as u32 & 1,
        }
    }

    fn accumulator_bits(of: Acc, x: i32) -> u32 {
        match of {
            Acc::F16 => f16::from_f32((x as f32).to_bits()).into(),
            Acc::F32 => (x as f32).to_bits(),
            _ => x as u32,
        }
    }

    /// `wmma.load`: every register filled from a matrix.
    fn load(layout: &Layout, width: usize, bits: u32, matrix: &[u32]) -> Vec<Lanes<u32>> {
        (0..layout.registers())
            .map(|r| {
                std::array::from_fn(|lane| {
                    (0..layout.per_register()).fold(0, |word, j| {
                        let (row, column) = layout.place(lane, r, j);
                        word | matrix[row * width + column] << (bits as usize * j)
                    })
                })
            })
            .collect()
    }

    #[test]
    fn load_multiply_and_store_agree() {
        let mut random = Random(91);
        for wmma in kinds() {
            let wmma = wmma.bit_op(BitOp::And);
            let [m, n, k] = wmma.sizes();
            let mut draw = |len| -> Vec<i32> {
                let low = if matches!(wmma.a, U8 | B1) { 0 } else { -2 };
                let span = if wmma.a == B1 { 2 } else { 5 };
                (0..len)
                    .map(|_| (random.next() % span) as i32 + low)
                    .collect()
            };
            let (a, b, c) = (draw(m * k), draw(k * n), draw(m * n));
            let encode =
                |v: &[i32]| -> Vec<u32> { v.iter().map(|x| element_bits(wmma.a, *x)).collect() };
            let left = load(&wmma.a_layout(), k, wmma.a.bits(), &encode(&a));
            let right = load(&wmma.b_layout(), n, wmma.b.bits(), &encode(&b));
            let accumulate = |v: &[i32]| -> Vec<Lanes<u32>> {
                let bits: Vec<u32> = v.iter().map(|x| accumulator_bits(wmma.c, *x)).collect();
                load(&wmma.c_layout(), n, 16, &bits)
            };
            let before = accumulate(&c);
            let expect: Vec<i32> = (0..m * n)
                .map(|at| {
                    c[at]
                        + (0..k)
                            .map(|s| a[at / n * k + s] * b[s * n + at % n])
                            .sum::<i32>()
                })
                .collect();
            let mut d = vec![[0x5555_5555; 32]; before.len()];
            wmma.run(&left, &right, &before, &mut d);
            assert_eq!(d, accumulate(&expect), "{wmma:?}");
        }
    }

    #[test]
    fn every_element_has_a_place_and_accumulators_just_one() {
        for wmma in kinds() {
            let [m, n, k] = wmma.sizes();
            for (layout, rows, columns, once) in [
                (wmma.a_layout(), m, k, wmma.a != F16),
                (wmma.b_layout(), k, n, wmma.b != F16),
                (wmma.c_layout(), m, n, true),
                (wmma.d_layout(), m, n, true),
            ] {
                let mut seen = vec![0; rows * columns];
                for lane in 0..32 {
                    for r in 0..layout.registers() {
                        for j in 0..layout.per_register() {
                            let (row, column) = layout.place(lane, r, j);
                            seen[row * columns + column] += 1;
                        }
                    }
                }
                assert!(
                    seen.iter().all(|n| *n == 1 || (*n > 1 && !once)),
                    "{wmma:?}"
                );
            }
        }
    }

    #[test]
    fn register_counts_are_those_of_the_isa() {
        let count = |shape, of, acc| {
            let wmma = Wmma::new(shape, of, of, acc, acc).unwrap();
            [wmma.a_layout(), wmma.b_layout(), wmma.c_layout()].map(|l| l.registers())
        };
        for shape in WIDE {
            assert_eq!(count(shape, F16, Acc::F32), [8, 8, 8]);
            assert_eq!(count(shape, F16, Acc::F16), [8, 8, 4]);
        }
        assert_eq!(count(WIDE[0], Bf16, Acc::F32), [4, 4, 8]);
        assert_eq!(count(WIDE[1], Bf16, Acc::F32), [8, 2, 8]);
        assert_eq!(count(WIDE[2], Bf16, Acc::F32), [2, 8, 8]);
        assert_eq!(count(WIDE[0], S8, Acc::S32), [2, 2, 8]);
        assert_eq!(count(WIDE[1], U8, Acc::S32), [4, 1, 8]);
        assert_eq!(count(WIDE[2], U8, Acc::S32), [1, 4, 8]);
        assert_eq!(count(Shape::new(16, 16, 8), Tf32, Acc::F32), [4, 4, 8]);
        assert_eq!(count(Shape::new(8, 8, 32), S4, Acc::S32), [1, 1, 2]);
        assert_eq!(count(Shape::new(8, 8, 4), F64, Acc::F64), [1, 1, 2]);
        assert!(Wmma::new(Shape::new(16, 16, 8), F16, F16, Acc::F32, Acc::F32).is_err());
        assert!(Wmma::new(WIDE[0], S8, U8, Acc::S32, Acc::S32).is_err());
    }

    #[test]
    fn doubles() {
        let wmma = Wmma::new(Shape::new(8, 8, 4), F64, F64, Acc::F64, Acc::F64).unwrap();
        let two = [[2f64.to_bits(); 32]];
        let mut d = [[0; 32]; 2];
        wmma.run_f64(&two, &two, &[[1f64.to_bits(); 32]; 2], &mut d);
        assert_eq!(d, [[17f64.to_bits(); 32]; 2]);
    }
}
