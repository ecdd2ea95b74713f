//! Declarations: scopes, registers and variables get their places.

use super::cost::Decoded;
use super::decoder::Decoder;
use super::names::{Memory, Named, Place, Register, Scope, rows_of};
use heist_ptx::{
    Linkage, Name, Registers, ScalarType, Space, Statement, Variable, VectorWidth, rule,
};

impl<'m> Decoder<'m> {
    /// Opens a scope with the labels that it declares itself.
    pub(crate) fn open(&mut self, statements: &'m [Statement]) {
        let mut scope = Scope::default();
        for statement in statements {
            match statement {
                Statement::Label { name, .. } => {
                    scope.labels.insert(name.clone(), self.labels.len() as u32);
                    self.labels.push(crate::code::NOWHERE);
                }
                Statement::BranchTargets { label, .. } | Statement::CallTargets { label, .. } => {
                    scope.lists.insert(label.clone(), statement);
                }
                Statement::CallPrototype(prototype) => {
                    scope.lists.insert(prototype.label.clone(), statement);
                }
                _ => {}
            }
        }
        self.scopes.push(scope);
    }

    /// The innermost thing of this name.
    pub(crate) fn find(&mut self, name: &str) -> Option<Named> {
        for scope in self.scopes.iter().rev() {
            if let Some(named) = scope.names.get(name) {
                return Some(*named);
            }
        }
        self.module_variable(name).map(Named::Memory)
    }

    /// The innermost label of this name.
    pub(crate) fn find_label(&self, name: &str) -> Option<u32> {
        self.scopes
            .iter()
            .rev()
            .find_map(|scope| scope.labels.get(name).copied())
    }

    /// The innermost list of targets, or prototype, of this name.
    pub(crate) fn find_list(&self, name: &str) -> Option<&'m Statement> {
        self.scopes
            .iter()
            .rev()
            .find_map(|scope| scope.lists.get(name).copied())
    }

    pub(crate) fn declare(&mut self, name: Name, named: Named) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name, named);
        }
    }

    /// `.reg`.
    pub(crate) fn declare_registers(&mut self, registers: &Registers) {
        let lanes = registers.vector.map_or(1, |width| width.lanes() as u32);
        for name in &registers.names {
            match name.count {
                None => self.declare_register(name.name.clone(), registers.ty, lanes),
                Some(count) => {
                    for index in 0..count {
                        let full = Name::from(format!("{}{index}", name.name));
                        self.declare_register(full, registers.ty, lanes);
                    }
                }
            }
        }
    }

    pub(crate) fn declare_register(&mut self, name: Name, ty: ScalarType, lanes: u32) {
        let at = if ty == ScalarType::Pred {
            self.preds += lanes;
            self.preds - lanes
        } else {
            let rows = rows_of(ty) * lanes;
            self.shape.register_words += rows;
            self.fresh(rows).row()
        };
        if self.function == 0 && ty != ScalarType::Pred {
            self.name_row(at, &name);
        }
        self.declare(name, Named::Register(Register { ty, at, lanes }));
    }

    /// A variable inside a function.
    pub(crate) fn declare_variable(&mut self, variable: &Variable) -> Decoded<()> {
        let size = variable.size();
        let place = match variable.space {
            Space::Local | Space::Param => {
                let size = size.unwrap_or(0);
                Place::Frame(self.take_frame(size as u32, variable.alignment() as u32))
            }
            Space::Shared if variable.linkage == Linkage::Extern || size.is_none() => {
                Place::Dynamic(0)
            }
            Space::Shared => {
                Place::Shared(self.take_shared(size.unwrap_or(0), variable.alignment()))
            }
            Space::Global | Space::Const => match self.variables.find_local(variable) {
                Some(place) => place,
                None => {
                    return Err(self.wrong(
                        rule::UNDECLARED_VARIABLE,
                        format!("`{}` has no memory", variable.name),
                    ));
                }
            },
            Space::Reg => {
                let lanes = variable
                    .vector
                    .map_or(1, |width: VectorWidth| width.lanes() as u32);
                self.declare_register(variable.name.clone(), variable.ty, lanes);
                return Ok(());
            }
            Space::Sreg | Space::Tex => {
                return Err(self.wrong(
                    rule::UNSUPPORTED,
                    format!("the simulator has no `.{}` variables", variable.space),
                ));
            }
        };
        let size = size.unwrap_or(0);
        self.declare(variable.name.clone(), Named::Memory(Memory { place, size }));
        Ok(())
    }

    /// Room in the function's frame.
    pub(crate) fn take_frame(&mut self, size: u32, align: u32) -> u32 {
        let at = self.frame.next_multiple_of(align.max(1));
        self.frame = at.saturating_add(size);
        at
    }

    /// Room in the block's static shared memory.
    pub(crate) fn take_shared(&mut self, size: u64, align: u64) -> u32 {
        let at = u64::from(self.shared_end).next_multiple_of(align.max(1));
        self.shared_end = u32::try_from(at + size).unwrap_or(u32::MAX);
        at as u32
    }

    /// A variable of the module; shared ones get their place on first use.
    fn module_variable(&mut self, name: &str) -> Option<Memory> {
        let variable = self.variables.find(name)?;
        let size = variable.size;
        let place = match variable.place {
            Some(place) => place,
            None => match self.shared.get(name) {
                Some(&at) => Place::Shared(at),
                None => {
                    let (name, align) = (variable.name.clone(), variable.align);
                    let at = self.take_shared(size, align);
                    self.shared.insert(name, at);
                    Place::Shared(at)
                }
            },
        };
        Some(Memory { place, size })
    }
}

/// Offsets of a device function's results and parameters at the start of its
/// frame; the same for every function of one signature, so that a caller knows them.
pub(crate) fn signature_layout<'v>(
    variables: impl Iterator<Item = &'v Variable>,
) -> (Vec<(u32, u32)>, u32) {
    let mut end = 0u32;
    let places = variables
        .map(|variable| {
            let size = variable.size().unwrap_or(0) as u32;
            let at = end.next_multiple_of((variable.alignment() as u32).clamp(1, 64));
            end = at + size;
            (at, size)
        })
        .collect();
    (places, end.next_multiple_of(8))
}
