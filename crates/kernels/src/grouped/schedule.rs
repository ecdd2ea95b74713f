//! The schedule that groups take unless they are given one.

use crate::family::Target;
use heist_sched::{AnyPolicy, Greedy, Schedule, Submit, TileSource};

/// The schedule that suits: dynamic, since groups are uneven, in linear order:
/// tiles that run at the same time are of the same rows of A. Bands, which suit
/// one multiplication, take in rows of several groups, and with them the B of
/// each.
pub fn schedule(target: Target) -> Schedule {
    let greedy = AnyPolicy::new(Greedy);
    let source = TileSource::auto(target.arch, &greedy, true).source;
    // A tile that is asked for early runs late, when what it shares with its
    // neighbours has left L2.
    Schedule::new(source).submit(Submit::Late)
}
