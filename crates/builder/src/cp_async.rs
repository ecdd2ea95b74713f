//! Pipelines of `cp.async`: copies from global to shared memory that overlap the work on earlier
//! stages.
//!
//! A stage comes in two forms. While it is filled it is a target
//! ([`FillTile`], [`FillArray`]) that can be written and not read; after its
//! wait, and after the barrier that makes every thread's copies visible, the
//! consuming closure receives it as a [`SharedTile`] or [`SharedArray`]. There is no
//! other way to get one.
//!
//! ```
//! # use heist_builder::*;
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
use crate::fill::{FillArray, FillTile};
use crate::kernel::{Kernel, number};
use crate::scalar::Storable;
use crate::shared::SharedArray;
use crate::tile::{SharedTile, TileSpec};
use crate::value::{IntoVal, Val, Var};
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
/// tuple of them; `()` is nothing, for what only some forms of a kernel have.
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
    /// Fails the build where memory is too small for that.
    #[doc(hidden)]
    fn check_memory(&self, memory: Self::Memory<'_>, stages: u32);
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
    fn check_memory(&self, memory: SharedArray<'_, T>, stages: u32) {
        holds(self.name, memory, self.len * stages);
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
    type Ready<'k> = SharedTile<'k, T>;
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
    fn check_memory(&self, memory: SharedArray<'_, T>, stages: u32) {
        holds(self.name, memory, self.len() * stages);
    }
    #[track_caller]
    fn filling<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> FillTile<'k, T> {
        FillTile {
            tile: self.ready(memory, stage),
        }
    }
    #[track_caller]
    fn ready<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> SharedTile<'k, T> {
        self.over(memory.ptr().byte_offset(stage * (self.len() * T::BYTES)))
    }
    #[track_caller]
    fn landing<'k>(&self, memory: SharedArray<'k, T>, stage: Val<'k, u32>) -> Landing<'k, T> {
        let bytes = self.len() * T::BYTES;
        Landing::new(memory.ptr().byte_offset(stage * bytes), bytes)
    }
}

impl StageSpec for () {
    type Filling<'k> = ();
    type Ready<'k> = ();
    type Landing<'k> = ();
    type Memory<'k> = ();
    fn allocate<'k>(&self, _: &Kernel<'k>, _: u32) {}
    fn check_memory(&self, (): (), _: u32) {}
    fn filling<'k>(&self, (): (), _: Val<'k, u32>) {}
    fn ready<'k>(&self, (): (), _: Val<'k, u32>) {}
    fn landing<'k>(&self, (): (), _: Val<'k, u32>) {}
}

#[track_caller]
fn holds<T: Storable>(name: &str, memory: SharedArray<'_, T>, len: u32) {
    if memory.len() < len {
        memory.ptr().k.fail_with(crate::Problem::OutOfRange {
            what: format!("the elements of all stages of {name}"),
            value: len.into(),
            low: 0,
            high: memory.len().into(),
        });
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
            fn check_memory(&self, memory: Self::Memory<'_>, stages: u32) {
                $(self.$index.check_memory(memory.$index, stages);)+
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

/// A pipeline of a few stages, not yet running.
#[must_use = "a pipeline does nothing until `.run()` or `.start()`"]
#[derive(Debug)]
pub struct CopyPipeline<'k, S: StageSpec> {
    pub(crate) k: Kernel<'k>,
    pub(crate) stages: u32,
    pub(crate) spec: S,
    pub(crate) memory: S::Memory<'k>,
}

/// A running pipeline: the copies of all stages but one are in flight.
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
        let stages = self.copy_stages(stages);
        CopyPipeline {
            k: *self,
            stages,
            spec,
            memory: spec.allocate(self, stages),
        }
    }

    /// The same over memory that is used for something else before or after: an array for each part of a stage, for all stages.
    #[track_caller]
    pub fn copy_pipeline_over<S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
        memory: S::Memory<'k>,
    ) -> CopyPipeline<'k, S> {
        let stages = self.copy_stages(stages);
        spec.check_memory(memory, stages);
        CopyPipeline {
            k: *self,
            stages,
            spec,
            memory,
        }
    }

    /// As many stages as asked for, if a pipeline of copies can have them.
    #[track_caller]
    fn copy_stages(&self, stages: u32) -> u32 {
        self.require(Feature::CpAsync);
        if !(2..=8).contains(&stages) {
            self.fail_with(crate::Problem::OutOfRange {
                what: "the number of stages of a pipeline".into(),
                value: stages.into(),
                low: 2,
                high: 8,
            });
        }
        stages.clamp(2, 8)
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
    /// The same memory for another run, on another path through the kernel: at the end of a run no
    /// thread uses the memory any more.
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

/// Copies of one warp into memory that no other warp uses: a batch of its own.
#[must_use = "copies in flight must be waited for: call `.wait()`"]
#[derive(Debug)]
pub struct WarpCopy<'k, T> {
    tile: SharedTile<'k, T>,
}
impl<T> Clone for WarpCopy<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for WarpCopy<'_, T> {}

impl<'k> Kernel<'k> {
    /// The threads of a warp fill a tile that no other warp uses; it can be read after [`WarpCopy::wait`].
    #[track_caller]
    pub fn copy_in_warp<T: Storable>(
        &self,
        tile: SharedTile<'k, T>,
        fill: impl FnOnce(FillTile<'k, T>),
    ) -> WarpCopy<'k, T> {
        self.require(Feature::CpAsync);
        fill(FillTile { tile });
        self.commit_copies();
        WarpCopy { tile }
    }
}

impl<'k, T: Storable> WarpCopy<'k, T> {
    /// Waits for it, while the `newer` batches that this warp began later may still be in flight, and gives the tile. All lanes take part.
    #[track_caller]
    pub fn wait(self, newer: u32) -> SharedTile<'k, T> {
        let k = self.tile.kernel();
        k.wait_copies(newer);
        k.sync_warp();
        self.tile
    }
}
