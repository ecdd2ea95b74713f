//! `st.async` and `red.async`: words for a peer, counted at its mbarrier.

use super::transfer::{bitwise, reduce_into};
use crate::access::context::Cx;
use crate::access::delivery::Delivery;
use crate::access::flight;
use crate::access::group::Does;
use crate::code::{Flow, Reach};
use crate::decode::map::with;
use crate::decode::mods::{Mods, operands};
use crate::decode::qualifier::read_bits;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each};
use crate::ops::mbarrier::check_use;
use crate::ops::memory::reduction::{op_of, type_of};
use crate::race::access::AccessKind;
use crate::state::flight::{Flight, What};
use crate::state::mbarrier::Sender;
use crate::state::users::Part;
use heist_arith::atomic::{Op, Subnormals, Type};
use heist_ptx::{Instruction, Operand, rule};

/// `st.async` and `red.async`: a word or a few to a peer, counted at its mbarrier.
pub(crate) fn decode_remote(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = operands(d, i, 3)?;
    let Some(ty) = mods.ty() else {
        return Err(d.wrong(rule::MISSING_MODIFIER, "st.async names its type"));
    };
    let addr = d.address(&o[0])?;
    let barrier = d.address(&o[2])?;
    let mut sources = Vec::new();
    match &o[1] {
        Operand::Vector(list) => {
            for operand in list {
                sources.push(d.src_any(operand, ty)?);
            }
        }
        one => sources.push(d.src_any(one, ty)?),
    }
    let reduce = if i.opcode.base() == "red" {
        match (op_of(mods), type_of(ty)) {
            (Some(op), Some(ty)) => Some((op, bitwise(op, ty))),
            _ => return Err(d.unsupported(i, "there is no such reduction")),
        }
    } else {
        None
    };
    let size = ty.bytes() as usize;
    let instr = with(move |cx| {
        let (addresses, barriers) = (addr.eval(cx), barrier.eval(cx));
        let values: Vec<[u64; LANES]> = sources
            .iter()
            .map(|&(slot, rows)| read_bits(cx, slot, rows))
            .collect();
        for lane in each(cx.mask) {
            let mut data = Vec::new();
            for value in &values {
                data.extend_from_slice(&value[lane].to_le_bytes()[..size]);
            }
            send(cx, lane, (addresses[lane], barriers[lane]), data, reduce);
        }
        cx.team.progress += 1;
        Flow::Next
    });
    d.emit_reaching(instr, Cost::new(4, 0), Reach::Cluster);
    Ok(())
}

/// Sends some bytes of a lane on their way.
fn send(
    cx: &mut Cx<'_>,
    lane: usize,
    (address, barrier): (u64, u64),
    data: Vec<u8>,
    reduce: Option<(Op, Type)>,
) {
    let (Some((rank, offset)), Some((barrier_rank, barrier))) = (
        cx.shared_place(lane, address),
        cx.shared_place(lane, barrier),
    ) else {
        return;
    };
    let len = data.len() as u64;
    if !u64::from(offset).is_multiple_of(len) {
        cx.report(rule::MISALIGNED, 1 << lane, |_, mut told| {
            told.message =
                format!("writes {len} bytes at {offset:#x}, which is not a multiple of {len}");
            told
        });
        return;
    }
    if !cx.is_in_shared(lane, rank, offset, len, Does::Writes)
        || !check_use(cx, lane, (barrier_rank, barrier), Part::Counts)
    {
        return;
    }
    let pc = cx.pc();
    let (start, end) = (u64::from(offset), u64::from(offset) + len);
    cx.check_target(lane, rank, start..end, reduce.is_some(), false);
    let id = cx.team.new_flight();
    cx.blocks[rank as usize].flights.push(Flight {
        id,
        what: What::Bulk,
        write: true,
        reduces: reduce.is_some(),
        start,
        end,
        pc,
        agent: cx.warp.clock.agent,
        lane: lane as u8,
    });
    // What the thread does from here on is not told by the completion.
    let clock = cx.warp.clock.release(1 << lane, cx.warp.live);
    let sender = Sender {
        what: What::Bulk,
        pc,
        own: barrier_rank == cx.warp.rank,
    };
    let delivery = Delivery::new(cx.blocks, sender, barrier_rank, barrier, len as u32);
    let time = cx.now() + 300 + cx.machine.held_up();
    cx.team.after(time, move |happening| {
        let stamp = happening.blocks[barrier_rank as usize]
            .mbarriers
            .get(barrier)
            .map(|barrier| barrier.stamp_from(sender.own));
        let block = &mut happening.blocks[rank as usize];
        block.flights.land(id);
        let region = &mut block.shared;
        match reduce {
            None => region.write_bytes(start, &data),
            Some((op, ty)) => reduce_into(region, start, &data, op, ty, Subnormals::Kept),
        }
        if let Some(stamp) = stamp {
            flight::written(region, start..end, AccessKind::Delivered, stamp, pc);
        }
        delivery.arrive(happening, Some(&clock));
    });
}
