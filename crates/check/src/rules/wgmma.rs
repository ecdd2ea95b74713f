//! The protocol of `wgmma`: fence, multiply, commit, wait, and only then use the registers.

use crate::Context;
use crate::flow::{Op, Register};
use heist_ptx::isa::Control;
use heist_ptx::{Diagnostic, FunctionKind, rule};

/// T002 to T005, each at most once a kernel. A function that is called may fence, commit and wait for its
/// caller, and a caller for the functions that it calls.
pub(super) fn discipline(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let multiplies = cx.all(|op| op.is("wgmma.mma_async"));
    if multiplies.is_empty() || cx.function().kind != FunctionKind::Entry {
        return;
    }
    out.extend(unfenced(cx, &multiplies));
    out.extend(uncommitted(cx, &multiplies));
    out.extend(unwaited(cx, &multiplies));
    out.extend(touched_in_flight(cx, &multiplies));
}

fn unfenced(cx: &Context<'_, '_>, multiplies: &[usize]) -> Option<Diagnostic> {
    let fence = |at: usize| may_be(&cx.flow.ops[at], "wgmma.fence");
    let &open = multiplies
        .iter()
        .find(|&&at| at == 0 || !fence(0) && cx.flow.graph.reaches(0, at, fence))?;
    Some(
        Diagnostic::error(
            rule::WGMMA_FENCE,
            cx.flow.ops[open].span(),
            "this wgmma can be reached without a `wgmma.fence`",
        )
        .note("until the fence, what was written to its registers may not have arrived")
        .help(
            "put `wgmma.fence.sync.aligned;` before the first wgmma, behind the last write to its \
             registers",
        ),
    )
}

fn uncommitted(cx: &Context<'_, '_>, multiplies: &[usize]) -> Option<Diagnostic> {
    let &lost = multiplies
        .iter()
        .find(|&&at| !follows(cx, at, "wgmma.commit_group"))?;
    Some(
        Diagnostic::error(
            rule::WGMMA_UNCOMMITTED,
            cx.flow.ops[lost].span(),
            "this wgmma is never committed",
        )
        .note("a wait waits for committed groups, so nothing waits for this one")
        .help("put `wgmma.commit_group.sync.aligned;` behind the last wgmma of the batch"),
    )
}

fn unwaited(cx: &Context<'_, '_>, multiplies: &[usize]) -> Option<Diagnostic> {
    let &lost = multiplies.iter().find(|&&at| {
        follows(cx, at, "wgmma.commit_group") && !follows(cx, at, "wgmma.wait_group")
    })?;
    Some(
        Diagnostic::error(
            rule::WGMMA_UNWAITED,
            cx.flow.ops[lost].span(),
            "nobody waits for this wgmma",
        )
        .help("put `wgmma.wait_group.sync.aligned 0;` before the accumulators are used"),
    )
}

/// Whether this is an instruction that begins with `parts`, or a call: the callee may have one.
fn may_be(op: &Op<'_>, parts: &str) -> bool {
    op.is(parts) || op.control() == Control::Call
}

/// Whether an instruction that begins with `parts` can run after `at`.
fn follows(cx: &Context<'_, '_>, at: usize, parts: &str) -> bool {
    cx.all(|op| may_be(op, parts))
        .into_iter()
        .any(|to| cx.flow.graph.reaches(at, to, |_| false))
}

/// An instruction that uses an accumulator without a wait before it. Another `wgmma` may: the
/// tensor core keeps their order.
fn touched_in_flight(cx: &Context<'_, '_>, multiplies: &[usize]) -> Option<Diagnostic> {
    let (toucher, multiply) = multiplies.iter().find_map(|&at| {
        let accumulators = &cx.flow.ops[at].roles.writes;
        let mut found = None;
        cx.flow.graph.reaches(at, usize::MAX, |between| {
            let op = &cx.flow.ops[between];
            if may_be(op, "wgmma.wait_group") {
                return true;
            }
            // Compilers copy accumulators from register to register meanwhile; the assembler
            // makes one register of both, and says nothing.
            let copies = op.is("mov") && op.roles.reads.len() == 1 && op.roles.writes.len() == 1;
            let touches = !op.is("wgmma") && !copies && touches(&op.roles, accumulators);
            if touches {
                found = Some(found.map_or(between, |known: usize| known.min(between)));
            }
            touches
        });
        Some((found?, at))
    })?;
    let touch = &cx.flow.ops[toucher];
    Some(
        Diagnostic::error(
            rule::WGMMA_IN_FLIGHT,
            touch.span(),
            format!(
                "`{}` uses a register of a wgmma that may still be running",
                touch.instruction.opcode
            ),
        )
        .other(cx.flow.ops[multiply].span(), "the wgmma that it belongs to")
        .help("wait first: `wgmma.wait_group.sync.aligned 0;`"),
    )
}

fn touches(roles: &crate::flow::Roles, registers: &[Register]) -> bool {
    let mut used = roles.reads.iter().chain(&roles.writes);
    used.any(|register| registers.contains(register))
}
