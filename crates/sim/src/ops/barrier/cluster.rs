//! What the blocks of a cluster share: the cluster barrier and addresses of
//! each other's memory.

use crate::access::context::Cx;
use crate::code::{Flow, Reach, Wait};
use crate::decode::map::with;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::names::rows_of;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::LANES;
use crate::race::access::Scope;
use crate::state::memory::window::{SHARED, SharedPlace, Window};
use heist_ptx::{Instruction, ScalarType, rule};

/// `barrier.cluster.arrive` and `.wait`.
pub(crate) fn decode_barrier(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(
        d,
        i,
        mods,
        &[
            "cluster", "arrive", "wait", "release", "relaxed", "acquire", "aligned",
        ],
    )?;
    let aligned = mods.has("aligned");
    let instr = if mods.has("arrive") {
        let releases = !mods.has("relaxed");
        with(move |cx| match gather(cx, aligned) {
            Some(flow) => flow,
            None => {
                arrive(cx, releases);
                Flow::Next
            }
        })
    } else {
        with(move |cx| match gather(cx, aligned) {
            Some(flow) => flow,
            None => wait(cx),
        })
    };
    d.emit_reaching(instr, Cost::CONTROL, Reach::Cluster);
    Ok(())
}

/// Waits for the rest of the warp where the instruction is `.aligned`.
pub(crate) fn gather(cx: &mut Cx<'_>, aligned: bool) -> Option<Flow> {
    let missing = cx.warp.live & !cx.mask;
    if !aligned || missing == 0 {
        return None;
    }
    if !cx.fragment.forced && cx.mask == cx.fragment.mask {
        return Some(cx.retry(Wait::Gather {
            members: cx.warp.live,
        }));
    }
    cx.fragment.forced = false;
    cx.report(rule::DIVERGENT_ALIGNED, cx.mask, |cx, mut told| {
        told.message = format!(
            "only lanes {:#010x} of a warp reach this `.aligned` instruction; lanes {missing:#010x} are elsewhere",
            cx.mask
        );
        told.help("let the whole warp come by, or leave `.aligned` out where that is allowed")
    });
    None
}

fn arrive(cx: &mut Cx<'_>, releases: bool) {
    let twice = cx.warp.cluster_arrived & cx.mask;
    if twice != 0 {
        cx.report(rule::CLUSTER_BARRIER_ORDER, twice, |_, mut told| {
            told.message = "arrives at the cluster barrier again without having waited".to_owned();
            told.help("after each `barrier.cluster.arrive` comes one `barrier.cluster.wait`")
        });
    }
    let fresh = cx.mask & !twice;
    cx.warp.cluster_arrived |= fresh;
    if fresh != 0 {
        cx.warp.cluster_phase = cx.team.cluster_barrier.phase;
    }
    let mut clock = releases.then(|| cx.warp.clock.release(cx.mask, cx.warp.live));
    // Without a release of its own it carries what a fence before it covers.
    for (scope, fenced) in cx.warp.fences.covered(cx.mask) {
        if scope >= Scope::Cluster {
            match &mut clock {
                Some(clock) => clock.join(fenced),
                None => clock = Some((**fenced).clone()),
            }
        }
    }
    let now = cx.now();
    let barrier = &mut cx.team.cluster_barrier;
    barrier.arrived += fresh.count_ones();
    barrier.latest = barrier.latest.max(now);
    if let Some(clock) = clock {
        match &mut barrier.clock {
            Some(all) => all.join(&clock),
            None => barrier.clock = Some(clock),
        }
    }
    barrier.changed = true;
    cx.team.progress += 1;
}

fn wait(cx: &mut Cx<'_>) -> Flow {
    let missing = cx.mask & !cx.warp.cluster_arrived;
    if missing != 0 {
        cx.report(rule::CLUSTER_BARRIER_ORDER, missing, |_, mut told| {
            told.message = "waits at the cluster barrier without having arrived".to_owned();
            told.help("before each `barrier.cluster.wait` comes one `barrier.cluster.arrive`")
        });
        return Flow::Next;
    }
    if cx.team.cluster_barrier.phase == cx.warp.cluster_phase {
        return cx.retry(Wait::ClusterBarrier);
    }
    let (lanes, live) = (cx.mask, cx.warp.live);
    cx.warp.cluster_arrived &= !lanes;
    if let Some(clock) = &cx.team.cluster_barrier.done {
        if lanes == live {
            cx.warp.clock.sync_lanes(lanes, live);
        }
        cx.warp.clock.acquire(clock, lanes, live);
    }
    if cx.warp.cluster_phase == 0 {
        // Whoever has arrived has started, with a release or without.
        cx.hear_of(0..cx.blocks.len() as u32);
    }
    Flow::Next
}

/// `mapa`: the same place in a peer's shared memory; `getctarank`: whose it is.
pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let shared = mods.has("shared::cluster");
    let ty = mods.ty().unwrap_or(ScalarType::U64);
    if i.opcode.base() == "getctarank" {
        let o = operands(d, i, 2)?;
        let (source, rows) = address_source(d, &o[1], ty)?;
        let target = d.dst(&o[0], ScalarType::U32)?;
        let instr = with(move |cx| {
            let ranks = read(cx, source, rows).map(|address| {
                let offset = if shared {
                    address
                } else {
                    Window::of(address).1
                };
                SharedPlace::of(offset as u32).rank
            });
            cx.write(target, &ranks);
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    let o = operands(d, i, 3)?;
    let (source, rows) = address_source(d, &o[1], ty)?;
    let rank = d.src(&o[2], ScalarType::U32)?;
    let target = d.dst(&o[0], ty)?;
    let target_rows = rows_of(ty);
    let instr = with(move |cx| {
        let addresses = read(cx, source, rows);
        let ranks = *cx.row(rank);
        let start = if shared { 0 } else { SHARED };
        let mapped: [u64; LANES] = std::array::from_fn(|lane| {
            let place = SharedPlace::of(addresses[lane].wrapping_sub(start) as u32);
            start + u64::from(place.in_block(ranks[lane]).address())
        });
        crate::decode::qualifier::write_bits(cx, target, target_rows, &mapped);
        Flow::Next
    });
    d.emit(instr, Cost::ALU);
    Ok(())
}

/// A register with an address, or a variable's own.
#[derive(Clone, Copy)]
enum AddressSource {
    Register(crate::code::Slot),
    Named(crate::decode::address::Addr),
}

fn address_source(
    d: &mut Decoder<'_>,
    operand: &heist_ptx::Operand,
    ty: ScalarType,
) -> Decoded<(AddressSource, u32)> {
    if let heist_ptx::Operand::Name(name) = operand
        && let Some(crate::decode::names::Named::Memory(_)) = d.find(name)
    {
        return Ok((AddressSource::Named(d.named_address(name, 0)?), rows_of(ty)));
    }
    let (slot, rows) = d.src_any(operand, ty)?;
    Ok((AddressSource::Register(slot), rows))
}

fn read(cx: &Cx<'_>, source: AddressSource, rows: u32) -> [u64; LANES] {
    match source {
        AddressSource::Register(slot) => crate::decode::qualifier::read_bits(cx, slot, rows),
        AddressSource::Named(addr) => addr.eval(cx),
    }
}
