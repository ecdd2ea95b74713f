//! Operands: registers, numbers, addresses, predicates.

use super::address::{Addr, Base};
use super::constant::{Symbols, evaluate};
use super::names::{Named, Register, Storage};
use super::{Decoded, Decoder};
use crate::code::{Pred, PredSrc, Slot};
use crate::special::Special;
use crate::state::memory::window::Window;
use heist_ptx::isa::special_register;
use heist_ptx::{AddressBase, Constant, Operand, Part, ScalarType, rule};

impl Decoder<'_> {
    /// The register of a name, or a complaint.
    pub(crate) fn register(&mut self, name: &str) -> Decoded<Register> {
        match self.find(name) {
            Some(Named::Register(register)) => Ok(register),
            _ => Err(self.wrong(
                rule::UNDECLARED_REGISTER,
                format!("register `{name}` is not declared"),
            )),
        }
    }

    /// The elements of a list, or the parts of a vector: of a register, or of a special one.
    pub(crate) fn parts_of(&mut self, operand: &Operand) -> Option<Vec<Operand>> {
        const PARTS: [Part; 4] = [Part::X, Part::Y, Part::Z, Part::W];
        let name = match operand {
            Operand::Vector(parts) => return Some(parts.clone()),
            Operand::Name(name) => name,
            _ => return None,
        };
        let part_of = |part: Part| Operand::Part {
            name: name.clone(),
            part,
        };
        match self.find(name) {
            Some(Named::Register(register)) if register.lanes > 1 => {
                let parts = PARTS.iter().take(register.lanes as usize);
                Some(parts.map(|&part| part_of(part)).collect())
            }
            None if special_register(name).is_some_and(|special| special.parts) => {
                let [x, y, z, _] = PARTS.map(part_of);
                Some(vec![x, y, z, Operand::int(0)])
            }
            _ => None,
        }
    }

    fn part_index(&self, part: Part) -> Decoded<u32> {
        Ok(match part {
            Part::X => 0,
            Part::Y => 1,
            Part::Z => 2,
            Part::W => 3,
            Part::Byte(_) | Part::Half(_) | Part::Bytes(_) | Part::Halves(_) => {
                return Err(
                    self.wrong(rule::UNSUPPORTED, "the simulator has no video instructions")
                );
            }
        })
    }

    /// A source of type `ty`: a register, a number, a special register, or a
    /// variable's address.
    pub(crate) fn src(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Slot> {
        let slot = match operand {
            Operand::Name(name) => match self.find(name) {
                Some(Named::Register(register)) => {
                    if register.ty == ScalarType::Pred {
                        return Err(self.wrong(
                            rule::OPERAND_TYPE,
                            format!("`{name}` is a predicate, and a `.{ty}` is wanted"),
                        ));
                    }
                    self.fit(register, ty, name)?
                }
                Some(Named::Memory(memory)) => {
                    return self.address_constant(memory.place, 0, ty.bits() == 64);
                }
                None => self.special_or_function(name, None, ty)?,
            },
            Operand::Part { name, part } => match self.find(name) {
                Some(Named::Register(register)) => {
                    let index = self.part_index(*part)?;
                    if index >= register.lanes {
                        return Err(self.wrong(
                            rule::OPERAND_KIND,
                            format!("`{name}` has {} parts", register.lanes),
                        ));
                    }
                    register.slot(index)
                }
                _ => self.special_or_function(name, Some(*part), ty)?,
            },
            Operand::Constant(constant) => {
                if let Some(slot) = self.symbol_constant(constant, ty)? {
                    return Ok(slot);
                }
                let bits = evaluate(constant, ty, &self.symbols()).ok_or_else(|| {
                    self.wrong(
                        rule::BAD_NUMBER,
                        format!("this constant is not a `.{ty}` that can be computed"),
                    )
                })?;
                self.constant(bits, ty.bits())
            }
            _ => {
                return Err(self.wrong(
                    rule::OPERAND_KIND,
                    format!("a register or a number of type `.{ty}` is wanted here"),
                ));
            }
        };
        self.note_read(slot);
        Ok(slot)
    }

    /// A register as a source of type `ty`. Wider registers are taken by their low
    /// part where the rows allow it.
    fn fit(&mut self, register: Register, ty: ScalarType, name: &str) -> Decoded<Slot> {
        let (have, want) = (register.ty.bits(), ty.bits());
        let same_rows = have.max(32) == want.max(32);
        if same_rows && have >= want {
            return Ok(register.slot(0));
        }
        Err(self.wrong(
            rule::OPERAND_TYPE,
            format!(
                "`{name}` is a `.{}` of {have} bits, and `.{ty}` has {want}",
                register.ty
            ),
        ))
    }

    fn special_or_function(
        &mut self,
        name: &str,
        part: Option<Part>,
        ty: ScalarType,
    ) -> Decoded<Slot> {
        if let Some(special) = Special::named(name, part) {
            self.trail.place = match special {
                Special::ClusterCtaid(axis) => {
                    Some(crate::state::follow::ClusterRegister::Offset(axis))
                }
                Special::ClusterCtarank => Some(crate::state::follow::ClusterRegister::Rank),
                _ => self.trail.place,
            };
            return Ok(self.special(special));
        }
        if part.is_none()
            && let Some(&address) = self.variables.functions.get(name)
        {
            return Ok(self.constant(address, ty.bits()));
        }
        let code = if name.starts_with('%') {
            rule::UNDECLARED_REGISTER
        } else {
            rule::UNDECLARED_VARIABLE
        };
        Err(self.wrong(code, format!("`{name}` is not declared")))
    }

    /// `var+4` and `generic(var)` as operands.
    fn symbol_constant(&mut self, constant: &Constant, ty: ScalarType) -> Decoded<Option<Slot>> {
        let wide = ty.bits() == 64;
        let (symbol, addend, generic) = match constant {
            Constant::Symbol(name) => (name, 0, false),
            Constant::Generic(inner) => match &**inner {
                Constant::Symbol(name) => (name, 0, true),
                _ => return Ok(None),
            },
            Constant::Binary(heist_ptx::BinaryOp::Add, sides) => match (&sides.0, &sides.1) {
                (Constant::Symbol(name), Constant::Int(by)) => (name, by.bits(), false),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        match self.find(symbol) {
            Some(Named::Memory(memory)) => {
                let start = if generic {
                    place_window(memory.place).start()
                } else {
                    0
                };
                self.address_constant(memory.place, addend.wrapping_add(start), wide)
                    .map(Some)
            }
            Some(Named::Register(_)) => Ok(None),
            None => {
                let slot = self.special_or_function(&symbol.clone(), None, ty)?;
                Ok(Some(slot))
            }
        }
    }

    /// The address of a variable as a constant; not for variables in a frame.
    fn address_constant(&mut self, place: Storage, addend: u64, wide: bool) -> Decoded<Slot> {
        let bits = if wide { 64 } else { 32 };
        Ok(match place {
            Storage::Global(at) | Storage::Const(at) => {
                self.constant(at.wrapping_add(addend), bits)
            }
            Storage::Param(at) => self.constant(u64::from(at).wrapping_add(addend), bits),
            // Each block has its own, with its rank in it.
            Storage::Shared(at) => self.special(Special::Shared {
                within: u64::from(self.shared_start + at).wrapping_add(addend),
                wide,
            }),
            Storage::Dynamic(at) => self.special(Special::Dynamic {
                addend: at.wrapping_add(addend),
                wide,
            }),
            Storage::Frame(_) => {
                return Err(self.wrong(
                    rule::UNSUPPORTED,
                    "the address of a local variable can only be taken by `mov`",
                ));
            }
        })
    }

    /// Symbols that constant expressions may name; places in frames are not among them.
    fn symbols(&self) -> Symbols {
        Symbols::default()
    }

    /// A source register of any width, with the rows that it has.
    pub(crate) fn src_any(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<(Slot, u32)> {
        if let Operand::Name(name) = operand
            && let Some(Named::Register(register)) = self.find(name)
            && register.ty != ScalarType::Pred
        {
            let slot = register.slot(0);
            self.note_read(slot);
            return Ok((slot, register.rows()));
        }
        let slot = self.src(operand, ty)?;
        Ok((slot, super::names::rows_of(ty)))
    }

    /// A destination of type `ty`; `_` is a register that nobody reads.
    pub(crate) fn dst(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Slot> {
        let (slot, rows) = self.dst_any(operand, ty)?;
        if rows != super::names::rows_of(ty) {
            return Err(self.wrong(
                rule::OPERAND_TYPE,
                format!("the destination is not as wide as `.{ty}`"),
            ));
        }
        Ok(slot)
    }

    /// A destination of any width, with the rows that it has.
    pub(crate) fn dst_any(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<(Slot, u32)> {
        let (slot, rows) = match operand {
            Operand::Name(name) => {
                let register = self.register(name)?;
                if register.ty == ScalarType::Pred {
                    return Err(self.wrong(
                        rule::OPERAND_TYPE,
                        format!("`{name}` is a predicate, and a `.{ty}` is written here"),
                    ));
                }
                (register.slot(0), register.rows())
            }
            Operand::Part { name, part } => {
                let register = self.register(name)?;
                let index = self.part_index(*part)?;
                if index >= register.lanes {
                    return Err(self.wrong(
                        rule::OPERAND_KIND,
                        format!("`{name}` has {} parts", register.lanes),
                    ));
                }
                (register.slot(index), register.rows())
            }
            Operand::Sink => {
                let rows = super::names::rows_of(ty);
                (self.fresh(rows), rows)
            }
            _ => {
                return Err(self.wrong(
                    rule::OPERAND_KIND,
                    format!("a register for a `.{ty}` is wanted here"),
                ));
            }
        };
        self.note_write(slot);
        Ok((slot, rows))
    }

    /// A predicate as a destination; none for `_`.
    pub(crate) fn pred_dst(&mut self, operand: &Operand) -> Decoded<Option<Pred>> {
        match operand {
            Operand::Sink => Ok(None),
            Operand::Name(name) => {
                let register = self.register(name)?;
                if register.ty != ScalarType::Pred {
                    return Err(
                        self.wrong(rule::OPERAND_TYPE, format!("`{name}` is not a predicate"))
                    );
                }
                let pred = register.pred();
                self.trail.decides.push(pred);
                Ok(Some(pred))
            }
            _ => Err(self.wrong(rule::OPERAND_KIND, "a predicate is wanted here")),
        }
    }

    /// A predicate as a source.
    pub(crate) fn pred_src(&mut self, operand: &Operand) -> Decoded<PredSrc> {
        let (name, negated) = match operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            _ => return Err(self.wrong(rule::OPERAND_KIND, "a predicate is wanted here")),
        };
        let register = self.register(name)?;
        if register.ty != ScalarType::Pred {
            return Err(self.wrong(rule::OPERAND_TYPE, format!("`{name}` is not a predicate")));
        }
        let source = PredSrc {
            pred: register.pred(),
            negated,
        };
        self.trail.asks.push(source);
        Ok(source)
    }

    /// A number known here.
    pub(crate) fn immediate(&self, operand: &Operand) -> Option<u64> {
        match operand {
            Operand::Constant(constant) => super::constant::integer(constant, &Symbols::default()),
            _ => None,
        }
    }

    /// `[base+offset]`.
    pub(crate) fn address(&mut self, operand: &Operand) -> Decoded<Addr> {
        let Operand::Address(address) = operand else {
            return Err(self.wrong(rule::OPERAND_KIND, "an address in brackets is wanted here"));
        };
        let offset = address.offset;
        match &address.base {
            AddressBase::Absolute(at) => Ok(Addr {
                base: Base::Long(self.long(*at)),
                offset,
                window: None,
            }),
            AddressBase::Part { name, part } => {
                let register = self.register(name)?;
                let slot = register.slot(self.part_index(*part)?);
                self.note_read(slot);
                Ok(Addr {
                    base: self.base_of(slot, register.ty)?,
                    offset,
                    window: None,
                })
            }
            AddressBase::Name(name) => self.named_address(&name.clone(), offset),
        }
    }

    /// The address of a variable, or the one that a register holds.
    pub(crate) fn named_address(&mut self, name: &str, offset: i64) -> Decoded<Addr> {
        match self.find(name) {
            Some(Named::Register(register)) => {
                let slot = register.slot(0);
                self.note_read(slot);
                Ok(Addr {
                    base: self.base_of(slot, register.ty)?,
                    offset,
                    window: None,
                })
            }
            Some(Named::Memory(memory)) => {
                let base = match memory.place {
                    Storage::Frame(at) => Base::Frame(at),
                    place @ (Storage::Shared(_) | Storage::Dynamic(_)) => {
                        Base::Word(self.address_constant(place, 0, false)?)
                    }
                    place => Base::Long(self.address_constant(place, 0, true)?),
                };
                Ok(Addr {
                    base,
                    offset,
                    window: Some(place_window(memory.place)),
                })
            }
            None => {
                let slot = self.special_or_function(name, None, ScalarType::U64)?;
                Ok(Addr {
                    base: Base::Long(slot),
                    offset,
                    window: None,
                })
            }
        }
    }

    fn base_of(&self, slot: Slot, ty: ScalarType) -> Decoded<Base> {
        match ty.bits() {
            64 => Ok(Base::Long(slot)),
            32 => Ok(Base::Word(slot)),
            bits => Err(self.wrong(
                rule::OPERAND_TYPE,
                format!("an address is 32 or 64 bits wide, and this register has {bits}"),
            )),
        }
    }
}

/// The window that a variable lies in.
pub(crate) fn place_window(place: Storage) -> Window {
    match place {
        Storage::Global(_) => Window::Global,
        Storage::Const(_) => Window::Const,
        Storage::Shared(_) | Storage::Dynamic(_) => Window::Shared,
        Storage::Frame(_) => Window::Local,
        Storage::Param(_) => Window::Param,
    }
}
