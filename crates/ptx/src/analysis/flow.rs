//! A function as instructions in a row, with its names resolved.
//!
//! Registers become numbers and labels become indices once, here, so that all analyses compare
//! numbers.

use super::block::BlockId;
use super::graph::{Graph, Leave};
use super::scope::Scopes;
use crate::instruction::{AddressBase, Instruction, Operand};
use crate::isa::{Control, First, Row};
use crate::module::{Function, Module, Name, Statement, Variable};
use crate::span::Span;
use crate::types::Space;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// A register of one function. Registers are numbered as they are first mentioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(u32);

impl Register {
    /// Its number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The registers of one instruction.
#[derive(Default, Debug)]
pub struct Roles {
    /// Registers that it reads.
    pub reads: Vec<Register>,
    /// Registers that it writes.
    pub writes: Vec<Register>,
    /// The guard's predicate, which is also among the reads.
    pub guard: Option<Register>,
    /// What each name in it that is a register stands for.
    names: Vec<(Name, Register)>,
}

impl Roles {
    /// What a register is called in this instruction.
    pub fn name_of(&self, register: Register) -> Option<&str> {
        self.names
            .iter()
            .find(|(_, known)| *known == register)
            .map(|(name, _)| name.as_str())
    }

    /// The register that `name` stands for in this instruction.
    pub fn register_named(&self, name: &str) -> Option<Register> {
        self.names
            .iter()
            .find(|(known, _)| known == name)
            .map(|&(_, register)| register)
    }
}

/// One instruction, with its registers resolved.
pub struct Op<'m> {
    /// The instruction.
    pub instruction: &'m Instruction,
    /// Its row in the instruction table; none for an unknown opcode.
    pub row: Option<&'static Row>,
    /// What it reads and writes.
    pub roles: Roles,
    /// The number of the label that it may go to, or of the list of labels.
    label: Option<u32>,
}

impl Op<'_> {
    /// Where it is.
    pub fn span(&self) -> Span {
        self.instruction.span
    }

    /// Whether its opcode begins with these parts.
    pub fn is(&self, parts: &str) -> bool {
        self.instruction.opcode.starts_with(parts)
    }

    /// Whether its opcode has this modifier.
    pub fn has(&self, modifier: &str) -> bool {
        self.instruction.opcode.has(modifier)
    }

    /// Where control goes after it.
    pub fn control(&self) -> Control {
        self.row.map_or(Control::Next, |row| row.control)
    }
}

/// A function, with its control flow.
pub struct Flow<'m> {
    /// The function.
    pub function: &'m Function,
    /// Its instructions, in order.
    pub ops: Vec<Op<'m>>,
    /// Its control-flow graph.
    pub graph: Graph,
    /// How many registers it mentions.
    pub registers: usize,
    /// The instructions that write each register.
    writers: Vec<Vec<usize>>,
    variables: FxHashMap<Name, &'m Variable>,
    globals: &'m Globals<'m>,
}

/// The variables of a module by their names, for the flows of all its functions.
#[derive(Debug)]
pub struct Globals<'m>(FxHashMap<&'m str, &'m Variable>);

impl<'m> Globals<'m> {
    /// Those of this module.
    pub fn of(module: &'m Module) -> Globals<'m> {
        let named = |variable: &'m Variable| (variable.name.as_str(), variable);
        Globals(module.variables().map(named).collect())
    }
}

impl<'m> Flow<'m> {
    /// The flow of a function; `None` for a declaration.
    pub fn new(globals: &'m Globals<'m>, function: &'m Function) -> Option<Flow<'m>> {
        let body = function.body.as_ref()?;
        let mut walk = Walk {
            ops: Vec::new(),
            scopes: Scopes::new(),
            declarations: 0,
            numbers: FxHashMap::default(),
            places: Vec::new(),
            tables: Vec::new(),
            table_of: FxHashMap::default(),
            variables: FxHashMap::default(),
        };
        let formals = || function.params.iter().chain(&function.returns);
        for variable in formals() {
            walk.variables.insert(variable.name.clone(), variable);
        }
        for formal in formals().filter(|formal| formal.space == Space::Reg) {
            walk.declare(&formal.name, None, formal.span);
        }
        walk.statements(body);
        let graph = walk.graph();
        let mut writers = vec![Vec::new(); walk.numbers.len()];
        for (at, op) in walk.ops.iter().enumerate() {
            for register in &op.roles.writes {
                writers[register.index()].push(at);
            }
        }
        Some(Flow {
            function,
            ops: walk.ops,
            graph,
            registers: walk.numbers.len(),
            writers,
            variables: walk.variables,
            globals,
        })
    }

    /// The variable of this name, of the function or of the module; an inner one hides an outer
    /// one.
    pub fn variable(&self, name: &str) -> Option<&'m Variable> {
        let own = self.variables.get(name);
        own.or_else(|| self.globals.0.get(name)).copied()
    }

