//! Value-following checks (taint tracking through registers).
//!
//! Most instructions of most kernels need no such check, so nothing is done in the
//! engine. When a kernel has been decoded, [`wrap`] finds the instructions that matter
//! and puts a check around each; the others run as they are. Only the kernel's own
//! body is followed, not the functions that it calls.

mod body;
pub(crate) mod lineage;
pub(crate) mod unset;
pub(crate) mod update;

use crate::code::{Bloom, Guard, How, Uses, Watched};
use crate::decode::trail::Trail;
use crate::engine::executable::Op;
pub(crate) use body::Body;

/// Puts checks around the operations of a body that need them.
pub(crate) fn wrap(mut body: Body<'_>) -> Watched {
    Watched {
        unset: unset::wrap(&mut body),
        lineage: lineage::wrap(&mut body),
        updates: update::wrap(&mut body),
    }
}

/// What operations do with values.
pub(crate) fn uses(trails: Vec<Trail>, ops: &[Op]) -> Vec<Uses> {
    let of = |(mut trail, guard): (Trail, Option<Guard>)| {
        let how = match trail {
            Trail {
                shuffles: Some(passed),
                ..
            } => How::Shuffles(passed),
            Trail {
                gate: Some(gate), ..
            } => How::Gates(gate),
            Trail {
                selects: Some(selects),
                ..
            } => How::Selects(selects),
            _ if trail.packs() => How::Packs,
            _ if trail.pure && trail.mixes => How::Mixes,
            _ if trail.derives && trail.decides.is_empty() && trail.asks.is_empty() => How::Derives,
            _ if trail.pure || trail.decided => How::Computes,
            _ if trail.copies => How::Copies,
            _ if trail.element == 0 => How::Acts,
            _ if trail.loads => How::Loads(trail.element),
            _ => How::Stores(trail.element, std::mem::take(&mut trail.stored)),
        };
        trail.reads.append(&mut trail.own_reads);
        let rows = trail.reads.iter().chain(&trail.writes).copied();
        let preds = trail.decides.iter().map(|pred| pred.0);
        let asks = trail.asks.iter().map(|source| source.pred.0);
        let guard = guard.map(|guard| guard.pred.0);
        Uses {
            touches: Bloom::of(rows, preds.chain(asks).chain(guard)),
            reads: trail.reads,
            writes: trail.writes,
            asks: trail.asks,
            decides: trail.decides,
            how,
        }
    };
    let guards = ops.iter().map(|op| op.guard);
    trails.into_iter().zip(guards).map(of).collect()
}
