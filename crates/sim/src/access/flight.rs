//! Accesses that meet an asynchronous operation in flight.
//!
//! An access to bytes that a copy in flight uses is always reported, whatever the timing. After the
//! copy has completed, the race detector takes over: the write is ordered before the end of the
//! mbarrier's phase, and only a thread that has observed that end may read it.

use super::context::Cx;
use super::group::{Does, Group, Home};
use crate::lanes::each;
use crate::race::access::{AccessKind, LINE};
use crate::race::clock::{Agent, Behind};
use crate::state::flight::{Flight, What};
use crate::state::memory::region::Region;
use heist_ptx::{Code, rule};

/// Reports ordinary accesses to bytes that an operation in flight uses, and to
/// mbarriers.
#[inline]
pub(crate) fn check(cx: &mut Cx<'_>, group: &Group, does: Does) -> bool {
    let Home::Shared(rank) = group.home else {
        return false;
    };
    let block = &cx.blocks[rank as usize];
    if block.flights.is_empty() && block.mbarriers.is_empty() {
        return false;
    }
    let write = does == Does::Writes;
    let size = u64::from(group.size);
    let mut met = None;
    let mut barrier = None;
    for lane in each(group.mask) {
        let start = group.offsets[lane];
        if met.is_none()
            && let Some(flight) = block.flights.disturbed(start, start + size, write)
        {
            met = Some((lane, *flight));
        }
        if barrier.is_none() && block.mbarriers.overlapping(start, size).is_some() {
            barrier = Some(lane);
        }
    }
    if let Some((lane, flight)) = met {
        report_early(cx, rank, lane, group.offsets[lane], flight, does);
    }
    if !write && group.size < 16 && met.is_none() {
        check_taken_apart(cx, rank, group);
    }
    if let Some(lane) = barrier {
        let offset = group.offsets[lane];
        cx.report(rule::MBARRIER_AS_DATA, 1 << lane, |_, mut told| {
            told.message = format!("{} {offset:#x} of shared memory, which is part of an mbarrier, as ordinary memory", does.verb());
            told.help("an mbarrier is touched by mbarrier instructions alone; `mbarrier.inval` gives its bytes back")
        });
    }
    met.is_some()
}

/// Reports an answer of launch control that is read in parts: it must be decoded by its
/// instructions.
fn check_taken_apart(cx: &mut Cx<'_>, rank: u32, group: &Group) {
    let lane = each(group.mask).find(|&lane| cx.team.control.is_slot(rank, group.offsets[lane]));
    if let Some(lane) = lane {
        cx.report(rule::CLC_OPAQUE, 1 << lane, |_, mut told| {
            told.message = format!(
                "reads {} bytes of a response, whose bytes have no documented meaning",
                group.size
            );
            told.help("load all 16 bytes and ask with `clusterlaunchcontrol.query_cancel`")
        });
    }
}

fn report_early(cx: &mut Cx<'_>, rank: u32, lane: usize, offset: u64, flight: Flight, does: Does) {
    let (code, help) = explain(flight.what, flight.write, does);
    let them = cx.whom(flight.agent, flight.lane);
    cx.report(code, 1 << lane, |cx, mut told| {
        told.message = format!(
            "{} {}, which an asynchronous operation in flight {}",
            does.verb(),
            super::conflict::place(cx, Home::Shared(rank), offset),
            if flight.write {
                "has not written yet"
            } else {
                "may still read"
            },
        );
        told.other(cx.code.span(flight.pc), format!("{them} started it here"))
            .help(help)
    });
}

/// The rule that an access to the bytes of an operation in flight breaks, and what to do.
pub(crate) fn explain(what: What, write: bool, does: Does) -> (Code, &'static str) {
    match (what, write, does) {
        (What::Answer, ..) => (
            rule::CLC_EARLY_READ,
            "wait until the mbarrier's phase is complete before the response is read",
        ),
        (What::Sent, ..) => (
            rule::BULK_SOURCE_OVERWRITTEN,
            "let the receiver say, by an arrival at an mbarrier of the sender, that the copy is complete, and wait for that",
        ),
        (What::Bulk, false, _) => (
            rule::BULK_SOURCE_OVERWRITTEN,
            "wait with `cp.async.bulk.wait_group.read` before the source is used again",
        ),
        (What::Bulk, true, Does::Writes) => (
            rule::ASYNC_OVERLAP,
            "let the copy complete before the memory is written",
        ),
        (What::Bulk, true, Does::Reads) => (
            rule::BULK_EARLY,
            "wait until the mbarrier's phase is complete (`mbarrier.try_wait`) before the data is read",
        ),
    }
}

/// A conflict between an asynchronous access about to start and a recorded access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unready {
    pub(crate) offset: u64,
    pub(crate) agent: Agent,
    pub(crate) lane: u8,
    pub(crate) pc: u32,
    pub(crate) write: bool,
    pub(crate) kind: AccessKind,
    /// Whether it happens before the start; then only the proxy fence is missing.
    pub(crate) known: bool,
}

