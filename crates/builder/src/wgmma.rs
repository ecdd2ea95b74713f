//! `wgmma`: a warpgroup of 128 threads multiplies straight from shared memory.
//!
//! The accumulators live in registers that the tensor cores update asynchronously. Fence,
//! multiplications and commit are one call ([`WgmmaSums::accumulate`]), and the registers can be
//! read only through [`WgmmaSums::finish`], which waits; before that there is no way to name them.
//!
//! Operands are tiles with rows of 128 bytes, [`Swizzled`](crate::TileLayout),
//! as a tensor copy with the 128-byte swizzle writes them. Their rows run along
//! the depth ([`SharedTile::wgmma_operand`]) or across it
//! ([`SharedTile::wgmma_operand_across`]).

use crate::emit::Opnd;
use crate::kernel::{Kernel, number};
use crate::mma::{MmaInput, WarpTile};
use crate::scalar::{E4m3, E5m2, Half, Storable, Tf32, Tiny};
use crate::tile::{SharedTile, TileLayout};
use crate::value::{Bool, IntoVal, Val, Var};
use heist_ptx::arch::Feature;
use std::marker::PhantomData;

/// What a warpgroup multiplies: what `mma.sync` does, and floats of eight bits.
pub trait WgmmaInput {
    /// As it lies in memory.
    type Stored: Storable;
    /// The depth of one multiplication: 32 bytes.
    const K: u32;
    #[doc(hidden)]
    const NAME: &'static str;
}

impl<T: MmaInput> WgmmaInput for T {
    type Stored = T;
    const K: u32 = <T as MmaInput>::K;
    const NAME: &'static str = <T as MmaInput>::NAME;
}
impl WgmmaInput for E4m3 {
    type Stored = u8;
    const K: u32 = 32;
    const NAME: &'static str = <E4m3 as Tiny>::NAME;
}
impl WgmmaInput for E5m2 {
    type Stored = u8;
    const K: u32 = 32;
    const NAME: &'static str = <E5m2 as Tiny>::NAME;
}

/// A matrix in shared memory as `wgmma` sees it: a 64-bit descriptor.
#[derive(Debug)]
pub struct WgmmaOperand<'k, H> {
    descriptor: Val<'k, u64>,
    /// What one step of depth adds to the descriptor.
    step: u64,
    /// Whether its rows run across the depth.
    across: bool,
    of: PhantomData<fn() -> H>,
}
impl<H> Clone for WgmmaOperand<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H> Copy for WgmmaOperand<'_, H> {}

/// Eight rows of 128 bytes, in units of 16: the stride between groups of rows.
const GROUP_STRIDE: u64 = 1024 >> 4;
/// The 128-byte swizzle, in a descriptor's numbering.
const SWIZZLE_128: u64 = 1;

impl<'k, H: MmaInput> SharedTile<'k, H> {
    /// The rows from `row0` (a multiple of 8) on, as an operand whose depth runs
    /// along the rows: 64 halves or 32 words deep, so four steps.
    #[track_caller]
    pub fn wgmma_operand(&self, row0: impl IntoVal<'k, u32>) -> WgmmaOperand<'k, H> {
        self.wgmma_operand_of(row0)
    }

    /// An operand whose rows run across the depth: each has 64 neighbours of the
    /// other axis. `depth` rows make a panel (a multiple of 16), and the tile is
    /// panel below panel; the operand starts at panel `panel0`.
    #[track_caller]
    pub fn wgmma_operand_across(
        &self,
        panel0: impl IntoVal<'k, u32>,
        depth: u32,
    ) -> WgmmaOperand<'k, H> {
        self.wgmma_operand_across_of(panel0, depth)
    }
}

