//! How the lanes of a warp touch memory and registers, and what the race detector is told.
//!
//! A running instruction sees a [`context::Cx`]. [`group`] finds the memory behind the
//! addresses of its lanes, [`look`] holds the access against what was written and who else was
//! there, [`flight`] against copies that have not completed; [`order`] is what strong accesses
//! do to the order of everything else. [`conflict`] puts findings into words.

pub(crate) mod conflict;
pub(crate) mod context;
pub(crate) mod delivery;
pub(crate) mod exit;
pub(crate) mod flight;
pub(crate) mod group;
pub(crate) mod look;
pub(crate) mod order;
pub(crate) mod products;
pub(crate) mod tensor_memory;
