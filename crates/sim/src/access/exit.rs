//! What is checked when threads exit.

use super::context::Cx;
use crate::code::Code;
use crate::lanes::{Mask, first};
use crate::state::control::Control;
use crate::state::flight::What;
use crate::state::machine::Machine;
use heist_ptx::rule;

/// Lanes of the running warp have exited; the block's counts are updated already.
pub(crate) fn lanes_exited(cx: &mut Cx<'_>, lanes: Mask) {
    let rank = cx.warp.rank;
    let guests = &mut cx.blocks[rank as usize].guests;
    guests.forget_known(&cx.warp.clock, lanes);
    if cx.warp.live == 0 {
        super::products::exited(cx);
        copies_left(cx);
        bulk_left(cx);
    }
    if !cx.blocks[rank as usize].has_exited() {
        return;
    }
    bulk_in_flight(cx);
    guests_left(cx);
    super::tensor_memory::block_exited(cx);
    super::delivery::block_exited(cx);
    if let Some(pc) = cx.team.control.unanswered(rank) {
        report_unanswered(cx, pc, rank);
    }
    if cx.blocks.iter().all(|block| block.has_exited()) {
        if cx.team.control.unanswered(rank).is_none() {
            grants_dropped(cx);
        }
        answer_kept(&cx.team.control, cx.code, cx.machine);
    }
}

/// Reports an access of a peer that nothing orders before the end of the block.
fn guests_left(cx: &mut Cx<'_>) {
    let rank = cx.warp.rank;
    let Some(((agent, lane), pc)) = cx.blocks[rank as usize].guests.left() else {
        return;
    };
    let by = cx.whom(agent, lane);
    let (rule, end) = (rule::PEER_EXITED, cx.code.span(cx.pc()));
    cx.machine.findings.report(rule, pc, || {
        let message = format!(
            "uses shared memory of block rank {rank} of the cluster, and nothing orders that before the end of that block"
        );
        let mut told = cx.code.finding(rule, pc, message);
        told.notes.push(format!("by {by}"));
        told.other(end, "its last thread exits here").help(
            "let the cluster meet behind the access (`barrier.cluster.arrive.release` and `.wait.acquire`) before any of its blocks exits",
        )
    });
}

/// Reports granted clusters that are never run.
fn grants_dropped(cx: &mut Cx<'_>) {
    let control = &cx.team.control;
    let Some((grant, count)) = control.dropped() else {
        return;
    };
    let granted = control.granted.len();
    let span = cx.code.span(grant.pc);
    cx.report(rule::CLC_GRANT_DROPPED, cx.mask, |_, mut told| {
        let what = if grant.decoded {
            "used the id that it decoded"
        } else {
            "decoded its id"
        };
        told.message = format!(
            "the cluster at block ({}) was granted to this one, which exits without having {what}",
            grant.first
        );
        told.note(format!("{count} of {granted} granted clusters are dropped here"))
            .other(span, "it was asked for here")
            .help("whoever is granted a cluster runs it: it is not launched any more. Ask whether to go on before the request, not after the grant")
    });
}

/// Reports an answer that one block of a cluster has not passed to the others.
pub(crate) fn answer_kept(control: &Control, code: &Code, machine: &mut Machine) {
    let Some(pc) = control.kept() else {
        return;
    };
    machine.findings.report(rule::CLC_PLAIN_IN_CLUSTER, pc, || {
        let what = "a request without multicast in a kernel with clusters, whose answer is not handed on to the other blocks";
        code.finding(rule::CLC_PLAIN_IN_CLUSTER, pc, what)
            .help("use `.multicast::cluster::all`, or hand the answer on yourself, through the peers' shared memory")
    });
}

/// Reports what is unfinished when a warp exits.
pub(crate) fn copies_left(cx: &mut Cx<'_>) {
    let (open, grouped) = cx.warp.copies.left_over();
    if let Some(pc) = open {
        let span = cx.code.span(pc);
        cx.report(rule::CP_ASYNC_UNCOMMITTED, cx.mask, |_, mut told| {
            told.message =
                "a thread exits with a cp.async that no group or mbarrier covers".to_owned();
            told.other(span, "the copy starts here")
                .help("`cp.async.commit_group` behind it, and wait for the group")
        });
    }
    if let Some(pc) = grouped {
        let span = cx.code.span(pc);
        cx.report(rule::CP_ASYNC_UNWAITED, cx.mask, |_, mut told| {
            told.message = "a thread exits with a cp.async that nobody has waited for".to_owned();
            told.other(span, "the copy starts here")
                .help("`cp.async.wait_all` before the end, or leave the copy out")
        });
    }
}

/// Reports what is unfinished when a block exits.
pub(crate) fn bulk_in_flight(cx: &mut Cx<'_>) {
    let rank = cx.warp.rank;
    let flight = cx.blocks[rank as usize]
        .flights
        .iter()
        .find(|flight| match flight.what {
            What::Bulk => flight.write,
            What::Sent => true,
            What::Answer => false,
        })
        .copied();
    if let Some(flight) = flight {
        let span = cx.code.span(flight.pc);
        cx.report(rule::ASYNC_AT_EXIT, cx.mask, |_, mut told| {
            let (way, help) = if flight.write {
                ("into", "wait for its mbarrier before the block exits")
            } else {
                (
                    "out of",
                    "let the cluster meet behind the receiver's wait for it before the block exits",
                )
            };
            told.message =
                format!("a block exits while a bulk copy {way} its shared memory is in flight");
            told.other(span, "the copy starts here").help(help)
        });
    }
}

/// Reports what is unfinished when a warp exits.
pub(crate) fn bulk_left(cx: &mut Cx<'_>) {
    let rank = cx.warp.rank as usize;
    let (open, grouped) = cx.warp.copies.bulk.left_over();
    let Some(id) = open.or(grouped) else { return };
    let Some(flight) = cx.blocks[rank]
        .flights
        .iter()
        .find(|flight| flight.id == id)
        .copied()
    else {
        return;
    };
    let span = cx.code.span(flight.pc);
    cx.report(rule::BULK_UNCOMMITTED, cx.mask, |_, mut told| {
        told.message = if open.is_some() {
            "a thread exits with a bulk store that no group covers".to_owned()
        } else {
            "a thread exits with a bulk store that it has not waited for".to_owned()
        };
        told.other(span, "the copy starts here")
            .help("`cp.async.bulk.commit_group` and `cp.async.bulk.wait_group` (at least `.read`) before the shared memory goes away")
    });
}

/// The lanes that a request is in flight for, in words.
pub(crate) fn report_unanswered(cx: &mut Cx<'_>, pc: u32, rank: u32) {
    let span = cx.code.span(pc);
    let lanes = 1 << first(cx.mask);
    cx.report(rule::CLC_AT_EXIT, lanes, |_, mut told| {
        told.message = format!("block rank {rank} exits while a request of it is in flight");
        told.other(span, "the request was submitted here").help(
            "wait for the answer to every request before the block exits, and run what it grants",
        )
    });
}
