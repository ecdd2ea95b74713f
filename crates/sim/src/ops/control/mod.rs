//! Branches, calls, and the end of a thread.

pub(crate) mod branch;
pub(crate) mod builtin;
pub(crate) mod call;
