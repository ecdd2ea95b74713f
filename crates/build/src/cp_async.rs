//! Pipelines of `cp.async`: copies from global to shared memory that go on
//! while earlier stages are worked on.
//!
//! A stage comes in two forms. While it is filled it is a target
//! ([`FillTile`], [`FillArray`]) that can be written and not read; after its
//! wait, and after the barrier that makes every thread's copies visible, the
//! consuming closure receives it as a [`Tile`] or [`SharedArray`]. There is no
//! other way to get one.
//!
//! ```
//! # use heist_build::*;
//! # kernel_params! { pub struct Args { a: Global<f32>, steps: u32, out: Global<f32> } }
//! # KernelSpec::<Args>::new("k").block(64).build(Arch::SM_80, |k, args| {
//! let t = k.thread().x;
//! let sum = k.var(0.0f32);
//! k.copy_pipeline::<3, _>(ArraySpec::<f32>::new("row", 256)).run(
//!     args.steps,
//!     |step, row| row.copy::<16>(t * 4, args.a.at(step * 256 + t * 4)),
//!     |_, row| sum.set(sum + row.at(t).load()),
//! );
//! # args.out.at(t).store(sum);
//! # }).unwrap();
//! ```

use crate::bulk::Landing;
use crate::kernel::{Kernel, number};
use crate::pointer::{Global, IntoIndex, Ptr, Shared};
use crate::scalar::Storable;
use crate::shared::SharedArray;
use crate::tile::{Tile, TileSpec};
use crate::value::{Bool, IntoVal, Val, Var};
use heist_ptx::arch::Feature;
use std::marker::PhantomData;

/// The shape of an array that is a stage of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct ArraySpec<'n, T> {
    name: &'n str,
    len: u32,
    ty: PhantomData<fn() -> T>,
}

impl<'n, T: Storable> ArraySpec<'n, T> {
    /// `len` elements.
    pub fn new(name: &'n str, len: u32) -> ArraySpec<'n, T> {
        ArraySpec {
            name,
            len,
            ty: PhantomData,
        }
    }
}

/// What a stage of a pipeline holds: a [`TileSpec`], an [`ArraySpec`], or a
/// tuple of them.
pub trait StageSpec: Copy {
    /// The stage while it is filled.
    type Filling<'k>: Copy;
    /// The stage after its wait.
    type Ready<'k>: Copy;
    /// The stage while bulk copies fill it.
    type Landing<'k>: Copy;
    /// Where all stages lie.
    #[doc(hidden)]
    type Memory<'k>: Copy + std::fmt::Debug;
    #[doc(hidden)]
    fn allocate<'k>(&self, k: &Kernel<'k>, stages: u32) -> Self::Memory<'k>;
    #[doc(hidden)]
    fn filling<'k>(&self, memory: Self::Memory<'k>, stage: Val<'k, u32>) -> Self::Filling<'k>;
    #[doc(hidden)]
    fn landing<'k>(&self, memory: Self::Memory<'k>, stage: Val<'k, u32>) -> Self::Landing<'k>;
    #[doc(hidden)]
    fn ready<'k>(&self, memory: Self::Memory<'k>, stage: Val<'k, u32>) -> Self::Ready<'k>;
}

impl<T: Storable> StageSpec for ArraySpec<'_, T> {
    type Filling<'k> = FillArray<'k, T>;
    type Ready<'k> = SharedArray<'k, T>;
    type Landing<'k> = Landing<'k, T>;
    type Memory<'k> = SharedArray<'k, T>;
    #[track_caller]
    fn allocate<'k>(&self, k: &Kernel<'k>, stages: u32) -> SharedArray<'k, T> {
        let bytes = u64::from(self.len) * u64::from(T::BYTES);
        k.must_divide(&format!("a stage of {} in bytes", self.name), bytes, 16);
        k.shared_aligned(self.name, self.len * stages, 128)
    }
    #[track_caller]
    fn filling<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> FillArray<'k, T> {
        FillArray {
            base: memory.ptr().byte_offset(stage * (self.len * T::BYTES)),
        }
    }
    #[track_caller]
    fn ready<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> SharedArray<'k, T> {
        let at = memory.ptr().byte_offset(stage * (self.len * T::BYTES));
        SharedArray::at_ptr(at, self.len)
    }
    #[track_caller]
    fn landing<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> Landing<'k, T> {
        let bytes = self.len * T::BYTES;
        Landing::new(memory.ptr().byte_offset(stage * bytes), bytes)
    }
}