    /// The instructions whose value `register` can have at instruction `at`.
    ///
    /// The reaching definitions. Compilers give each value a register of its own, people reuse
    /// theirs: for a guard it matters which value is meant.
    pub fn definitions(&self, register: Register, at: usize) -> Vec<usize> {
        let all = &self.writers[register.index()];
        if all.len() < 2 {
            return all.clone();
        }
        // Backwards from `at`, up to the last write that leaves nothing of the old value:
        // a guarded one may.
        let mut found = Vec::new();
        let mut look = |range: Range<usize>| {
            let first = all.partition_point(|&writer| writer < range.start);
            let last = all.partition_point(|&writer| writer < range.end);
            for &writer in all[first..last].iter().rev() {
                found.push(writer);
                if self.ops[writer].roles.guard.is_none() {
                    return false;
                }
            }
            true
        };
        let home = self.graph.block_of(at);
        let mut open: Vec<BlockId> = Vec::new();
        if look(self.graph.range(home).start..at) {
            open.extend(self.graph.predecessors(home));
        }
        let mut seen = FxHashSet::default();
        while let Some(block) = open.pop() {
            if seen.insert(block) && look(self.graph.range(block)) {
                open.extend(self.graph.predecessors(block));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Every instruction that writes a register.
    pub fn writers(&self, register: Register) -> &[usize] {
        &self.writers[register.index()]
    }

    /// The instructions that can run, in order, with their numbers.
    pub fn reachable_ops(&self) -> impl Iterator<Item = (usize, &Op<'m>)> {
        self.graph
            .reachable_blocks()
            .flat_map(|block| self.graph.range(block))
            .map(|at| (at, &self.ops[at]))
    }
}

struct Walk<'m> {
    ops: Vec<Op<'m>>,
    /// Registers by the number of their declaration.
    scopes: Scopes<'m, u32>,
    declarations: u32,
    /// The number of each register that is mentioned, by declaration and member.
    numbers: FxHashMap<(u32, u32), Register>,
    /// Where each label is.
    places: Vec<Option<usize>>,
    /// The labels of each list that is branched by, and the number of a list's label.
    tables: Vec<Vec<u32>>,
    table_of: FxHashMap<u32, u32>,
    variables: FxHashMap<Name, &'m Variable>,
}

impl<'m> Walk<'m> {
    /// What is declared twice is reported by the structural rules; the first counts.
    fn declare(&mut self, name: &Name, count: Option<u32>, span: Span) {
        let declaration = self.declarations;
        self.declarations += 1;
        let _ = match count {
            Some(count) => self.scopes.declare_family(name, count, declaration, span),
            None => self.scopes.declare(name, declaration, span),
        };
    }

    /// The register that `name` means here, if it means one.
    fn register(&mut self, name: &str) -> Option<Register> {
        let found = self.scopes.find(name)?;
        let next = Register(self.numbers.len() as u32);
        let key = (found.entity, found.member);
        Some(*self.numbers.entry(key).or_insert(next))
    }

    fn statements(&mut self, statements: &'m [Statement]) {
        self.scopes.enter(statements);
        self.places.resize(self.scopes.labels(), None);
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => self.instruction(instruction),
                Statement::Label { name, .. } => {
                    if let Some(label) = self.scopes.label(name) {
                        self.places[label.number as usize] = Some(self.ops.len());
                    }
                }
                Statement::Registers(declared) => {
                    for register in &declared.names {
                        self.declare(&register.name, register.count, register.span);
                    }
                }
                Statement::Variable(variable) => {
                    self.variables.insert(variable.name.clone(), variable);
                }
                Statement::Block(inner) => self.statements(inner),
                Statement::Loc(_)
                | Statement::BranchTargets { .. }
                | Statement::CallTargets { .. }
                | Statement::CallPrototype(_)
                | Statement::Pragma(_)
                | Statement::Comment(_) => {}
            }
        }
        self.scopes.leave();
    }