impl<'k, T: Storable> SharedTile<'k, T> {
    /// The rows from `row0` (a multiple of 8) on, as an operand of a type that lies in
    /// memory like this: its depth runs along the rows, four steps of 32 bytes.
    #[track_caller]
    pub fn wgmma_operand_of<H: WgmmaInput<Stored = T>>(
        &self,
        row0: impl IntoVal<'k, u32>,
    ) -> WgmmaOperand<'k, H> {
        let rest = 1u64 << 16 | GROUP_STRIDE << 32 | SWIZZLE_128 << 62;
        WgmmaOperand {
            descriptor: self.descriptor(row0.into_val(&self.kernel()), rest),
            step: 32 >> 4,
            across: false,
            of: PhantomData,
        }
    }

    /// The same with rows across the depth, as
    /// [`wgmma_operand_across`](SharedTile::wgmma_operand_across): of halves alone.
    #[track_caller]
    pub fn wgmma_operand_across_of<H: WgmmaInput<Stored = T>>(
        &self,
        panel0: impl IntoVal<'k, u32>,
        depth: u32,
    ) -> WgmmaOperand<'k, H> {
        let k = self.kernel();
        if T::BYTES != 2 {
            k.fail("only halves are multiplied with rows across the depth");
        }
        k.must_divide("the depth of a panel", depth.into(), 16);
        let panel = u64::from(depth) * 128;
        let rest = panel >> 4 << 16 | GROUP_STRIDE << 32 | SWIZZLE_128 << 62;
        WgmmaOperand {
            descriptor: self.descriptor(panel0.into_val(&k) * depth, rest),
            step: (16 * 128) >> 4,
            across: true,
            of: PhantomData,
        }
    }

    /// The address of a row, with the other fields beside it.
    #[track_caller]
    fn descriptor(&self, row: Val<'k, u32>, rest: u64) -> Val<'k, u64> {
        let k = self.kernel();
        k.require(Feature::Wgmma);
        if self.layout() != TileLayout::Swizzled || self.cols() * T::BYTES != 128 {
            k.fail(format!(
                "a wgmma operand has swizzled rows of 128 bytes, and this tile has {:?} rows of {}",
                self.layout(),
                self.cols() * T::BYTES
            ));
        }
        let address = self.ptr().byte_offset(row * 128).address();
        let field = (address & 0x3FFFF) >> 4;
        field.cast::<u64>() | rest
    }
}

impl<'k, H> WgmmaOperand<'k, H> {
    /// The same, a number of steps further along the depth that threads of a warpgroup agree on.
    #[track_caller]
    pub fn step_at(&self, step: Val<'k, u32>) -> WgmmaOperand<'k, H> {
        WgmmaOperand {
            descriptor: self.descriptor + step.cast::<u64>() * self.step,
            ..*self
        }
    }

    /// The same, `step` steps of 32 bytes further along the depth.
    #[track_caller]
    pub fn step(&self, step: u32) -> WgmmaOperand<'k, H> {
        WgmmaOperand {
            descriptor: self.descriptor + u64::from(step) * self.step,
            ..*self
        }
    }
}

/// Accumulators of 64 rows by 8 to 256 columns, spread over a warpgroup: in each thread four
/// numbers of every 8 columns. They can't be read while a multiplication may be in flight.
#[derive(Debug)]
pub struct WgmmaSums<'k> {
    k: Kernel<'k>,
    sums: Vec<[Var<'k, f32>; 4]>,
}

/// Where the left matrix of a product is.
enum Left<'k, H> {
    Shared(WgmmaOperand<'k, H>),
    Registers(Opnd),
}

/// The multiplications between a fence and its commit.
#[derive(Debug)]
pub struct WgmmaBatch<'b, 'k> {
    k: Kernel<'k>,
    /// Of each 8 columns.
    sums: &'b [[Var<'k, f32>; 4]],
}

/// Accumulators after their wait.
#[derive(Debug)]
pub struct WgmmaResult<'k> {
    sums: Vec<[Var<'k, f32>; 4]>,
}

