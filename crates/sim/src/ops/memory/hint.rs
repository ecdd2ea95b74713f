//! Instructions without visible effect for a kernel that runs alone: cache policies, prefetches,
//! and the order of grids.

use crate::code::Flow;
use crate::decode::map::with;
use crate::decode::mods::Mods;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::LANES;
use heist_ptx::{Instruction, ScalarType};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, _: &Mods<'_>) -> Decoded<()> {
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
    } else {
        // For `griddepcontrol`: no grid comes before this one, and none after it.
        d.emit(with(|_| Flow::Next), Cost::ALU);
    }
    Ok(())
}
