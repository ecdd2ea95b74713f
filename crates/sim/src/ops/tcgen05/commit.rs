//! `tcgen05.commit` and `tcgen05.fence`.

use super::issue::{check_group, check_issuer, is_pair};
use crate::access::context::Cx;
use crate::code::{Flow, Reach, Slot};
use crate::decode::map::with;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::each;
use crate::ops::mbarrier::{check_use, each_barrier};
use crate::race::clock::{Behind, Clock, Known};
use crate::state::team::Happening;
use crate::state::users::Part;
use heist_ptx::{Instruction, ScalarType, rule};
use std::sync::Arc;

const KNOWN: &[&str] = &[
    "commit",
    "cta_group::1",
    "cta_group::2",
    "mbarrier::arrive::one",
    "shared::cluster",
    "multicast::cluster",
];

pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if !mods.has("commit") {
        operands(d, i, 0)?;
        let after = mods.has("fence::after_thread_sync");
        d.shape.tensor_fences = true;
        d.shape.tensor_fences_before |= !after;
        d.emit(
            with(move |cx| {
                match after {
                    true => fence(cx),
                    false => fence_before(cx),
                }
                Flow::Next
            }),
            Cost::new(1, 0),
        );
        return Ok(());
    }
    only(d, i, mods, KNOWN)?;
    let pair = is_pair(d, i, mods)?;
    let multicast = mods.has("multicast::cluster");
    let o = operands(d, i, 1 + usize::from(multicast))?;
    let addr = d.address(&o[0])?;
    let mask: Option<Slot> = match multicast {
        true => Some(d.src(&o[1], ScalarType::B16)?),
        false => None,
    };
    let instr = with(move |cx| {
        check_group(cx, pair);
        check_issuer(cx);
        let addresses = addr.eval(cx);
        let masks = mask.map(|slot| *cx.row(slot));
        each_barrier(cx, &addresses, |cx, lane, rank, offset| {
            let ranks = match &masks {
                None => vec![rank],
                Some(masks) => multicast_ranks(cx, lane, masks[lane] & 0xffff),
            };
            commit(cx, lane, &ranks, offset);
        });
        Flow::Next
    });
    d.emit_reaching(instr, Cost::new(2, 0), Reach::Cluster);
    Ok(())
}

/// The blocks of a mask.
fn multicast_ranks(cx: &mut Cx<'_>, lane: usize, mask: u32) -> Vec<u32> {
    let size = cx.blocks.len() as u32;
    if mask >> size.min(31) != 0 || mask == 0 {
        cx.report(rule::MULTICAST_MASK, 1 << lane, |_, mut told| {
            told.message = format!("a commit to blocks {mask:#06x} in a cluster of {size}");
            told.help("the mask has one bit for each rank of the cluster")
        });
    }
    (0..size).filter(|rank| mask >> rank & 1 != 0).collect()
}

/// Marks the warp's current clock as fenced, lane by lane.
fn fence(cx: &mut Cx<'_>) {
    if !cx.machine.options.checks.races {
        return;
    }
    let (warp, mask, live) = (cx.warp.number, cx.mask, cx.warp.live);
    for lane in each(mask) {
        let known = cx.warp.clock.snapshot(1 << lane, live);
        let fenced = &mut cx.tensor(cx.warp.rank).fenced;
        fenced.retain(|(of, at, _)| (*of, usize::from(*at)) != (warp, lane));
        fenced.push((warp, lane as u8, known));
    }
}

/// Orders what the lanes have done in tensor memory before what they tell others.
fn fence_before(cx: &mut Cx<'_>) {
    if cx.machine.options.checks.races {
        let (lanes, live) = (cx.mask, cx.warp.live);
        cx.warp.clock.fence_own(Behind::Tensor, lanes, live);
    }
}

/// Arrives at an mbarrier when all operations that the thread has started are complete.
fn commit(cx: &mut Cx<'_>, lane: usize, ranks: &[u32], offset: u32) {
    let (agent, number) = cx.pipe(lane);
    let (warp, own, pc) = (cx.warp.number, cx.warp.rank, cx.pc());
    let held_up = cx.machine.held_up();
    let now = cx.now();
    let tensor = cx.tensor(own);
    let elsewhere = tensor
        .pipes
        .iter()
        .find(|pipe| (pipe.warp, usize::from(pipe.lane)) != (warp, lane))
        .and_then(|pipe| pipe.open);
    let pipe = tensor.pipe(warp, lane as u8, || agent);
    let open = pipe.open.take();
    let empty = open.is_none() && pipe.done <= now;
    pipe.commit += 1;
    let time = pipe.done.max(now) + 16 + held_up;
    if let (true, Some(theirs)) = (empty, elsewhere) {
        cx.report(rule::TENSOR_UNCOMMITTED, 1 << lane, |cx, mut told| {
            told.message = "a commit of a thread that has started nothing: it does not cover what another thread has started".to_owned();
            told.other(cx.code.span(theirs), "another thread started this")
                .help("the thread that starts the products commits them")
        });
    }
    let mut clock = cx.warp.clock.release(1 << lane, cx.warp.live);
    clock.learn(agent, Known::all(number + 1));
    let clock = Arc::new(clock);
    for &rank in ranks {
        if !check_use(cx, lane, (rank, offset), Part::Counts) {
            continue;
        }
        let clock = Arc::clone(&clock);
        cx.team.after(time, move |happening| {
            arrive(happening, (rank, offset), &clock, pc);
        });
    }
}

/// The arrival of a commit.
fn arrive(happening: &mut Happening<'_>, (rank, offset): (u32, u32), clock: &Clock, pc: u32) {
    let checks = happening.machine.options.checks.races;
    let Some(barrier) = happening.blocks[rank as usize].mbarriers.get_mut(offset) else {
        happening.report(
            rule::MBARRIER_UNINITIALISED,
            pc,
            format!("a commit arrives at {offset:#x} of block rank {rank}, which is no mbarrier any more"),
            "wait for every commit before its mbarrier is invalidated",
        );
        return;
    };
    if checks {
        // The end of the operations, and what was before them, needs no scope: it is the own
        // mbarrier that tells it.
        barrier.told.learn(clock, false);
    }
    let (pending, count) = (barrier.pending, barrier.count);
    barrier.pending = pending.saturating_sub(1);
    happening.team.progress += 1;
    let short = barrier.settle(&mut happening.team.phases, rank, offset, happening.time, pc);
    if pending == 0 {
        happening.report(
            rule::MBARRIER_ARRIVALS,
            pc,
            format!("a commit arrives at an mbarrier whose phase expects {count} arrivals, which have all come"),
            "initialise the mbarrier with the number of arrivals of one phase: each commit is one",
        );
    }
    if let Some(short) = short {
        short.tell(happening.code, happening.machine);
    }
}