impl<'k> WgmmaSums<'k> {
    /// All zero. `columns` is a multiple of 8, up to 256.
    #[track_caller]
    pub fn zero(k: &Kernel<'k>, columns: u32) -> WgmmaSums<'k> {
        k.require(Feature::Wgmma);
        // Warps after the last whole warpgroup may do something else.
        if k.threads() < 128 {
            k.fail_with(crate::Problem::OutOfRange {
                what: "the threads of a block with warpgroups".into(),
                value: k.threads().into(),
                low: 128,
                high: 1024,
            });
        }
        k.must_divide("the columns of wgmma", columns.into(), 8);
        if !(8..=256).contains(&columns) {
            k.fail_with(crate::Problem::OutOfRange {
                what: "the columns of wgmma".into(),
                value: columns.into(),
                low: 8,
                high: 256,
            });
        }
        k.asked_here();
        let blocks = columns.clamp(8, 256) / 8;
        WgmmaSums {
            k: *k,
            sums: (0..blocks)
                .map(|_| [(); 4].map(|()| k.var(0.0f32)))
                .collect(),
        }
    }

    /// Fence, the multiplications that `batch` asks for, commit. It returns
    /// while they run; operands must stay as they are until
    /// [`wait_for_older`](WgmmaSums::wait_for_older) or
    /// [`finish`](WgmmaSums::finish).
    #[track_caller]
    pub fn accumulate(&self, batch: impl FnOnce(&WgmmaBatch<'_, 'k>)) {
        self.k.effect("wgmma.fence.sync.aligned", vec![]);
        batch(&WgmmaBatch {
            k: self.k,
            sums: &self.sums,
        });
        self.k.effect("wgmma.commit_group.sync.aligned", vec![]);
    }

    /// Waits until all but the newest `newer` batches have ended: their
    /// operands may be overwritten.
    #[track_caller]
    pub fn wait_for_older(&self, newer: u32) {
        self.k
            .effect("wgmma.wait_group.sync.aligned", vec![number(newer.into())]);
    }

    /// Waits for everything, and gives the sums.
    #[track_caller]
    pub fn finish(self) -> WgmmaResult<'k> {
        self.wait_for_older(0);
        WgmmaResult { sums: self.sums }
    }

    /// Waits for everything and changes every block of sums in place, for
    /// example to rescale them between batches.
    #[track_caller]
    pub fn update(&self, change: impl Fn(usize, [Val<'k, f32>; 4]) -> [Val<'k, f32>; 4]) {
        self.wait_for_older(0);
        for (index, block) in self.sums.iter().enumerate() {
            let new = change(index, block.map(Var::get));
            for (sum, value) in block.iter().zip(new) {
                sum.set(value);
            }
        }
    }

    /// Waits until all but the newest `newer` batches have ended, and gives these accumulators as
    /// each warp has them, 16 of the 64 rows: to be read and changed in place before the next
    /// batch. None of the newer batches may write these accumulators.
    #[track_caller]
    pub fn settled(&self, newer: u32) -> WarpTile<'k> {
        self.wait_for_older(newer);
        WarpTile::over(&self.k, &self.sums)
    }

    /// Waits until all but the newest `newer` batches have ended, and adds these accumulators to `total`, each block of 8 columns times its
    /// factors, if there are any. None of the newer batches may write these accumulators. Tensor cores accumulate 8-bit floats with 13 bits of
    /// fraction, so a deep product is summed in parts; the next part begins with [`mma_fresh`](WgmmaBatch::mma_fresh).
    #[track_caller]
    pub fn add_to(
        &self,
        total: &WgmmaResult<'k>,
        newer: u32,
        factors: impl Fn(usize) -> Option<[Val<'k, f32>; 4]>,
    ) {
        self.wait_for_older(newer);
        for (index, (part, total)) in self.sums.iter().zip(&total.sums).enumerate() {
            let factors = factors(index);
            for (at, (part, total)) in part.iter().zip(total).enumerate() {
                total.set(match factors {
                    Some(factors) => part.get().mul_add(factors[at], total.get()),
                    None => total.get() + part.get(),
                });
            }
        }
    }

    /// The same without waiting, for sums that [`settled`](WgmmaSums::settled) gave
    /// since their last batch.
    pub fn held(&self) -> WarpTile<'k> {
        WarpTile::over(&self.k, &self.sums)
    }

    /// The accumulators of one thread, for sums that are not being added to: to be saved, or
    /// set to what was saved.
    pub fn vars(&self) -> impl Iterator<Item = Var<'k, f32>> {
        self.sums.iter().flatten().copied()
    }
}

/// A left matrix of 64 rows in registers, 16 rows to a warp and one step deep (16 halves or
/// 8 words), that a product may still be reading while the threads go on.
#[derive(Debug)]
pub struct WgmmaLeft<'k, H: MmaInput> {
    regs: [Var<'k, H::Reg>; 4],
}

impl<'k, H: MmaInput> WgmmaLeft<'k, H> {
    /// Without contents: [`set`](WgmmaLeft::set) it, or [`load`](WgmmaLeft::load) it, before it is multiplied.
    #[track_caller]
    pub fn new(k: &Kernel<'k>) -> Self {
        WgmmaLeft {
            regs: [(); 4].map(|()| Var::unset(*k)),
        }
    }
}

