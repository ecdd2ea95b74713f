//! `wgmma`: products of a warpgroup, with operands in shared memory.
//!
//! [`Descriptor`] is the 64-bit matrix descriptor; [`SharedOperand`] says which
//! bytes of shared memory an operand is and turns them into numbers; [`Wgmma`]
//! multiplies. A warpgroup is four warps, warp `w` having rows `16w` to `16w + 15`
//! of A and D, so products are computed a warp at a time, with B read once.

use std::fmt;

use super::element::{Accumulator, Element, each, round_f16, round_f32};
use super::gemm::gemm;
use super::layout::Layout;
use super::mma::{Shape, operand_a};
use super::swizzle::Swizzle;
use crate::lanes::Lanes;

/// What a matrix descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Where the matrix begins in shared memory, in bytes.
    pub start: u32,
    /// The leading dimension's byte offset (LBO).
    pub leading: u32,
    /// The stride dimension's byte offset (SBO).
    pub stride: u32,
    /// Which 128-byte line of the swizzle pattern the pattern itself begins at; zero
    /// when it begins at a multiple of its period.
    pub base_offset: u32,
    /// The swizzle.
    pub swizzle: Swizzle,
}

impl Descriptor {
    /// Reads the fields.
    pub const fn decode(bits: u64) -> Descriptor {
        const fn bytes(field: u64) -> u32 {
            ((field & 0x3fff) << 4) as u32
        }
        Descriptor {
            start: bytes(bits),
            leading: bytes(bits >> 16),
            stride: bytes(bits >> 32),
            base_offset: (bits >> 49) as u32 & 7,
            swizzle: match bits >> 62 {
                0 => Swizzle::None,
                1 => Swizzle::B128,
                2 => Swizzle::B64,
                _ => Swizzle::B32,
            },
        }
    }

    /// Writes the fields. `None` if an offset is not a multiple of 16, or too
    /// large, or the swizzle is one that descriptors do not have.
    pub const fn encode(&self) -> Option<u64> {
        const fn field(bytes: u32) -> Option<u64> {
            if !bytes.is_multiple_of(16) || bytes >> 18 != 0 {
                None
            } else {
                Some(bytes as u64 >> 4)
            }
        }
        let mode = match self.swizzle {
            Swizzle::None => 0,
            Swizzle::B128 => 1,
            Swizzle::B64 => 2,
            Swizzle::B32 => 3,
            Swizzle::B128Atom32 | Swizzle::B128Atom64 => return None,
        };
        match (field(self.start), field(self.leading), field(self.stride)) {
            (Some(start), Some(leading), Some(stride)) if self.base_offset < 8 => Some(
                start | leading << 16 | stride << 32 | (self.base_offset as u64) << 49 | mode << 62,
            ),
            _ => None,
        }
    }
}

/// Which of its axes an operand is contiguous along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Major {
    /// Along k: a row of A, or a column of B, is contiguous.
    K,
    /// Along m or n (the transposed bits of the instruction, for 16-bit elements).
    Mn,
}

/// An operand in shared memory: `mn` rows of A or columns of B, `k` deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedOperand {
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// Its contiguous axis.
    pub major: Major,
    /// The type of its elements.
    pub element: Element,
    /// How many rows of A or columns of B.
    pub mn: usize,
    /// How many elements along k.
    pub k: usize,
}

impl SharedOperand {
    /// Elements in 16 bytes.
    const fn per_chunk(&self) -> usize {
        128 / self.element.bits() as usize
    }

    /// The operand as lines of 16-byte chunks: how many lines (rows along the axis
    /// that is not contiguous) and chunks a line.
    pub const fn lines_and_chunks(&self) -> (usize, usize) {
        match self.major {
            Major::K => (self.mn, self.k.div_ceil(self.per_chunk())),
            Major::Mn => (self.k, self.mn.div_ceil(self.per_chunk())),
        }
    }

