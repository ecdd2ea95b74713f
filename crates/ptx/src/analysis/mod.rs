//! Names and control flow of a function.
//!
//! Every analysis of more than a single instruction starts here, so that all agree on what a
//! register is and where a branch goes:
//!
//! - [`Scopes`]: names in nested scopes, families of registers, labels;
//! - [`Flow`]: a function's instructions with their registers and branch targets;
//! - [`Graph`]: basic blocks, dominators, post-dominators;
//! - [`live_at_entry`]: registers that some path reads before it writes them.

mod block;
mod dominators;
mod flow;
mod graph;
mod liveness;
mod scope;

pub use block::BlockId;
pub use flow::{Flow, Globals, Op, Register, Roles};
pub use graph::{Graph, Leave};
pub use liveness::{Touched, live_at_entry};
pub use scope::{Clash, Found, Label, Scopes, Twice};
