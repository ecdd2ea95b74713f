//! Barriers that a part of a warp can miss.

use crate::Context;
use crate::flow::{BlockId, Op};
use heist_ptx::isa::Control;
use heist_ptx::{Diagnostic, Severity, rule};

/// B001: an aligned barrier where a warp can be divergent.
pub(super) fn divergent(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let barriers = cx.all(is_aligned_barrier);
    if barriers.is_empty() {
        return;
    }
    // Barriers that are not reported yet, and a cache of blocks without a barrier up to the
    // reconvergence point: kernels have thousands of branches to one end.
    let mut open = vec![false; cx.flow.ops.len()];
    let mut closed: Vec<Option<Option<BlockId>>> = vec![None; cx.flow.graph.blocks()];
    barriers.iter().for_each(|&at| open[at] = true);
    for &at in &barriers {
        if cx.uniformity.guard_is_laned(cx.flow, at) {
            open[at] = false;
            out.push(finding(cx, at, at, Severity::Error));
        }
    }
    for (branch, op) in cx.flow.reachable_ops() {
        if op.control() != Control::Branch
            || op.has("uni")
            || !cx.uniformity.guard_is_laned(cx.flow, branch)
        {
            continue;
        }
        let block = cx.flow.graph.block_of(branch);
        // A side that only exits is the usual bounds check: today's GPUs do not wait for exited
        // threads, although the manual says that all must take part.
        let ways = cx.flow.graph.successors(block);
        let severity = if ways.iter().any(|&way| only_leaves(cx, way)) {
            Severity::Warning
        } else {
            Severity::Error
        };
        let join = cx.flow.graph.join_of(block);
        let done = |block: BlockId| {
            let closed = closed[block.index()];
            closed == Some(None) || closed == Some(join)
        };
        for inner in cx.flow.graph.between_unless(block, join, done) {
            for at in cx.flow.graph.range(inner) {
                if std::mem::replace(&mut open[at], false) {
                    out.push(finding(cx, at, branch, severity));
                }
            }
            closed[inner.index()] = Some(join);
        }
    }
}

fn is_aligned_barrier(op: &Op<'_>) -> bool {
    match op.instruction.opcode.base() {
        "bar" => !op.has("warp"),
        "barrier" => op.has("aligned") && !op.has("cluster"),
        _ => false,
    }
}

fn only_leaves(cx: &Context<'_, '_>, way: BlockId) -> bool {
    cx.flow.graph.successors(way).is_empty()
        && cx
            .flow
            .graph
            .range(way)
            .all(|at| matches!(cx.flow.ops[at].control(), Control::Return | Control::Exit))
}

fn finding(cx: &Context<'_, '_>, at: usize, branch: usize, severity: Severity) -> Diagnostic {
    let op = &cx.flow.ops[at];
    let message = match severity {
        Severity::Error => "only a part of a warp may reach this barrier",
        Severity::Warning => "threads that left the kernel early may be missing at this barrier",
    };
    let mut diagnostic = Diagnostic::error(rule::DIVERGENT_BARRIER, op.span(), message);
    diagnostic.severity = severity;
    if branch != at {
        diagnostic = diagnostic.other(cx.flow.ops[branch].span(), "lanes of one warp part here");
    }
    diagnostic
        .note(format!(
            "`{}` must be reached by all threads of a warp together",
            op.instruction.opcode
        ))
        .help("move the barrier out of the branch, and keep only the work inside it")
}