    /// The address in shared memory of a 16-byte chunk. The canonical layouts are
    /// made of blocks of eight lines; what a step to the next block adds, along the
    /// lines and along a line, is the descriptor's.
    pub const fn chunk_address(&self, line: usize, chunk: usize) -> u32 {
        let Descriptor {
            start,
            leading,
            stride,
            base_offset,
            swizzle,
        } = self.descriptor;
        let (leading, stride) = (leading as usize, stride as usize);
        // Bytes from one line to the next within a block: as many as are swizzled
        // together.
        let pitch = match swizzle.line() {
            Some(bytes) => bytes as usize,
            None => 16,
        };
        let (block, row) = (line / 8, line % 8);
        let offset = match (self.major, swizzle) {
            (Major::K, Swizzle::None) => row * 16 + block * stride + chunk * leading,
            (Major::K, _) => row * pitch + block * stride + chunk * 16,
            (Major::Mn, Swizzle::None) => row * 16 + block * leading + chunk * stride,
            (Major::Mn, _) => {
                let wide = pitch / 16;
                row * pitch + block * stride + chunk % wide * 16 + chunk / wide * leading
            }
        };
        let address = (start as u64).wrapping_add(offset as u64);
        swizzle.apply_from(address, (base_offset as u64) << 7) as u32
    }

    /// The address of the byte where element (`mn`, `k`) begins.
    pub const fn element_address(&self, mn: usize, k: usize) -> u32 {
        let (line, along) = match self.major {
            Major::K => (mn, k),
            Major::Mn => (k, mn),
        };
        let per = self.per_chunk();
        let within = along % per * self.element.bits() as usize / 8;
        self.chunk_address(line, along / per) + within as u32
    }

    /// Reads the operand through `load`, which is called with the address of each
    /// 16-byte chunk, line by line. The result has `mn` rows of `k` numbers.
    pub fn read_rows(&self, load: impl FnMut(u32) -> [u8; 16]) -> Numbers {
        self.read(load, |mn, k| mn * self.k + k)
    }

    /// As [`SharedOperand::read_rows`], but with `k` rows of `mn` numbers, which is
    /// how [`Wgmma`] takes B.
    pub fn read_columns(&self, load: impl FnMut(u32) -> [u8; 16]) -> Numbers {
        self.read(load, |mn, k| k * self.mn + mn)
    }

    fn read(
        &self,
        mut load: impl FnMut(u32) -> [u8; 16],
        at: impl Fn(usize, usize) -> usize,
    ) -> Numbers {
        let (lines, chunks) = self.lines_and_chunks();
        let bits = self.element.bits() as usize;
        let mut numbers = Numbers::zeros(self.element, self.mn * self.k);
        for line in 0..lines {
            for chunk in 0..chunks {
                let word = u128::from_le_bytes(load(self.chunk_address(line, chunk)));
                for i in 0..self.per_chunk() {
                    let along = chunk * self.per_chunk() + i;
                    let (mn, k) = match self.major {
                        Major::K => (line, along),
                        Major::Mn => (along, line),
                    };
                    if mn < self.mn && k < self.k {
                        numbers.set(at(mn, k), self.element, (word >> (i * bits)) as u32);
                    }
                }
            }
        }
        numbers
    }
}

/// The elements of an operand, as numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Of small floats.
    Floats(Vec<f64>),
    /// Of small integers, or of single bits.
    Integers(Vec<i32>),
}

impl Numbers {
    fn zeros(of: Element, len: usize) -> Numbers {
        if of.is_float() {
            Numbers::Floats(vec![0.0; len])
        } else {
            Numbers::Integers(vec![0; len])
        }
    }

    #[inline]
    fn set(&mut self, at: usize, of: Element, bits: u32) {
        match self {
            Numbers::Floats(all) => {
                if let Some(slot) = all.get_mut(at) {
                    *slot = of.float(bits).into();
                }
            }
            Numbers::Integers(all) => {
                if let Some(slot) = all.get_mut(at) {
                    *slot = if of == Element::B1 {
                        (bits & 1) as i32
                    } else {
                        of.integer(bits)
                    };
                }
            }
        }
    }

