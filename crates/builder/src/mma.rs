//! `mma.sync`: a warp multiplies 16x16 (or 16x8) by 16x8 blocks.
//!
//! Fragments come from a [`SharedTile`] in shared memory through `ldmatrix`, or by
//! plain loads from shared or global memory; nothing else can be a fragment's
//! source. The accumulator stays in registers and is updated in place.
//!
//! ```
//! # use heist_builder::*;
//! # kernel_params! { pub struct Args { out: Global<f32> } }
//! # KernelSpec::<Args>::new("k").block(32).build(Arch::SM_80, |k, args| {
//! # let a = k.tile(TileSpec::<f16>::new("a", 16, 64, TileLayout::Swizzled));
//! # let b = k.tile(TileSpec::<f16>::new("b", 16, 64, TileLayout::Swizzled));
//! let (a, b) = (a.a_rows(0), b.b_rows(0)); // a is 16 x 64, b is 16 columns of 64
//! let sums = WarpTile::zero(k, 1, 2); // 16 rows, 2 x 8 columns
//! for step in 0..4 {
//!     sums.mma(&[a.fragment(0, step)], &b.fragments(0, step));
//! }
//! sums.each_pair(|row, col, pair| args.out.at(row * 16 + col).store_vec(pair));
//! # }).unwrap();
//! ```

use crate::emit::Opnd;
use crate::kernel::Kernel;
use crate::pointer::{FragmentSpace, Ptr, Shared};
use crate::scalar::{Bf16x2, F16x2, Half, Storable, Tf32, Word};
use crate::tile::{LaneOrder, Loader, SharedTile};
use crate::value::{IntoVal, Val, Var};
use half::{bf16, f16};
use heist_ptx::arch::Feature;

/// What tensor cores multiply: `f16`, `bf16`, [`Tf32`].
#[diagnostic::on_unimplemented(
    message = "tensor cores do not multiply `{Self}`",
    note = "use f16, bf16 or Tf32 tiles"
)]
pub trait MmaInput: Storable {
    /// What one register of a fragment holds.
    type Reg: Word;
    /// The depth of one multiplication.
    const K: u32;
    #[doc(hidden)]
    const NAME: &'static str;
    /// The register of the elements that lie there: of as many as it holds.
    #[doc(hidden)]
    fn gather<'k>(at: [Ptr<'k, Shared, Self>; 2]) -> Val<'k, Self::Reg>;
}

// Written out, not by a macro: rustc names the places in its messages.
impl MmaInput for f16 {
    type Reg = F16x2;
    const K: u32 = 16;
    const NAME: &'static str = "f16";
    #[track_caller]
    fn gather<'k>([low, high]: [Ptr<'k, Shared, f16>; 2]) -> Val<'k, F16x2> {
        Val::pack(low.load(), high.load())
    }
}

impl MmaInput for bf16 {
    type Reg = Bf16x2;
    const K: u32 = 16;
    const NAME: &'static str = "bf16";
    #[track_caller]
    fn gather<'k>([low, high]: [Ptr<'k, Shared, bf16>; 2]) -> Val<'k, Bf16x2> {
        Val::pack(low.load(), high.load())
    }
}

impl MmaInput for Tf32 {
    type Reg = Tf32;
    const K: u32 = 8;
    const NAME: &'static str = "tf32";
    #[track_caller]
    fn gather<'k>([one, _]: [Ptr<'k, Shared, Tf32>; 2]) -> Val<'k, Tf32> {
        one.load()
    }
}

/// A 16-row block of the left matrix, `K` deep.
#[derive(Clone, Copy, Debug)]
pub struct FragmentA<'k, T: MmaInput> {
    pub(crate) regs: [Val<'k, T::Reg>; 4],
}

/// An 8-column block of the right matrix, `K` deep.
#[derive(Clone, Copy, Debug)]
pub struct FragmentB<'k, T: MmaInput> {
    pub(crate) regs: [Val<'k, T::Reg>; 2],
}

