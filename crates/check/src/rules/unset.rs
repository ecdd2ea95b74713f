//! Reads of uninitialised registers.

use crate::Context;
use heist_ptx::{Diagnostic, FunctionKind, rule};

/// M013: a read before every write of the register. Reads that only some paths reach without a
/// write are left to a run: compilers make them, and guard their use. So are moves and
/// permutations of bytes, which may not use it, conversions of pairs, of which a half may be dropped,
/// and accumulators of `wgmma`, which can start at zero.
pub(super) fn reads(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    // The parameters of a function are registers that its caller sets.
    if cx.function().kind != FunctionKind::Entry {
        return;
    }
    let flow = cx.flow;
    let mut told = vec![false; flow.registers];
    for (at, op) in flow.reachable_ops() {
        let of_pair = op.is("cvt") && op.roles.reads.len() > 1;
        if of_pair || ["mov", "prmt", "wgmma"].iter().any(|name| op.is(name)) {
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