    fn negate(&mut self) {
        match self {
            Numbers::Floats(all) => all.iter_mut().for_each(|x| *x = -*x),
            Numbers::Integers(all) => all.iter_mut().for_each(|x| *x = -*x),
        }
    }
}

/// One kind of `wgmma.mma_async`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wgmma {
    n: usize,
    a: Element,
    b: Element,
    d: Accumulator,
    negate_a: bool,
    negate_b: bool,
    satfinite: bool,
}

/// A `wgmma` that PTX does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchWgmma {
    n: usize,
    a: Element,
    b: Element,
    d: Accumulator,
}

impl fmt::Display for NoSuchWgmma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoSuchWgmma { n, a, b, d } = self;
        write!(f, "there is no m64n{n} wgmma of {a:?} and {b:?} into {d:?}")
    }
}

impl std::error::Error for NoSuchWgmma {}

impl Wgmma {
    /// The product `m64nNkK` of those types, if there is one; K follows from them.
    pub fn new(n: usize, a: Element, b: Element, d: Accumulator) -> Result<Wgmma, NoSuchWgmma> {
        use Accumulator as Acc;
        let eight_bit_float = |e| matches!(e, Element::E4m3 | Element::E5m2);
        let small_float = matches!(d, Acc::F16 | Acc::F32);
        let types = match (a, b) {
            (Element::F16, Element::F16) => small_float,
            (Element::Bf16, Element::Bf16) | (Element::Tf32, Element::Tf32) => d == Acc::F32,
            (x, y) if eight_bit_float(x) && eight_bit_float(y) => small_float,
            (Element::S8 | Element::U8, Element::S8 | Element::U8) => d == Acc::S32,
            (Element::B1, Element::B1) => d == Acc::S32,
            _ => false,
        };
        let sizes = n.is_multiple_of(8) && (8..=256).contains(&n);
        // Integers skip the odd multiples of eight above 24.
        let sizes = sizes && (a.is_float() || n <= 32 || n.is_multiple_of(16));
        if !types || !sizes {
            return Err(NoSuchWgmma { n, a, b, d });
        }
        Ok(Wgmma {
            n,
            a,
            b,
            d,
            negate_a: false,
            negate_b: false,
            satfinite: false,
        })
    }

    /// With `imm-scale-a` and `imm-scale-b`, true for minus one.
    pub fn negate(self, a: bool, b: bool) -> Wgmma {
        Wgmma {
            negate_a: a,
            negate_b: b,
            ..self
        }
    }

    /// With `.satfinite`, which integers obey.
    pub fn satfinite(self, on: bool) -> Wgmma {
        Wgmma {
            satfinite: on,
            ..self
        }
    }

    /// How deep one instruction is: 32 bytes of k.
    pub fn k(&self) -> usize {
        256 / self.a.bits() as usize
    }

    /// A of 64 rows, from its descriptor.
    pub fn a_operand(&self, descriptor: u64, major: Major) -> SharedOperand {
        let descriptor = Descriptor::decode(descriptor);
        SharedOperand {
            descriptor,
            major,
            element: self.a,
            mn: 64,
            k: self.k(),
        }
    }

    /// B of `n` columns, from its descriptor.
    pub fn b_operand(&self, descriptor: u64, major: Major) -> SharedOperand {
        let descriptor = Descriptor::decode(descriptor);
        SharedOperand {
            descriptor,
            major,
            element: self.b,
            mn: self.n,
            k: self.k(),
        }
    }

    /// Where a warp's sixteen rows of A are, when A comes from four registers.
    pub fn a_layout(&self) -> Layout {
        operand_a(Shape::new(16, 8, self.k() as u16), self.a)
    }