impl<'k, H: Half + MmaInput> WgmmaLeft<'k, H>
where
    H: MmaInput<Reg = <H as Half>::Pair>,
{
    /// Two neighbouring blocks of sums rounded to halves. No product may be
    /// reading it: [`wait_for_older`](WgmmaSums::wait_for_older) first.
    #[track_caller]
    pub fn set(&self, left: [Val<'k, f32>; 4], right: [Val<'k, f32>; 4]) {
        for (reg, [low, high]) in self.regs.iter().zip(pairs(left, right)) {
            reg.set(Val::pack_as::<H>(low, high));
        }
    }

    /// What it was set to: of every 16 x 16 halves of a warp the four matrices of 8 x 8
    /// that [`store_matrices`](crate::Ptr::store_matrices) takes, those of the upper and
    /// the lower rows in turns.
    #[track_caller]
    pub fn matrices(&self) -> [Val<'k, H::Pair>; 4] {
        self.regs.map(Var::get)
    }

    /// Takes over what another one was set to. No product may be reading it.
    #[track_caller]
    pub fn take(&self, other: &Self) {
        for (reg, other) in self.regs.iter().zip(&other.regs) {
            reg.set(other.get());
        }
    }

    /// Sets two to the terms of such sums, as [`split_as`](Val::split_as) has
    /// them, to be multiplied one after the other.
    #[track_caller]
    pub fn set_split(terms: [&Self; 2], left: [Val<'k, f32>; 4], right: [Val<'k, f32>; 4]) {
        let [rounded, rest] = terms;
        let regs = rounded.regs.iter().zip(&rest.regs);
        for ((rounded, rest), [low, high]) in regs.zip(pairs(left, right)) {
            let terms = Val::split_as::<H>(low, high);
            rounded.set(terms[0]);
            rest.set(terms[1]);
        }
    }
}

/// Where a thread of a warpgroup finds what it multiplies of words that lie across the depth: panels of 32 of them side
/// by side, each as many rows of 128 bytes as a stage is deep, swizzled. Tensor cores read words in shared memory along the depth alone.
#[derive(Clone, Copy, Debug)]
pub struct WordsAcross<'k> {
    /// Bytes from the first of the 64 rows on: the words that are loaded first and second, of this thread's row and of the one 8 further down.
    places: [[Val<'k, u32>; 2]; 2],
    /// Whether the first word is the deeper one.
    deeper_first: Bool<'k>,
    /// Rows of a panel: how deep it is.
    depth: u32,
}

impl<'k> WordsAcross<'k> {
    /// Those of panels that are so deep: a multiple of 8.
    #[track_caller]
    pub fn new(k: &Kernel<'k>, depth: u32) -> WordsAcross<'k> {
        k.must_divide("the depth of a panel", depth.into(), 8);
        let (lane, warp) = (k.lane(), k.warp() & 3);
        // The lane's row of a block of 8, in halves of 4, and its depth of 4.
        let (row, deep) = (lane >> 2, lane & 3);
        let (high, word) = (row >> 2, row & 3);
        // Two warps have the 32 neighbours of a panel. A chunk is 4 of them, and its place is its number, exclusive or the row of 128
        // bytes of eight. Rows 4 apart lie in the other half of the chunks: lanes with the upper and the lower rows of a block load them in
        // turns, so that all 32 load from different banks. With both of the same depth every two would meet.
        let panel = (warp >> 1) * (depth * 128);
        let at = |half: Val<'k, u32>| {
            let chunk = (((warp & 1) ^ half) << 2) | (high ^ deep);
            panel + (deep + (half << 2)) * 128 + (chunk << 4) + (word << 2)
        };
        let upper = [at(high), at(high ^ 1)];
        WordsAcross {
            places: [upper, upper.map(|at| at ^ 32)],
            deeper_first: high.ne(0u32),
            depth,
        }
    }
}

impl<'k> WgmmaLeft<'k, Tf32> {
    /// Loads 64 rows of words that lie `across` the depth, from row `row0` of the tile on, a multiple of 64: those of step `step`, 8 deep. No product may
    /// be reading it: [`wait_for_older`](WgmmaSums::wait_for_older) first.
    #[track_caller]
    pub fn load(
        &self,
        tile: SharedTile<'k, Tf32>,
        across: &WordsAcross<'k>,
        row0: Val<'k, u32>,
        step: u32,
    ) {
        let k = tile.kernel();
        if tile.layout() != TileLayout::Swizzled || tile.cols() != 32 {
            k.fail(format!(
                "words across the depth lie in swizzled rows of 32, and this tile has {:?} rows of {}",
                tile.layout(),
                tile.cols()
            ));
        }
        if step * 8 >= across.depth {
            k.fail(format!(
                "step {step} of a panel that is {} deep",
                across.depth
            ));
        }
        let first = tile.ptr().byte_offset(row0 * (across.depth * 4));
        for (down, places) in across.places.iter().enumerate() {
            let [one, other] = places.map(|at| first.byte_offset(at).at(step * 8 * 32).load());
            let [near, deep] =
                [(other, one), (one, other)].map(|(yes, no)| across.deeper_first.select(yes, no));
            self.regs[down].set(near);
            self.regs[down + 2].set(deep);
        }
    }
}

/// Neighbours of two blocks of sums, in the order of a left matrix's registers.
fn pairs<'k>(left: [Val<'k, f32>; 4], right: [Val<'k, f32>; 4]) -> [[Val<'k, f32>; 2]; 4] {
    let ([a, b, c, d], [e, f, g, h]) = (left, right);
    [[a, b], [c, d], [e, f], [g, h]]
}

