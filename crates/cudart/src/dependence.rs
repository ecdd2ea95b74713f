//! How a launch depends on the one in front of it in its stream (programmatic dependent launch).

use heist_ptx::{FunctionKind, Module, Statement};

/// What its attribute and its code say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dependence {
    /// It may begin before the one in front has ended, and does not wait for it.
    pub(crate) early: bool,
    /// It lets the next one begin before it has ended.
    pub(crate) lets_go: bool,
}

impl Dependence {
    /// Of a kernel whose launch says whether it may begin early. Functions that it may call count as called.
    pub(crate) fn of(module: &Module, kernel: &str, may_begin_early: bool) -> Dependence {
        let has = |modifier: &str| {
            let own = |name: &str, kind| name == kernel || kind != FunctionKind::Entry;
            let mut functions = module.functions();
            functions.any(|one| {
                own(&one.name, one.kind) && one.body.iter().flatten().any(|it| says(it, modifier))
            })
        };
        Dependence {
            early: may_begin_early && !has("wait"),
            lets_go: has("launch_dependents"),
        }
    }
}

fn says(statement: &Statement, modifier: &str) -> bool {
    match statement {
        Statement::Instruction(one) => {
            one.opcode.base() == "griddepcontrol" && one.opcode.has(modifier)
        }
        Statement::Block(inner) => inner.iter().any(|one| says(one, modifier)),
        _ => false,
    }
}
