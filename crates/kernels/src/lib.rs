//! Kernels made of tiles, each with a reference implementation.
//!
//! * [`synthetic`]: uneven workloads whose cost is known, to try schedules on.
//! * [`reference`](mod@reference): references in f64 on the host; [`random`]: random data.
//! * [`family`]: one problem, several kernels that solve it, and the choice between them by device.
//! * [`gemm`] and [`grouped`]: matrix multiplication, one and many at a time; [`blackwell`]: on
//!   tensor memory.
//! * [`job`]: kernels, launches and buffers, as every runner takes them.
//! * [`plan`]: the same without data, for callers with device memory of their own.
//! * [`catalogue`]: all of it by name.
//!
//! ```
//! use heist_kernels::Target;
//! use heist_kernels::catalogue::{Settings, entry};
//! use heist_builder::Arch;
//!
//! let settings = Settings::from_words(["m=64", "n=64", "k=32"])?;
//! let gemm = entry("gemm")?.launches(&settings, None, Target { arch: Arch::SM_90A, sms: 132 })?;
//! assert!(gemm.steps[0].ptx().contains(".target sm_90a"));
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

pub mod attention;
pub mod blackwell;
mod built;
pub mod catalogue;
mod entry;
mod error;
pub mod family;
pub mod gemm;
pub mod grouped;
pub mod job;
mod listing;
mod overlap;
pub mod plan;
mod space;
pub mod synthetic;

pub use error::KernelError;
pub use family::{Family, Target, Variant};
pub use heist_reference as reference;
pub use heist_reference::random;
pub use job::{Job, Step, Work};
pub use plan::{BufferSpec, LaunchPlan, Purpose};
pub use space::Tuned;