impl<'k> WgmmaBatch<'_, 'k> {
    /// The same for some of the columns alone: from one to before another, multiples of 8. ptxas wants a thread to have
    /// registers for all sums of an instruction when the kernel is launched, also where it takes more later.
    #[track_caller]
    pub fn of_columns(&self, columns: std::ops::Range<u32>) -> WgmmaBatch<'_, 'k> {
        let most = self.sums.len() as u32 * 8;
        for (what, value) in [
            ("the first of the columns", columns.start),
            ("the end of the columns", columns.end),
        ] {
            self.k.must_divide(what, value.into(), 8);
        }
        if columns.is_empty() || columns.end > most {
            self.k.fail_with(crate::Problem::OutOfRange {
                what: "the end of some columns of wgmma".into(),
                value: columns.end.into(),
                low: i64::from(columns.start) + 8,
                high: most.into(),
            });
            return WgmmaBatch { ..*self };
        }
        let blocks = columns.start as usize / 8..columns.end as usize / 8;
        WgmmaBatch {
            k: self.k,
            sums: &self.sums[blocks],
        }
    }

    /// Adds the product with a left matrix in registers.
    #[track_caller]
    pub fn mma_left<H: MmaInput>(&self, a: &WgmmaLeft<'k, H>, b: WgmmaOperand<'k, H>) {
        let regs = Opnd::Vector(a.regs.iter().map(|reg| reg.reg.into()).collect());
        self.emit(Left::Registers(regs), b, true);
    }

    #[track_caller]
    fn emit<H: WgmmaInput>(&self, a: Left<'k, H>, b: WgmmaOperand<'k, H>, add: bool) {
        let k = self.k;
        // Operands in shared memory say whether they are transposed.
        let (a, across) = match a {
            Left::Registers(a) => (a, vec![b.across]),
            Left::Shared(a) => (a.descriptor.register().into(), vec![a.across, b.across]),
        };
        let (columns, name) = (self.sums.len() * 8, <H as WgmmaInput>::NAME);
        let sums = self.sums.iter().flatten();
        let add = crate::Bool::constant(k, add).register();
        let mut operands = vec![
            Opnd::Vector(sums.map(|sum| sum.reg.into()).collect()),
            a,
            b.descriptor.register().into(),
            add.into(),
            number(1),
            number(1),
        ];
        if H::Stored::BYTES == 2 {
            operands.extend(across.into_iter().map(|across| number(across.into())));
        }
        let depth = <H as WgmmaInput>::K;
        k.effect(
            format!("wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{name}.{name}"),
            operands,
        );
    }

    /// Adds the product of 64 rows of `a` and as many columns of `b` as the sums
    /// have, one step deep.
    #[track_caller]
    pub fn mma<H: WgmmaInput>(&self, a: WgmmaOperand<'k, H>, b: WgmmaOperand<'k, H>) {
        self.emit(Left::Shared(a), b, true);
    }

    /// Replaces the sums by the product.
    #[track_caller]
    pub fn mma_fresh<H: WgmmaInput>(&self, a: WgmmaOperand<'k, H>, b: WgmmaOperand<'k, H>) {
        self.emit(Left::Shared(a), b, false);
    }

    /// Adds the product with a left matrix in registers, laid out as a
    /// [`FragmentA`](crate::FragmentA) per warp.
    #[track_caller]
    pub fn mma_registers<H: Half + MmaInput>(
        &self,
        a: &crate::FragmentA<'k, H>,
        b: WgmmaOperand<'k, H>,
    ) {
        self.emit(Left::Registers(a.operand()), b, true);
    }
}