impl<T: Storable> StageSpec for TileSpec<'_, T> {
    type Filling<'k> = FillTile<'k, T>;
    type Ready<'k> = Tile<'k, T>;
    type Landing<'k> = Landing<'k, T>;
    type Memory<'k> = SharedArray<'k, T>;
    #[track_caller]
    fn allocate<'k>(&self, k: &Kernel<'k>, stages: u32) -> SharedArray<'k, T> {
        self.check(k);
        let stage = u64::from(self.len()) * u64::from(T::BYTES);
        k.must_divide(
            &format!("a stage of the tile {} in bytes", self.name),
            stage,
            self.align().into(),
        );
        k.shared_aligned(self.name, self.len() * stages, self.align())
    }
    #[track_caller]
    fn filling<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> FillTile<'k, T> {
        FillTile {
            tile: self.ready(memory, stage),
        }
    }
    #[track_caller]
    fn ready<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> Tile<'k, T> {
        self.over(memory.ptr().byte_offset(stage * (self.len() * T::BYTES)))
    }
    #[track_caller]
    fn landing<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> Landing<'k, T> {
        let bytes = self.len() * T::BYTES;
        Landing::new(memory.ptr().byte_offset(stage * bytes), bytes)
    }
}

macro_rules! tuples {
    ($($($name:ident $index:tt),+;)*) => {$(
        impl<$($name: StageSpec),+> StageSpec for ($($name,)+) {
            type Filling<'k> = ($($name::Filling<'k>,)+);
            type Ready<'k> = ($($name::Ready<'k>,)+);
            type Landing<'k> = ($($name::Landing<'k>,)+);
            type Memory<'k> = ($($name::Memory<'k>,)+);
            #[track_caller]
            fn allocate<'k>(&self, k: &Kernel<'k>, stages: u32) -> Self::Memory<'k> {
                ($(self.$index.allocate(k, stages),)+)
            }
            #[track_caller]
            fn filling<'k>(&self, memory: Self::Memory<'k>, stage: Val<'k, u32>) -> Self::Filling<'k> {
                ($(self.$index.filling(memory.$index, stage),)+)
            }
            #[track_caller]
            fn ready<'k>(&self, memory: Self::Memory<'k>, stage: Val<'k, u32>) -> Self::Ready<'k> {
                ($(self.$index.ready(memory.$index, stage),)+)
            }
            #[track_caller]
            fn landing<'k>(&self, memory: Self::Memory<'k>, stage: Val<'k, u32>) -> Self::Landing<'k> {
                ($(self.$index.landing(memory.$index, stage),)+)
            }
        }
    )*};
}
tuples! { A 0, B 1; A 0, B 1, C 2; A 0, B 1, C 2, D 3; }

/// An array while it is filled: written, not read.
#[derive(Debug)]
pub struct FillArray<'k, T> {
    base: Ptr<'k, Shared, T>,
}
impl<T> Clone for FillArray<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for FillArray<'_, T> {}

/// A tile while it is filled: written, not read.
#[derive(Debug)]
pub struct FillTile<'k, T> {
    tile: Tile<'k, T>,
}
impl<T> Clone for FillTile<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for FillTile<'_, T> {}

/// One `cp.async` of 4, 8 or 16 bytes; `size` bytes of them are read and the
/// rest is zero.
#[track_caller]
fn copy<'k, T: Storable, const BYTES: u32>(
    to: Ptr<'k, Shared, T>,
    from: Ptr<'k, Global, T>,
    size: Option<Val<'k, u32>>,
) {
    const {
        assert!(
            BYTES == 4 || BYTES == 8 || BYTES == 16,
            "cp.async copies 4, 8 or 16 bytes"
        );
    }
    let k = to.k;
    k.require(Feature::CpAsync);
    let opcode = if BYTES == 16 {
        k.require(Feature::PrefetchSize);
        "cp.async.cg.shared.global.L2::128B"
    } else {
        "cp.async.ca.shared.global"
    };
    let mut operands = vec![to.operand(), from.operand(), number(BYTES.into())];
    operands.extend(size.map(|size| size.operand()));
    k.effect(opcode, operands);
}

impl<'k, T: Storable> FillArray<'k, T> {
    /// Copies `BYTES` (4, 8 or 16) to the elements from `index` on.
    #[track_caller]
    pub fn copy<const BYTES: u32>(&self, index: impl IntoIndex<'k>, from: Ptr<'k, Global, T>) {
        copy::<T, BYTES>(self.base.at(index), from, None);
    }