/// The part of a tile that a warp loads left fragments from.
#[derive(Clone, Debug)]
pub struct ASource<'k, T> {
    loader: Loader<'k, T>,
    transposed: bool,
}

/// The part of a tile that a warp loads right fragments from.
#[derive(Clone, Debug)]
pub struct BSource<'k, T> {
    loader: Loader<'k, T>,
    transposed: bool,
}

impl<'k, T: MmaInput> SharedTile<'k, T> {
    /// Left fragments from a tile whose rows run along the depth (M x K), from
    /// row `row0`, a multiple of 16.
    #[track_caller]
    pub fn a_rows(&self, row0: impl IntoVal<'k, u32>) -> ASource<'k, T> {
        let k = self.kernel();
        let row0 = row0.into_val(&k);
        ASource {
            loader: self.loader(row0, k.c(0), LaneOrder::RowsFirst, false),
            transposed: false,
        }
    }

    /// Right fragments from a tile whose rows are the columns of the right
    /// matrix (N x K), from row `row0`, a multiple of 16.
    #[track_caller]
    pub fn b_rows(&self, row0: impl IntoVal<'k, u32>) -> BSource<'k, T> {
        let k = self.kernel();
        let row0 = row0.into_val(&k);
        BSource {
            loader: self.loader(row0, k.c(0), LaneOrder::ChunksFirst, false),
            transposed: false,
        }
    }
}

impl<'k, T: MmaInput + Half> SharedTile<'k, T> {
    /// Left fragments from a tile whose rows are steps of the depth (K x M),
    /// from column `col0`, a multiple of 16. Halves only: `ldmatrix` transposes
    /// 16-bit elements.
    #[track_caller]
    pub fn a_columns(&self, col0: impl IntoVal<'k, u32>) -> ASource<'k, T> {
        let k = self.kernel();
        let chunk0 = col0.into_val(&k) / SharedTile::<T>::per_chunk();
        ASource {
            loader: self.loader(k.c(0), chunk0, LaneOrder::ChunksFirst, true),
            transposed: true,
        }
    }

    /// Right fragments from a tile whose rows are steps of the depth (K x N),
    /// from column `col0`, a multiple of 16.
    #[track_caller]
    pub fn b_columns(&self, col0: impl IntoVal<'k, u32>) -> BSource<'k, T> {
        self.b_columns_from(0, col0)
    }

    /// The same, the depth starting at row `row0`, a multiple of 16: for warps
    /// that share the depth.
    #[track_caller]
    pub fn b_columns_from(
        &self,
        row0: impl IntoVal<'k, u32>,
        col0: impl IntoVal<'k, u32>,
    ) -> BSource<'k, T> {
        let k = self.kernel();
        let chunk0 = col0.into_val(&k) / SharedTile::<T>::per_chunk();
        BSource {
            loader: self.loader(row0.into_val(&k), chunk0, LaneOrder::RowsFirst, true),
            transposed: true,
        }
    }
}

impl<'k, T: MmaInput> ASource<'k, T> {
    /// The fragment `block` blocks of 16 rows down and `step` steps deep.
    #[track_caller]
    pub fn fragment(&self, block: u32, step: u32) -> FragmentA<'k, T> {
        let (rows, pair) = if self.transposed {
            (step, block)
        } else {
            (block, step)
        };
        FragmentA {
            regs: self.loader.load(rows, pair),
        }
    }
}

impl<'k, T: MmaInput> BSource<'k, T> {
    /// Two neighbouring fragments, 16 columns, `block` blocks of 16 columns
    /// over and `step` steps deep.
    #[track_caller]
    pub fn fragments(&self, block: u32, step: u32) -> [FragmentB<'k, T>; 2] {
        let (rows, pair) = if self.transposed {
            (step, block)
        } else {
            (block, step)
        };
        let [a, b, c, d] = self.loader.load(rows, pair);
        [FragmentB { regs: [a, b] }, FragmentB { regs: [c, d] }]
    }
}

/// The row of a fragment that this lane's first register holds.
#[track_caller]
fn lane_row<'k>(k: &Kernel<'k>) -> Val<'k, u32> {
    k.lane() >> 2
}

