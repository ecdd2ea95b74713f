//! Cluster launch control: asking for a cluster that is not launched yet.
//!
//! A request takes the next cluster out of the pool, or is refused, at the moment
//! it is made; the answer arrives about a microsecond later, through the slot and
//! the mbarrier. Every rule about that protocol is checked here.

use super::mbarrier::check_use;
use crate::access::context::Cx;
use crate::access::delivery::Delivery;
use crate::access::flight;
use crate::access::group::Home;
use crate::code::{Flow, Reach, Slot};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::{Mods, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each, map1};
use crate::race::access::AccessKind;
use crate::race::clock::Behind;
use crate::special::Axis;
use crate::state::control::{Grant, Request};
use crate::state::flight::{Flight, What};
use crate::state::mbarrier::{Mbarrier, Sender};
use crate::state::memory::window::{SharedPlace, Window};
use crate::state::team::Happening;
use crate::state::users::Part;
use heist_launch::{Decision, DecisionKind, Dim3, Time};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// Nanoseconds from a request to its answer.
const ROUND_TRIP_NS: u64 = 1000;

/// The word that marks an answer; the lowest bit says whether it is a grant.
const TAG: u32 = 0xc1c0_5a00;

/// An answer as it lies in its slot. The layout is this simulator's own: programs
/// must not look inside.
fn encode(granted: Option<Dim3>) -> u128 {
    let (at, flag) = match granted {
        Some(at) => (at, 1),
        None => (Dim3::new(0x00de_ad00, 0x00de_ad00, 0x00de_ad00), 0),
    };
    u128::from(at.x)
        | u128::from(at.y) << 32
        | u128::from(at.z) << 64
        | u128::from(TAG | flag) << 96
}

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("try_cancel") {
        let o = operands(d, i, 2)?;
        let (slot, barrier) = (d.address(&o[0])?, d.address(&o[1])?);
        let multicast = mods.has("multicast::cluster::all");
        let instr = with(move |cx| submit(cx, slot, barrier, multicast));
        d.emit_reaching(instr, Cost::new(8, 0), Reach::Device);
        return Ok(());
    }
    let o = operands(d, i, 2)?;
    let response = d.src(&o[1], ScalarType::B128)?;
    if mods.has("is_canceled") {
        let Some(target) = d.pred_dst(&o[0])? else {
            return Ok(());
        };
        let instr = with(move |cx| {
            let words = cx.read::<u128>(response);
            let mut granted = 0;
            for lane in each(cx.mask) {
                let tag = (words[lane] >> 96) as u32;
                granted |= u32::from(tag == TAG | 1) << lane;
                if tag == TAG {
                    cx.team.control.refusal_seen |= 1 << cx.warp.rank;
                }
            }
            cx.set_pred(target, granted);
            Flow::Next
        });
        d.emit_reaching(instr, Cost::new(2, 8), Reach::Cluster);
        return Ok(());
    }
    let mut targets: [Option<Slot>; 3] = [None; 3];
    match &o[0] {
        Operand::Vector(parts) => {
            for (target, part) in targets.iter_mut().zip(parts) {
                *target = match part {
                    Operand::Sink => None,
                    part => Some(d.dst(part, ScalarType::B32)?),
                };
            }
        }
        one => {
            let axis = [
                "get_first_ctaid::x",
                "get_first_ctaid::y",
                "get_first_ctaid::z",
            ]
            .iter()
            .position(|name| mods.has(name));
            let Some(axis) = axis else {
                return Err(d.unsupported(i, "query_cancel has no such question"));
            };
            targets[axis] = Some(d.dst(one, ScalarType::B32)?);
        }
    }
    for (axis, target) in [Axis::X, Axis::Y, Axis::Z].into_iter().zip(targets) {
        d.trail
            .first
            .extend(target.map(|target| (axis, target.row())));
    }
    d.emit_reaching(
        with(move |cx| first_ctaid(cx, response, targets)),
        Cost::new(2, 8),
        Reach::Cluster,
    );
    Ok(())
}

