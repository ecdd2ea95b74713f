//! Many multiplications of different shapes in one launch.
//!
//! Shapes are read on the device, so that the routing of a mixture of experts never has to come
//! back to the host. Groups may be empty. [`Grouped`] is the problem; in check mode every decoded
//! tile is validated before it touches memory, and [`BadTile`] is the first invalid one.
//!
//! ```
//! use heist_builder::Arch;
//! use heist_kernels::Target;
//! use heist_kernels::gemm::{Input, Output};
//! use heist_kernels::grouped::{FAMILY, Grouped};
//!
//! // Three groups; the second one is empty.
//! let problem = Grouped::rows(vec![40, 0, 96], 64, 32, Input::Bf16, Output::Bf16);
//! let plan = FAMILY.plan(None, &problem, Target { arch: Arch::SM_90A, sms: 132 })?;
//! assert_eq!(plan.steps.len(), 1, "all groups in one launch");
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

mod check;
mod data;
mod entry;
pub mod experts;
mod kernel;
mod problem;
mod schedule;
mod space;
mod stacked;
mod table;
mod tcgen05;
mod tiles;
mod variant;
mod waves;
mod wgmma;

pub use check::{BadTile, Wrong};
pub(crate) use entry::GroupedEntry;
pub use entry::prepared;
pub use kernel::GroupedArgs;
pub use problem::{Group, Grouped, Shapes};
pub use schedule::schedule;
pub use tiles::job_with_tiling;
pub use variant::{FAMILY, job_with};