/// The first of the two columns of an accumulator that this lane holds.
#[track_caller]
fn lane_col<'k>(k: &Kernel<'k>) -> Val<'k, u32> {
    (k.lane() & 3) << 1
}

/// One register of a fragment by a plain load: `T::Reg` at an element.
#[track_caller]
fn load_register<'k, S: FragmentSpace, T: MmaInput>(at: Ptr<'k, S, T>) -> Val<'k, T::Reg> {
    at.cast::<T::Reg>().load()
}

/// Elements in one register.
fn per_register<T: MmaInput>() -> u32 {
    4 / T::BYTES
}

impl<'k, T: MmaInput> FragmentA<'k, T> {
    pub(crate) fn operand(&self) -> Opnd {
        Opnd::Vector(self.regs.iter().map(|reg| reg.register().into()).collect())
    }

    /// Loads the 16 x K block at `at`, whose rows are `pitch` elements apart,
    /// from shared or global memory.
    #[track_caller]
    pub fn load<S: FragmentSpace>(at: Ptr<'k, S, T>, pitch: impl IntoVal<'k, u32>) -> Self {
        let k = at.kernel();
        let pitch = pitch.into_val(&k);
        let col = (k.lane() & 3) * per_register::<T>();
        let first = at.at(lane_row(&k).mul_add(pitch, col));
        let below = first.at(pitch * 8);
        let half = T::K / 2;
        FragmentA {
            regs: [
                load_register(first),
                load_register(below),
                load_register(first.at(half)),
                load_register(below.at(half)),
            ],
        }
    }
}

impl<'k, T: MmaInput + Half> FragmentA<'k, T>
where
    T::Reg: Word,
{
    /// Two neighbouring accumulators (16 x 16) rounded to halves, as the left matrix of the next
    /// multiplication: no exchange between lanes is needed.
    #[track_caller]
    pub fn from_accumulators(left: [Val<'k, f32>; 4], right: [Val<'k, f32>; 4]) -> Self {
        let pack = |low, high| Val::pack_as::<T>(low, high).relabel::<T::Reg>();
        FragmentA {
            regs: [
                pack(left[0], left[1]),
                pack(left[2], left[3]),
                pack(right[0], right[1]),
                pack(right[2], right[3]),
            ],
        }
    }

    /// The same in two terms, as [`split_as`](Val::split_as) has them, to be
    /// multiplied one after the other.
    #[track_caller]
    pub fn split_accumulators(left: [Val<'k, f32>; 4], right: [Val<'k, f32>; 4]) -> [Self; 2] {
        let split = |low, high| Val::split_as::<T>(low, high).map(Val::relabel::<T::Reg>);
        let parts = [
            split(left[0], left[1]),
            split(left[2], left[3]),
            split(right[0], right[1]),
            split(right[2], right[3]),
        ];
        [0, 1].map(|term| FragmentA {
            regs: parts.map(|part| part[term]),
        })
    }
}

impl<'k, T: MmaInput> FragmentB<'k, T> {
    /// Loads 8 columns of depth K from a matrix stored column after column
    /// (N x K), `pitch` elements apart, in shared or global memory.
    #[track_caller]
    pub fn load<S: FragmentSpace>(at: Ptr<'k, S, T>, pitch: impl IntoVal<'k, u32>) -> Self {
        let k = at.kernel();
        let pitch = pitch.into_val(&k);
        let row = (k.lane() & 3) * per_register::<T>();
        let first = at.at(lane_row(&k).mul_add(pitch, row));
        FragmentB {
            regs: [load_register(first), load_register(first.at(T::K / 2))],
        }
    }
}

