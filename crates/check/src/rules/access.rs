//! Addresses that can't be right, whatever the launch.

use crate::Context;
use crate::flow::Op;
use heist_ptx::isa::{Family, lanes_of};
use heist_ptx::{Constant, Diagnostic, Operand, ScalarType, rule};

/// M007: an address that is never aligned as its access requires.
pub(super) fn alignment(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    for (_, op) in cx.flow.reachable_ops() {
        let Some(bytes) = needed_alignment(op) else {
            continue;
        };
        for operand in &op.instruction.operands {
            let Operand::Address(address) = operand else {
                continue;
            };
            let known = cx.facts.address(cx.flow, op, operand).congruence;
            let modulus = known.modulus.min(bytes);
            let off = known.residue & (modulus - 1);
            if off == 0 {
                continue;
            }
            let remedy = if address.offset as u64 & (bytes - 1) != 0 {
                format!(
                    "the offset {} is no multiple of {bytes}: pad rows to a multiple of {bytes} \
                     bytes, or use a narrower access",
                    address.offset
                )
            } else {
                format!(
                    "align the variable with `.align {bytes}`, and step through it in multiples of \
                     {bytes} bytes"
                )
            };
            out.push(
                Diagnostic::error(
                    rule::MISALIGNED,
                    op.span(),
                    format!(
                        "this address is never a multiple of {bytes}, as `{}` needs",
                        op.instruction.opcode
                    ),
                )
                .note(format!(
                    "it is always {off} more than a multiple of {modulus}"
                ))
                .help(remedy),
            );
            break;
        }
    }
}

/// How many bytes an access's address must be a multiple of.
fn needed_alignment(op: &Op<'_>) -> Option<u64> {
    let opcode = &op.instruction.opcode;
    let element = || -> Option<u64> {
        let ty: ScalarType = opcode.modifiers().rev().find_map(|m| m.parse().ok())?;
        Some(u64::from(ty.bytes()))
    };
    let other = |modifier: &&str| opcode.has(modifier);
    match op.row?.family {
        Family::Load | Family::Store => {
            if ["param", "async", "bulk"].iter().any(other) {
                return None;
            }
            Some(element()? * u64::from(lanes_of(opcode).unwrap_or(1)))
        }
        Family::Atomic if !opcode.has("async") => element(),
        Family::Copy if op.is("cp.async.ca") || op.is("cp.async.cg") => {
            match op.instruction.operands.get(2) {
                Some(Operand::Constant(Constant::Int(size))) => {
                    Some(size.magnitude).filter(|size| size.is_power_of_two())
                }
                _ => None,
            }
        }
        _ => None,
    }
}
