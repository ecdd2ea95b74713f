//! Many multiplications of different shapes in one launch.
//!
//! Shapes are read on the device, so that the routing of a mixture of experts never has to come
//! back to the host. Groups may be empty. [`Grouped`] is the problem; in check mode every decoded
//! tile is validated before it touches memory, and [`BadTile`] is the first invalid one.

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
mod wgmma;

pub use check::{BadTile, Wrong};
pub(crate) use entry::GroupedEntry;
pub use entry::prepared;
pub use kernel::GroupedArgs;
pub use problem::{Group, Grouped, Shapes};
pub use schedule::schedule;
pub use variant::{FAMILY, job_with};
