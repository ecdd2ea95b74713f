//! Instructions without visible effect for a kernel that runs alone: cache policies, prefetches,
//! and the order of grids. And `discard`, which is a write of nothing in particular.

use crate::access::context::Cx;
use crate::access::group::{Does, Group, groups};
use crate::access::look::watch;
use crate::code::Flow;
use crate::decode::map::with;
use crate::decode::mods::Mods;
use crate::decode::qualifier::{settle_window, window_of};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each};
use crate::race::access::AccessKind;
use heist_ptx::{Instruction, ScalarType, rule};

/// Bytes that a `discard` names.
const LINE: u64 = 128;

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if i.opcode.base() == "createpolicy" {
        let Some(operand) = i.operands.first() else {
            crate::decode::mods::operands(d, i, 2)?;
            return Ok(());
        };
        let target = d.dst(operand, ScalarType::B64)?;
        // The contents of a policy are opaque.
        let instr = with(move |cx| {
            cx.write(target, &[0u64; LANES]);
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
    } else if i.opcode.base() == "discard" {
        let Some(operand) = i.operands.first() else {
            crate::decode::mods::operands(d, i, 2)?;
            return Ok(());
        };
        let mut addr = d.address(operand)?;
        let window = settle_window(window_of(d, mods), &mut addr);
        let instr = with(move |cx| {
            let addresses = addr.eval(cx);
            let first = addresses[crate::lanes::first(cx.mask)];
            if !first.is_multiple_of(LINE) {
                cx.report(rule::MISALIGNED, cx.mask, |_, mut told| {
                    told.message = format!(
                        "discards the line at address {first:#x}, which is not a multiple of {LINE}"
                    );
                    told
                });
                return Flow::Next;
            }
            for at in (0..LINE).step_by(16) {
                let part = addresses.map(|address| address.wrapping_add(at));
                groups(cx, window, &part, 16, Does::Writes, discard);
            }
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
    } else {
        // For `griddepcontrol`: no grid comes before this one, and none after it.
        d.emit(with(|_| Flow::Next), Cost::ALU);
    }
    Ok(())
}

/// What was written to some bytes is gone.
fn discard(cx: &mut Cx<'_>, group: &Group) {
    watch(cx, group, false, Does::Writes, AccessKind::Plain);
    if let Some(region) = cx.region(group.home) {
        for lane in each(group.mask) {
            region.unmark(group.offsets[lane], group.size as usize);
        }
    }
}
