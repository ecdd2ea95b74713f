//! Shared memory against the architecture.

use crate::Context;
use crate::flow::Flow;
use heist_ptx::arch::Arch;
use heist_ptx::{
    AddressBase, Constant, Diagnostic, FunctionKind, Name, Operand, Space, Variable, rule,
};
use std::collections::HashSet;

/// X009: the sum of the static shared variables that a kernel uses.
pub(super) fn static_size(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let Some(arch) = cx.arch else { return };
    if cx.function().kind != FunctionKind::Entry {
        return;
    }
    let (used, total) = static_shared(cx.flow, arch);
    let limit = u64::from(arch.static_shared_limit());
    if total <= limit {
        return;
    }
    let span = used
        .iter()
        .max_by_key(|(_, size)| *size)
        .map_or(cx.function().span, |(variable, _)| variable.span);
    let most = arch.limits().shared_opt_in;
    let mut diagnostic = Diagnostic::error(
        rule::STATIC_SHARED,
        span,
        format!(
            "`{}` declares {total} bytes of static shared memory; {} allows {limit}",
            cx.function().name,
            arch.name()
        ),
    )
    .label("the largest of them");
    for (variable, size) in used.iter().take(6) {
        diagnostic = diagnostic.note(format!("`{}` takes {size} bytes", variable.name));
    }
    let remedy = if total <= u64::from(most) {
        format!(
            "{} gives a block up to {most} bytes if they are dynamic: declare `.extern .shared` \
             (in CUDA C++ `extern __shared__`), pass {total} bytes at launch, and opt in with \
             cudaFuncAttributeMaxDynamicSharedMemorySize",
            arch.name()
        )
    } else {
        format!(
            "no {} block can have more than {most} bytes: use a smaller tile, fewer stages, or a \
             narrower type",
            arch.name()
        )
    };
    out.push(diagnostic.help(remedy));
}

/// X011: more than every kernel may have, which a launch must ask for.
pub(crate) fn shared_opt_in(flow: &Flow<'_>, arch: Arch, dynamic: u32) -> Option<Diagnostic> {
    let (_, fixed) = static_shared(flow, arch);
    let total = fixed.next_multiple_of(16).saturating_add(dynamic.into());
    let limits = arch.limits();
    let (free, most) = (limits.shared_static.into(), limits.shared_opt_in.into());
    // What is over `most` is another rule's: no opt-in helps. Nor does it with static memory alone.
    if dynamic == 0 || total <= free || total > most {
        return None;
    }
    let entry = &flow.function.name;
    Some(
        Diagnostic::warning(
            rule::SHARED_OPT_IN,
            flow.function.span,
            format!("a launch of `{entry}` with {total} bytes of shared memory needs an opt-in"),
        )
        .note(format!(
            "every kernel may have {free} bytes a block; {} gives up to {most} to one that asks. \
             Without the opt-in the launch fails with \"invalid argument\", and the kernel never runs",
            arch.name()
        ))
        .help(format!(
            "before the launch: `cudaFuncSetAttribute({entry}, \
             cudaFuncAttributeMaxDynamicSharedMemorySize, {dynamic})`, and look at what it returns"
        )),
    )
}

/// The static shared variables that a kernel uses, in the order of the text, and
/// how many bytes they take together. They begin after the bytes reserved by the system, so
/// alignment may add padding.
fn static_shared<'m>(flow: &Flow<'m>, arch: Arch) -> (Vec<(&'m Variable, u64)>, u64) {
    let mut used: Vec<(&Variable, u64)> = used_names(flow)
        .iter()
        .filter_map(|name| flow.variable(name))
        .filter(|variable| variable.space == Space::Shared)
        .filter_map(|variable| Some((variable, variable.size()?)))
        .collect();
    used.sort_by_key(|(variable, _)| variable.span.start);
    let start = u64::from(arch.limits().shared_start);
    let total = used.iter().fold(start, |total, (variable, size)| {
        total
            .checked_next_multiple_of(variable.alignment().max(1))
            .and_then(|start| start.checked_add(*size))
            .unwrap_or(u64::MAX)
    });
    (used, total - start)
}

/// The names that the kernel's instructions mention.
fn used_names(flow: &Flow<'_>) -> HashSet<Name> {
    let mut names = HashSet::new();
    for op in &flow.ops {
        for operand in &op.instruction.operands {
            collect(operand, &mut names);
        }
    }
    names
}

fn collect(operand: &Operand, names: &mut HashSet<Name>) {
    match operand {
        Operand::Name(name) | Operand::Constant(Constant::Symbol(name)) => {
            names.insert(name.clone());
        }
        Operand::Constant(Constant::Binary(_, sides)) => {
            if let Constant::Symbol(name) = &sides.0 {
                names.insert(name.clone());
            }
        }
        Operand::Address(address) => {
            if let AddressBase::Name(name) = &address.base {
                names.insert(name.clone());
            }
        }
        Operand::Vector(inner) | Operand::Tuple(inner) => {
            inner.iter().for_each(|inner| collect(inner, names));
        }
        _ => {}
    }
}
