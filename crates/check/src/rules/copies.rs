//! Asynchronous copies and the barriers they report to.

use crate::Context;
use crate::facts::Spaces;
use crate::flow::Op;
use heist_ptx::isa::{Memory, space_of};
use heist_ptx::{Diagnostic, FunctionKind, Operand, Space, rule};

/// A001 to A003: cp.async without its commit or its wait.
pub(super) fn cp_async(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let copies = cx.all(|op| op.is("cp.async.ca") || op.is("cp.async.cg"));
    let Some(&first) = copies.first() else { return };
    // What a callee does with our copies is not known here, and neither is what a caller does: a build
    // without inlining (nvcc -G) has a function for the copy, one for the commit and one for the wait.
    if cx.function().kind != FunctionKind::Entry || !cx.all(|op| op.is("call")).is_empty() {
        return;
    }
    let arrivals = cx.all(|op| op.is("cp.async.mbarrier.arrive"));
    let waits = cx.all(|op| op.is("cp.async.wait_group") || op.is("cp.async.wait_all"));
    let mut covers = cx.all(|op| op.is("cp.async.commit_group") || op.is("cp.async.wait_all"));
    covers.extend(&arrivals);
    let follows = |from: usize, list: &[usize]| {
        list.iter()
            .any(|&to| cx.flow.graph.reaches(from, to, |_| false))
    };
    if let Some(&lost) = copies.iter().find(|&&copy| !follows(copy, &covers)) {
        out.push(
            Diagnostic::error(
                rule::CP_ASYNC_UNCOMMITTED,
                cx.flow.ops[lost].span(),
                "no group and no mbarrier ever covers this cp.async",
            )
            .note("`cp.async.wait_group` waits for committed groups: nothing waits for this copy")
            .help(
                "put `cp.async.commit_group;` behind the copies that belong together (in CUDA C++ \
                 `__pipeline_commit()`)",
            ),
        );
        return;
    }
    if !waits.is_empty() || !arrivals.is_empty() {
        return;
    }
    let reader = cx
        .all(|op| reads_shared(cx, op))
        .into_iter()
        .find(|&to| cx.flow.graph.reaches(first, to, |_| false));
    let copy = cx.flow.ops[first].span();
    out.push(match reader {
        Some(reader) => Diagnostic::error(
            rule::CP_ASYNC_EARLY,
            cx.flow.ops[reader].span(),
            "shared memory is read, and no cp.async is ever waited for",
        )
        .other(copy, "the copy that may still be under way")
        .note("a barrier such as `bar.sync` orders threads, not asynchronous copies")
        .help(
            "`cp.async.wait_group 0;` and then `bar.sync 0;` before the first read (in CUDA C++ \
             `__pipeline_wait_prior(0); __syncthreads();`)",
        ),
        None => Diagnostic::warning(
            rule::CP_ASYNC_UNWAITED,
            copy,
            "nobody waits for this cp.async",
        )
        .help("`cp.async.wait_group 0;` before the data is used or the block exits"),
    });
}

fn reads_shared(cx: &Context<'_, '_>, op: &Op<'_>) -> bool {
    let opcode = &op.instruction.opcode;
    let loads = op
        .row
        .is_some_and(|row| row.memory_of(opcode) == Memory::Load);
    loads
        && (space_of(opcode) == Some(Space::Shared)
            || op.instruction.operands.iter().any(|operand| {
                matches!(operand, Operand::Address(_))
                    && cx
                        .facts
                        .address(cx.flow, op, operand)
                        .spaces
                        .only(Spaces::SHARED)
            }))
}

/// A010: a kernel that uses mbarriers and initialises none of them before.
pub(super) fn mbarrier_init(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    const USES: [&str; 5] = [
        "mbarrier.arrive",
        "mbarrier.try_wait",
        "mbarrier.test_wait",
        "mbarrier.expect_tx",
        "cp.async.mbarrier.arrive",
    ];
    if cx.function().kind != FunctionKind::Entry || !cx.all(|op| op.is("call")).is_empty() {
        return;
    }
    let uses = cx.all(|op| USES.iter().any(|parts| op.is(parts)));
    let inits = cx.all(|op| op.is("mbarrier.init"));
    let Some(&first) = uses.first() else { return };
    let span = cx.flow.ops[first].span();
    match inits.first() {
        None => out.push(
            Diagnostic::error(
                rule::MBARRIER_UNINITIALISED,
                span,
                format!(
                    "`{}` uses an mbarrier, and none is initialised",
                    cx.function().name
                ),
            )
            .help(
                "one thread runs `mbarrier.init.shared.b64 [bar], arrivals;`, then all meet at a \
                 `bar.sync`",
            ),
        ),
        Some(&init) => {
            let before = |&init: &usize| cx.flow.graph.reaches(init, first, |_| false);
            // Another warp may initialise it while this one waits for that at a barrier.
            let meets = |at: usize| {
                let op = &cx.flow.ops[at];
                matches!(op.instruction.opcode.base(), "bar" | "barrier") && !op.has("warp")
            };
            let unmet = first == 0 || !meets(0) && cx.flow.graph.reaches(0, first, meets);
            if unmet && !inits.iter().any(before) {
                out.push(
                    Diagnostic::error(
                        rule::MBARRIER_UNINITIALISED,
                        span,
                        "this use of an mbarrier comes before every init",
                    )
                    .other(cx.flow.ops[init].span(), "initialised here, too late")
                    .help(
                        "initialise mbarriers at the start of the kernel, by one thread, and meet \
                         at a `bar.sync`",
                    ),
                );
            }
        }
    }
}
