//! `wgmma`: products of a warpgroup, with operands in shared memory.
//!
//! [`Descriptor`] is the 64-bit matrix descriptor; [`SharedOperand`] says which
//! bytes of shared memory an operand is and turns them into numbers; [`Wgmma`]
//! multiplies. A warpgroup is four warps, warp `w` having rows `16w` to `16w + 15`
//! of A and D, so products are computed a warp at a time, with B read once.

use std::fmt;

use super::element::{Accumulator, Element, Sum, each};
use super::gemm::{gemm, gemm_inline};
use super::layout::{Decode, Layout};
use super::mma::{Shape, accumulator, operand_a};
use super::sparse::SparseMma;
use super::swizzle::Swizzle;
use crate::float::f16;
use crate::lanes::{Lanes, multiversion};

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
            Swizzle::B96 | Swizzle::B128Atom32 | Swizzle::B128Atom32Flip8 | Swizzle::B128Atom64 => {
                return None;
            }
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
        self.read(load, self.k, 1)
    }

    /// As [`SharedOperand::read_rows`], but with `k` rows of `mn` numbers, which is
    /// how [`Wgmma`] takes B.
    pub fn read_columns(&self, load: impl FnMut(u32) -> [u8; 16]) -> Numbers {
        self.read(load, 1, self.mn)
    }

    /// Reads every chunk. `step_mn` and `step_k` are what a step along either axis
    /// adds to the index of the result.
    fn read(&self, load: impl FnMut(u32) -> [u8; 16], step_mn: usize, step_k: usize) -> Numbers {
        let steps = (step_mn, step_k);
        let wide = |bits: u32| f64::from(f32::from_bits(bits));
        let of = self.element;
        match of {
            Element::F16 => {
                Numbers::Floats(self.fill::<16, _>(load, steps, |b| wide(f16::to_f32(b as u16))))
            }
            Element::Bf16 => Numbers::Floats(self.fill::<16, _>(load, steps, |b| wide(b << 16))),
            Element::Tf32 => {
                Numbers::Floats(self.fill::<32, _>(load, steps, |b| of.float(b).into()))
            }
            _ if of.is_float() => {
                Numbers::Floats(self.fill::<8, _>(load, steps, |b| of.float(b).into()))
            }
            Element::B1 => Numbers::Integers(self.fill::<1, _>(load, steps, |b| (b & 1) as i32)),
            Element::S4 | Element::U4 => {
                Numbers::Integers(self.fill::<4, _>(load, steps, |b| of.integer(b)))
            }
            _ => Numbers::Integers(self.fill::<8, _>(load, steps, |b| of.integer(b))),
        }
    }

    /// The numbers of elements of `BITS` bits.
    #[inline(always)]
    fn fill<const BITS: usize, T: Copy + Default>(
        &self,
        mut load: impl FnMut(u32) -> [u8; 16],
        (step_mn, step_k): (usize, usize),
        number: impl Fn(u32) -> T,
    ) -> Vec<T> {
        let mut numbers = vec![T::default(); self.mn * self.k];
        let (lines, chunks) = self.lines_and_chunks();
        let (step_line, step) = match self.major {
            Major::K => (step_mn, step_k),
            Major::Mn => (step_k, step_mn),
        };
        for line in 0..lines {
            for chunk in 0..chunks {
                let all = u128::from_le_bytes(load(self.chunk_address(line, chunk)));
                let first = line * step_line + chunk * (128 / BITS) * step;
                let slots = numbers.get_mut(first..).unwrap_or(&mut []);
                for (i, slot) in slots.iter_mut().step_by(step).take(128 / BITS).enumerate() {
                    *slot = number((all >> (i * BITS)) as u32);
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

    /// Some rows of a matrix of `width` columns: for a warp's part of an A that was
    /// read for the whole warpgroup. Rows that are not there are left out.
    pub fn rows(&self, rows: std::ops::Range<usize>, width: usize) -> Numbers {
        fn part<T: Copy>(all: &[T], rows: std::ops::Range<usize>, width: usize) -> Vec<T> {
            all.chunks(width.max(1))
                .skip(rows.start)
                .take(rows.len())
                .flatten()
                .copied()
                .collect()
        }
        match self {
            Numbers::Floats(all) => Numbers::Floats(part(all, rows, width)),
            Numbers::Integers(all) => Numbers::Integers(part(all, rows, width)),
        }
    }

    /// The rows of both, one matrix under the other.
    pub fn chain(self, under: Numbers) -> Numbers {
        match (self, under) {
            (Numbers::Floats(mut all), Numbers::Floats(more)) => {
                all.extend(more);
                Numbers::Floats(all)
            }
            (Numbers::Integers(mut all), Numbers::Integers(more)) => {
                all.extend(more);
                Numbers::Integers(all)
            }
            (one, _) => one,
        }
    }

    /// The columns of both, one matrix beside the other, of `width` columns each.
    pub fn beside(self, right: &Numbers, width: usize) -> Numbers {
        fn zip<T: Copy>(left: &[T], right: &[T], width: usize) -> Vec<T> {
            let width = width.max(1);
            let rows = left.chunks(width).zip(right.chunks(width));
            rows.flat_map(|(left, right)| [left, right])
                .flatten()
                .copied()
                .collect()
        }
        match (&self, right) {
            (Numbers::Floats(one), Numbers::Floats(two)) => Numbers::Floats(zip(one, two, width)),
            (Numbers::Integers(one), Numbers::Integers(two)) => {
                Numbers::Integers(zip(one, two, width))
            }
            _ => self,
        }
    }

    pub(crate) fn negate(&mut self) {
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
    sparse: bool,
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
            sparse: false,
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

    /// As `wgmma.mma_async.sp`: A is stored at half of its columns, and twice as deep
    /// a product is made of the same number of bytes. Single bits have no such form.
    pub fn sparse(self) -> Option<Wgmma> {
        (self.a != Element::B1).then_some(Wgmma {
            sparse: true,
            ..self
        })
    }

    /// How deep one instruction is: 32 bytes of k, or 64 of a sparse one.
    pub fn k(&self) -> usize {
        self.stored_k() << u32::from(self.sparse)
    }

    /// How many elements of a row of A are stored.
    fn stored_k(&self) -> usize {
        256 / self.a.bits() as usize
    }

    /// The columns that the stored elements of a warp's sixteen rows belong to, as
    /// the metadata says, and zeros between them: what [`Wgmma::run_warp`] takes of
    /// a sparse A. The metadata is laid out as that of `mma.sp`.
    pub fn expand(&self, stored: &Numbers, metadata: &Lanes<u32>, selector: u32) -> Numbers {
        let shape = Shape::new(16, 8, self.k() as u16);
        let Ok(sparse) = SparseMma::new(shape, self.a, self.b, self.d, self.d) else {
            return stored.clone();
        };
        let (k, half) = (self.k(), self.stored_k());
        let spread = |at: usize| {
            let (row, index) = (at / half, at % half);
            row * k + sparse.column(metadata, selector, row, index) % k
        };
        match stored {
            Numbers::Floats(all) => {
                let mut dense = vec![0.0; 16 * k];
                all.iter()
                    .take(16 * half)
                    .enumerate()
                    .for_each(|(at, x)| dense[spread(at)] = *x);
                Numbers::Floats(dense)
            }
            Numbers::Integers(all) => {
                let mut dense = vec![0; 16 * k];
                all.iter()
                    .take(16 * half)
                    .enumerate()
                    .for_each(|(at, x)| dense[spread(at)] = *x);
                Numbers::Integers(dense)
            }
        }
    }

    /// A of 64 rows, from its descriptor.
    pub fn a_operand(&self, descriptor: u64, major: Major) -> SharedOperand {
        let descriptor = Descriptor::decode(descriptor);
        SharedOperand {
            descriptor,
            major,
            element: self.a,
            mn: 64,
            k: self.stored_k(),
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
        operand_a(Shape::new(16, 8, self.stored_k() as u16), self.a)
    }

    /// A warp's sixteen rows of A from its registers, stored elements alone of a
    /// sparse one.
    pub fn read_a(&self, registers: &[Lanes<u32>]) -> Numbers {
        let mut numbers = Numbers::zeros(self.a, 16 * self.stored_k());
        let (layout, k) = (self.a_layout(), self.stored_k());
        match &mut numbers {
            Numbers::Floats(all) => layout.gather(registers, all, k, &self.a),
            Numbers::Integers(all) if self.a == Element::B1 => {
                layout.gather(registers, all, k, &Bits);
            }
            Numbers::Integers(all) => layout.gather(registers, all, k, &self.a),
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
                run_floats(self, a, b, accumulate, &mut sums, d);
            }
            (Numbers::Integers(a), Numbers::Integers(b)) => {
                let mut sums = vec![0; 16 * self.n];
                gemm(16, self.n, k, a, b, &mut sums);
                let sum = Sum {
                    satfinite: self.satfinite,
                };
                for (tile, d) in d.chunks_mut(4).enumerate().take(self.n / 8) {
                    if !accumulate {
                        d.fill([0; 32]);
                    }
                    self.tile().scatter(&sums[8 * tile..], self.n, d, &sum);
                }
            }
            _ => {}
        }
    }

    /// Eight columns of D.
    #[inline(always)]
    fn tile(&self) -> Layout {
        accumulator(16, self.d)
    }
}

multiversion! {
    fn run_floats(
        of: &Wgmma,
        a: &[f64],
        b: &[f64],
        accumulate: bool,
        sums: &mut [f64],
        d: &mut [Lanes<u32>],
    ) {
        let tile = of.tile();
        if accumulate {
            for (at, d) in d.chunks(tile.registers()).enumerate().take(of.n / 8) {
                tile.gather(d, &mut sums[8 * at..], of.n, &of.d);
            }
        }
        gemm_inline::<FUSES, f64>(16, of.n, of.k(), a, b, sums);
        for (at, d) in d.chunks_mut(tile.registers()).enumerate().take(of.n / 8) {
            tile.scatter(&sums[8 * at..], of.n, d, &of.d);
        }
    }
}

/// Single bits as zeros and ones.
struct Bits;

impl Decode<u32, i32> for Bits {
    #[inline(always)]
    fn decode(&self, register: &Lanes<u32>, j: u32) -> Lanes<i32> {
        each(register, |w| (w >> (j & 31) & 1) as i32)
    }
}

#[cfg(test)]
mod tests;
