//! Declarations: scopes, registers and variables get their places.

use super::cost::Decoded;
use super::decoder::Decoder;
use super::names::{Declared, Memory, Named, Place, Register, rows_of};
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
            self.fresh(rows_of(ty) * lanes).row()
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
                Place::Frame(self.take_frame(size.unwrap_or(0), variable.alignment()))
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

    /// Room in the function's frame. What is larger than can be is refused by the plan of
    /// the launch.
    pub(crate) fn take_frame(&mut self, size: u64, align: u64) -> u32 {
        let (at, end) = behind(self.frame, size, align);
        self.frame = end;
        at
    }

    /// Room in the block's static shared memory, likewise.
    pub(crate) fn take_shared(&mut self, size: u64, align: u64) -> u32 {
        let (at, end) = behind(self.shared_end, size, align);
        self.shared_end = end;
        at
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

/// More than a block's shared memory or a thread's frame can be, with room to round it up.
const MOST: u32 = 1 << 31;

/// Where something of this size and alignment begins and ends behind `end`; at [`MOST`]
/// where there is no such place.
pub(crate) fn behind(end: u32, size: u64, align: u64) -> (u32, u32) {
    let within = |at: Option<u64>| Some(at?.min(u64::from(MOST)) as u32);
    let at = within(u64::from(end).checked_next_multiple_of(align.max(1)));
    let past = within(at.and_then(|at| u64::from(at).checked_add(size)));
    (at.unwrap_or(MOST), past.unwrap_or(MOST))
}

/// Offsets of a device function's results and parameters at the start of its
/// frame; the same for every function of one signature, so that a caller knows them.
pub(crate) fn signature_layout<'v>(
    variables: impl Iterator<Item = &'v Variable>,
) -> (Vec<(u32, u32)>, u32) {
    let mut end = 0u32;
    let places = variables
        .map(|variable| {
            let size = variable.size().unwrap_or(0);
            let (at, past) = behind(end, size, variable.alignment().clamp(1, 64));
            end = past;
            (at, past - at)
        })
        .collect();
    (places, end.next_multiple_of(8))
}
