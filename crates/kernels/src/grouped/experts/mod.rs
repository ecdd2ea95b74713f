//! An expert layer: each token goes through a few of many gated MLPs, and the results are added with
//! the router's weights.
//!
//! The tokens were routed before, on the device: `order` has the slots of all tokens (token `t` has
//! slots `t * per` to `t * per + per - 1`) sorted by expert, and `shapes` where each expert's part of it
//! ends. The launches:
//!
//! 1. **Up**: rows of `x` are gathered by `order`, multiplied with gate and up of their expert, and
//!    `silu(gate) * up` is stored, expert after expert. The pair itself never reaches memory. Where that
//!    is faster, the rows are gathered by a launch of its own ([`copy`]).
//! 2. **Down**: the second product. Each row is multiplied by its slot's weight and stored in its slot.
//! 3. **Sum** ([`sum`]): the slots of each token are added in their order, so that the same inputs give
//!    the same bits. A layer with one expert a token needs no third launch.
//!
//! Adding in the second launch instead (atomics in f32) would need zeros first and a rounding after,
//! and sums in the order of arrival.
//!
//! ```
//! use heist_builder::Arch;
//! use heist_kernels::Target;
//! use heist_kernels::gemm::Input;
//! use heist_kernels::grouped::experts::{Experts, FAMILY};
//!
//! // 64 tokens with two experts each, of four.
//! let layer = Experts { rows: vec![50, 30, 0, 48], per: 2, hidden: 128, inner: 256, dtype: Input::Bf16 };
//! let plan = FAMILY.plan(None, &layer, Target { arch: Arch::SM_90A, sms: 132 })?;
//! assert!(plan.steps.len() >= 3, "up, down, sum");
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

mod copy;
mod data;
mod entry;
mod problem;
mod sum;
mod variant;

pub(crate) use entry::ExpertsEntry;
pub use entry::prepared;
pub use problem::{Experts, Gathering};
pub use variant::{FAMILY, plan_with};
