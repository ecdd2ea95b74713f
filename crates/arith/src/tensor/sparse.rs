//! `mma.sp`: products with a structured sparse A.
//!
//! A register of A holds half of a row's elements, those that are stored, in the
//! places of the dense operand of half the depth. Metadata, one word in some
//! lanes, says which they are:
//!
//! | element | of each | are stored | metadata |
//! |---|---|---|---|
//! | `f16`, `bf16`, 8 bits | 4 | 2 | two bits a stored element: its place |
//! | `tf32` | 2 | 1 | four bits: `0100` the first, `1110` the second |
//! | 4 bits | 8, as 4 pairs | 2 pairs | two bits a stored pair: its place |
//!
//! Which lanes of each group of four give the metadata is the selector's choice,
//! except where all are needed. A lane's word is, for 16- and 32-bit elements,
//! half a word for row `g` and half for row `g + 8`, of consecutive columns; for
//! smaller elements the lanes alternate between the two rows.

use super::element::{Accumulator, Element};
use super::gemm::gemm_inline;
use super::layout::Layout;
use super::mma::{NoSuchShape, Shape, accumulator, add_integers, operand_a, operand_b};
use crate::lanes::{Lanes, multiversion};

/// One kind of `mma.sp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseMma {
    shape: Shape,
    a: Element,
    b: Element,
    c: Accumulator,
    d: Accumulator,
    satfinite: bool,
}

impl SparseMma {
    /// The product of that shape and those types, if there is one. The shape's k is
    /// that of B; A is stored at half of it.
    pub fn new(
        shape: Shape,
        a: Element,
        b: Element,
        c: Accumulator,
        d: Accumulator,
    ) -> Result<SparseMma, NoSuchShape> {
        use Accumulator as Acc;
        let eight_bit_float = |e| matches!(e, Element::E4m3 | Element::E5m2);
        let small_float = matches!((c, d), (Acc::F16 | Acc::F32, Acc::F16 | Acc::F32));
        let both = |acc| (c, d) == (acc, acc);
        let depths: [u16; 2] = match (a, b) {
            (Element::F16, Element::F16) if small_float => [16, 32],
            (Element::Bf16, Element::Bf16) if both(Acc::F32) => [16, 32],
            (Element::Tf32, Element::Tf32) if both(Acc::F32) => [8, 16],
            (x, y) if eight_bit_float(x) && eight_bit_float(y) && small_float => [64, 64],
            (x, y)
                if x.is_integer() && y.is_integer() && x.bits() == y.bits() && both(Acc::S32) =>
            {
                if x.bits() == 8 {
                    [32, 64]
                } else {
                    [64, 128]
                }
            }
            _ => [0, 0],
        };
        if (shape.m, shape.n) != (16, 8) || shape.k == 0 || !depths.contains(&shape.k) {
            return Err(NoSuchShape { shape, a, b, c });
        }
        Ok(SparseMma {
            shape,
            a,
            b,
            c,
            d,
            satfinite: false,
        })
    }

    /// With `.satfinite`, which integers obey.
    pub fn satfinite(self, on: bool) -> SparseMma {
        SparseMma {
            satfinite: on,
            ..self
        }
    }

    /// Where the stored elements of A are: columns count stored elements.
    pub fn a_layout(&self) -> Layout {
        operand_a(
            Shape {
                k: self.shape.k / 2,
                ..self.shape
            },
            self.a,
        )
    }

    /// Where the elements of B are.
    pub fn b_layout(&self) -> Layout {
        operand_b(self.shape, self.b)
    }

    /// Where the elements of C are.
    pub fn c_layout(&self) -> Layout {
        accumulator(16, self.c)
    }

    /// Where the elements of D are.
    pub fn d_layout(&self) -> Layout {
        accumulator(16, self.d)
    }

    /// How many lanes of four give metadata: 1, 2 or 4.
    pub fn metadata_lanes(&self) -> u32 {
        // 32 bits each for what all sixteen rows need.
        let per_stored = match self.a.bits() {
            32 => 4,
            4 => 1,
            _ => 2,
        };
        16 * (u32::from(self.shape.k) / 2) * per_stored / 32 / 8
    }

