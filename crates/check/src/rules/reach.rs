//! Code that can never run.

use crate::Context;
use heist_ptx::{Diagnostic, rule};

/// X019: instructions that no way leads to. Lone `ret`, `exit`, `trap` and jumps
/// are what compilers leave behind an endless loop or a call that never
/// returns; they are not worth a word.
pub(super) fn dead_code(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let worth_a_word = |&at: &usize| {
        !matches!(
            cx.flow.ops[at].instruction.opcode.base(),
            "ret" | "exit" | "trap" | "bra"
        )
    };
    let dead: Vec<usize> = cx
        .flow
        .graph
        .unreachable_blocks()
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
