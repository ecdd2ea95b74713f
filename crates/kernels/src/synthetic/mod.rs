//! Workloads that are uneven in nine ways.
//!
//! Each is a real kernel with a result that is checked element by element. A
//! tile is a block's worth of numbers; each number goes through a chain of
//! dependent multiply-adds, as long as the workload's distribution says for that
//! tile. A prologue, once a block, computes the addend of the chain by a chain of its own: a block
//! that runs several tiles does this once.
//!
//! Whole numbers are used, so the result is the same on every device, and the
//! end of a chain is known from its start without walking it.
//!
//! ```
//! use heist_kernels::synthetic::{Parameters, Synthetic, Workload};
//!
//! let size = Parameters { tiles: 300, mean: 100, ..Parameters::default() };
//! let costs = Workload::PowerLaw.costs(&size);
//! let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
//! assert!(costs.len() == 300 && most > least);
//! assert_eq!(Synthetic::new(Workload::PowerLaw, size).tiles().count(), 300);
//! ```

mod costs;
mod grouped;
mod kernel;
mod reference;

pub use costs::{Parameters, Workload};
pub use grouped::{Grouped, GroupedArgs, WrongElement};
pub use kernel::{SyntheticArgs, build};
pub use reference::{Mismatch, Synthetic};

/// Threads of a block, and numbers of a tile.
pub const THREADS: u32 = 256;

/// The factor of the chain.
pub(crate) const FACTOR: u32 = 1_664_525;
/// The factor and the addend of the prologue's chain.
pub(crate) const PROLOGUE_FACTOR: u32 = 22_695_477;
pub(crate) const PROLOGUE_ADDEND: u32 = 12_345;