fn first_ctaid(cx: &mut Cx<'_>, response: Slot, targets: [Option<Slot>; 3]) -> Flow {
    let words = cx.read::<u128>(response);
    let refused = each(cx.mask)
        .filter(|&lane| (words[lane] >> 96) as u32 != TAG | 1)
        .fold(0, |mask, lane| mask | 1 << lane);
    if refused != 0 {
        cx.report(rule::CLC_DECODE_REFUSED, refused, |_, mut told| {
            told.message =
                "decodes a block id from a response that grants none: the id is not defined"
                    .to_owned();
            told.help("ask `query_cancel.is_canceled` first, and decode only where it holds")
        });
    }
    let followed = cx.warp.decoding.is_some();
    let mut grants = [None; LANES];
    for lane in each(cx.mask & !refused) {
        let word = words[lane];
        let at = Dim3::new(word as u32, (word >> 32) as u32, (word >> 64) as u32);
        let mut known = cx.team.control.granted.iter_mut().enumerate();
        if let Some((number, grant)) = known.find(|(_, grant)| grant.first == at) {
            grant.decoded = true;
            // The use of an id that is not followed is unknown.
            grant.used |= !followed;
            grants[lane] = Some(number as u32);
        }
    }
    if followed {
        cx.warp.decoding = Some(Box::new(grants));
    }
    for (axis, target) in targets.into_iter().enumerate() {
        if let Some(target) = target {
            let out = map1(words, |word| (word >> (32 * axis)) as u32);
            cx.write(target, &out);
        }
    }
    Flow::Next
}

