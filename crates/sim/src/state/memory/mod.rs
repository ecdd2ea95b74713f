//! The memories of the simulated GPU.
//!
//! Every address that a kernel sees is virtual: [`window`] has the layout of the 64-bit space, and
//! no address of the host is in it. Memory itself is [`region::Region`]s: bytes, a written bit for
//! each, and the race detector's history.

pub(crate) mod footprint;
pub(crate) mod global;
pub(crate) mod local;
pub(crate) mod region;
pub(crate) mod traffic;
pub(crate) mod window;
