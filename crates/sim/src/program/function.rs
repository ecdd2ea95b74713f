//! The body of a function.

use crate::code::{FunctionCode, Guard, NOWHERE, Reach};
use crate::decode::declare::{room, signature_layout};
use crate::decode::names::{Memory, Named, Storage};
use crate::decode::{Cost, Decoder, Leaves};
use crate::ops;
use heist_ptx::analysis::{Graph, Leave, Scopes};
use heist_ptx::{
    Diagnostic, Function, FunctionKind, Instruction, ScalarType, Space, Statement, rule,
};

impl<'m> Decoder<'m> {
    /// Decodes function `number`.
    pub(super) fn function_body(
        &mut self,
        number: u32,
        function: &'m Function,
        errors: &mut Vec<Diagnostic>,
    ) {
        self.function = number;
        (self.rows, self.preds, self.frame) = (0, 0, 0);
        self.scopes = Scopes::new();
        self.registers.clear();
        (self.first_label, self.first_table) = (self.labels.len(), self.tables.len());
        self.span = function.span;
        self.loc = None;
        self.guard = None;
        self.returns.clear();
        let start = self.ops.len();
        let Some(body) = &function.body else {
            // The functions with which device code launches kernels begin so.
            let nested = function.name.starts_with("__cudaCDP");
            let (why, help) = match nested {
                true => (
                    "to launch a kernel from a kernel (dynamic parallelism), which is not there",
                    "launch it from the host in a test build",
                ),
                false => (
                    "and defined nowhere",
                    "link the file that defines it into this one",
                ),
            };
            let message = format!("`{}` is called, {why}", function.name);
            errors.push(Diagnostic::error(rule::UNRESOLVED, function.span, message).help(help));
            return;
        };
        self.open(body);
        self.formals(function);
        self.statements(body, errors);
        self.span = function.span;
        // What runs past the last statement has nowhere to go, nor has what finds none.
        let ends = self.ops.len() > start && self.leaves.last() == Some(&Leaves::Ends);
        if function.kind == FunctionKind::Entry || !ends {
            self.guard = None;
            self.emit_with(
                Box::new(ops::control::branch::RunsOff),
                Cost::CONTROL,
                Reach::Own,
                Leaves::Ends,
            );
        }
        let graph = self.function_graph(start);
        self.set_joins(start, &graph);
        if number == 0 {
            self.graph = Some(graph);
        }
        let code = FunctionCode {
            name: function.name.clone(),
            start: start as u32,
            rows: self.rows,
            preds: self.preds,
            frame: self.frame.next_multiple_of(16),
        };
        self.functions.push(code);
    }

    /// The control flow of the operations from `start` on, which are a function's.
    fn function_graph(&self, start: usize) -> Graph {
        let place = |label: u32| {
            let place = self.labels.get(label as usize).copied()?;
            (place != NOWHERE).then(|| place as usize - start)
        };
        let tables = self.tables[self.first_table..].iter();
        let tables: Vec<Vec<usize>> = tables
            .map(|labels| labels.iter().filter_map(|&label| place(label)).collect())
            .collect();
        let count = self.ops.len() - start;
        Graph::new(count, std::iter::empty(), &tables, |at| {
            let falls = self.ops[start + at].guard.is_some();
            let (to, table) = match self.leaves[start + at] {
                Leaves::On => return None,
                Leaves::To(label) => (place(label), None),
                Leaves::Table(table) => (None, Some(table as usize - self.first_table)),
                Leaves::Ends => (None, None),
            };
            Some(Leave { to, table, falls })
        })
    }

    /// Sets the reconvergence point of each branch.
    fn set_joins(&mut self, start: usize, graph: &Graph) {
        let meets = graph.meeting_points();
        for at in 0..self.ops.len() - start {
            let parts = match self.leaves[start + at] {
                Leaves::To(_) => self.ops[start + at].guard.is_some(),
                Leaves::Table(_) => true,
                Leaves::On | Leaves::Ends => false,
            };
            if parts && let Some(meets) = meets[graph.block_of(at).index()] {
                self.ops[start + at].join = (start + graph.range(meets).start) as u32;
            }
        }
    }