/// A place in the block's own shared memory, or why it is none.
fn own_place(cx: &Cx<'_>, address: u64, size: u32) -> Result<u32, &'static str> {
    let offset = if address >= 1 << 32 {
        match Window::of(address) {
            (Window::Shared, offset) => offset,
            _ => return Err("does not lie in shared memory"),
        }
    } else {
        address
    };
    let place = SharedPlace::of(offset as u32);
    if place.rank != cx.warp.rank && (place.rank as usize) < cx.blocks.len() {
        return Err("lies in a peer block's shared memory");
    }
    let outside = "lies outside the block's shared memory";
    let offset = place.within.checked_sub(cx.machine.shared_start);
    let offset = offset
        .filter(|_| place.rank == cx.warp.rank)
        .ok_or(outside)?;
    if u64::from(offset) + u64::from(size) > u64::from(cx.machine.shared_len) {
        return Err(outside);
    }
    Ok(offset)
}

fn submit(cx: &mut Cx<'_>, slot: Addr, barrier: Addr, multicast: bool) -> Flow {
    let (slots, barriers) = (slot.eval(cx), barrier.eval(cx));
    if cx.mask.count_ones() > 1 {
        let count = cx.mask.count_ones();
        cx.report(rule::CLC_NOT_ELECTED, cx.mask, |_, mut told| {
            told.message = format!("{count} threads of a warp submit a request each");
            told.help("each request takes a cluster and needs a slot and 16 bytes of its own: elect one thread")
        });
    }
    for lane in each(cx.mask) {
        request(cx, lane, slots[lane], barriers[lane], multicast);
    }
    cx.team.progress += 1;
    Flow::Next
}

fn request(cx: &mut Cx<'_>, lane: usize, slot: u64, barrier: u64, multicast: bool) {
    let (slot, barrier) = match (own_place(cx, slot, 16), own_place(cx, barrier, 8)) {
        (Ok(slot), Ok(barrier)) => (slot, barrier),
        (Err(why), _) | (_, Err(why)) => {
            cx.report(rule::CLC_SCOPE, 1 << lane, |_, mut told| {
                told.message = format!("the slot or the mbarrier of a request {why}");
                told.help("both lie in the submitting block's own shared memory, `.shared::cta`")
            });
            return;
        }
    };
    if !slot.is_multiple_of(16) {
        cx.report(rule::CLC_SLOT, 1 << lane, |_, mut told| {
            told.message =
                format!("the slot of a request is at {slot:#x}, which is not a multiple of 16");
            told.help("align it: `.shared .align 16 .b8 slot[16];`")
        });
        return;
    }
    if cx.team.control.refusal_seen & 1 << cx.warp.rank != 0 {
        cx.report(rule::CLC_AFTER_REFUSAL, 1 << lane, |_, mut told| {
            told.message = "submits a request after its block has seen a refusal".to_owned();
            told.help("a refusal ends it: run what was granted, and leave")
        });
    }
    let own = cx.warp.rank;
    let size = cx.blocks.len() as u32;
    if size > 1 && !multicast {
        cx.team.control.plain.get_or_insert(cx.fragment.pc);
    }
    if let Some(other) = cx
        .team
        .control
        .in_flight
        .iter()
        .find(|request| request.slot == slot && (request.rank == own || multicast))
        .copied()
    {
        cx.report(rule::CLC_SLOT_BUSY, 1 << lane, |cx, mut told| {
            told.message =
                format!("the slot at {slot:#x} still waits for the answer to another request");
            told.other(cx.code.span(other.pc), "that request was submitted here")
                .help("wait for the answer first, or give each request in flight a slot of its own")
        });
    }
    if !check_use(cx, lane, (own, barrier), Part::Counts) {
        return;
    }
    let targets: Vec<u32> = if multicast {
        (0..size).collect()
    } else {
        vec![own]
    };
    if multicast && !peers_are_there(cx, lane) {
        return;
    }
    for &rank in &targets {
        check_slot(cx, lane, rank, slot);
    }
    decide(cx, lane, slot, barrier, targets);
}

/// Whether every block of the cluster runs, as far as the submitter can know.
fn peers_are_there(cx: &mut Cx<'_>, lane: usize) -> bool {
    if let Some(gone) = cx.blocks.iter().position(|block| block.has_exited()) {
        cx.report(rule::CLC_PEER_EXITED, 1 << lane, |_, mut told| {
            told.message =
                format!("a multicast request when block rank {gone} of the cluster has exited");
            told.help("let the cluster meet before any of its blocks exits")
        });
        return false;
    }
    let unknown = (0..cx.blocks.len() as u32).find(|&rank| !cx.has_heard_of(rank, lane));
    if let Some(rank) = unknown {
        cx.report(rule::CLC_PEER_NOT_STARTED, 1 << lane, |_, mut told| {
            told.message = format!("a multicast request when block rank {rank} of the cluster may not have started");
            told.help("let the cluster meet once before the first request (`barrier.cluster.arrive` and `.wait`)")
        });
    }
    true
}

/// Whether everybody is done with what the slot held before.
fn check_slot(cx: &mut Cx<'_>, lane: usize, rank: u32, slot: u32) {
    if !cx.machine.options.checks.races {
        return;
    }
    let range = u64::from(slot)..u64::from(slot) + 16;
    let region = &mut cx.blocks[rank as usize].shared;
    let found = flight::unready(
        region,
        &cx.warp.clock,
        lane as u8,
        range,
        flight::Minds {
            reads: true,
            fence: Some(Behind::Shared),
            ordered: false,
            weak: false,
            but: &[],
        },
    );
    let Some(found) = found else { return };
    let them = cx.whom(found.agent, found.lane);
    let code = if found.known {
        rule::CLC_PROXY_FENCE
    } else {
        rule::CLC_SLOT_OVERWRITTEN
    };
    cx.report(code, 1 << lane, |cx, mut told| {
        let verb = if found.write { "wrote" } else { "read" };
        let place = crate::access::conflict::place(cx, Home::Shared(rank), u64::from(slot));
        told.message = if found.known {
            format!("asks for an answer at {place}, which {them} {verb} before without `fence.proxy.async` since")
        } else {
            format!("asks for an answer at {place}, and nothing says that {them} is done with the last one")
        };
        told.other(cx.code.span(found.pc), format!("{them} {verb} it here")).help(if found.known {
            "put `fence.proxy.async.shared::cta` between reading the answer and the next request"
        } else {
            "let every block arrive at an mbarrier of the leader after it has read the answer, and wait for that before the next request"
        })
    });
}

fn decide(cx: &mut Cx<'_>, lane: usize, slot: u32, barrier: u32, targets: Vec<u32>) {
    let refusals = u64::from(cx.machine.options.chaos.refusals);
    let spurious = refusals > 0 && cx.machine.rng.one_in(refusals);
    let granted = if spurious || cx.machine.yields {
        None
    } else {
        cx.machine.pool.take()
    };
    let size = cx.blocks.len() as u64;
    if granted.is_some() {
        cx.machine.options.meter.end(size);
    }
    let at = granted.map(|number| cx.machine.coordinates(u64::from(number) * size));
    let pc = cx.pc();
    let control = &mut cx.team.control;
    control.made += 1;
    let id = control.made;
    control.in_flight.push(Request {
        id,
        rank: cx.warp.rank,
        slot,
        pc,
    });
    if let Some(first) = at {
        control.granted.push(Grant {
            first,
            decoded: false,
            used: false,
            pc,
        });
    }
    let flight_id = 1 << 63 | id;
    let (agent, own) = (cx.warp.clock.agent, cx.warp.rank);
    for &rank in &targets {
        let block = &mut cx.blocks[rank as usize];
        block.flights.push(Flight {
            id: flight_id,
            what: What::Answer,
            write: true,
            reduces: false,
            start: u64::from(slot),
            end: u64::from(slot) + 16,
            pc,
            agent,
            lane: lane as u8,
        });
        if let Some(barrier) = block.mbarriers.get_mut(barrier) {
            barrier.control = true;
        }
    }
    let cycle_ps = cx.machine.device.cycle_ps();
    let now = cx.now();
    let block = cx.machine.launch.grid.linear(cx.blocks[own as usize].ctaid) as u32;
    cx.machine.decisions.push(Decision {
        block,
        at: Time((now + cx.team.offset) * cycle_ps),
        kind: DecisionKind::Requested,
    });
    let extra = cx.machine.held_up();
    let time = now + ROUND_TRIP_NS * 1000 / cycle_ps + extra;
    let targets = targets
        .into_iter()
        .map(|rank| {
            let sender = Sender {
                what: What::Answer,
                pc,
                own: rank == own,
            };
            let delivery = Delivery::new(cx.blocks, sender, rank, barrier, 16);
            (rank, delivery)
        })
        .collect();
    let answer = Answer {
        id,
        flight_id,
        block,
        slot,
        barrier,
        pc,
        targets,
        at,
    };
    cx.team
        .after(time, move |happening| answer.arrive(happening));
}

/// An answer in flight.
struct Answer {
    id: u64,
    flight_id: u64,
    block: u32,
    slot: u32,
    barrier: u32,
    pc: u32,
    /// The blocks that it goes to.
    targets: Vec<(u32, Delivery)>,
    at: Option<Dim3>,
}

impl Answer {
    fn arrive(self, happening: &mut Happening<'_>) {
        let time = happening.time;
        happening
            .team
            .control
            .in_flight
            .retain(|request| request.id != self.id);
        let cycle_ps = happening.machine.device.cycle_ps();
        happening.machine.decisions.push(Decision {
            block: self.block,
            at: Time((time + happening.team.offset) * cycle_ps),
            kind: if self.at.is_some() {
                DecisionKind::Granted
            } else {
                DecisionKind::Refused
            },
        });
        for (rank, delivery) in self.targets {
            let block = &mut happening.blocks[rank as usize];
            block.flights.land(self.flight_id);
            if !happening.team.control.slots.contains(&(rank, self.slot)) {
                happening.team.control.slots.push((rank, self.slot));
            }
            if block.has_exited() {
                continue;
            }
            let stamp = block.mbarriers.get(self.barrier).map(Mbarrier::stamp);
            block
                .shared
                .write(u64::from(self.slot), 16, encode(self.at));
            let Some(stamp) = stamp else {
                happening.report(rule::CLC_PEER_UNARMED, self.pc, format!(
                    "the answer of a multicast request comes to block rank {rank}, which has no mbarrier at {:#x}",
                    self.barrier
                ), "every block of the cluster initialises and arms its own mbarrier, and waits at it");
                continue;
            };
            let slot = u64::from(self.slot);
            let shared = &mut block.shared;
            flight::written(shared, slot..slot + 16, AccessKind::Async, stamp, self.pc);
            delivery.arrive(happening, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whether_it_is_a_grant() {
        let grant = encode(Some(Dim3::new(7, 8, 9)));
        assert_eq!((grant >> 96) as u32, TAG | 1);
        assert_eq!((grant >> 32) as u32, 8);
        assert_eq!((encode(None) >> 96) as u32, TAG);
    }
}