impl<'k> FragmentA<'k, Tf32> {
    /// Loads the 16 x 8 block at `at` from a matrix whose columns lie one after
    /// the other (K x M), `pitch` elements apart.
    #[track_caller]
    pub fn load_columns<S: FragmentSpace>(at: Ptr<'k, S, Tf32>, pitch: u32) -> Self {
        let k = at.kernel();
        let first = at.at((k.lane() & 3).mul_add(pitch, lane_row(&k)));
        let right = first.at(4 * pitch);
        FragmentA {
            regs: [first, first.at(8), right, right.at(8)].map(load_register),
        }
    }
}

impl<'k> FragmentB<'k, Tf32> {
    /// Loads the 8 x 8 block at `at` from a matrix whose rows lie one after the
    /// other (K x N), `pitch` elements apart.
    #[track_caller]
    pub fn load_rows<S: FragmentSpace>(at: Ptr<'k, S, Tf32>, pitch: u32) -> Self {
        let k = at.kernel();
        let first = at.at((k.lane() & 3).mul_add(pitch, lane_row(&k)));
        FragmentB {
            regs: [first, first.at(4 * pitch)].map(load_register),
        }
    }
}

/// An accumulator of 16 x 8 in the registers of a warp.
///
/// A lane holds rows `lane / 4` and 8 further down, columns `2 * (lane % 4)`
/// and the next: in that order.
#[derive(Clone, Copy, Debug)]
pub struct Accumulator<'k> {
    sums: [Var<'k, f32>; 4],
}

impl<'k> Accumulator<'k> {
    /// All zero.
    #[track_caller]
    pub fn zero(k: &Kernel<'k>) -> Accumulator<'k> {
        k.asked_here();
        Accumulator {
            sums: [(); 4].map(|()| k.var(0.0f32)),
        }
    }

    /// Adds the product of `a` and `b`.
    #[track_caller]
    pub fn mma<T: MmaInput>(&self, a: &FragmentA<'k, T>, b: &FragmentB<'k, T>) {
        let k = self.sums[0].k;
        k.require(Feature::MmaBf16);
        let vector = |regs: &[Val<'k, T::Reg>]| {
            Opnd::Vector(regs.iter().map(|reg| reg.register().into()).collect())
        };
        let sums = || Opnd::Vector(self.sums.iter().map(|sum| sum.reg.into()).collect());
        let (name, depth) = (T::NAME, T::K);
        k.effect(
            format!("mma.sync.aligned.m16n8k{depth}.row.col.f32.{name}.{name}.f32"),
            vec![sums(), vector(&a.regs), vector(&b.regs), sums()],
        );
    }

    /// The four sums this lane holds.
    #[track_caller]
    pub fn get(&self) -> [Val<'k, f32>; 4] {
        self.sums[0].k.asked_here();
        self.sums.map(Var::get)
    }

    /// Replaces the four sums this lane holds.
    #[track_caller]
    pub fn set(&self, values: [Val<'k, f32>; 4]) {
        for (sum, value) in self.sums.iter().zip(values) {
            sum.set(value);
        }
    }

    /// The row of the first two sums; the other two are 8 further down.
    #[track_caller]
    pub fn row(k: &Kernel<'k>) -> Val<'k, u32> {
        lane_row(k)
    }

    /// The column of the first and third sum; the others are next to it.
    #[track_caller]
    pub fn col(k: &Kernel<'k>) -> Val<'k, u32> {
        lane_col(k)
    }
}

/// The accumulators of a warp: blocks of 16 rows by 8 columns, side by side.
#[derive(Clone, Debug)]
pub struct WarpTile<'k> {
    k: Kernel<'k>,
    rows: usize,
    cols: usize,
    /// Row by row.
    blocks: Vec<Accumulator<'k>>,
}

impl<'k> WarpTile<'k> {
    /// All zero: `rows` blocks of 16 rows by `cols` blocks of 8 columns.
    #[track_caller]
    pub fn zero(k: &Kernel<'k>, rows: usize, cols: usize) -> Self {
        k.asked_here();
        WarpTile {
            k: *k,
            rows,
            cols,
            blocks: (0..rows * cols).map(|_| Accumulator::zero(k)).collect(),
        }
    }

    /// One row of blocks over existing registers.
    pub(crate) fn over(k: &Kernel<'k>, sums: &[[Var<'k, f32>; 4]]) -> Self {
        let blocks = sums.iter().map(|&sums| Accumulator { sums });
        WarpTile {
            k: *k,
            rows: 1,
            cols: sums.len(),
            blocks: blocks.collect(),
        }
    }

    /// The kernel it belongs to.
    pub fn kernel(&self) -> Kernel<'k> {
        self.k
    }

