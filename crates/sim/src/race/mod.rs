//! Happens-before race detection: [`clock`] has the vector clocks ([`far`] what
//! they know of other clusters), [`shadow`] the access history of
//! a line as [`trace`]s, for all lines of a [`history`]. Together they distinguish a race from an
//! ordered pair of accesses, whatever interleaving the run happened to take.

pub(crate) mod access;
pub(crate) mod clock;
mod far;
pub(crate) mod history;
pub(crate) mod shadow;
pub(crate) mod sync;
pub(crate) mod touch;
pub(crate) mod trace;