    fn instruction(&mut self, instruction: &'m Instruction) {
        let row = instruction.opcode.row();
        let roles = self.roles(instruction, row);
        let control = row.map_or(Control::Next, |row| row.control);
        let label = self.target(instruction, control);
        self.ops.push(Op {
            instruction,
            row,
            roles,
            label,
        });
    }

    /// The label that an instruction may go to, or the list of labels.
    fn target(&mut self, instruction: &Instruction, control: Control) -> Option<u32> {
        let mut labels = instruction
            .operands
            .iter()
            .filter_map(|operand| match operand {
                Operand::Name(name) => self.scopes.label(name),
                _ => None,
            });
        let label = match control {
            Control::Branch | Control::BranchTable => labels.next()?,
            _ => return None,
        };
        if control == Control::Branch {
            return Some(label.number);
        }
        let Statement::BranchTargets { targets, .. } = label.statement else {
            return None;
        };
        if let Some(&known) = self.table_of.get(&label.number) {
            return Some(known);
        }
        let targets = targets
            .iter()
            .filter_map(|target| self.scopes.label(target));
        let table = self.tables.len() as u32;
        self.tables
            .push(targets.map(|target| target.number).collect());
        self.table_of.insert(label.number, table);
        Some(table)
    }

    fn graph(&self) -> Graph {
        let place = |label: u32| self.places[label as usize];
        let tables: Vec<Vec<usize>> = self
            .tables
            .iter()
            .map(|labels| labels.iter().filter_map(|&label| place(label)).collect())
            .collect();
        let starts = self.places.iter().copied().flatten();
        Graph::new(self.ops.len(), starts, &tables, |at| {
            let op = &self.ops[at];
            let control = op.control();
            let by_table = control == Control::BranchTable;
            control.leaves().then(|| Leave {
                to: op.label.filter(|_| !by_table).and_then(place),
                table: op.label.filter(|_| by_table).map(|table| table as usize),
                falls: op.instruction.guard.is_some(),
            })
        })
    }

    fn roles(&mut self, instruction: &Instruction, row: Option<&Row>) -> Roles {
        let mut roles = Roles::default();
        if let Some(guard) = &instruction.guard {
            self.named(&guard.register, false, &mut roles);
            roles.guard = roles.reads.last().copied();
        }
        let first = row.map_or(First::Written, |row| row.first(instruction));
        for (at, operand) in instruction.operands.iter().enumerate() {
            let written = at == 0 && first != First::Read;
            self.operand(operand, written, &mut roles);
            if at == 0 && first == First::Updated {
                self.operand(operand, false, &mut roles);
            }
        }
        roles
    }

    fn operand(&mut self, operand: &Operand, written: bool, roles: &mut Roles) {
        match operand {
            Operand::Name(name) | Operand::Part { name, .. } => self.named(name, written, roles),
            Operand::Not(name) | Operand::NegatedPart { name, .. } => {
                self.named(name, false, roles);
            }
            Operand::Address(address) => {
                if let AddressBase::Name(name) | AddressBase::Part { name, .. } = &address.base {
                    self.named(name, false, roles);
                }
                for inner in &address.rest {
                    self.operand(inner, false, roles);
                }
            }
            Operand::Vector(inner) | Operand::Tuple(inner) => {
                for inner in inner {
                    self.operand(inner, written, roles);
                }
            }
            Operand::Pair(pair) => {
                self.operand(&pair.0, written, roles);
                self.operand(&pair.1, written, roles);
            }
            Operand::Constant(_) | Operand::Sink => {}
        }
    }

    fn named(&mut self, name: &Name, written: bool, roles: &mut Roles) {
        if let Some(register) = self.register(name) {
            roles.names.push((name.clone(), register));
            let list = if written {
                &mut roles.writes
            } else {
                &mut roles.reads
            };
            list.push(register);
        }
    }
}
