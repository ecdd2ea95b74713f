//! The texts of findings about races, and about reads of uninitialised memory.

use super::context::Cx;
use super::group::{Does, Group, Home};
use crate::lanes::each;
use crate::race::access::{AccessKind, Conflict};
use crate::race::clock::SEVERAL;
use heist_ptx::{Code, rule};

/// A place of memory in words.
pub(crate) fn place(cx: &Cx<'_>, home: Home, offset: u64) -> String {
    match home {
        Home::Global(at) => match cx.machine.global.get(at) {
            Some(one) => cx.machine.global.describe(one.base + offset),
            None => format!("{offset:#x}"),
        },
        Home::Shared(rank) if rank == cx.warp.rank => {
            format!("{offset:#x} of the block's shared memory")
        }
        Home::Shared(rank) => format!("{offset:#x} of block rank {rank}'s shared memory"),
        other => format!("{offset:#x} of {} memory", other.name()),
    }
}

/// Reports a read of uninitialised memory.
#[cold]
pub(crate) fn report_unwritten(cx: &mut Cx<'_>, group: &Group, offset: u64) {
    let size = u64::from(group.size);
    let lanes = each(group.mask)
        .filter(|&lane| group.offsets[lane] <= offset && offset - group.offsets[lane] < size)
        .fold(0, |mask, lane| mask | 1 << lane);
    let code = match group.home {
        Home::Shared(_) => rule::SHARED_UNWRITTEN,
        _ => rule::GLOBAL_UNWRITTEN,
    };
    cx.report(code, lanes, |cx, mut told| {
        told.message = format!(
            "reads {}, which nothing has written",
            place(cx, group.home, offset)
        );
        told.help("write it before it is read; if another thread does, wait for that thread")
    });
}

/// Reports a race: two accesses without a happens-before order.
#[cold]
pub(crate) fn report_race(
    cx: &mut Cx<'_>,
    home: Home,
    offset: u64,
    conflict: Conflict,
    does: Does,
    kind: AccessKind,
) {
    let own = cx.warp.clock.agent;
    let same_warp = conflict.agent == own;
    let geography = cx.machine.geography;
    let same_block = geography.block(conflict.agent) == geography.block(own);
    let strong = |kind: AccessKind| kind.scope().is_some();
    let copied = conflict.their_kind == AccessKind::Copy;
    if (copied || conflict.their_kind.by_proxy()) && !conflict.their_write {
        report_source(cx, home, offset, conflict);
        return;
    }
    if matches!(
        conflict.their_kind,
        AccessKind::Async | AccessKind::Reduction | AccessKind::Delivered
    ) {
        report_unseen(cx, home, offset, conflict, does);
        return;
    }
    let code: Code = match home {
        _ if kind == AccessKind::Copy || conflict.their_kind == AccessKind::Copy => {
            rule::CP_ASYNC_UNSHARED
        }
        _ if kind.differs_in_size(conflict.their_kind) => rule::MIXED_SIZE,
        _ if strong(kind) && strong(conflict.their_kind) => rule::NARROW_SCOPE,
        _ if strong(kind) != strong(conflict.their_kind) => rule::MIXED_ATOMICITY,
        _ if cx.warp.fences.has_missed(
            conflict.agent,
            conflict.their_clock,
            conflict.their_lane,
        ) =>
        {
            rule::NARROW_SCOPE
        }
        _ if same_warp => rule::WARP_RACE,
        Home::Shared(_) if !same_block => rule::CLUSTER_RACE,
        Home::Shared(_) => rule::SHARED_RACE,
        // The reader has looked at a flag of that block, and the flag orders nothing.
        _ if !same_block && cx.warp.flag_setter == Some(geography.block(conflict.agent)) => {
            rule::UNORDERED_FLAG
        }
        _ => rule::GLOBAL_RACE,
    };
    let lanes = if conflict.lane == SEVERAL {
        cx.mask
    } else {
        1 << conflict.lane
    };
    let plain = kind == AccessKind::Plain && conflict.their_kind == AccessKind::Plain;
    let reads = does == Does::Reads;
    if plain && same_block && reads == conflict.their_write && matches!(home, Home::Global(_)) {
        let (pc, theirs) = (cx.pc(), conflict.their_pc);
        let (load, store) = if reads { (pc, theirs) } else { (theirs, pc) };
        cx.machine.late.race((code.0, pc), load, store);
    }
    cx.report(code, lanes, |cx, mut told| {
        let (now, before) = (does.verb(), if conflict.their_write { "wrote" } else { "read" });
        let them = cx.whom(conflict.agent, conflict.their_lane);
        told.message = format!(
            "{} {now} {}, and {them} {before} it with nothing to order the two",
            if conflict.lane == SEVERAL { "a warp".to_owned() } else { cx.who(conflict.lane as usize) },
            place(cx, home, offset),
        );
        told = told
            .label(format!("this access {now} it"))
            .other(cx.code.span(conflict.their_pc), format!("{them} {before} it here"));
        if let Some(other) = told.others.last_mut() {
            other.source_line = cx.code.source_line(conflict.their_pc);
        }
        let help = match code {
            rule::WARP_RACE => "lanes of a warp do not run in step: put `bar.warp.sync` (`__syncwarp()`) between the two",
            rule::CP_ASYNC_UNSHARED => {
                "waiting for a cp.async makes it visible to the waiting thread alone: put a barrier behind the wait"
            }
            rule::UNORDERED_FLAG => {
                "set the flag with `st.release` (or a fence before it), and read it with `ld.acquire` (or a fence behind it)"
            }
            rule::NARROW_SCOPE => "a scope on the way does not reach the other's block: use `.gpu` (or `.cluster` in one cluster) on every access and fence on both sides",
            rule::MIXED_SIZE => "both are atomic, or strong, and of different sizes, which are not atomic towards each other: give both the same size and place",
            rule::MIXED_ATOMICITY => "one of the two is atomic and the other is not: make both atomic (`ld.relaxed`, `ld.acquire`, `atom`), or order them",
            rule::SHARED_RACE => "put a barrier between the two that both threads reach (`bar.sync`, or an mbarrier)",
            rule::CLUSTER_RACE => "let the cluster meet between the two (`barrier.cluster.arrive.release` and `.wait.acquire`)",
            _ if same_block => "put a barrier between the two that both threads reach",
            _ => "blocks are ordered only by a release and an acquire of a flag in global memory, or by the end of the kernel",
        };
        told.help(help)
    });
}

