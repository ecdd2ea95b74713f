//! Tensor cores: the memory of fragments, and traps that compilers put in place of mistakes.

use crate::Context;
use crate::facts::Spaces;
use heist_ptx::isa::{Control, Family, Memory, Unit};
use heist_ptx::{Diagnostic, FunctionKind, Operand, rule};

/// T001: fragments are loaded from shared or global memory, never from a
/// thread's own.
pub(super) fn local_fragments(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    for (_, op) in cx.flow.reachable_ops() {
        let moves_fragments = op.row.is_some_and(|row| {
            row.family == Family::Matrix && row.memory_of(&op.instruction.opcode) != Memory::None
        });
        if !moves_fragments {
            continue;
        }
        let is_address = |operand: &&Operand| matches!(operand, Operand::Address(_));
        let Some(address) = op.instruction.operands.iter().find(is_address) else {
            continue;
        };
        let spaces = cx.facts.address(cx.flow, op, address).spaces;
        if !spaces.includes(Spaces::LOCAL) {
            continue;
        }
        let opcode = &op.instruction.opcode;
        let diagnostic = if spaces.only(Spaces::LOCAL) {
            Diagnostic::error(
                rule::TENSOR_LOCAL,
                op.span(),
                format!("`{opcode}` works on a pointer to local memory"),
            )
        } else {
            Diagnostic::warning(
                rule::TENSOR_LOCAL,
                op.span(),
                format!("`{opcode}` may work on a pointer to local memory"),
            )
            .note("one of the values that reach this pointer is the address of a local variable")
        };
        out.push(
            diagnostic
                .note(
                    "a fragment is spread over the warp, so its memory must be one that all lanes \
                     see: shared or global. An array declared inside a kernel is each thread's own",
                )
                .help(
                    "put the tile into shared memory (`__shared__`), fill it together, \
                     synchronise, and load the fragment from there",
                ),
        );
    }
}

/// T013: a kernel of which only a trap is left. Compilers that can prove a
/// tensor-core access local replace the rest of the kernel by one.
pub(super) fn cut_to_a_trap(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    if cx.function().kind != FunctionKind::Entry {
        return;
    }
    let ops: Vec<_> = cx.flow.reachable_ops().map(|(_, op)| op).collect();
    let Some(trap) = ops.iter().find(|op| op.control() == Control::Trap) else {
        return;
    };
    let does_something = ops.iter().any(|op| {
        op.row.is_some_and(|row| {
            row.synchronises
                || row.unit == Unit::Tensor
                || matches!(row.control, Control::Call | Control::Return)
                || matches!(
                    row.memory_of(&op.instruction.opcode),
                    Memory::Store | Memory::Update | Memory::Copy
                )
        })
    });
    if does_something || ops.len() > 16 {
        return;
    }
    out.push(
        Diagnostic::warning(
            rule::CUT_TO_TRAP,
            trap.span(),
            format!("all that there is of `{}` is a trap", cx.function().name),
        )
        .note(
            "a kernel may be meant like that, for a target that can't run it. But a compiler that \
             proves that a kernel always runs into undefined behaviour throws the rest away too: \
             nvcc does this for a tensor-core load or store on a local array, and says so only in \
             a build warning: \"cannot perform wmma load or store on local memory\"",
        )
        .help(
            "if there should be more, look for that warning in the build log (`heist check \
             build.log` explains it), and put the array into shared memory",
        ),
    );
}

/// T010: `setmaxnreg` in a kernel that does not fix its register count.
pub(super) fn ignored_setmaxnreg(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    let has = |directive: &str| cx.directive(directive).is_some();
    let threads_known = has("reqntid") || has("maxntid");
    let fixed = has("maxnreg") || (threads_known && has("minnctapersm"));
    if fixed || cx.function().kind != FunctionKind::Entry {
        return;
    }
    if let Some(&at) = cx.all(|op| op.is("setmaxnreg")).first() {
        out.push(
            Diagnostic::warning(
                rule::SETMAXNREG_IGNORED,
                cx.flow.ops[at].span(),
                "the assembler is going to ignore this `setmaxnreg`",
            )
            .note("it moves registers between warps out of a number that must be fixed at entry")
            .help(
                "say how many threads the block has and how many blocks an SM, with `.reqntid` and \
                 `.minnctapersm 1` (in CUDA C++ `__launch_bounds__(threads, 1)`), or fix `.maxnreg`",
            ),
        );
    }
}
