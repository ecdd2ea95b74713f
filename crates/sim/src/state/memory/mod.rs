//! The memories of the simulated GPU.
//!
//! Every address that a kernel sees is made up: [`window`] says which part of the
//! 64-bit space is which, and nothing in it is an address of the host. Memory
//! itself is [`region::Region`]s: bytes, which of them were ever written, and
//! what the race detector remembers of them.

pub(crate) mod footprint;
pub(crate) mod global;
pub(crate) mod local;
pub(crate) mod region;
pub(crate) mod window;
