//! `alloca`, `stacksave` and `stackrestore`: local memory of a size known late.
//!
//! What `alloca` gives lies behind everything that frames of functions can take, so
//! a lane's stack of allocations does not move when a function is called. It is
//! given back by `stackrestore`, or when the thread ends.

use crate::access::context::Cx;
use crate::code::Flow;
use crate::decode::mods::{Mods, operands};
use crate::decode::qualifier::{read_bits, write_bits};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each};
use heist_ptx::{Instruction, ScalarType, rule};

/// Where allocations begin at the earliest.
const LEAST_START: u32 = 1 << 16;

/// The first address that no frame reaches, short of deep recursion.
fn start(cx: &Cx<'_>) -> u32 {
    let frames = cx
        .code
        .functions
        .iter()
        .fold(0u32, |sum, function| sum.saturating_add(function.frame));
    frames.saturating_mul(4).max(LEAST_START)
}

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let ty = mods.ty().unwrap_or(ScalarType::U64);
    match i.opcode.base() {
        "stacksave" => {
            let o = operands(d, i, 1)?;
            let (target, rows) = d.dst_any(&o[0], ty)?;
            let instr = crate::decode::map::with(move |cx| {
                let start = start(cx);
                let tops = cx.warp.stack.map(|top| u64::from(top.max(start)));
                write_bits(cx, target, rows, &tops);
                Flow::Next
            });
            d.emit(instr, Cost::ALU);
        }
        "stackrestore" => {
            let o = operands(d, i, 1)?;
            let (source, rows) = d.src_any(&o[0], ty)?;
            let instr = crate::decode::map::with(move |cx| {
                let tops = read_bits(cx, source, rows);
                let start = u64::from(start(cx));
                for lane in each(cx.mask) {
                    let top = cx.warp.stack[lane];
                    // A mark that was not saved here would give memory back twice.
                    cx.warp.stack[lane] = tops[lane].clamp(start, u64::from(top).max(start)) as u32;
                }
                Flow::Next
            });
            d.emit(instr, Cost::ALU);
        }
        _ => allocate(d, i, ty)?,
    }
    Ok(())
}

fn allocate(d: &mut Decoder<'_>, i: &Instruction, ty: ScalarType) -> Decoded<()> {
    let align = i.operands.get(2);
    let o = operands(d, i, 2 + usize::from(align.is_some()))?;
    let align = match align {
        None => 8,
        Some(operand) => match d.immediate(operand) {
            Some(align) if align.is_power_of_two() && align <= 1 << 23 => align,
            _ => {
                return Err(d.wrong(
                    rule::IMMEDIATE_RANGE,
                    "the alignment is a power of two up to 2^23",
                ));
            }
        },
    };
    let (size, rows) = d.src_any(&o[1], ty)?;
    let (target, target_rows) = d.dst_any(&o[0], ty)?;
    let instr = crate::decode::map::with(move |cx| {
        let sizes = read_bits(cx, size, rows);
        let start = start(cx);
        let limit = u64::from(cx.machine.device.gpu().arch.limits().local_bytes);
        let mut out = [0; LANES];
        let mut most = 0;
        for lane in each(cx.mask) {
            let top = u64::from(cx.warp.stack[lane].max(start));
            let at = top.next_multiple_of(align);
            let end = at.saturating_add(sizes[lane]);
            if end > limit {
                let size = sizes[lane];
                cx.report(rule::LOCAL_OUT_OF_BOUNDS, 1 << lane, |_, mut told| {
                    told.message = format!("`alloca` of {size} bytes, past the {limit} bytes of local memory that a thread can have");
                    told.help("bound the size, or give memory back with `stackrestore` in a loop")
                });
                cx.machine.stopped = true;
                return Flow::Stop;
            }
            out[lane] = at;
            cx.warp.stack[lane] = end as u32;
            most = most.max(end as u32);
        }
        cx.warp.local.grow(most);
        write_bits(cx, target, target_rows, &out);
        Flow::Next
    });
    d.emit(instr, Cost::WIDE);
    Ok(())
}
