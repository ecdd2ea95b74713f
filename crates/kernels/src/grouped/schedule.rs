//! The schedule that groups take unless they are given one.

use crate::family::Target;
use heist_sched::{AnyPolicy, Greedy, Schedule, Submit, TileSource};

/// The schedule that suits: dynamic, since groups are uneven, in linear order:
/// tiles that run at the same time share rows of A. Bands, which suit a single multiplication, span
/// rows of several groups, and so need the B of each.
pub fn schedule(target: Target) -> Schedule {
    let greedy = AnyPolicy::new(Greedy);
    let source = TileSource::auto(target.arch, &greedy, true).source;
    // With early submission a tile runs later, when the operands that it shares with its neighbours
    // have left L2.
    Schedule::new(source).submit(Submit::Late)
}
