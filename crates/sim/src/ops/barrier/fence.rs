//! `fence` and `membar`.

use crate::access::context::Cx;
use crate::code::{Flow, Reach};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::Mods;
use crate::decode::qualifier::scope_of;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::each;
use crate::race::access::Scope;
use crate::race::clock::Behind;
use heist_ptx::Instruction;

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("proxy") {
        if mods.all.iter().any(|text| text.starts_with("tensormap")) {
            let map = match i.operands.first() {
                Some(operand) if mods.has("acquire") => Some(d.address(operand)?),
                _ => None,
            };
            let scope = scope_of(mods).unwrap_or(Scope::Gpu);
            let instr = with(move |cx| {
                match map {
                    Some(map) => acquire_map(cx, map, scope),
                    None => release_maps(cx, scope),
                }
                Flow::Next
            });
            d.emit_reaching(instr, Cost::new(2, 0), Reach::Device);
            return Ok(());
        }
        // Generic accesses before it are ordered before asynchronous ones behind it, in
        // the memory that it names. `.alias` is about other mappings, of which there are none.
        let named = |space: &str| mods.all.iter().any(|text| text.contains(space));
        let kinds: &'static [Behind] = match (named("async"), named("shared"), named("global")) {
            (false, ..) => &[],
            (true, true, false) => &[Behind::Shared],
            (true, false, true) => &[Behind::Global],
            (true, ..) => &[Behind::Shared, Behind::Global],
        };
        let instr = with(move |cx| {
            if !kinds.is_empty() && cx.machine.options.checks.races {
                cx.warp.clock.fence(kinds, cx.mask, cx.warp.live);
            }
            Flow::Next
        });
        d.emit(instr, Cost::new(4, 0));
        return Ok(());
    }
    let scope = if i.opcode.base() == "membar" {
        if mods.has("cta") {
            Scope::Block
        } else if mods.has("sys") {
            Scope::System
        } else {
            Scope::Gpu
        }
    } else {
        scope_of(mods).unwrap_or(Scope::Gpu)
    };
    let instr = if mods.has("mbarrier_init") {
        with(move |cx| {
            fence_inits(cx);
            Flow::Next
        })
    } else if let Some(restricted) = mods
        .all
        .iter()
        .find(|text| text.starts_with("sync_restrict"))
    {
        let acquires = restricted.contains("cluster");
        with(move |cx| {
            restricted_fence(cx, scope, acquires);
            Flow::Next
        })
    } else {
        // `fence.acquire` and `fence.release` are one side of `fence.acq_rel` each.
        let sides = Sides {
            acquires: !mods.has("release"),
            releases: !mods.has("acquire"),
        };
        with(move |cx| {
            fence(cx, scope, sides);
            Flow::Next
        })
    };
    d.emit_reaching(instr, Cost::new(4, 0), Reach::Own);
    Ok(())
}

/// What a fence does.
#[derive(Clone, Copy, Debug)]
struct Sides {
    acquires: bool,
    releases: bool,
}

/// A fence releases what its lanes know, and acquires what they have seen.
fn fence(cx: &mut Cx<'_>, scope: Scope, sides: Sides) {
    if !cx.machine.options.checks.races {
        return;
    }
    let (lanes, live) = (cx.mask, cx.warp.live);
    if sides.acquires {
        for (lanes, clock) in cx.warp.fences.take_seen(lanes, scope, None) {
            cx.warp.clock.acquire(&clock, lanes, live);
        }
    }
    if sides.releases {
        let clock = cx.warp.clock.release(lanes, live);
        cx.warp.fences.fence(lanes, scope, clock);
    }
}

/// `fence.mbarrier_init` releases the `mbarrier.init`s before it and nothing else.
fn fence_inits(cx: &mut Cx<'_>) {
    if cx.machine.options.checks.races {
        let (lanes, live) = (cx.mask, cx.warp.live);
        let clock = cx.warp.clock.fence(&[Behind::Inits], lanes, live);
        cx.warp.fences.fence_beside(lanes, Scope::Cluster, clock);
    }
}

/// `fence.acquire.sync_restrict::shared::cluster` and `fence.release.sync_restrict::shared::cta` order
/// accesses to shared memory, and no others.
fn restricted_fence(cx: &mut Cx<'_>, scope: Scope, acquires: bool) {
    if !cx.machine.options.checks.races {
        return;
    }
    let (lanes, live) = (cx.mask, cx.warp.live);
    if acquires {
        for (lanes, clock) in cx.warp.fences.seen(lanes, scope) {
            cx.warp.clock.acquire_restricted(&clock, lanes, live);
        }
    } else {
        let kinds = &[Behind::Restricted, Behind::Inits];
        let clock = cx.warp.clock.fence(kinds, lanes, live);
        cx.warp.fences.fence_beside(lanes, scope, clock);
    }
}

/// `fence.proxy.tensormap::generic.release`: maps that were written before it may be used behind a fence that
/// acquires them.
pub(crate) fn release_maps(cx: &mut Cx<'_>, scope: Scope) {
    if !cx.machine.options.checks.races {
        return;
    }
    let (lanes, live) = (cx.mask, cx.warp.live);
    let clock = &mut cx.warp.clock;
    let at = (clock.agent, clock.now);
    let known = clock.release(lanes, live);
    cx.machine
        .tensor_maps
        .release(at, lanes, scope, known.clone());
    cx.warp.fences.fence(lanes, scope, known);
}

/// `fence.proxy.tensormap::generic.acquire [map], 128`: the map may be used as it was released.
fn acquire_map(cx: &mut Cx<'_>, map: Addr, scope: Scope) {
    let sides = Sides {
        acquires: true,
        releases: false,
    };
    fence(cx, scope, sides);
    if !cx.machine.options.checks.races {
        return;
    }
    let addresses = map.eval(cx);
    let clock = &mut cx.warp.clock;
    for lane in each(cx.mask) {
        let maps = &mut cx.machine.tensor_maps;
        maps.acquire(addresses[lane], clock, lane as u8, scope);
    }
    // Threads that synchronise from now on come behind it.
    clock.now += 1;
}