    /// The largest selector.
    pub fn max_selector(&self) -> u32 {
        4 / self.metadata_lanes() - 1
    }

    /// The column of A that stored element `stored` of a row is.
    pub fn column(&self, metadata: &Lanes<u32>, selector: u32, row: usize, stored: usize) -> usize {
        let (index, bits) = match self.a.bits() {
            32 => (stored, 4),
            4 => (stored / 2, 2),
            _ => (stored, 2),
        };
        let lanes = self.metadata_lanes() as usize;
        let first = (selector as usize & 3) * lanes;
        let (group, lower) = (row % 8, row / 8 % 2);
        let bit = index * bits;
        let (lane, shift) = if self.a.bits() >= 16 {
            (bit / 16, 16 * lower + bit % 16)
        } else {
            (bit / 32 * 2 + lower, bit % 32)
        };
        let word = metadata[(4 * group + (first + lane) % 4) % 32];
        let place = (word >> shift) as usize & 3;
        match self.a.bits() {
            32 => stored * 2 + place / 2,
            4 => stored / 4 * 8 + place * 2 + stored % 2,
            _ => stored / 2 * 4 + place,
        }
    }

    /// `d = a * b + c`. A register that is missing from an operand reads as zeros;
    /// a selector beyond the largest wraps around.
    #[allow(clippy::too_many_arguments)]
    pub fn run(
        &self,
        a: &[Lanes<u32>],
        b: &[Lanes<u32>],
        c: &[Lanes<u32>],
        metadata: &Lanes<u32>,
        selector: u32,
        d: &mut [Lanes<u32>],
    ) {
        if self.a.is_integer() {
            run_integers(self, a, b, c, metadata, selector, d);
        } else {
            run_floats(self, a, b, c, metadata, selector, d);
        }
    }

    /// Spreads stored elements over the columns they belong to.
    #[inline(always)]
    fn expand<T: Copy>(&self, metadata: &Lanes<u32>, selector: u32, stored: &[T], dense: &mut [T]) {
        let k = usize::from(self.shape.k);
        for row in 0..16 {
            for i in 0..k / 2 {
                let column = self.column(metadata, selector, row, i);
                dense[row * k + column % k] = stored[row * k / 2 + i];
            }
        }
    }
}

multiversion! {
    fn run_floats(
        of: &SparseMma,
        a: &[Lanes<u32>],
        b: &[Lanes<u32>],
        c: &[Lanes<u32>],
        metadata: &Lanes<u32>,
        selector: u32,
        d: &mut [Lanes<u32>],
    ) {
        let k = of.shape.k as usize;
        let (mut stored, mut left, mut right) = ([0f64; 16 * 32], [0f64; 16 * 64], [0f64; 64 * 8]);
        let mut sums = [0f64; 16 * 8];
        of.a_layout().gather(a, &mut stored, k / 2, &of.a);
        of.expand(metadata, selector, &stored, &mut left);
        of.b_layout().gather(b, &mut right, 8, &of.b);
        of.c_layout().gather(c, &mut sums, 8, &of.c);
        gemm_inline::<FUSES, f64>(16, 8, k, &left, &right, &mut sums);
        of.d_layout().scatter(&sums, 8, d, &of.d);
    }
}

