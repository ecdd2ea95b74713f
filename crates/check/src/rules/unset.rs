//! Registers that are read before anything can have set them.

use crate::Context;
use heist_ptx::{Diagnostic, FunctionKind, rule};

/// M013: a read that every write of the register comes behind. Reads that only some ways
/// reach without a write are left to a run: compilers make them, and guard what they
/// compute. So are moves, of which nothing may come, and accumulators of `wgmma`, which
/// starts them by itself.
pub(super) fn reads(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    // The parameters of a function are registers that its caller sets.
    if cx.function().kind != FunctionKind::Entry {
        return;
    }
    let flow = cx.flow;
    let mut told = vec![false; flow.registers];
    for (at, op) in flow.reachable_ops() {
        if op.is("mov") || op.is("wgmma") {
            continue;
        }
        for &register in &op.roles.reads {
            let set_later = |&writer: &usize| writer == at || flow.graph.dominates(at, writer);
            if told[register.index()] || !flow.writers(register).iter().all(set_later) {
                continue;
            }
            told[register.index()] = true;
            let name = op.roles.name_of(register).unwrap_or("?");
            out.push(
                Diagnostic::warning(
                    rule::REGISTER_UNWRITTEN,
                    op.span(),
                    format!("uses register `{name}`, which nothing has set before"),
                )
                .help("set it first: a register has no first value"),
            );
        }
    }
}
