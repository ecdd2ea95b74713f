//! Tensor memory: what is certain of its instructions without a run.

use crate::Context;
use heist_ptx::analysis::Register;
use heist_ptx::isa::Control;
use heist_ptx::{Diagnostic, FunctionKind, rule};
use std::collections::HashSet;

/// Instructions behind a load that are looked at: a wait stands close to its load.
const LOOKED_AT: usize = 4096;

/// T101, T105, T108 and T115, each at most once a function.
pub(super) fn discipline(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let tensor = cx.all(|op| op.is("tcgen05"));
    if tensor.is_empty() {
        return;
    }
    let of = |kind: &str| -> Vec<usize> {
        let is_kind = |&at: &usize| cx.flow.ops[at].is(kind);
        tensor.iter().copied().filter(is_kind).collect()
    };
    let allocations = of("tcgen05.alloc");
    out.extend(mixed_groups(cx, &tensor));
    out.extend(without_permit(
        cx,
        &allocations,
        &of("tcgen05.relinquish_alloc_permit"),
    ));
    // A function that is called may wait and free.
    let calls = cx.all(|op| op.control() == Control::Call);
    if cx.function().kind == FunctionKind::Entry && calls.is_empty() {
        out.extend(never_freed(cx, &allocations, &of("tcgen05.dealloc")));
        let loads = of("tcgen05.ld");
        out.extend(loads.iter().find_map(|&load| early(cx, load)));
    }
}

fn mixed_groups(cx: &Context<'_, '_>, tensor: &[usize]) -> Option<Diagnostic> {
    let group = |&at: &usize| {
        let op = &cx.flow.ops[at];
        let pair = op.has("cta_group::2");
        (pair || op.has("cta_group::1")).then_some((1 + u32::from(pair), op.span()))
    };
    let mut groups = tensor.iter().filter_map(group);
    let (first, there) = groups.next()?;
    let (other, here) = groups.find(|&(number, _)| number != first)?;
    Some(
        Diagnostic::error(
            rule::TENSOR_GROUPS,
            here,
            format!(
                "an instruction of cta_group::{other} in a kernel whose others are of cta_group::{first}"
            ),
        )
        .other(there, "here is another")
        .help("all tcgen05 instructions of a kernel name the same group"),
    )
}

fn without_permit(
    cx: &Context<'_, '_>,
    allocations: &[usize],
    given_up: &[usize],
) -> Option<Diagnostic> {
    let surely = |&&at: &&usize| cx.flow.ops[at].roles.guard.is_none();
    let given_up: Vec<usize> = given_up.iter().filter(surely).copied().collect();
    allocations.iter().find_map(|&allocation| {
        let before = |&&at: &&usize| cx.flow.graph.dominates(at, allocation);
        let &there = given_up.iter().find(before)?;
        Some(
            Diagnostic::error(
                rule::TENSOR_PERMIT,
                cx.flow.ops[allocation].span(),
                "allocates tensor memory, and the block has given up its right to",
            )
            .other(cx.flow.ops[there].span(), "it was given up here")
            .help("`tcgen05.relinquish_alloc_permit` comes after the block's last allocation"),
        )
    })
}

fn never_freed(cx: &Context<'_, '_>, allocations: &[usize], frees: &[usize]) -> Option<Diagnostic> {
    let reaches = |from: usize, to: usize| cx.flow.graph.reaches(from, to, |_| false);
    let &kept = allocations
        .iter()
        .find(|&&at| !frees.iter().any(|&free| reaches(at, free)))?;
    let exits = cx.all(|op| op.control() == Control::Return);
    let &exit = exits.iter().rev().find(|&&exit| reaches(kept, exit))?;
    Some(
        Diagnostic::error(
            rule::TENSOR_LEAK,
            cx.flow.ops[exit].span(),
            "the kernel ends, and nothing has freed its tensor memory",
        )
        .other(cx.flow.ops[kept].span(), "it was allocated here")
        .help("`tcgen05.dealloc` on every way to the exit, in the warp that allocated"),
    )
}

/// T101: registers of a load are overwritten before the wait for it on every path, or read where no
/// wait can follow at all. A read before a wait is no mistake: it waits for the load itself.
fn early(cx: &Context<'_, '_>, load: usize) -> Option<Diagnostic> {
    let flow = cx.flow;
    let loaded: HashSet<Register> = flow.ops[load].roles.writes.iter().copied().collect();
    let is_wait = |at: usize| flow.ops[at].is("tcgen05.wait::ld");
    let behind = Behind::of(cx, load, is_wait)?;
    let touches = |registers: &[Register]| registers.iter().any(|one| loaded.contains(one));
    let load_span = flow.ops[load].span();
    let overwriter = behind.unwaited.iter().copied().find(|&at| {
        let op = &flow.ops[at];
        !op.is("tcgen05.ld")
            && op.roles.guard.is_none()
            && touches(&op.roles.writes)
            && flow.graph.dominates(load, at)
            // On no way through a wait either, short of another round of the load.
            && !behind.waits.iter().any(|&wait| flow.graph.reaches(wait, at, |other| other == load))
    });
    if let Some(at) = overwriter {
        return Some(
            Diagnostic::warning(
                rule::TENSOR_LOAD_EARLY,
                flow.ops[at].span(),
                "writes a register that a tcgen05.ld may still be going to write",
            )
            .other(load_span, "the load was started here")
            .help(
                "`tcgen05.wait::ld.sync.aligned` before the registers of a load are used for \
                 something else",
            ),
        );
    }
    if !behind.waits.is_empty() {
        return None;
    }
    let reader = behind.unwaited.iter().copied().find(|&at| {
        let reads = flow.ops[at].roles.reads.iter();
        reads
            .filter(|one| loaded.contains(one))
            .any(|&one| flow.definitions(one, at) == [load])
    })?;
    Some(
        Diagnostic::warning(
            rule::TENSOR_LOAD_EARLY,
            flow.ops[reader].span(),
            "reads a register of a tcgen05.ld that the warp never waits for",
        )
        .other(load_span, "the load was started here")
        .help(
            "`tcgen05.wait::ld.sync.aligned` between the load and the first use of its registers",
        ),
    )
}

/// What can run behind a load before a wait.
struct Behind {
    /// Instructions that some path reaches without a wait, in the order of the text.
    unwaited: Vec<usize>,
    /// The first waits on the paths.
    waits: Vec<usize>,
}

impl Behind {
    /// Of this load; `None` where that is too much to look at.
    fn of(cx: &Context<'_, '_>, load: usize, is_wait: impl Fn(usize) -> bool) -> Option<Behind> {
        let graph = &cx.flow.graph;
        let mut behind = Behind {
            unwaited: Vec::new(),
            waits: Vec::new(),
        };
        let home = graph.block_of(load);
        let mut entered = HashSet::new();
        let mut open = Vec::from([(home, load + 1..graph.range(home).end)]);
        while let Some((block, mut range)) = open.pop() {
            if behind.unwaited.len() > LOOKED_AT {
                return None;
            }
            let stop = range.find(|&at| {
                let goes_on = !is_wait(at) && at != load;
                if goes_on {
                    behind.unwaited.push(at);
                }
                !goes_on
            });
            match stop {
                Some(at) if at != load => behind.waits.push(at),
                Some(_) => {}
                None => {
                    let next = graph.successors(block).iter().copied();
                    let new = next.filter(|&block| entered.insert(block));
                    open.extend(new.map(|block| (block, graph.range(block))));
                }
            }
        }
        behind.unwaited.sort_unstable();
        behind.unwaited.dedup();
        Some(behind)
    }
}
