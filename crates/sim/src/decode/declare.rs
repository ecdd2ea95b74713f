//! Declarations: scopes, registers and variables get their places.

use super::cost::Decoded;
use super::decoder::Decoder;
use super::names::{Declared, Memory, Named, Register, Storage, rows_of};
use super::variables::MOST_ALIGNED;
use crate::code::NOWHERE;
use heist_ptx::{Linkage, Name, Registers, ScalarType, Space, Span, Statement, Variable, rule};

impl<'m> Decoder<'m> {
    /// Opens a scope with the labels that it declares itself.
    pub(crate) fn open(&mut self, statements: &'m [Statement]) {
        self.scopes.enter(statements);
        let labels = self.first_label + self.scopes.labels();
        self.labels.resize(labels, NOWHERE);
    }

    /// The innermost thing of this name.
    pub(crate) fn find(&mut self, name: &str) -> Option<Named> {
        let Some(found) = self.scopes.find(name) else {
            return self.module_variable(name).map(Named::Memory);
        };
        match found.entity {
            Declared::Memory(memory) => Some(Named::Memory(memory)),
            Declared::Registers { id, ty, lanes } => {
                let at = match self.registers.get(&(id, found.member)) {
                    Some(&at) => at,
                    None => self.place_register(name, (id, found.member), ty, lanes),
                };
                Some(Named::Register(Register { ty, at, lanes }))
            }
        }
    }

    /// Rows, or predicates, for a register that is mentioned for the first time.
    fn place_register(&mut self, name: &str, key: (u32, u32), ty: ScalarType, lanes: u32) -> u32 {
        let at = if ty == ScalarType::Pred {
            self.preds += lanes;
            self.preds - lanes
        } else {
            let at = self.fresh(rows_of(ty) * lanes).row();
            for part in 0..lanes {
                self.set_width(at + part * rows_of(ty), ty.bytes());
            }
            at
        };
        if self.function == 0 && ty != ScalarType::Pred {
            self.name_row(at, &Name::from(name));
        }
        self.registers.insert(key, at);
        at
    }

    /// The innermost label of this name.
    pub(crate) fn find_label(&self, name: &str) -> Option<u32> {
        let label = self.scopes.label(name)?;
        let number = self.first_label + label.number as usize;
        matches!(label.statement, Statement::Label { .. }).then_some(number as u32)
    }

    /// The innermost list of targets, or prototype, of this name.
    pub(crate) fn find_list(&self, name: &str) -> Option<&'m Statement> {
        let statement = self.scopes.label(name)?.statement;
        (!matches!(statement, Statement::Label { .. })).then_some(statement)
    }

    /// What is declared twice is an error of the structural rules; the last counts here.
    pub(crate) fn declare(&mut self, name: &Name, memory: Memory) {
        self.scopes
            .redeclare(name, Declared::Memory(memory), Span::NONE);
    }

    /// `.reg`.
    pub(crate) fn declare_registers(&mut self, registers: &Registers) {
        let lanes = registers.vector.map_or(1, |width| width.lanes() as u32);
        for name in &registers.names {
            self.declare_register(&name.name, name.count, registers.ty, lanes);
        }
    }

    pub(crate) fn declare_register(
        &mut self,
        name: &Name,
        count: Option<u32>,
        ty: ScalarType,
        lanes: u32,
    ) {
        if ty != ScalarType::Pred {
            let rows = (rows_of(ty) * lanes).saturating_mul(count.unwrap_or(1));
            self.shape.register_words = self.shape.register_words.saturating_add(rows);
        }
        let id = self.declarations;
        self.declarations += 1;
        let registers = Declared::Registers { id, ty, lanes };
        match count {
            // A second family of one name, or one around a register of its own: as above.
            Some(count) => {
                let _ = self
                    .scopes
                    .declare_family(name, count, registers, Span::NONE);
            }
            None => self.scopes.redeclare(name, registers, Span::NONE),
        }
    }

    /// A variable inside a function.
    pub(crate) fn declare_variable(&mut self, variable: &Variable) -> Decoded<()> {
        let size = variable.size();
        let place = match variable.space {
            Space::Local | Space::Param => {
                Storage::Frame(self.take_frame(size.unwrap_or(0), variable.alignment()))
            }
            Space::Shared if variable.linkage == Linkage::Extern || size.is_none() => {
                let asked = variable.alignment().clamp(16, MOST_ALIGNED) as u32;
                self.shape.dynamic_align = self.shape.dynamic_align.max(asked);
                Storage::Dynamic(0)
            }
            Space::Shared => {
                Storage::Shared(self.take_shared(size.unwrap_or(0), variable.alignment()))
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
                let lanes = variable.vector.map_or(1, |width| width.lanes() as u32);
                self.declare_register(&variable.name, None, variable.ty, lanes);
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
        self.declare(&variable.name, Memory { place, size });
        Ok(())
    }

    /// Room in the function's frame.
    pub(crate) fn take_frame(&mut self, size: u64, align: u64) -> u32 {
        let (at, end) = room(self.frame, size, align);
        self.frame = end;
        at
    }

    /// Room in the block's static shared memory.
    pub(crate) fn take_shared(&mut self, size: u64, align: u64) -> u32 {
        let start = self.shared_start;
        let (at, end) = room(start + self.shared_end, size, align);
        self.shared_end = end - start;
        at - start
    }

    /// A variable of the module; shared ones get their place on first use.
    fn module_variable(&mut self, name: &str) -> Option<Memory> {
        let variable = self.variables.find(name)?;
        let size = variable.size;
        let place = match variable.place {
            Some(place) => place,
            None => match self.shared.get(name) {
                Some(&at) => Storage::Shared(at),
                None => {
                    let (name, align) = (variable.name.clone(), variable.align);
                    let at = self.take_shared(size, align);
                    self.shared.insert(name, at);
                    Storage::Shared(at)
                }
            },
        };
        Some(Memory { place, size })
    }
}

/// The most bytes that are counted: what is larger fits nowhere, and is refused when the
/// kernel is launched.
const MOST_BYTES: u32 = 1 << 31;

/// Where something lies that comes behind the first `end` bytes, and where it ends.
pub(crate) fn room(end: u32, size: u64, align: u64) -> (u32, u32) {
    let most = u64::from(MOST_BYTES);
    let at = u64::from(end)
        .next_multiple_of(align.clamp(1, most))
        .min(most);
    (at as u32, at.saturating_add(size).min(most) as u32)
}

/// Offsets of a device function's results and parameters at the start of its
/// frame; the same for every function of one signature, so that a caller knows them.
pub(crate) fn signature_layout<'v>(
    variables: impl Iterator<Item = &'v Variable>,
) -> (Vec<(u32, u32)>, u32) {
    let mut end = 0u32;
    let places = variables
        .map(|variable| {
            let align = variable.alignment().clamp(1, 64);
            let (at, behind) = room(end, variable.size().unwrap_or(0), align);
            end = behind;
            (at, behind - at)
        })
        .collect();
    (places, end.next_multiple_of(8))
}
