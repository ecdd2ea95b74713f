//! Loop-invariant code motion of address arithmetic.
//!
//! ptxas hoists it too, but only after it has scheduled the loop's loads and products around the
//! arithmetic: a GEMM's fragments are then loaded between its products instead of before them. That
//! took 7% longer than nvcc's code for the same kernel; nvcc hoists first.
//!
//! Only whole-number arithmetic moves: it can't trap, so it may run even where
//! the loop's body would have skipped it. Only innermost loops are changed: a value hoisted out of
//! an outer loop would hold registers during the whole inner one.

use crate::emit::{LabelId, Line, Op, Opnd, Origin, Reg};
use std::collections::HashMap;

/// Opcodes, up to their first dot, that compute a number from numbers.
const ARITHMETIC: [&str; 14] = [
    "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "min", "max", "cvt", "mov",
];

/// Hoists the invariant arithmetic of each innermost loop.
pub(crate) fn hoist(lines: Vec<Line>) -> Vec<Line> {
    let loops = innermost_loops(&lines);
    if loops.is_empty() {
        return lines;
    }
    let written = writes(&lines);
    let mut moves = vec![false; lines.len()];
    let mut before: HashMap<usize, Vec<usize>> = HashMap::new();
    for (top, back) in loops {
        let mut moved = Vec::new();
        for at in top + 1..back {
            let Line::Op(op) = &lines[at] else { continue };
            let steady = |reg: Reg| {
                let writes = written.get(&reg).map_or(&[][..], Vec::as_slice);
                writes
                    .iter()
                    .all(|&write| !(top..=back).contains(&write) || moves[write])
            };
            if is_arithmetic(op) && written_once(op, &written) && inputs(op).all(steady) {
                moves[at] = true;
                moved.push(at);
            }
        }
        before.insert(top, moved);
    }
    let mut ordered = Vec::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        for &moved in before.get(&at).into_iter().flatten() {
            ordered.push(lines[moved].clone());
        }
        if !moves[at] {
            ordered.push(line.clone());
        }
    }
    ordered
}

/// The loops without a loop inside, as the label at the top and the last branch
/// back to it.
fn innermost_loops(lines: &[Line]) -> Vec<(usize, usize)> {
    let mut tops: HashMap<LabelId, usize> = HashMap::new();
    let mut backs: HashMap<usize, usize> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        match line {
            Line::Label(label) => {
                tops.insert(*label, at);
            }
            Line::Op(op) => {
                for operand in &op.operands {
                    if let Opnd::Label(label) = operand
                        && let Some(&top) = tops.get(label)
                    {
                        backs.insert(top, at);
                    }
                }
            }
            Line::Comment(_) => {}
        }
    }
    let all: Vec<(usize, usize)> = backs.into_iter().collect();
    let holds_none =
        |&(top, back): &(usize, usize)| !all.iter().any(|&(other, _)| top < other && other < back);
    let mut innermost: Vec<_> = all.iter().copied().filter(holds_none).collect();
    innermost.sort_unstable();
    innermost
}

/// Where each register may be written.
fn writes(lines: &[Line]) -> HashMap<Reg, Vec<usize>> {
    let mut writes: HashMap<Reg, Vec<usize>> = HashMap::new();
    for (at, line) in lines.iter().enumerate() {
        let Line::Op(op) = line else { continue };
        let results = match op.origin {
            Origin::Builder | Origin::Prologue => 1,
            Origin::Raw => op.operands.len(),
        };
        for result in op.operands.iter().take(results) {
            registers(result, &mut |reg| writes.entry(reg).or_default().push(at));
        }
    }
    writes
}

fn is_arithmetic(op: &Op) -> bool {
    let mut parts = op.opcode.split('.');
    let known = parts.next().is_some_and(|name| ARITHMETIC.contains(&name));
    let whole = |part: &str| {
        !matches!(
            part,
            "f16" | "f16x2" | "bf16" | "bf16x2" | "f32" | "f64" | "tf32" | "pred"
        )
    };
    known
        && op.guard.is_none()
        && op.origin == Origin::Builder
        && parts.all(whole)
        && matches!(op.operands.first(), Some(Opnd::Reg(_)))
        && op.operands[1..].iter().all(|operand| {
            matches!(operand, Opnd::Reg(_) | Opnd::Const(_))
        })
        // Moving a constant saves no work, and would hold a register.
        && op.operands[1..].iter().any(|operand| matches!(operand, Opnd::Reg(_)))
}

