//! Memory and register accesses of a warp's lanes, with the checks and the race detector's records.
//!
//! A running instruction sees a [`context::Cx`]. [`group`] finds the memory behind the addresses of
//! its lanes, [`look`] checks the access for uninitialised bytes and races, [`flight`] for copies
//! in flight; [`late`] follows what was read in a race; [`order`] handles the synchronisation by strong accesses. [`conflict`] has the texts
//! of findings.

pub(crate) mod conflict;
pub(crate) mod context;
pub(crate) mod delivery;
pub(crate) mod doubt;
pub(crate) mod exit;
pub(crate) mod flight;
pub(crate) mod group;
pub(crate) mod late;
pub(crate) mod look;
pub(crate) mod order;
pub(crate) mod products;
pub(crate) mod tensor_memory;
