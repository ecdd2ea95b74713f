//! Operations over the caller's memory: GEMM, grouped GEMM, layers of experts, attention and its
//! gradients.
//!
//! A plan is made once for a problem: the kernel is chosen, built, assembled and
//! checked. Launching it puts it into the caller's stream with the caller's
//! memory: nothing is allocated, nothing waits, and a CUDA graph can capture it.
//! [`Ops`] keeps the plans by problem; it can be used from any number of threads.
//!
//! Where the tuner has an answer for a problem on the device, its tiles and schedule are taken
//! ([`Plan::tuning`] tells, [`Ops::with_answers`] names another file of answers or none).
//!
//! A simulated GPU takes the same calls over host memory. Its findings are an error
//! ([`OpError::Found`]).
//!
//! ```
//! use heist::run::Device;
//! use heist::kernels::gemm::{Gemm, Input, Layout, Output};
//! use heist::ops::{BorrowedStream, GemmOperands, Memory, Ops, WorkspaceMemory};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ops = Ops::new(Device::open("sim:h200".parse()?)?)?; // or "gpu"
//! let problem = Gemm::new(16, 8, 16, Input::Tf32, Output::F32, Layout::Nt);
//! let plan = ops.gemm(&problem, None)?;
//!
//! let (a, b) = (vec![1f32; 16 * 16], vec![2f32; 8 * 16]);
//! let mut d = vec![0f32; 16 * 8];
//! let operands = GemmOperands {
//!     a: Memory::host(&a),
//!     b: Memory::host(&b),
//!     c: None,
//!     d: Memory::host_mut(&mut d),
//!     bias: None,
//!     scales: None,
//! };
//! plan.launch(&operands, WorkspaceMemory::NONE, BorrowedStream::default())?;
//! assert_eq!(d, [32.0; 16 * 8]);
//! # Ok(()) }
//! ```

mod attention;
mod backward;
mod error;
mod experts;
mod gemm;
mod grouped;
mod kernels;
mod library;
mod memory;
mod operand;
mod parameters;
mod plan;
mod tuning;

pub use attention::{Added, Attention, AttentionOperands, Sequences};
pub use backward::{AttentionBackward, AttentionBackwardOperands};
pub use error::OpError;
pub use experts::{ExpertLayer, ExpertOperands};
pub use gemm::GemmOperands;
pub use grouped::{GroupedGemm, GroupedOperands};
pub use heist_gpu::BorrowedStream;
pub use library::Ops;
pub use memory::Memory;
pub use operand::{Operand, Operands, SLOTS, Slots, Workspace, WorkspaceMemory};
pub use plan::Plan;
pub use tuning::Tuning;
