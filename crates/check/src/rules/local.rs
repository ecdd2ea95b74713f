//! Local memory against the architecture.

use crate::Context;
use heist_ptx::{Diagnostic, Space, Statement, Variable, rule};

/// X027: the local variables of a function, which every thread has for itself.
pub(super) fn size(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let (Some(arch), Some(body)) = (cx.arch, &cx.function().body) else {
        return;
    };
    let mut variables = Vec::new();
    collect(body, &mut variables);
    // As many as it has, and no fewer than it is aligned to.
    let bytes = |variable: &Variable| variable.size().unwrap_or(0).max(variable.alignment());
    let total = variables
        .iter()
        .map(|variable| bytes(variable))
        .fold(0, u64::saturating_add);
    let limit = arch.limits().local_bytes;
    let Some(largest) = variables.iter().max_by_key(|variable| bytes(variable)) else {
        return;
    };
    if total <= u64::from(limit) {
        return;
    }
    out.push(
        Diagnostic::error(
            rule::LOCAL_LIMIT,
            largest.span,
            format!(
                "`{}` keeps {total} bytes of local memory for each thread; {} allows {limit}",
                cx.function().name,
                arch.name()
            ),
        )
        .label("the largest of them")
        .help("keep large arrays in global memory, a slice for each thread, or let the block share one"),
    );
}

fn collect<'b>(statements: &'b [Statement], into: &mut Vec<&'b Variable>) {
    for statement in statements {
        match statement {
            Statement::Variable(variable) if variable.space == Space::Local => into.push(variable),
            Statement::Block(inner) => collect(inner, into),
            _ => {}
        }
    }
}
