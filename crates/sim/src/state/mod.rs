//! The state of a launch: data and its invariants.
//!
//! Memories ([`memory`]), barriers ([`barrier`], [`mbarrier`]), copies in flight ([`flight`],
//! [`copies`], [`bulk_group`]), tensor maps, launch control, registers, and the structs that
//! hold them together: [`warp`], [`block`], [`team`] (a cluster without its blocks),
//! [`machine`]. Nothing here runs an instruction or uses the layers above.

pub(crate) mod barrier;
pub(crate) mod block;
pub(crate) mod bulk_group;
pub(crate) mod contention;
pub(crate) mod control;
pub(crate) mod copies;
pub(crate) mod demand;
pub(crate) mod flight;
pub(crate) mod follow;
pub(crate) mod late;
pub(crate) mod machine;
pub(crate) mod mbarrier;
pub(crate) mod memory;
pub(crate) mod pattern;
pub(crate) mod pool;
pub(crate) mod products;
pub(crate) mod team;
pub(crate) mod tensor_map;
pub(crate) mod tensor_memory;
pub(crate) mod users;
pub(crate) mod warp;