    /// Copies where `inside` holds, and writes zeros without reading where it
    /// does not.
    #[track_caller]
    pub fn copy_or_zero<const BYTES: u32>(
        &self,
        index: impl IntoIndex<'k>,
        from: Ptr<'k, Global, T>,
        inside: Bool<'k>,
    ) {
        let size = inside.select(BYTES, 0u32);
        copy::<T, BYTES>(self.base.at(index), from, Some(size));
    }

    /// Writes an element by an ordinary store.
    #[track_caller]
    pub fn store(&self, index: impl IntoIndex<'k>, value: impl IntoVal<'k, T>) {
        self.base.at(index).store(value);
    }
}

impl<'k, T: Storable> FillTile<'k, T> {
    /// Its shape: rows and elements in a row.
    pub fn shape(&self) -> (u32, u32) {
        (self.tile.rows(), self.tile.cols())
    }

    /// Its first `rows` rows, or all there are.
    #[must_use]
    pub fn top(&self, rows: u32) -> FillTile<'k, T> {
        FillTile {
            tile: self.tile.top(rows),
        }
    }

    /// Copies the 16 bytes at chunk `chunk` of a row.
    #[track_caller]
    pub fn copy_chunk(
        &self,
        row: impl IntoVal<'k, u32>,
        chunk: impl IntoVal<'k, u32>,
        from: Ptr<'k, Global, T>,
    ) {
        copy::<T, 16>(self.tile.chunk(row, chunk), from, None);
    }

    /// Copies the first `bytes` of the 16 bytes at chunk `chunk` of a row, and
    /// writes zeros for the rest.
    #[track_caller]
    pub fn copy_chunk_part(
        &self,
        row: impl IntoVal<'k, u32>,
        chunk: impl IntoVal<'k, u32>,
        from: Ptr<'k, Global, T>,
        bytes: impl IntoVal<'k, u32>,
    ) {
        let bytes = bytes.into_val(&self.tile.kernel());
        copy::<T, 16>(self.tile.chunk(row, chunk), from, Some(bytes));
    }

    /// Writes one element by an ordinary store, for edges that 16-byte copies
    /// can't reach.
    #[track_caller]
    pub fn store(
        &self,
        row: impl IntoVal<'k, u32>,
        col: impl IntoVal<'k, u32>,
        value: impl IntoVal<'k, T>,
    ) {
        self.tile.at(row, col).store(value);
    }

    /// The whole block copies the whole tile from a matrix whose rows are
    /// `pitch` elements apart. The tile's chunks must be a multiple of the
    /// block's threads, and each row a divisor or multiple of them.
    #[track_caller]
    pub fn copy_all(&self, from: Ptr<'k, Global, T>, pitch: impl IntoVal<'k, u32>) {
        let pitch = pitch.into_val(&self.tile.kernel());
        let chunks = self.tile.chunks() * self.tile.rows();
        self.tile.kernel().must_divide(
            "the number of 16-byte chunks of a tile",
            chunks.into(),
            self.tile.kernel().threads().into(),
        );
        self.each_piece::<16>(|piece| {
            piece.copy(from.at(piece.row.mul_add(pitch, piece.col)), None);
        });
    }

    /// Like [`copy_all`](FillTile::copy_all), with zeros in place of what lies
    /// at or past `rows` rows and `cols` columns of the source. Rows of the
    /// source must start at multiples of 16 bytes.
    #[track_caller]
    pub fn copy_inside(
        &self,
        from: Ptr<'k, Global, T>,
        pitch: impl IntoVal<'k, u32>,
        rows: impl IntoVal<'k, u32>,
        cols: impl IntoVal<'k, u32>,
    ) {
        let k = self.tile.kernel();
        let (pitch, rows, cols) = (pitch.into_val(&k), rows.into_val(&k), cols.into_val(&k));
        let per = Tile::<T>::per_chunk();
        self.each_piece::<16>(|piece| {
            let left = cols.max(piece.col) - piece.col;
            let bytes = piece.row.lt(rows).select(left.min(per) * T::BYTES, 0u32);
            // Nothing is read where nothing is inside, so stay at the start.
            let index = bytes
                .gt(0)
                .select(piece.row.mul_add(pitch, piece.col), 0u32);
            piece.copy(from.at(index), Some(bytes));
        });
    }

    /// Like [`copy_all`](FillTile::copy_all), for inner loops and any shape: each
    /// thread computes one address and steps from there. With `inside`, rows at
    /// or past it become zeros.
    #[track_caller]
    pub fn copy_rows(
        &self,
        from: Ptr<'k, Global, T>,
        pitch: impl IntoVal<'k, u32>,
        inside: Option<Val<'k, u32>>,
    ) {
        let k = self.tile.kernel();
        k.asked_here();
        let pitch = pitch.into_val(&k);
        let (threads, chunks, rows) = (k.threads(), self.tile.chunks(), self.tile.rows());
        let per = Tile::<T>::per_chunk();
        let t = k.thread_index();
        let put = |to, from, row: Val<'k, u32>| {
            let size = inside.map(|inside| row.lt(inside).select(16u32, 0u32));
            copy::<T, 16>(to, from, size);
        };
        if !threads.is_multiple_of(chunks) {
            // Rows that do not divide the block: each copy has its own address.
            for trip in 0..(rows * chunks).div_ceil(threads) {
                let index = t + trip * threads;
                let (row, chunk) = (index / chunks, index % chunks);
                let whole = (trip + 1) * threads <= rows * chunks;
                k.if_(k.c(whole) | index.lt(rows * chunks), || {
                    let from = from.at(row.mul_add(pitch, chunk * per));
                    put(self.tile.chunk(row, chunk), from, row);
                });
            }
            return;
        }
        let step = threads / chunks;
        let (row, chunk) = (t / chunks, t % chunks);
        let to = self.tile.chunk(row, chunk);
        let advance = pitch.mul_wide(step * T::BYTES);
        let mut from = from.at(row.mul_add(pitch, chunk * per));
        for down in (0..rows).step_by(step as usize) {
            let below = row + down;
            let whole = down + step <= rows;
            let to = if self.tile.repeats_after(step) {
                to.byte_offset(down * self.tile.pitch_bytes())
            } else {
                self.tile.chunk(below, chunk)
            };
            k.if_(k.c(whole) | below.lt(rows), || put(to, from, below));
            if down + step < rows {
                from = from.byte_offset(advance);
            }
        }
    }

    /// Calls `each` with every piece of `BYTES` bytes that this thread copies,
    /// for the whole block to copy the whole tile. A piece has 4, 8 or 16 bytes
    /// ; where they are no multiple of the block's threads, some threads have one
    /// less.
    #[track_caller]
    pub fn each_piece<const BYTES: u32>(&self, each: impl Fn(Piece<'k, T, BYTES>)) {
        let k = self.tile.kernel();
        k.asked_here();
        let per = (BYTES / T::BYTES).max(1);
        let (threads, pieces) = (k.threads(), self.tile.cols() / per);
        let total = pieces * self.tile.rows();
        if total == 0 {
            k.fail(format!("a tile has no pieces of {BYTES} bytes"));
            return;
        }
        let t = k.thread_index();
        let stacked = threads.is_multiple_of(pieces);
        let below = threads / pieces;
        let place = |row: Val<'k, u32>, piece: Val<'k, u32>| match BYTES {
            16 => self.tile.chunk(row, piece),
            _ => self.tile.at(row, piece * per),
        };
        let first = (t / pieces, t % pieces);
        for trip in 0..total.div_ceil(threads) {
            let copy = || {
                let (row, piece) = if stacked {
                    (first.0 + trip * below, first.1)
                } else {
                    let index = t + trip * threads;
                    (index / pieces, index % pieces)
                };
                let to = if stacked && self.tile.repeats_after(below) {
                    let bytes = self.tile.pitch_bytes() * trip * below;
                    place(first.0, first.1).byte_offset(bytes)
                } else {
                    place(row, piece)
                };
                each(Piece {
                    row,
                    col: piece * per,
                    trip,
                    below: if stacked { below } else { 0 },
                    to,
                });
            };
            if (trip + 1) * threads <= total {
                copy();
            } else {
                k.if_(t.lt(total - trip * threads), copy);
            }
        }
    }

    /// Calls `each`, once, in a loop on the GPU over the elements that this
    /// thread stores, for the whole block to fill the whole tile: for sources
    /// that copies can't read.
    #[track_caller]
    pub fn each_element(&self, each: impl Fn(Piece<'k, T, 1>)) {
        let k = self.tile.kernel();
        k.asked_here();
        let total = self.tile.cols() * self.tile.rows();
        k.for_step(k.thread_index(), total, k.threads(), |index| {
            let (row, col) = (index / self.tile.cols(), index % self.tile.cols());
            each(Piece {
                row,
                col,
                trip: 0,
                below: 0,
                to: self.tile.at(row, col),
            });
        });
    }

    /// Calls `each` with the row and chunk of every copy this thread does.
    #[track_caller]
    pub fn each_chunk(&self, each: impl Fn(Val<'k, u32>, Val<'k, u32>)) {
        let k = self.tile.kernel();
        k.asked_here();
        let (threads, chunks) = (k.threads(), self.tile.chunks());
        let total = chunks * self.tile.rows();
        if total == 0 || !total.is_multiple_of(threads) {
            k.must_divide(
                "the number of 16-byte chunks of a tile",
                total.into(),
                threads.into(),
            );
            return;
        }
        let t = k.thread_index();
        for trip in 0..total / threads {
            // A constant number of rows further on each trip, where rows divide
            // the block: then only the row's constant part changes.
            let (row, chunk) = if threads.is_multiple_of(chunks) {
                (t / chunks + trip * (threads / chunks), t % chunks)
            } else {
                let index = t + trip * threads;
                (index / chunks, index % chunks)
            };
            each(row, chunk);
        }
    }
}

/// A few neighbours of a row of a tile while it is filled.
#[derive(Debug)]
pub struct Piece<'k, T, const BYTES: u32> {
    /// Its row.
    pub row: Val<'k, u32>,
    /// Its first column.
    pub col: Val<'k, u32>,
    /// Its number among those of this thread.
    pub trip: u32,
    /// Rows from one piece of this thread down to the next, in the same column;
    /// zero where they do not lie like that.
    pub below: u32,
    to: Ptr<'k, Shared, T>,
}

