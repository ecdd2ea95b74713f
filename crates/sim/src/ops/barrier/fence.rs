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
use heist_ptx::Instruction;

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("proxy") {
        if mods.all.iter().any(|text| text.starts_with("tensormap")) {
            let map = match i.operands.first() {
                Some(operand) if mods.has("acquire") => Some(d.address(operand)?),
                _ => None,
            };
            let instr = with(move |cx| tensor_map_fence(cx, map));
            d.emit(instr, Cost::new(2, 0));
            return Ok(());
        }
        // `.async`, `.async.global`, `.alias`: generic accesses before it are
        // ordered before asynchronous ones behind it.
        let asynchronous = mods.all.iter().any(|text| text.starts_with("async"));
        let instr = with(move |cx| {
            if asynchronous {
                proxy(cx);
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
    let init = mods.has("mbarrier_init");
    let instr = with(move |cx| {
        fence(cx, scope);
        if init {
            proxy(cx);
        }
        Flow::Next
    });
    d.emit_reaching(instr, Cost::new(4, 0), Reach::Own);
    Ok(())
}

/// A fence both releases what its lanes know and acquires what they have seen.
pub(crate) fn fence(cx: &mut Cx<'_>, scope: Scope) {
    if !cx.machine.options.checks.races {
        return;
    }
    let (lanes, live) = (cx.mask, cx.warp.live);
    for (lanes, clock) in cx.warp.fences.take_seen(lanes) {
        cx.warp.clock.acquire(&clock, lanes, live);
    }
    let clock = cx.warp.clock.release(lanes, live);
    cx.warp.fences.fence(lanes, scope, clock);
}

/// A proxy fence: what its lanes know of generic accesses is ordered before
/// asynchronous ones.
fn proxy(cx: &mut Cx<'_>) {
    let clock = cx.warp.clock.release(cx.mask, cx.warp.live);
    cx.team.proxied.join(&clock);
}

/// `fence.proxy.tensormap`: a map changed in memory may be used now. The acquiring form
/// names it.
pub(crate) fn tensor_map_fence(cx: &mut Cx<'_>, map: Option<Addr>) -> Flow {
    if let Some(map) = map {
        let addresses = map.eval(cx);
        for lane in each(cx.mask) {
            cx.machine.tensor_maps.settle(addresses[lane]);
        }
    }
    fence(cx, crate::race::access::Scope::Gpu);
    Flow::Next
}
