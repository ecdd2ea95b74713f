//! How the lanes of a warp touch memory, and what the race detector is told of it.

pub(crate) mod conflict;
pub(crate) mod context;
pub(crate) mod exit;
pub(crate) mod flight;
pub(crate) mod group;
pub(crate) mod order;
