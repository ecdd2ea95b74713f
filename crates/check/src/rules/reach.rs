//! Code that can never run.

use crate::Context;
use crate::flow::BlockId;
use heist_ptx::isa::Control;
use heist_ptx::{Diagnostic, rule};

/// X019: unreachable instructions. Not reported: a lone `ret`, `exit`, `trap` or jump, which
/// compilers leave after an endless loop or a call that never returns, code after a trap, and
/// blocks that compute and do nothing with it, which they leave behind an `exit` of inline assembly.
pub(super) fn dead_code(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let worth_a_word = |&at: &usize| !cx.flow.ops[at].control().leaves();
    let dead: Vec<usize> = cx
        .flow
        .graph
        .unreachable_blocks()
        .filter(|&block| !follows_a_trap(cx, block) && has_effect(cx, block))
        .flat_map(|block| cx.flow.graph.range(block))
        .filter(worth_a_word)
        .collect();
    let Some(&first) = dead.first() else { return };
    let count = dead.len();
    out.push(
        Diagnostic::warning(
            rule::UNREACHABLE,
            cx.flow.ops[first].span(),
            format!(
                "{count} instruction{} of `{}` can never run",
                if count == 1 { "" } else { "s" },
                cx.function().name
            ),
        )
        .label("the first of them")
        .help("remove them, or mend the branch that should lead here"),
    );
}

fn follows_a_trap(cx: &Context<'_, '_>, block: BlockId) -> bool {
    let start = cx.flow.graph.range(block).start;
    start > 0 && cx.flow.ops[start - 1].control() == Control::Trap
}

/// Whether a block has an instruction that does more than to set registers from others.
fn has_effect(cx: &Context<'_, '_>, block: BlockId) -> bool {
    let mut ops = cx.flow.graph.range(block).map(|at| &cx.flow.ops[at]);
    ops.any(|op| {
        let pure = op.row.is_some_and(|row| row.value.is_pure());
        !pure && !op.control().leaves()
    })
}
