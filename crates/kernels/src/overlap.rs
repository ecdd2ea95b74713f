//! Launches that begin before the one before them has ended (programmatic dependent launch).

use heist_builder::Kernel;

/// Waits for the launch before this one, where this one was allowed to begin before its end.
///
/// Before it nothing is read or written that another launch may touch. After it nothing of the kind is
/// read by loads of read-only data, which may have been cached before.
pub(crate) fn wait(k: &Kernel<'_>) {
    k.comment("the launch before has ended");
    k.wait_for_dependency();
}

/// The same, and lets the next one begin: its blocks set out while the last ones of this launch work.
pub(crate) fn overlap(k: &Kernel<'_>) {
    wait(k);
    k.launch_dependents();
}

/// The same the other way round, for a short launch between two long ones: the blocks of the next set out while the one before works, and
/// wait for the end of this one.
pub(crate) fn overlap_early(k: &Kernel<'_>) {
    k.launch_dependents();
    wait(k);
}

/// Of how many tiles that take so many microseconds a block may leave once, in the mean: visitors that come 600 us apart find a block for
/// each that leaves.
pub(crate) fn tiles_a_leave(tile_time: f64) -> u32 {
    (600.0 / tile_time.max(0.1)).clamp(1.0, 1000.0) as u32
}
