//! Barriers of a block and of a cluster, and fences.

pub(crate) mod block;
pub(crate) mod cluster;
pub(crate) mod fence;
