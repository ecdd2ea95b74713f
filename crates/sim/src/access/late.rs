//! Follows what is read in a race with a write of the same block, see [`crate::state::late`].

use super::context::Cx;
use super::doubt;
use super::group::{Group, Home};
use crate::code::{How, Uses};
use crate::lanes::each;
use crate::state::follow::{Lacks, Origin};
use crate::state::late::Pass;

/// A store: notes its threads, if it is one that races.
#[cold]
pub(crate) fn stored(cx: &mut Cx<'_>, group: &Group) {
    let (late, pc) = (&mut cx.machine.late, cx.fragment.pc);
    let Home::Global(at) = group.home else { return };
    if late.pass != Pass::Notes || !late.stores.contains(&pc) {
        return;
    }
    for lane in each(group.mask) {
        for byte in 0..u64::from(group.size) {
            let by = (cx.warp.clock.agent, lane as u8);
            late.writes((at, group.offsets[lane] + byte), by);
        }
    }
}

/// A load: where it is one that races, other threads' elements are not to have an effect.
#[cold]
pub(crate) fn loaded(cx: &mut Cx<'_>, group: &Group) {
    let (late, pc) = (&cx.machine.late, cx.fragment.pc);
    let Home::Global(at) = group.home else { return };
    if late.pass != Pass::Follows || !late.loads.contains(&pc) {
        return;
    }
    let (own, geography) = (cx.warp.clock.agent, cx.machine.geography);
    let is_others = |lane: usize, byte: u64| match late.owners.get(&(at, byte)) {
        None => false,
        Some(None) => true,
        Some(&Some((agent, owner))) => {
            geography.block(agent) == geography.block(own) && (agent, owner) != (own, lane as u8)
        }
    };
    let others = each(group.mask).filter(|&lane| {
        let start = group.offsets[lane];
        (start..start + u64::from(group.size)).any(|byte| is_others(lane, byte))
    });
    let lanes = others.fold(0, |lanes, lane| lanes | 1 << lane);
    if lanes == 0 {
        return;
    }
    let Some(Uses {
        writes,
        how: How::Loads(_),
        ..
    }) = doubt::uses(cx)
    else {
        cx.machine.late.matters = true;
        return;
    };
    let origin = Origin::new(cx.pc(), Lacks::Late);
    let doubts = cx.warp.doubts.get_or_insert_default();
    for &row in writes {
        doubts.add_row(row, lanes, Some(origin));
    }
}