impl<'k, T: Storable, const BYTES: u32> Piece<'k, T, BYTES> {
    /// Copies it; of `bytes`, if given, that many are read and the rest is zero.
    #[track_caller]
    pub fn copy(&self, from: Ptr<'k, Global, T>, bytes: Option<Val<'k, u32>>) {
        copy::<T, BYTES>(self.to, from, bytes);
    }

    /// Writes its first element by an ordinary store, for what copies can't
    /// reach.
    #[track_caller]
    pub fn store(&self, value: impl IntoVal<'k, T>) {
        self.to.store(value);
    }
}

/// A pipeline of a few stages, not yet running.
#[must_use = "a pipeline does nothing until `.run()` or `.start()`"]
#[derive(Debug)]
pub struct CopyPipeline<'k, S: StageSpec> {
    pub(crate) k: Kernel<'k>,
    pub(crate) stages: u32,
    pub(crate) spec: S,
    pub(crate) memory: S::Memory<'k>,
}

/// A pipeline whose stages, all but one, are on their way.
#[must_use = "a running pipeline has copies in flight: call `.finish()` before its memory is reused"]
#[derive(Debug)]
pub struct RunningPipeline<'k, S: StageSpec> {
    k: Kernel<'k>,
    stages: u32,
    spec: S,
    memory: S::Memory<'k>,
    fill: Var<'k, u32>,
    read: Var<'k, u32>,
}