/// The first row and column that a thread has sums of.
#[track_caller]
fn place<'k>(k: &Kernel<'k>) -> (Val<'k, u32>, Val<'k, u32>) {
    let row = ((k.warp() & 3) << 4) + (k.lane() >> 2);
    (row, (k.lane() & 3) << 1)
}

impl<'k> WgmmaResult<'k> {
    /// All zero, to add sums to ([`WgmmaSums::add_to`]).
    #[track_caller]
    pub fn zero(k: &Kernel<'k>, columns: u32) -> WgmmaResult<'k> {
        WgmmaResult {
            sums: WgmmaSums::zero(k, columns).sums,
        }
    }

    /// The accumulators of one thread: to be saved, or set to what was saved.
    pub fn vars(&self) -> impl Iterator<Item = Var<'k, f32>> {
        self.sums.iter().flatten().copied()
    }

    /// How many blocks of 8 columns there are.
    pub fn blocks(&self) -> usize {
        self.sums.len()
    }

    /// The four sums of a block of 8 columns that this thread holds: two
    /// neighbours, and the two 8 rows further down.
    #[track_caller]
    pub fn block(&self, index: usize) -> Option<[Val<'k, f32>; 4]> {
        self.sums.get(index).map(|block| block.map(Var::get))
    }

    /// Calls `each` with both rows (of 0 to 63) that this thread has sums of: the
    /// row, the first column, and the sums, two neighbours at a time and each two
    /// 8 columns further.
    #[track_caller]
    pub fn each_row(&self, each: impl Fn(Val<'k, u32>, Val<'k, u32>, &[[Val<'k, f32>; 2]])) {
        let Some(k) = self.sums.first().map(|block| block[0].k) else {
            return;
        };
        k.asked_here();
        let (row, col) = place(&k);
        for (further, from) in [(0, 0), (8, 2)] {
            let pairs = self.sums.iter();
            let pairs = pairs.map(|block| [block[from].get(), block[from + 1].get()]);
            each(row + further, col, &pairs.collect::<Vec<_>>());
        }
    }

    /// Calls `each` with the row (0 to 63) and column of every two neighbouring
    /// sums this thread holds.
    #[track_caller]
    pub fn each_pair(&self, each: impl Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, f32>; 2])) {
        let Some(k) = self.sums.first().map(|block| block[0].k) else {
            return;
        };
        k.asked_here();
        let (row, col) = place(&k);
        for (index, block) in self.sums.iter().enumerate() {
            let [a, b, c, d] = block.map(Var::get);
            let col = col + index as u32 * 8;
            each(row, col, [a, b]);
            each(row + 8, col, [c, d]);
        }
    }
}

impl<'k> Kernel<'k> {
    /// Releases registers down to `registers` per thread, so that other warpgroups can have more.
    /// Whole warpgroups do it.
    #[track_caller]
    pub fn give_registers(&self, registers: u32) {
        self.set_registers("dec", registers);
    }

    /// Takes registers up to `registers` per thread, waiting until others have
    /// given them. Whole warpgroups do it.
    #[track_caller]
    pub fn take_registers(&self, registers: u32) {
        self.set_registers("inc", registers);
    }

    #[track_caller]
    fn set_registers(&self, direction: &str, registers: u32) {
        self.require(Feature::Setmaxnreg);
        self.must_divide("the registers of a thread", registers.into(), 8);
        if !(24..=256).contains(&registers) {
            self.fail_with(crate::Problem::OutOfRange {
                what: "the registers of a thread".into(),
                value: registers.into(),
                low: 24,
                high: 256,
            });
        }
        self.effect(
            format!("setmaxnreg.{direction}.sync.aligned.u32"),
            vec![number(registers.into())],
        );
    }
}
