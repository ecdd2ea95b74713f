//! Divergence analysis: which predicates can differ between the lanes of one warp.
//!
//! A value is *laned* when it is computed from `%laneid` or `%tid.x` in a way
//! that keeps their low five bits. Asking whether `%tid.x` is below a multiple of 32
//! splits a block between warps, not a warp, and is not laned. Values from memory are unknown and
//! count as not laned: rules that use this must have no false positives.

use crate::flow::{Flow, Op, Register};
use heist_ptx::isa::{Unit, Value};
use heist_ptx::{Constant, Operand, Part};

/// The lanedness of every register of a function.
pub(crate) struct Uniformity {
    laned: Vec<bool>,
}

impl Uniformity {
    pub(crate) fn of(flow: &Flow<'_>) -> Uniformity {
        let mut uniformity = Uniformity {
            laned: vec![false; flow.registers],
        };
        // The instructions to visit again when a register turns out to be laned.
        let mut readers = vec![Vec::new(); flow.registers];
        for (at, op) in flow.ops.iter().enumerate() {
            for read in &op.roles.reads {
                readers[read.index()].push(at);
            }
        }
        let mut open: Vec<usize> = (0..flow.ops.len()).rev().collect();
        while let Some(at) = open.pop() {
            let op = &flow.ops[at];
            if !uniformity.makes_laned(op) {
                continue;
            }
            for written in &op.roles.writes {
                if !std::mem::replace(&mut uniformity.laned[written.index()], true) {
                    open.extend(&readers[written.index()]);
                }
            }
        }
        uniformity
    }

    /// Whether a warp can diverge at the guard of instruction `at`.
    pub(crate) fn guard_is_laned(&self, flow: &Flow<'_>, at: usize) -> bool {
        let Some(guard) = flow.ops[at].roles.guard else {
            return false;
        };
        self.is_laned(guard)
            && flow
                .definitions(guard, at)
                .into_iter()
                .any(|writer| self.makes_laned(&flow.ops[writer]))
    }

    fn is_laned(&self, register: Register) -> bool {
        self.laned[register.index()]
    }

    fn makes_laned(&self, op: &Op<'_>) -> bool {
        let opcode = &op.instruction.opcode;
        let laned_input = op.roles.reads.iter().any(|&read| self.is_laned(read));
        let Some(row) = op.row else {
            return laned_input;
        };
        match row.value {
            Value::Elected => return true,
            // A vote gives all lanes the same, and what comes from memory is not known.
            Value::Agreed | Value::Elsewhere => return false,
            _ if row.unit == Unit::Tensor => return false,
            _ => {}
        }
        if row.reads_special && op.instruction.operands.iter().skip(1).any(names_a_lane) {
            return true;
        }
        match opcode.base() {
            "shr" => laned_input && constant(op, 2).is_none_or(|by| by < 5),
            "and" => laned_input && constant(op, 2).is_none_or(|mask| mask & 31 != 0),
            // From the fifth bit on, as compilers take the warp's number apart.
            "bfe" => laned_input && constant(op, 2).is_none_or(|from| from < 5),
            "div" => laned_input && constant(op, 2).is_none_or(|by| by % 32 != 0),
            "setp" => laned_input && constant(op, 2).is_none_or(|with| splits_a_warp(op, with)),
            // A broadcast gives all lanes the same.
            "shfl" => laned_input && !opcode.has("idx"),
            _ => laned_input,
        }
    }
}

/// Whether a comparison with a constant can part the lanes of one warp. Compilers write `x >= 64`
/// as `x > 63`, too.
fn splits_a_warp(op: &Op<'_>, with: u64) -> bool {
    let is = |names: [&str; 4]| names.iter().any(|name| op.has(name));
    match with % 32 {
        0 => !is(["lt", "ge", "lo", "hs"]),
        31 => !is(["gt", "le", "hi", "ls"]),
        _ => true,
    }
}

fn names_a_lane(operand: &Operand) -> bool {
    match operand {
        Operand::Name(name) => name == "%laneid" || name.starts_with("%lanemask"),
        // A row of a block may be whole warps: what its number parts is told by a run.
        Operand::Part { name, part } => name == "%tid" && *part == Part::X,
        _ => false,
    }
}

fn constant(op: &Op<'_>, at: usize) -> Option<u64> {
    match op.instruction.operands.get(at) {
        Some(Operand::Constant(Constant::Int(int))) => Some(int.bits()),
        _ => None,
    }
}