    /// Sets all sums to zero again.
    #[track_caller]
    pub fn clear(&self) {
        for block in &self.blocks {
            block.set([self.k.c(0.0); 4]);
        }
    }

    /// Blocks of 16 rows, and blocks of 8 columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// One block; `None` outside.
    pub fn block(&self, row: usize, col: usize) -> Option<Accumulator<'k>> {
        let inside = row < self.rows && col < self.cols;
        inside.then(|| self.blocks[row * self.cols + col])
    }

    /// Adds the products of every left with every right fragment, back and
    /// forth over the columns so that neighbours share an operand. As many
    /// fragments as blocks, or the build fails.
    #[track_caller]
    pub fn mma<T: MmaInput>(&self, left: &[FragmentA<'k, T>], right: &[FragmentB<'k, T>]) {
        if (left.len(), right.len()) != (self.rows, self.cols) {
            self.k.fail(format!(
                "{} left and {} right fragments for {} by {} blocks of sums",
                left.len(),
                right.len(),
                self.rows,
                self.cols
            ));
            return;
        }
        for (m, (row, a)) in self.blocks.chunks(self.cols.max(1)).zip(left).enumerate() {
            let mut pairs: Vec<_> = row.iter().zip(right).collect();
            if m % 2 == 1 {
                pairs.reverse();
            }
            for (sums, b) in pairs {
                sums.mma(a, b);
            }
        }
    }

    /// The sums of this lane in every 16 rows: of each 8 columns two neighbours, and the two 8 rows further down.
    #[track_caller]
    pub fn bands(&self) -> impl Iterator<Item = Vec<[Val<'k, f32>; 4]>> {
        self.k.asked_here();
        let bands = self.blocks.chunks(self.cols.max(1));
        bands.map(|blocks| blocks.iter().map(Accumulator::get).collect())
    }

    /// Calls `each` with every row of the warp's tile that this lane has sums of:
    /// the row, the first column, and the sums, two neighbours at a time and each
    /// two 8 columns further.
    #[track_caller]
    pub fn each_row(&self, each: impl Fn(Val<'k, u32>, Val<'k, u32>, &[[Val<'k, f32>; 2]])) {
        let k = self.k;
        k.asked_here();
        let (row, col) = (lane_row(&k), lane_col(&k));
        for (m, blocks) in self.blocks.chunks(self.cols.max(1)).enumerate() {
            let blocks: Vec<_> = blocks.iter().map(|block| block.get()).collect();
            let half = |from: usize| -> Vec<_> {
                let pair = blocks.iter().map(|sums| [sums[from], sums[from + 1]]);
                pair.collect()
            };
            let row = row + m as u32 * 16;
            each(row, col, &half(0));
            each(row + 8, col, &half(2));
        }
    }

    /// Calls `each` with the position in the warp's tile and the value of every
    /// two neighbouring sums this lane holds.
    #[track_caller]
    pub fn each_pair(&self, each: impl Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, f32>; 2])) {
        let k = self.k;
        k.asked_here();
        let (row, col) = (lane_row(&k), lane_col(&k));
        for (index, block) in self.blocks.iter().enumerate() {
            let (m, n) = ((index / self.cols) as u32, (index % self.cols) as u32);
            let [a, b, c, d] = block.get();
            let col = col + n * 8;
            each(row + m * 16, col, [a, b]);
            each(row + (m * 16 + 8), col, [c, d]);
        }
    }
}