multiversion! {
    fn run_integers(
        of: &SparseMma,
        a: &[Lanes<u32>],
        b: &[Lanes<u32>],
        c: &[Lanes<u32>],
        metadata: &Lanes<u32>,
        selector: u32,
        d: &mut [Lanes<u32>],
    ) {
        let k = of.shape.k as usize;
        let (mut stored, mut left, mut right) = ([0; 16 * 64], [0; 16 * 128], [0; 128 * 8]);
        let mut sums = [0; 16 * 8];
        of.a_layout().gather(a, &mut stored, k / 2, &of.a);
        of.expand(metadata, selector, &stored, &mut left);
        of.b_layout().gather(b, &mut right, 8, &of.b);
        gemm_inline::<FUSES, i32>(16, 8, k, &left, &right, &mut sums);
        add_integers(&of.c_layout(), of.satfinite, c, &sums, 8, d);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::f16;
    use crate::sample::Random;
    use Accumulator as Acc;
    use Element::*;

    const ALL: [(u16, Element); 11] = [
        (16, F16),
        (32, F16),
        (16, Bf16),
        (32, Bf16),
        (8, Tf32),
        (16, Tf32),
        (32, S8),
        (64, U8),
        (64, E4m3),
        (64, S4),
        (128, U4),
    ];

    fn kind(k: u16, of: Element) -> SparseMma {
        let acc = if of.is_integer() { Acc::S32 } else { Acc::F32 };
        SparseMma::new(Shape::new(16, 8, k), of, of, acc, acc).expect("a shape of PTX")
    }

    #[test]
    fn sizes_of_the_metadata() {
        let lanes = ALL.map(|(k, of)| kind(k, of).metadata_lanes());
        assert_eq!(lanes, [1, 2, 1, 2, 1, 2, 2, 4, 4, 2, 4]);
        assert_eq!(kind(16, F16).max_selector(), 3);
        assert_eq!(kind(32, F16).max_selector(), 1);
        assert_eq!(kind(64, S8).max_selector(), 0);
    }

    #[test]
    fn places_come_from_the_selected_lanes() {
        let mut metadata = [0; 32];
        // Row 2 and row 10 of m16n8k16: lane 8 + selector, low and high half.
        metadata[8 + 3] = 0x0000_000e | 0x0004_0000;
        let half = kind(16, F16);
        assert_eq!(half.column(&metadata, 3, 2, 0), 2);
        assert_eq!(half.column(&metadata, 3, 2, 1), 3);
        assert_eq!(half.column(&metadata, 3, 10, 1), 1);
        assert_eq!(half.column(&metadata, 3, 10, 3), 4);
        // Columns 16 on of m16n8k32 are the second lane's.
        let deep = kind(32, F16);
        let mut metadata = [0; 32];
        metadata[2 + 1] = 0x3;
        assert_eq!(deep.column(&metadata, 1, 0, 8), 19);
        // Bytes: the lanes are row g, row g + 8, and again for columns 32 on.
        let bytes = kind(64, S8);
        let metadata =
            std::array::from_fn(|lane| [0, 0x5555_5555, 0xaaaa_aaaa, u32::MAX][lane % 4]);
        assert_eq!(bytes.column(&metadata, 0, 3, 0), 0);
        assert_eq!(bytes.column(&metadata, 0, 11, 0), 1);
        assert_eq!(bytes.column(&metadata, 0, 3, 16), 34);
        assert_eq!(bytes.column(&metadata, 0, 11, 31), 63);
        let single = kind(8, Tf32);
        let mut metadata = [0x4444_4444; 32];
        metadata[0] = 0x4444_e4e4;
        assert_eq!(
            [0, 1, 2, 3].map(|i| single.column(&metadata, 0, 0, i)),
            [0, 3, 4, 7]
        );
        let nibbles = kind(64, S4);
        let metadata = [0xeeee_eeee; 32];
        assert_eq!(
            [0, 1, 2, 3, 4].map(|i| nibbles.column(&metadata, 0, 0, i)),
            [4, 5, 6, 7, 12]
        );
    }

    #[test]
    fn products_are_those_of_the_dense_matrices() {
        let mut random = Random(111);
        for (k, of) in ALL {
            let mma = kind(k, of);
            let depth = usize::from(k);
            let selector = (random.next() % u64::from(mma.max_selector() + 1)) as u32;
            // Any two places of four, in order.
            let nibbles = [0x4, 0x8, 0xc, 0x9, 0xd, 0xe];
            let singles = [0x4, 0xe];
            let metadata: Lanes<u32> = std::array::from_fn(|_| {
                (0..8).fold(0, |word, _| {
                    let x = random.next() as usize;
                    word << 4
                        | if of == Tf32 {
                            singles[x % 2]
                        } else {
                            nibbles[x % 6]
                        }
                })
            });
            let mut words = |count| -> Vec<Lanes<u32>> {
                (0..count)
                    .map(|_| {
                        std::array::from_fn(|_| match of {
                            // Numbers without infinities or NaN, exact in sums.
                            F16 => 0x3c00_3c00 | random.next() as u32 & 0x8200_8200,
                            Bf16 => 0x3f80_3f80 | random.next() as u32 & 0x8040_8040,
                            Tf32 => 0x3f80_0000 | random.next() as u32 & 0x8040_0000,
                            E4m3 | E5m2 => 0x3838_3838 | random.next() as u32 & 0x8484_8484,
                            _ => random.next() as u32,
                        })
                    })
                    .collect()
            };
            let a = words(mma.a_layout().registers());
            let b = words(mma.b_layout().registers());
            let number = |word: u32, j: usize| -> f64 {
                let bits = word >> (j as u32 * (of.bits() & 31));
                if of.is_integer() {
                    of.integer(bits).into()
                } else {
                    of.float(bits).into()
                }
            };
            let mut dense = vec![0.0; 16 * depth];
            let mut right = vec![0.0; 8 * depth];
            for lane in 0..32 {
                for (r, register) in a.iter().enumerate() {
                    for j in 0..of.per_register() as usize {
                        let (row, stored) = mma.a_layout().place(lane, r, j);
                        let column = mma.column(&metadata, selector, row, stored);
                        dense[row * depth + column] = number(register[lane], j);
                    }
                }
                for (r, register) in b.iter().enumerate() {
                    for j in 0..of.per_register() as usize {
                        let (row, column) = mma.b_layout().place(lane, r, j);
                        right[row * 8 + column] = number(register[lane], j);
                    }
                }
            }
            // Half of every row is stored.
            if !of.is_integer() {
                let full = dense
                    .chunks(depth)
                    .all(|row| row.iter().filter(|x| **x != 0.0).count() == depth / 2);
                assert!(full, "{k} {of:?}");
            }
            let mut d = vec![[0; 32]; 4];
            mma.run(&a, &b, &[], &metadata, selector, &mut d);
            for lane in 0..32 {
                for (r, register) in d.iter().enumerate() {
                    let (row, column) = mma.d_layout().place(lane, r, 0);
                    let sum: f64 = (0..depth)
                        .map(|s| dense[row * depth + s] * right[s * 8 + column])
                        .sum();
                    let got = if of.is_integer() {
                        f64::from(register[lane] as i32)
                    } else {
                        f32::from_bits(register[lane]).into()
                    };
                    assert_eq!(got, sum, "{k} {of:?} {row} {column}");
                }
            }
        }
    }

    #[test]
    fn accumulators_and_limits() {
        let mma = SparseMma::new(Shape::new(16, 8, 32), F16, F16, Acc::F16, Acc::F16).unwrap();
        let one = u32::from(f16::from_f32(1f32.to_bits()));
        let ones = [[one << 16 | one; 32]; 4];
        let mut d = [[0; 32]; 2];
        mma.run(&ones, &ones, &ones[..2], &[0x4444_4444; 32], 0, &mut d);
        // Sixteen stored ones, and one.
        assert_eq!(d, [[0x4c40_4c40; 32]; 2]);
        let bytes = kind(64, U8).satfinite(true);
        let full = [[u32::MAX; 32]; 4];
        let mut d = [[0; 32]; 4];
        bytes.run(
            &full,
            &full,
            &[[0x7fff_0000; 32]; 4],
            &[0x4444_4444; 32],
            0,
            &mut d,
        );
        assert_eq!(d[0][0], 0x7fff_ffff);
        assert!(SparseMma::new(Shape::new(16, 8, 8), F16, F16, Acc::F32, Acc::F32).is_err());
        assert!(SparseMma::new(Shape::new(16, 8, 16), F64, F64, Acc::F64, Acc::F64).is_err());
        assert!(SparseMma::new(Shape::new(16, 8, 0), F64, F64, Acc::F64, Acc::F64).is_err());
    }
}
