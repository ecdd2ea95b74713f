//! A function as a graph: instructions in a row, cut into blocks that run from
//! their first to their last instruction, with the ways between them.
//!
//! A guarded branch has two ways out, an unguarded one or a `ret` leaves no way
//! on. Names are resolved to numbers once, here, so that rules compare numbers.

mod graph;
mod labels;
mod registers;
mod roles;

pub(crate) use graph::{BlockId, Graph};
use labels::{Labels, ScopeId};
pub(crate) use registers::{Register, RegisterTable};
pub(crate) use roles::Roles;

use heist_ptx::{Function, Instruction, Module, Name, Span, Statement, Variable};
use std::collections::HashMap;

/// One instruction, with its registers resolved.
pub(crate) struct Op<'m> {
    pub(crate) instruction: &'m Instruction,
    /// What it reads and writes.
    pub(crate) roles: Roles,
    /// The scope in which its labels are looked up.
    scope: ScopeId,
}

impl Op<'_> {
    pub(crate) fn span(&self) -> Span {
        self.instruction.span
    }

    pub(crate) fn is(&self, parts: &str) -> bool {
        self.instruction.opcode.starts_with(parts)
    }

    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.instruction.opcode.has(modifier)
    }
}

/// A function, ready for rules.
pub(crate) struct Flow<'m> {
    pub(crate) function: &'m Function,
    pub(crate) ops: Vec<Op<'m>>,
    pub(crate) registers: RegisterTable,
    pub(crate) graph: Graph,
    /// The instructions that write each register.
    writers: Vec<Vec<usize>>,
    /// Variables of the function and of the module, by name; an inner one hides
    /// an outer one of the same name.
    pub(crate) variables: HashMap<Name, &'m Variable>,
}

impl<'m> Flow<'m> {
    /// The graph of a function; `None` for a declaration.
    pub(crate) fn new(module: &'m Module, function: &'m Function) -> Option<Flow<'m>> {
        let body = function.body.as_ref()?;
        let mut walk = Walk {
            ops: Vec::new(),
            labels: Labels::default(),
            scope: Labels::OUTERMOST,
            registers: RegisterTable::default(),
            variables: HashMap::new(),
        };
        for variable in module
            .variables()
            .chain(&function.params)
            .chain(&function.returns)
        {
            walk.variables.insert(variable.name.clone(), variable);
        }
        for parameter in function.params.iter().chain(&function.returns) {
            if parameter.space == heist_ptx::Space::Reg {
                walk.registers.declare(&parameter.name, None, parameter.ty);
            }
        }
        walk.statements(body);
        let graph = Graph::new(&walk.ops, &walk.labels);
        let mut writers = vec![Vec::new(); walk.registers.len()];
        for (at, op) in walk.ops.iter().enumerate() {
            for written in &op.roles.writes {
                writers[written.index()].push(at);
            }
        }
        Some(Flow {
            function,
            ops: walk.ops,
            registers: walk.registers,
            graph,
            writers,
            variables: walk.variables,
        })
    }

    /// The instructions whose value `register` can have at instruction `at`.
    ///
    /// Compilers give each value a register of its own, people reuse theirs:
    /// for a guard it matters which of its meanings is meant.
    pub(crate) fn definitions(&self, register: Register, at: usize) -> Vec<usize> {
        let all = &self.writers[register.index()];
        if all.len() < 2 {
            return all.clone();
        }
        // A guarded write may leave the old value in place.
        let overwrites = |between: usize| {
            let op = &self.ops[between];
            op.roles.guard.is_none() && op.roles.writes.contains(&register)
        };
        all.iter()
            .copied()
            .filter(|&writer| self.graph.reaches(writer, at, overwrites))
            .collect()
    }

    /// Every instruction that writes a register.
    pub(crate) fn writers(&self, register: Register) -> &[usize] {
        &self.writers[register.index()]
    }

    /// The instructions that can run, in order, with their numbers.
    pub(crate) fn reachable_ops(&self) -> impl Iterator<Item = (usize, &Op<'m>)> {
        self.graph
            .reachable_blocks()
            .flat_map(|block| self.graph.range(block))
            .map(|at| (at, &self.ops[at]))
    }
}

struct Walk<'m> {
    ops: Vec<Op<'m>>,
    labels: Labels<'m>,
    scope: ScopeId,
    registers: RegisterTable,
    variables: HashMap<Name, &'m Variable>,
}

impl<'m> Walk<'m> {
    fn statements(&mut self, statements: &'m [Statement]) {
        self.registers.open();
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => {
                    let roles = Roles::of(instruction, &mut self.registers);
                    self.ops.push(Op {
                        instruction,
                        roles,
                        scope: self.scope,
                    });
                }
                Statement::Label { name, .. } => {
                    self.labels.define(self.scope, name, self.ops.len());
                }
                Statement::Registers(declared) => {
                    for register in &declared.names {
                        self.registers
                            .declare(&register.name, register.count, declared.ty);
                    }
                }
                Statement::Variable(variable) => {
                    self.variables.insert(variable.name.clone(), variable);
                }
                Statement::Block(inner) => {
                    let outer = self.scope;
                    self.scope = self.labels.open(outer);
                    self.statements(inner);
                    self.scope = outer;
                }
                Statement::BranchTargets { label, targets, .. } => {
                    self.labels.define_targets(self.scope, label, targets);
                }
                Statement::Loc(_)
                | Statement::CallTargets { .. }
                | Statement::CallPrototype(_)
                | Statement::Pragma(_)
                | Statement::Comment(_) => {}
            }
        }
        self.registers.close();
    }
}
