//! Names and control flow of a function.
//!
//! Every analysis of more than a single instruction starts here, so that all agree on what a
//! register is and where a branch goes:
//!
//! - [`Scopes`]: names in nested scopes, families of registers, labels;
//! - [`Flow`]: a function's instructions with their registers and branch targets;
//! - [`Graph`]: basic blocks, dominators, post-dominators;
//! - [`live_at_entry`]: registers that some path reads before it writes them.
//!
//! ```
//! use heist_ptx::analysis::{Flow, Globals};
//!
//! let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n) {
//!     .reg .u32 r; .reg .pred p;
//!     ld.param.u32 r, [n]; setp.eq.u32 p, r, 0; @p bra END; add.u32 r, r, 1; END: ret; }";
//! let module = heist_ptx::parse(&heist_ptx::Source::new("k.ptx", text)).expect("it is right");
//! let globals = Globals::of(&module);
//! let kernel = module.functions().next().expect("a kernel");
//! let flow = Flow::new(&globals, kernel).expect("a body");
//! assert_eq!(flow.graph.blocks(), 3); // up to the branch, what it may skip, the end
//! assert!(flow.graph.dominates(0, 4), "every path to `ret` begins with the load");
//! ```

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
