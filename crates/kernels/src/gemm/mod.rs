//! `D = activation(alpha * A * B + beta * C + bias)`, on tensor cores.
//!
//! [`Gemm`] is the problem, [`Config`] the tile shape. Any shape works: elements past the edge of a
//! matrix are neither read nor stored, and rows may start anywhere. Matrices start at multiples of 16 bytes,
//! or at any element where the problem says so ([`Gemm::anywhere`]).
//!
//! ```
//! use heist_builder::Arch;
//! use heist_kernels::Target;
//! use heist_kernels::gemm::{FAMILY, Gemm, Input, Layout, Output};
//!
//! let problem = Gemm::new(256, 128, 64, Input::F16, Output::F32, Layout::Nt);
//! let plan = FAMILY.plan(None, &problem, Target { arch: Arch::SM_80, sms: 108 })?;
//! let buffers: Vec<&str> = plan.buffers.iter().map(|buffer| buffer.name.as_str()).collect();
//! assert!(buffers.starts_with(&["a", "b"]), "{buffers:?}");
//! assert_eq!(plan.work.flops, 2.0 * 256.0 * 128.0 * 64.0);
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

mod anew;
mod buffers;
mod candidates;
mod choose;
mod config;
mod cost_model;
mod entry;
mod epilogue;
mod gated;
pub(crate) mod gather;
mod halves;
mod kernel;
mod leave;
mod left;
mod meet;
mod mx;
mod operand;
pub(crate) mod pieces;
mod problem;
mod reference;
mod row_scales;
mod rows;
mod scales;
mod small;
mod space;
mod split;
mod spread;
mod stored;
mod tail;
mod thin;
mod tiling;

mod variant;
pub(crate) mod warpgroup;
mod wgmma;

pub(crate) use anew::{Anew, costs_more};
pub(crate) use buffers::over_operands;
pub use choose::ranked;

pub use config::Config;
pub use cost_model::{Costs, H200, times_at};
pub(crate) use cost_model::{added as added_by_scales, off_lines};
pub use entry::prepared;
pub(crate) use entry::{GemmEntry, lost};
pub(crate) use epilogue::{Finish, Known, Placed, To};
pub(crate) use gated::Gated;
pub use kernel::GemmArgs;
pub(crate) use kernel::{Cut, Plan, WarpPlace, multiply, pipeline, skip};
pub(crate) use leave::{Staged, Staging};
pub(crate) use left::left;
pub use mx::mx_place;
pub(crate) use mx::{MX_BLOCK, MX_ROWS};
pub use operand::Width;
pub(crate) use operand::{Element, From, Operand};
pub use problem::{
    Activation, Epilogue, Gemm, Input, Layout, Major, Output, Scales, Spread, Summing,
};
pub(crate) use reference::random_scales;
pub(crate) use row_scales::Ahead;
pub(crate) use scales::{BLOCK as SCALE_BLOCK, BlockScales, CopiedScales, maps as scale_maps};
pub(crate) use spread::Added;
pub(crate) use stored::Stored;
pub use thin::{ThinTile, job_with_thin};
pub(crate) use tiling::GROUP_ROWS;
pub use tiling::{Cluster, Tiling};
pub use variant::{FAMILY, job_with, job_with_tiling, schedule};
pub(crate) use wgmma::{
    copying_registers, element as tensor_element, fits_levels, is_let_go, takes_tile_after_tile,
    uncopyable,
};