fn written_once(op: &Op, written: &HashMap<Reg, Vec<usize>>) -> bool {
    match op.operands.first() {
        Some(Opnd::Reg(reg)) => written.get(reg).is_some_and(|writes| writes.len() == 1),
        _ => false,
    }
}

fn inputs(op: &Op) -> impl Iterator<Item = Reg> + '_ {
    op.operands
        .iter()
        .skip(1)
        .filter_map(|operand| match operand {
            Opnd::Reg(reg) => Some(*reg),
            _ => None,
        })
}

fn registers(operand: &Opnd, see: &mut impl FnMut(Reg)) {
    match operand {
        Opnd::Reg(reg) => see(*reg),
        Opnd::Vector(parts) => parts.iter().for_each(|part| registers(part, see)),
        Opnd::Pair(pair) => {
            registers(&pair.0, see);
            registers(&pair.1, see);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    kernel_params! {
        pub(crate) struct Args { out: Global<u32>, n: u32 }
    }

    /// The opcodes from a loop's label to its branch back.
    fn loop_of(body: impl for<'k> FnOnce(&Kernel<'k>, &Args<On<'k>>)) -> Vec<String> {
        let built = KernelSpec::<Args>::new("k")
            .block(32)
            .build(Arch::SM_80, |k, args| body(k, &args))
            .unwrap();
        let text = heist_ptx::print(&built.module);
        let inside = text.split_once("_loop:").unwrap().1;
        let inside = inside.split_once("bra $").unwrap().0;
        let opcode = |line: &str| line.split_whitespace().next().unwrap_or("").to_owned();
        let is_op = |word: &String| !word.starts_with(['.', '@', '/']) && !word.is_empty();
        inside.lines().map(opcode).filter(is_op).collect()
    }

    #[test]
    fn what_does_not_change_leaves_the_loop() {
        let inside = loop_of(|k, args| {
            k.for_range(0u32, args.n, |_| {
                args.out.at(k.thread().x * 3 + 1).store(7u32);
            });
        });
        assert_eq!(inside, ["st.global.u32", "add.s32", "setp.lt.u32"]);
    }

    #[test]
    fn a_kernel_can_keep_it() {
        let inside = loop_of(|k, args| {
            k.keep_arithmetic_in_loops();
            k.for_range(0u32, args.n, |_| {
                args.out.at(k.thread().x * 3 + 1).store(7u32);
            });
        });
        assert!(
            inside.iter().any(|opcode| opcode.starts_with("mul")),
            "{inside:?}"
        );
    }

    #[test]
    fn what_changes_stays() {
        let inside = loop_of(|k, args| {
            k.for_range(0u32, args.n, |i| args.out.at(i * 3).store(i));
        });
        assert!(
            inside.iter().any(|opcode| opcode.starts_with("mul")),
            "{inside:?}"
        );
        let inside = loop_of(|k, args| {
            let sum = k.var(1u32);
            k.for_range(0u32, args.n, |_| sum.set(sum * 3));
            args.out.store(sum);
        });
        assert!(
            inside.iter().any(|opcode| opcode.starts_with("mul")),
            "{inside:?}"
        );
    }

    #[test]
    #[allow(unsafe_code, reason = "raw PTX is unsafe")]
    fn a_raw_instruction_may_write_what_it_names() {
        let inside = loop_of(|k, args| {
            let (one, two) = (k.var(1u32), k.var(2u32));
            k.for_range(0u32, args.n, |_| {
                // SAFETY: both are numbers of 32 bits; it writes the second by our word.
                unsafe { k.raw("swap", "mov.b32", [one.into(), two.into()]) };
                args.out.at(two.get() * 5).store(1u32);
            });
        });
        assert!(
            inside.iter().any(|opcode| opcode.starts_with("mul")),
            "{inside:?}"
        );
    }
}
