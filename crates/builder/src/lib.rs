//! Typed Rust that makes PTX.
//!
//! A kernel is a closure that runs once, on the host: its values are
//! descriptions of what each GPU thread will compute, its operators append
//! instructions, and what comes out is a [`heist_ptx::Module`]. A Rust `if` or
//! `for` decides what is emitted; [`Kernel::if_`] and [`Kernel::for_range`]
//! emit a branch or a loop.
//!
//! ```
//! use heist_builder::*;
//!
//! kernel_params! {
//!     pub struct Saxpy { x: Global<f32>, y: Global<f32>, a: f32, n: u32 }
//! }
//!
//! let kernel = KernelSpec::<Saxpy>::new("saxpy").block(256).build(Arch::SM_80, |k, args| {
//!     let i = (k.block().x * k.block_dim().x + k.thread().x).named("i");
//!     k.if_(i.lt(args.n), || {
//!         let x = args.x.at(i).load();
//!         args.y.at(i).update(|y| x.mul_add(args.a, y));
//!     });
//! })?;
//! assert!(heist_ptx::print(&kernel.module).contains("fma.rn.f32"));
//! # Ok::<(), BuildError>(())
//! ```
//!
//! Three ideas keep mistakes from compiling. Everything carries the brand `'k`
//! of its kernel, so nothing leaks from one to another. The bodies of emitted
//! branches and loops are `Fn` closures, so a Rust variable can't be mistaken
//! for one that lives on the GPU, and a value that must be consumed once can't be consumed in a
//! loop. And protocols (wait, then read; fence, then multiply; request, then decode the answer) are
//! typestates: each step takes the type that the step before returned.
//!
//! Mistakes that types can't express are a [`BuildError`], with the numbers and the Rust line.

mod ahead;
mod atomic;
mod barrier;
mod bulk;
mod bulk_pipeline;
mod bulk_store;
mod clc;
mod cluster;
mod control;
mod convert;
mod cp_async;
mod emit;
mod error;
mod fill;
mod fold;
mod gather;
mod group;
mod invariant;
mod kernel;
mod launch_info;
mod lesson;
mod lower;
mod mbarrier;
mod mma;
mod names;
mod ops;
mod params;
mod pointer;
mod raw;
mod request;
mod scalar;
mod shared;
mod shifted;
mod spec;
mod tcgen05;
mod tensor_left;
mod tensor_map;
mod tensor_memory;
mod tensor_ring;
mod tensor_scales;
mod tile;
mod tiny;
mod value;
mod warp;
mod wgmma;
mod wmma;

pub use ahead::Carried;
pub use atomic::{Atomic, AtomicInteger, Order, Scope};
pub use barrier::NamedBarrier;
pub use bulk::{Landing, Transaction};
pub use bulk_pipeline::{BulkConsumer, BulkPipeline, BulkProducer};
pub use bulk_store::PendingStore;
pub use clc::{Answer, Granted, Idle, InFlight, Refused, StealFlow};
pub use cluster::ClusterArrival;
pub use control::Flow;
pub use cp_async::{ArraySpec, CopyPipeline, PendingCopy, RunningPipeline, StageSpec, WarpCopy};
pub use emit::RawUse;
pub use error::{BuildError, Problem};
pub use fill::{FillArray, FillTile, Piece};
pub use gather::BulkGatherer;
pub use group::{BlockGroup, OneBlock, PairOfBlocks};
pub use half::{bf16, f16};
pub use heist_ptx::arch::{Arch, Feature};
pub use kernel::{Dim3, Kernel};
pub use launch_info::{Contents, LaunchInfo, SharedUse};
pub use mbarrier::{BarrierSpec, Mbarrier, Mbarriers, RemoteMbarrier, RingCursor, Waiter};
pub use mma::{ASource, Accumulator, BSource, FragmentA, FragmentB, MmaInput, WarpTile};
pub use ops::{Bits, Divide};
pub use params::{
    DevicePtr, Host, KernelParams, On, Param, ParamInfo, ParamKind, ParamShape, ParamValue,
    ParamsWith, Passed, Side, With,
};
pub use pointer::{
    AtomicSpace, Cluster, FragmentSpace, Global, IntoIndex, LoadCache, Local, Ptr, Shared, Space,
    StoreCache,
};
pub use raw::RawOperand;
pub use request::Request;
pub use scalar::{
    Bf16x2, E4m3, E5m2, F16x2, Float, Half, Integer, Number, Ordered, Scalar, Storable, Tf32, Tiny,
    Word,
};
pub use shared::{Array, LocalArray, SharedArray};
pub use shifted::{RowShifts, ShiftedSource};
pub use spec::{BuiltKernel, KernelSpec};
pub use tcgen05::{AccumulatorWriter, MultiplyingThread, Product, TensorInput, TensorOperand};
pub use tensor_left::{
    ChangingSums, LeftOperands, LeftReader, LeftRows, LeftWriter, Multiplied, TensorLeft,
};
pub use tensor_map::{EncodedTensorMap, TensorMap, TensorMapRef};
pub use tensor_memory::{AccumulatorReader, Accumulators, LoadingSums, TensorMemory, TensorSums};
pub use tensor_ring::{TensorConsumer, TensorProducer, TensorRing};
pub use tensor_scales::{ScaleMemory, ScaledConsumer, ScaledInput, TensorScales};
pub use tile::{SharedTile, TileLayout, TileSpec};
pub use value::{Bool, IntoVal, Val, Var};
pub use warp::{Group, block_reduce};
pub use wgmma::{
    WgmmaBatch, WgmmaInput, WgmmaLeft, WgmmaOperand, WgmmaResult, WgmmaSums, WordsAcross,
};
pub use wmma::{MatrixOrder, WmmaA, WmmaB, WmmaInput, WmmaSums};