/// Reports a write to the source of an asynchronous operation whose completion the thread has not
/// observed.
#[cold]
fn report_source(cx: &mut Cx<'_>, home: Home, offset: u64, conflict: Conflict) {
    let (code, reader, help) = match conflict.their_kind {
        AccessKind::Product => (
            rule::WGMMA_SOURCE_OVERWRITTEN,
            "a tensor-core product",
            "wait for the product (`wgmma.wait_group`, or the mbarrier of `tcgen05.commit`), and let the writing thread know, before its operands are overwritten",
        ),
        AccessKind::Copy => (
            rule::BULK_SOURCE_OVERWRITTEN,
            "a cp.async",
            "the thread that copies waits (`cp.async.wait_group`, or the mbarrier), and lets the writing thread know",
        ),
        _ => (
            rule::BULK_SOURCE_OVERWRITTEN,
            "an asynchronous copy",
            "the thread that copies waits (`cp.async.bulk.wait_group.read`, or the mbarrier), and lets the writing thread know",
        ),
    };
    let lanes = if conflict.lane == SEVERAL {
        cx.mask
    } else {
        1 << conflict.lane
    };
    cx.report(code, lanes, |cx, mut told| {
        told.message = format!(
            "writes {}, and nothing says that {reader} is done with reading it",
            place(cx, home, offset)
        );
        told.other(cx.code.span(conflict.their_pc), "it is read here")
            .help(help)
    });
}

/// Reports an access to the destination of an asynchronous operation whose completion the thread
/// has not observed.
#[cold]
fn report_unseen(cx: &mut Cx<'_>, home: Home, offset: u64, conflict: Conflict, does: Does) {
    let lane = if conflict.lane == SEVERAL {
        crate::lanes::first(cx.mask)
    } else {
        conflict.lane as usize
    };
    let Home::Shared(rank) = home else {
        cx.report(rule::BULK_UNCOMMITTED, 1 << lane, |cx, mut told| {
            let what = match conflict.their_kind {
                AccessKind::Reduction => "reduction",
                _ => "store",
            };
            told.message = format!(
                "{} {}, which a bulk {what} writes whose end this thread can't know of",
                does.verb(),
                place(cx, home, offset)
            );
            told.other(cx.code.span(conflict.their_pc), format!("the {what} starts here"))
                .help("the thread that stores waits with `cp.async.bulk.wait_group`, without `.read`, before it lets others know")
        });
        return;
    };
    let (agent, control) = cx.blocks[rank as usize]
        .mbarriers
        .iter()
        .find(|(_, barrier)| barrier.has_stamped(conflict.agent))
        .map_or((conflict.agent, false), |(_, barrier)| {
            (barrier.agent, barrier.control)
        });
    // A thread that has observed an earlier phase of the same mbarrier is late, not early.
    let late = cx.warp.clock.has_heard_of(agent, lane as u8);
    let (by, clock, lane_of) = (conflict.agent, conflict.their_clock, conflict.their_lane);
    let narrow = cx.warp.fences.has_missed(by, clock, lane_of);
    let (code, message, help) = match (control, late) {
        _ if narrow => (
            rule::NARROW_SCOPE,
            "was sent by a peer block, and the wait for it says `.cta`, which does not hold that block",
            "wait with `.acquire.cluster` for what a peer sends",
        ),
        (true, true) => (
            rule::CLC_SLOT_OVERWRITTEN,
            "holds the answer to a later request than the one that was waited for",
            "let every block arrive at an mbarrier of the leader after it has read the answer, and wait for that before the next request",
        ),
        (true, false) => (
            rule::CLC_EARLY_READ,
            "holds an answer whose mbarrier this thread has not waited for",
            "wait until the mbarrier's phase is complete before the response is read",
        ),
        (false, _) => (
            rule::BULK_EARLY,
            "was written by an asynchronous copy whose mbarrier this thread has not waited for",
            "wait until the mbarrier's phase is complete (`mbarrier.try_wait`) before the data is used",
        ),
    };
    cx.report(code, 1 << lane, |cx, mut told| {
        told.message = format!(
            "{} {}, which {message}",
            does.verb(),
            place(cx, home, offset)
        );
        told.other(cx.code.span(conflict.their_pc), "it was asked for here")
            .help(help)
    });
}