    /// Parameters and results.
    fn formals(&mut self, function: &'m Function) {
        if function.kind == FunctionKind::Entry {
            let mut end = 0u32;
            for param in &function.params {
                let size = param.size().unwrap_or(0);
                let (at, behind) = room(end, size, param.alignment().clamp(1, 128));
                end = behind;
                let place = Storage::Param(at);
                self.declare(&param.name, Memory { place, size });
            }
            self.shape.param_bytes = end;
            return;
        }
        let all = || function.returns.iter().chain(&function.params);
        let (places, end) = signature_layout(all());
        self.frame = end;
        for (at, (variable, (offset, size))) in all().zip(places).enumerate() {
            let is_return = at < function.returns.len();
            if variable.space == Space::Reg {
                let lanes = variable.vector.map_or(1, |width| width.lanes() as u32);
                self.declare_register(&variable.name, None, variable.ty, lanes);
                if !is_return && let Some(Named::Register(register)) = self.find(&variable.name) {
                    for (part, at) in register.parts() {
                        let load = ops::control::call::load_formal(part, offset + at);
                        self.emit(load, Cost::ALU);
                    }
                }
                continue;
            }
            let place = Storage::Frame(offset);
            let size = u64::from(size);
            self.declare(&variable.name, Memory { place, size });
        }
        // `ret` stores register results to where the caller looks for them.
        self.returns = function
            .returns
            .iter()
            .zip(signature_layout(all()).0)
            .filter(|(variable, _)| variable.space == Space::Reg)
            .map(|(variable, (offset, _))| (variable.name.clone(), offset))
            .collect();
    }

    fn statements(&mut self, statements: &'m [Statement], errors: &mut Vec<Diagnostic>) {
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => {
                    if let Err(error) = self.instruction(instruction) {
                        errors.push(*error);
                    }
                }
                Statement::Label { name, .. } => {
                    let here = self.ops.len() as u32;
                    if let Some(id) = self.find_label(name) {
                        self.labels[id as usize] = here;
                    }
                }
                Statement::Registers(registers) => self.declare_registers(registers),
                Statement::Variable(variable) => {
                    self.span = variable.span;
                    if let Err(error) = self.declare_variable(variable) {
                        errors.push(*error);
                    }
                }
                Statement::Block(inner) => {
                    self.open(inner);
                    self.statements(inner, errors);
                    self.scopes.leave();
                }
                Statement::Loc(loc) => {
                    let place = (loc.file, loc.line, loc.column);
                    if self.locs.last() != Some(&place) {
                        self.locs.push(place);
                    }
                    self.loc = Some(self.locs.len() as u32 - 1);
                }
                Statement::BranchTargets { .. }
                | Statement::CallTargets { .. }
                | Statement::CallPrototype(_)
                | Statement::Pragma(_)
                | Statement::Comment(_) => {}
            }
        }
    }

    fn instruction(&mut self, instruction: &'m Instruction) -> crate::decode::Decoded<()> {
        self.span = instruction.span;
        self.reads.clear();
        self.writes = 0;
        self.trail = crate::decode::trail::Trail::default();
        self.guard = None;
        if let Some(guard) = &instruction.guard {
            let register = self.register(&guard.register)?;
            if register.ty != ScalarType::Pred {
                return Err(self.wrong(
                    rule::GUARD_TYPE,
                    format!(
                        "`{}` guards an instruction and is no predicate",
                        guard.register
                    ),
                ));
            }
            self.guard = Some(Guard {
                pred: register.pred(),
                negated: guard.negated,
            });
        }
        ops::decode(self, instruction)
    }
}
