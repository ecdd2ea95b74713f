//! Happens-before race detection: [`clock`] says who knows what of whom,
//! [`shadow`] remembers who touched what, as [`trace`]s, for all lines of a [`history`], and
//! together they tell a race from an ordered pair of accesses, whatever interleaving the run
//! happened to take.

pub(crate) mod access;
pub(crate) mod clock;
pub(crate) mod history;
pub(crate) mod shadow;
pub(crate) mod sync;
pub(crate) mod touch;
pub(crate) mod trace;
