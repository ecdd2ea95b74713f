//! Whether the blocks of a kernel can communicate.
//!
//! Where they can't, the result of a block does not depend on when it runs or next to which others:
//! a plain access to memory that another block also uses is either a read of memory that nobody
//! writes, or a race. The list has the instructions that stay within their block; any other counts
//! as communication.

use heist_ptx::{Constant, Function, Instruction, Operand, Statement};

/// Whether a function communicates beyond its block only by plain loads and stores. Accesses with
/// an order are left to their [`crate::code::Reach`].
pub(crate) fn is_isolated(function: &Function) -> bool {
    function.body.iter().flatten().all(keeps_to_itself)
}

/// Whether a function has operations of the asynchronous proxy: they are ordered with
/// plain accesses by fences of their own, and not by barriers.
pub(crate) fn is_asynchronous(function: &Function) -> bool {
    function.body.iter().flatten().any(goes_by_proxy)
}

/// Whether lanes of a warp may synchronise without the others: an instruction's mask is not that of all.
pub(crate) fn syncs_in_parts(function: &Function) -> bool {
    function.body.iter().flatten().any(names_lanes)
}

fn names_lanes(statement: &Statement) -> bool {
    match statement {
        Statement::Instruction(i) => {
            let collective = match i.opcode.base() {
                "shfl" | "vote" | "match" | "redux" | "elect" => i.opcode.has("sync"),
                "bar" | "barrier" => i.opcode.has("warp"),
                _ => false,
            };
            let all = |operand: &Operand| matches!(operand, Operand::Constant(Constant::Int(mask)) if mask.bits() as u32 == u32::MAX);
            collective && !i.operands.last().is_some_and(all)
        }
        Statement::Block(inner) => inner.iter().any(names_lanes),
        _ => false,
    }
}

fn goes_by_proxy(statement: &Statement) -> bool {
    match statement {
        Statement::Instruction(i) => {
            let row = i.opcode.row();
            row.is_some_and(|row| row.is_asynchronous(&i.opcode))
        }
        Statement::Block(inner) => inner.iter().any(goes_by_proxy),
        _ => false,
    }
}

fn keeps_to_itself(statement: &Statement) -> bool {
    match statement {
        Statement::Instruction(instruction) => is_inward(instruction),
        Statement::Block(inner) => inner.iter().all(keeps_to_itself),
        _ => true,
    }
}

fn is_inward(i: &Instruction) -> bool {
    let known = i.opcode.row().is_some_and(|row| row.stays_in_block);
    let apart = !i
        .opcode
        .modifiers()
        .any(|text| matches!(text, "cluster" | "async" | "bulk"));
    known && apart && !i.operands.iter().any(tells_place_or_time)
}

/// Whether an operand is a special register that depends on when or where the
/// block runs.
fn tells_place_or_time(operand: &Operand) -> bool {
    let tells = |name: &str| {
        ["%clock", "%globaltimer", "%smid", "%warpid", "%pm"]
            .iter()
            .any(|known| name.starts_with(known))
    };
    match operand {
        Operand::Name(name) | Operand::Part { name, .. } => tells(name),
        Operand::Vector(list) | Operand::Tuple(list) => list.iter().any(tells_place_or_time),
        Operand::Pair(pair) => tells_place_or_time(&pair.0) || tells_place_or_time(&pair.1),
        _ => false,
    }
}