impl<'k> Kernel<'k> {
    /// A pipeline of `STAGES` (2 to 8) stages of shared memory, filled by
    /// `cp.async`.
    #[track_caller]
    pub fn copy_pipeline<const STAGES: usize, S: StageSpec>(&self, spec: S) -> CopyPipeline<'k, S> {
        const { assert!(STAGES >= 2 && STAGES <= 8, "a pipeline has 2 to 8 stages") }
        self.copy_pipeline_of(STAGES as u32, spec)
    }

    /// The same with a number of stages that is known only while building; one
    /// outside of 2 to 8 fails the build.
    #[track_caller]
    pub fn copy_pipeline_of<S: StageSpec>(&self, stages: u32, spec: S) -> CopyPipeline<'k, S> {
        self.require(Feature::CpAsync);
        if !(2..=8).contains(&stages) {
            self.fail_with(crate::Problem::OutOfRange {
                what: "the number of stages of a pipeline".into(),
                value: stages.into(),
                low: 2,
                high: 8,
            });
        }
        let stages = stages.clamp(2, 8);
        CopyPipeline {
            k: *self,
            stages,
            spec,
            memory: spec.allocate(self, stages),
        }
    }

    #[track_caller]
    pub(crate) fn commit_copies(&self) {
        self.effect("cp.async.commit_group", vec![]);
    }

    #[track_caller]
    pub(crate) fn wait_copies(&self, newer: u32) {
        self.effect("cp.async.wait_group", vec![number(newer.into())]);
    }
}