    /// A warp's sixteen rows of A from its registers.
    pub fn read_a(&self, registers: &[Lanes<u32>]) -> Numbers {
        let mut numbers = Numbers::zeros(self.a, 16 * self.k());
        let (layout, k) = (self.a_layout(), self.k());
        match &mut numbers {
            Numbers::Floats(all) => layout.gather(registers, all, k, |r, j| self.a.floats(r, j)),
            Numbers::Integers(all) if self.a == Element::B1 => {
                layout.gather(registers, all, k, |r, j| each(r, |w| (w >> j & 1) as i32));
            }
            Numbers::Integers(all) => {
                layout.gather(registers, all, k, |r, j| self.a.integers(r, j))
            }
        }
        numbers
    }

    /// How many registers a thread's part of D takes.
    pub fn d_registers(&self) -> usize {
        self.n / if self.d == Accumulator::F16 { 4 } else { 2 }
    }

    /// Row (of a warp's sixteen) and column of element `j` of a register of D; `j`
    /// is zero except for `f16`, of which a register has two.
    #[inline]
    pub fn d_place(&self, lane: usize, register: usize, j: usize) -> (usize, usize) {
        let (group, member) = (lane >> 2 & 7, lane & 3);
        // Registers alternate between the halves of the rows, in pairs of columns.
        let pair = if self.d == Accumulator::F16 {
            register
        } else {
            register / 2
        };
        let along = if self.d == Accumulator::F16 {
            j
        } else {
            register % 2
        };
        (group + 8 * (pair % 2), 2 * member + along + 8 * (pair / 2))
    }

    /// One warp's part of `d = a * b + d`, or `d = a * b` without `accumulate`
    /// (`scale-d` zero). `a` is the warp's sixteen rows; `b` is k rows of n. An
    /// operand of the wrong kind or size contributes nothing.
    pub fn run_warp(&self, a: &Numbers, b: &Numbers, accumulate: bool, d: &mut [Lanes<u32>]) {
        let k = self.k();
        let (mut a, mut b) = (std::borrow::Cow::Borrowed(a), std::borrow::Cow::Borrowed(b));
        if self.negate_a {
            a.to_mut().negate();
        }
        if self.negate_b {
            b.to_mut().negate();
        }
        match (a.as_ref(), b.as_ref()) {
            (Numbers::Floats(a), Numbers::Floats(b)) => {
                let mut sums = vec![0.0; 16 * self.n];
                if accumulate {
                    self.each_place(d, |word, j, at| sums[at] = self.number(*word, j));
                }
                gemm(16, self.n, k, a, b, &mut sums);
                self.each_place(d, |word, j, at| match (self.d, j) {
                    (Accumulator::F16, 0) => {
                        *word = (*word & 0xffff_0000) | round_f16(sums[at]) as u32
                    }
                    (Accumulator::F16, _) => {
                        *word = (*word & 0xffff) | (round_f16(sums[at]) as u32) << 16
                    }
                    _ => *word = round_f32(sums[at]),
                });
            }
            (Numbers::Integers(a), Numbers::Integers(b)) => {
                let mut sums = vec![0; 16 * self.n];
                gemm(16, self.n, k, a, b, &mut sums);
                self.each_place(d, |word, _, at| {
                    let before = if accumulate { *word as i32 } else { 0 };
                    let sum = sums[at];
                    *word = if self.satfinite {
                        before.saturating_add(sum)
                    } else {
                        before.wrapping_add(sum)
                    } as u32;
                });
            }
            _ => {}
        }
    }

    fn number(&self, word: u32, j: usize) -> f64 {
        match self.d {
            Accumulator::F16 => Element::F16.float(word >> (16 * j)).into(),
            _ => f32::from_bits(word).into(),
        }
    }

    /// Every element of D with its index in a matrix of n columns.
    #[inline(always)]
    fn each_place(&self, d: &mut [Lanes<u32>], mut f: impl FnMut(&mut u32, usize, usize)) {
        let halves = if self.d == Accumulator::F16 { 2 } else { 1 };
        for (r, register) in d.iter_mut().enumerate().take(self.d_registers()) {
            for (lane, word) in register.iter_mut().enumerate() {
                for j in 0..halves {
                    let (row, column) = self.d_place(lane, r, j);
                    f(word, j, row * self.n + column);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