/// Which earlier accesses can conflict with an asynchronous one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Minds<'a> {
    /// Reads, and not only writes.
    pub(crate) reads: bool,
    /// Generic-proxy accesses without a proxy fence for this memory, even if they happen before.
    pub(crate) fence: Option<Behind>,
    /// Those alone that happen before the start: another check is about the others.
    pub(crate) ordered: bool,
    /// Weak ones alone.
    pub(crate) weak: bool,
    /// But not the asynchronous ones of these instructions.
    pub(crate) but: &'a [u32],
}

/// Finds earlier accesses to `range` that do not happen before the starting lane, or that no proxy
/// fence covers.
pub(crate) fn unready(
    region: &Region,
    clock: &crate::race::clock::WarpClock,
    lane: u8,
    range: std::ops::Range<u64>,
    minds: Minds<'_>,
) -> Option<Unready> {
    let Minds {
        reads,
        fence,
        ordered,
        weak,
        but,
    } = minds;
    let mut found: Option<Unready> = None;
    // A cache of the last access that was ordered and fenced: a tile has few different ones.
    let mut ready = None;
    each_line(range, |at, bytes| {
        region.history.each(at, bytes, |seen| {
            if found.is_some_and(|found| ordered || !found.known) || !(seen.write || reads) {
                return;
            }
            let strong = seen.kind.scope().is_some();
            if weak && strong {
                return;
            }
            if matches!(seen.kind, AccessKind::Async | AccessKind::Delivered)
                && but.contains(&seen.pc)
            {
                return;
            }
            let access = (seen.agent, seen.clock, seen.lane);
            if ready == Some((access, seen.kind)) {
                return;
            }
            let is_known = |(agent, time, their): (Agent, u32, u8)| {
                let own = agent == clock.agent && their == lane;
                own || clock.knows(agent, time, their, lane)
            };
            let is_fenced = |access: (Agent, u32, u8)| {
                fence.is_none_or(|memory| clock.knows_fenced(memory, access, lane))
            };
            let mut known = is_known(access);
            let fenced = seen.kind.by_proxy() || is_fenced(access);
            if known && fenced {
                ready = Some((access, seen.kind));
            } else if strong {
                // It comes after a strong write whose value it comes after a read of.
                let observers = || region.history.observers(at, seen);
                if observers().any(|one| is_known(one) && is_fenced(one)) {
                    return;
                }
                known |= !seen.kind.by_proxy() && observers().any(is_known);
            }
            if !known && !ordered || known && !fenced && found.is_none() {
                found = Some(Unready {
                    offset: at * LINE as u64 + u64::from(seen.byte),
                    agent: seen.agent,
                    lane: seen.lane,
                    pc: seen.pc,
                    write: seen.write,
                    kind: seen.kind,
                    known,
                });
            }
        });
    });
    found
}

/// Records the reads of an asynchronous operation: they happen before everything after its agent's
/// `clock`.
pub(crate) fn reads(region: &mut Region, range: std::ops::Range<u64>, by: (Agent, u32), pc: u32) {
    each_line(range, |line, bytes| {
        region
            .history
            .read_by_proxy(line, bytes, AccessKind::Async, by, pc);
    });
}

/// Records a reduction into some bytes, which is over at `by`.
pub(crate) fn reduced(region: &mut Region, range: std::ops::Range<u64>, by: (Agent, u32), pc: u32) {
    each_line(range, |line, bytes| {
        region.history.reduce(line, bytes, by, pc);
    });
}

/// Calls `f` for the lines of some bytes, with the bytes of each.
fn each_line(range: std::ops::Range<u64>, mut f: impl FnMut(u64, u128)) {
    const LEN: u64 = LINE as u64;
    // A copy may be of nothing, in the middle of a line.
    if range.is_empty() {
        return;
    }
    for at in range.start / LEN..range.end.div_ceil(LEN) {
        let from = range.start.max(at * LEN) - at * LEN;
        let to = range.end.min((at + 1) * LEN) - at * LEN;
        f(at, u128::MAX >> (LEN - (to - from)) << from);
    }
}

/// Records the writes of a completed asynchronous operation: they happen before the end of phase
/// `clock` of mbarrier `agent`.
pub(crate) fn written(
    region: &mut Region,
    range: std::ops::Range<u64>,
    kind: AccessKind,
    stamp: (Agent, u32),
    pc: u32,
) {
    each_line(range, |at, bytes| {
        region.history.overwrite(at, bytes, kind, stamp, pc);
    });
}

/// Reports accesses to the destination of a `cp.async` in flight.
#[inline]
pub(crate) fn check_expected(cx: &mut Cx<'_>, group: &Group, does: Does) -> bool {
    let Home::Shared(rank) = group.home else {
        return false;
    };
    let expected = &cx.blocks[rank as usize].expected;
    if expected.is_empty() {
        return false;
    }
    let met = each(group.mask)
        .find_map(|lane| Some((lane, expected.at(group.offsets[lane], group.size)?)));
    if let Some((lane, pc)) = met {
        let offset = group.offsets[lane];
        cx.report(rule::CP_ASYNC_EARLY, 1 << lane, |cx, mut told| {
            told.message = format!(
                "{} {}, which a cp.async that was not waited for has not written yet",
                does.verb(),
                crate::access::conflict::place(cx, group.home, offset)
            );
            told.other(cx.code.span(pc), "the copy starts here").help(
                "wait with `cp.async.wait_group` (or `wait_all`), and let the other threads meet at a barrier behind it",
            )
        });
    }
    met.is_some()
}