impl<'k, S: StageSpec> CopyPipeline<'k, S> {
    /// The same memory for another run, on another path through the kernel: a
    /// run ends with everybody done with it.
    pub fn again(&self) -> CopyPipeline<'k, S> {
        CopyPipeline {
            k: self.k,
            stages: self.stages,
            spec: self.spec,
            memory: self.memory,
        }
    }

    /// Runs `steps` steps: `fill(step, stage)` says how a step's stage is
    /// filled, `consume(step, stage)` works on it once it is there. All threads
    /// of the block take part.
    #[track_caller]
    pub fn run(
        self,
        steps: impl IntoVal<'k, u32>,
        fill: impl Fn(Val<'k, u32>, S::Filling<'k>),
        consume: impl Fn(Val<'k, u32>, S::Ready<'k>),
    ) {
        let k = self.k;
        k.asked_here();
        let steps = steps.into_val(&k);
        let ahead = self.stages - 1;
        let running = self.start(|index, stage| {
            k.if_(k.c(index).lt(steps), || fill(k.c(index), stage));
        });
        k.comment("main loop");
        k.for_range(0, steps, |step| {
            running.step(
                |stage| {
                    let next = step + ahead;
                    k.if_(next.lt(steps), || fill(next, stage));
                },
                |stage| consume(step, stage),
            );
        });
        running.finish();
    }

    /// Starts filling all stages but one; `fill` is called once for each, with
    /// its number.
    #[track_caller]
    pub fn start(self, fill: impl Fn(u32, S::Filling<'k>)) -> RunningPipeline<'k, S> {
        let (k, ahead) = (self.k, self.stages - 1);
        k.comment(&format!("fill {ahead} of {} stages", self.stages));
        for index in 0..ahead {
            fill(index, self.spec.filling(self.memory, k.c(index)));
            k.commit_copies();
        }
        RunningPipeline {
            k,
            stages: self.stages,
            spec: self.spec,
            memory: self.memory,
            fill: k.var(ahead),
            read: k.var(0u32),
        }
    }
}

impl<'k, S: StageSpec> RunningPipeline<'k, S> {
    /// One step: waits for the oldest stage, starts filling the one that became
    /// free, and consumes. `fill` may decide (with [`Kernel::if_`]) to fill
    /// nothing. All threads of the block take part.
    #[track_caller]
    pub fn step(&self, fill: impl Fn(S::Filling<'k>), consume: impl Fn(S::Ready<'k>)) {
        let k = self.k;
        k.asked_here();
        let next = |stage: Var<'k, u32>| {
            let after = stage.get() + 1;
            stage.set(after.eq(self.stages).select(0u32, after));
        };
        k.wait_copies(self.stages - 2);
        // Everybody's copies have arrived, and everybody is done with the stage
        // that is filled next.
        k.sync();
        fill(self.spec.filling(self.memory, self.fill.get()));
        k.commit_copies();
        next(self.fill);
        consume(self.spec.ready(self.memory, self.read.get()));
        next(self.read);
    }

    /// Waits for everything, so that the memory can be used for something else.
    #[track_caller]
    pub fn finish(self) {
        self.k.wait_copies(0);
        self.k.sync();
    }
}

/// Copies that belong to no pipeline: one batch, waited for once.
#[must_use = "copies in flight must be waited for: call `.wait()`"]
#[derive(Debug)]
pub struct PendingCopy<'k, S: StageSpec> {
    k: Kernel<'k>,
    spec: S,
    memory: S::Memory<'k>,
}

impl<'k> Kernel<'k> {
    /// Fills one stage by asynchronous copies; it can be read after
    /// [`PendingCopy::wait`]. Pipelines that are started later may run in
    /// between.
    #[track_caller]
    pub fn copy_once<S: StageSpec>(
        &self,
        spec: S,
        fill: impl FnOnce(S::Filling<'k>),
    ) -> PendingCopy<'k, S> {
        self.require(Feature::CpAsync);
        let memory = spec.allocate(self, 1);
        fill(spec.filling(memory, self.c(0)));
        self.commit_copies();
        PendingCopy {
            k: *self,
            spec,
            memory,
        }
    }
}

impl<'k, S: StageSpec> PendingCopy<'k, S> {
    /// Waits for all copies of the block, and gives the stage.
    #[track_caller]
    pub fn wait(self) -> S::Ready<'k> {
        self.k.wait_copies(0);
        self.k.sync();
        self.spec.ready(self.memory, self.k.c(0))
    }
}
