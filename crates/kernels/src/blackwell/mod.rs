//! Multiplication on Blackwell's tensor cores (sm_100a and its kin).
//!
//! A block has six warps and three roles. One thread has the copy engine fill a ring of stages in
//! shared memory ([`mainloop`]); one thread multiplies them into tensor memory, by blocks with scales
//! where 8-bit floats have them ([`scaled`]); four warps store the sums ([`epilogue`]). There are two accumulators: while the sums of one tile are stored, the
//! next tile is multiplied ([`pipeline`]). Blocks are persistent under any schedule ([`kernel`]). The same kernel
//! is built for one block a tile, and for a pair that multiplies a tile of 256 rows together.
//!
//! [`choose`] says how large tiles are, and [`variant`] when this kernel is taken.
//!
//! ```
//! use heist_builder::Arch;
//! use heist_kernels::Target;
//! use heist_kernels::blackwell::{TensorTiling, job_with_tiling};
//! use heist_kernels::gemm::{Gemm, Input, Layout, Output};
//!
//! let problem = Gemm::new(512, 512, 256, Input::Bf16, Output::Bf16, Layout::Nt);
//! let pair: TensorTiling = "tcgen05:256x256x64/4".parse()?;
//! let job = job_with_tiling(&problem, pair, None, Target { arch: Arch::SM_100A, sms: 148 })?;
//! assert!(job.steps[0].ptx().contains("cta_group::2"));
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

mod choose;
mod epilogue;
mod kernel;
mod mainloop;
mod pipeline;
mod scaled;
pub(crate) mod space;
mod tiling;
mod variant;

pub(crate) use choose::suited;
pub(crate) use epilogue::{Origin, Staging, store_by_threads};
pub(crate) use kernel::{no_tcgen05, refusal, result_map};
pub(crate) use mainloop::{Factors, ring};
pub(crate) use pipeline::{Pipeline, TileEpilogue};
pub use tiling::TensorTiling;
pub use variant::job_with_tiling;
pub(crate) use variant::{TensorCores, schedule};
