//! Operands against the slots of a signature.
//!
//! Registers fit a type as the PTX ISA's "Operand Type Checking" says and ptxas
//! does it: a size must match, untyped bits go with everything of their size,
//! signed with unsigned, integers never with floating point; loads, stores and
//! conversions also take a wider register.

use super::entity::Entity;
use crate::analysis::Scopes;
use crate::diagnostic::Code;
use crate::instruction::{AddressBase, Constant, Operand, UnaryOp};
use crate::isa::{Slot, special_register};
use crate::rule;
use crate::types::{ScalarType, Space};

/// What is wrong with an operand; the caller adds where.
pub(super) struct Complaint {
    pub(super) code: Code,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// The name that the complaint is about, to point at it.
    pub(super) name: Option<String>,
}

type Verdict = Result<(), Complaint>;

fn complain(code: Code, message: String) -> Complaint {
    Complaint {
        code,
        message,
        help: None,
        name: None,
    }
}

/// Whether a register of type `register` can stand where `wanted` is asked for.
pub(super) fn fits(register: ScalarType, wanted: ScalarType, wide: bool) -> bool {
    use ScalarType::*;
    if wanted == Pred || register == Pred {
        // ptxas takes an f16x2 register for a predicate.
        return wanted == register || (wanted, register) == (Pred, F16x2);
    }
    let same_size = register.bits() == wanted.bits();
    let wider = register.bits() > wanted.bits();
    if !(same_size || (wide && wider)) {
        return false;
    }
    match class(register) {
        Class::Bits => true,
        Class::Integer => class(wanted) != Class::Float,
        Class::Float => match class(wanted) {
            Class::Bits => true,
            Class::Integer => false,
            Class::Float => same_size,
        },
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Untyped, or packed: only the size counts.
    Bits,
    Integer,
    Float,
}

fn class(ty: ScalarType) -> Class {
    use ScalarType::*;
    match ty {
        U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64 => Class::Integer,
        F16 | Bf16 | F32 | F64 => Class::Float,
        _ => Class::Bits,
    }
}

/// What a constant is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConstantKind {
    Whole,
    /// A decimal fraction, `0f...` or `0d...`.
    FloatBits,
    Address,
}

fn kind(constant: &Constant) -> ConstantKind {
    match constant {
        Constant::Int(_) | Constant::WarpSize | Constant::Cast { .. } => ConstantKind::Whole,
        Constant::F32(_) | Constant::F64(_) => ConstantKind::FloatBits,
        Constant::Symbol(_) | Constant::Generic(_) | Constant::Mask(..) => ConstantKind::Address,
        Constant::Unary(UnaryOp::Not | UnaryOp::Complement, _) => ConstantKind::Whole,
        Constant::Unary(_, inner) => kind(inner),
        Constant::Binary(_, sides) => match (kind(&sides.0), kind(&sides.1)) {
            (ConstantKind::Address, _) | (_, ConstantKind::Address) => ConstantKind::Address,
            (ConstantKind::Whole, ConstantKind::Whole) => ConstantKind::Whole,
            (side, ConstantKind::Whole) | (_, side) => side,
        },
        Constant::Select(parts) => kind(&parts.1),
    }
}

/// Checks operands of one instruction.
pub(super) struct Operands<'a, 'm> {
    pub(super) scopes: &'a Scopes<'m, Entity<'m>>,
    /// Whether a special register may be read directly.
    pub(super) specials: bool,
}

impl<'m> Operands<'_, 'm> {
    fn find(&self, name: &str) -> Option<Entity<'m>> {
        Entity::find(self.scopes, name)
    }

    pub(super) fn check(&self, slot: Slot, operand: &Operand) -> Verdict {
        use ScalarType::*;
        match slot {
            Slot::Any => Ok(()),
            Slot::Out(ty) => self.output(operand, ty, false),
            Slot::OutWide(ty) => self.output(operand, ty, true),
            Slot::OutOrSink(_) if *operand == Operand::Sink => Ok(()),
            Slot::OutOrSink(ty) => self.output(operand, ty, false),
            Slot::OutPred => self.output(operand, Pred, false),
            Slot::OutPreds => match operand {
                Operand::Sink => Ok(()),
                Operand::Pair(pair) => {
                    self.check(Slot::OutOrSink(Pred), &pair.0)?;
                    self.check(Slot::OutOrSink(Pred), &pair.1)
                }
                _ => self.output(operand, Pred, false),
            },
            Slot::OutMaybePred(ty) | Slot::OutAndPred(ty) => match operand {
                Operand::Pair(pair) => {
                    self.check(Slot::OutOrSink(ty), &pair.0)?;
                    self.check(Slot::OutOrSink(Pred), &pair.1)
                }
                _ if matches!(slot, Slot::OutAndPred(_)) => Err(complain(
                    rule::OPERAND_KIND,
                    "the first operand must be a pair, `d|p` or `_|p`".into(),
                )),
                _ => self.output(operand, ty, false),
            },
            Slot::OutList(count, ty) | Slot::InList(count, ty) => {
                self.list(operand, count, &|element| self.element(element, ty, true))
            }
            Slot::Packed(count) => {
                self.list(operand, count, &|element| self.element(element, B32, false))
            }
            Slot::MoveTo(ty) => self.move_to(ty, operand),
            Slot::MoveFrom(ty) => self.move_from(ty, operand),
            Slot::Whole(count, ty) => match operand {
                Operand::Vector(_) => {
                    self.list(operand, count, &|element| self.element(element, ty, false))
                }
                Operand::Name(name) if self.vector(name).is_some() => {
                    self.list(operand, count, &|_| Ok(()))
                }
                Operand::Constant(constant) => literal(constant, ty),
                _ => Ok(()),
            },
            Slot::In(ty) => self.input(operand, ty, false),
            Slot::InWide(ty) => self.input(operand, ty, true),
            Slot::InOrAddress(ty) => match operand {
                Operand::Name(name) if matches!(self.find(name), Some(Entity::Variable(_))) => {
                    Ok(())
                }
                Operand::Constant(constant) if kind(constant) == ConstantKind::Address => Ok(()),
                _ => self.input(operand, ty, false),
            },
            Slot::InPred => match operand {
                Operand::Not(name) => self.named(name, Pred, false),
                Operand::Constant(_) => Ok(()),
                _ => self.register(operand, Pred, false),
            },
            Slot::Immediate => match operand {
                Operand::Constant(_) => Ok(()),
                _ => Err(complain(
                    rule::OPERAND_KIND,
                    format!("{} must be a constant", describe(operand)),
                )),
            },
            Slot::Address => match operand {
                Operand::Address(_) => Ok(()),
                _ => Err(Complaint {
                    help: Some("an address is written in brackets: `[%rd1+16]`".into()),
                    ..complain(
                        rule::OPERAND_KIND,
                        format!("{} must be an address", describe(operand)),
                    )
                }),
            },
            Slot::Label => match operand {
                Operand::Name(name) if self.scopes.label(name).is_some() => Ok(()),
                _ => Err(complain(
                    rule::OPERAND_KIND,
                    format!("{} must be a label", describe(operand)),
                )),
            },
        }
    }

    /// Something that is written: a register, never a constant or a special one.
    fn output(&self, operand: &Operand, ty: ScalarType, wide: bool) -> Verdict {
        match operand {
            Operand::Name(name) | Operand::Part { name, .. }
                if self.find(name).is_none() && special_register(name).is_some() =>
            {
                Err(Complaint {
                    name: Some(name.to_string()),
                    ..complain(
                        rule::OPERAND_KIND,
                        format!("special register `{name}` can't be written"),
                    )
                })
            }
            Operand::Constant(_) => Err(complain(
                rule::OPERAND_KIND,
                "the result needs a register, not a constant".into(),
            )),
            Operand::Sink => Err(complain(
                rule::OPERAND_KIND,
                "the result can't be thrown away here with `_`".into(),
            )),
            // A list of one is as good as its element.
            Operand::Vector(elements) => match &elements[..] {
                [one] => self.output(one, ty, wide),
                _ => Err(wrong_length(elements.len(), 1)),
            },
            _ => self.register(operand, ty, wide),
        }
    }

    /// Something that is read: a register or a constant.
    fn input(&self, operand: &Operand, ty: ScalarType, wide: bool) -> Verdict {
        match operand {
            Operand::Constant(constant) => literal(constant, ty),
            Operand::Vector(elements) => match &elements[..] {
                [one] => self.input(one, ty, wide),
                _ => Err(wrong_length(elements.len(), 1)),
            },
            _ => self.register(operand, ty, wide),
        }
    }

    fn register(&self, operand: &Operand, ty: ScalarType, wide: bool) -> Verdict {
        match operand {
            Operand::Name(name) => self.named(name, ty, wide),
            // A part has the type of its vector; parts of scalars are for the
            // video instructions, which have no signature.
            Operand::Part { name, .. } => match self.find(name) {
                Some(Entity::Register {
                    ty: register,
                    vector: Some(_),
                }) if !fits(register, ty, wide) => Err(mismatch(name, register, ty, wide)),
                Some(_) => Ok(()),
                None => self.special(name),
            },
            _ => Err(complain(
                rule::OPERAND_KIND,
                format!("{} stands where a register is needed", describe(operand)),
            )),
        }
    }

    fn special(&self, name: &str) -> Verdict {
        if self.specials || special_register(name).is_none() {
            return Ok(());
        }
        Err(Complaint {
            help: Some("read it first: `mov.u32` into a register".into()),
            name: Some(name.to_string()),
            ..complain(
                rule::OPERAND_KIND,
                format!("special register `{name}` can only be read by `mov` and `cvt`"),
            )
        })
    }

    fn named(&self, name: &str, ty: ScalarType, wide: bool) -> Verdict {
        match self.find(name) {
            Some(Entity::Register {
                ty: register,
                vector: None,
            }) if !fits(register, ty, wide) => Err(mismatch(name, register, ty, wide)),
            Some(Entity::Register { vector: None, .. }) => Ok(()),
            Some(entity @ Entity::Register { .. }) => Err(Complaint {
                help: Some(format!("name one element of it: `{name}.x`")),
                name: Some(name.to_string()),
                ..complain(
                    rule::OPERAND_KIND,
                    format!(
                        "`{name}` is {}, and a single register is needed",
                        entity.describe()
                    ),
                )
            }),
            Some(entity) => Err(Complaint {
                help: matches!(entity, Entity::Variable(_))
                    .then(|| format!("take its address first: `mov.u64` of `{name}`, or load it")),
                name: Some(name.to_string()),
                ..complain(
                    rule::OPERAND_KIND,
                    format!(
                        "`{name}` is {}, and a register is needed",
                        entity.describe()
                    ),
                )
            }),
            // Undeclared names are reported by themselves.
            None => {
                self.special(name)?;
                match special_register(name) {
                    // `mov` reads all four parts into 128 bits.
                    Some(special) if special.parts && ty.bits() < 128 => Err(Complaint {
                        help: Some(format!("name one part of it: `{name}.x`")),
                        name: Some(name.to_string()),
                        ..complain(
                            rule::OPERAND_KIND,
                            format!("`{name}` has four parts, and a single register is needed"),
                        )
                    }),
                    _ => Ok(()),
                }
            }
        }
    }

    /// One of several in a list, of which ptxas only looks at the size, and not
    /// even at that of a predicate.
    fn element(&self, operand: &Operand, ty: ScalarType, wide: bool) -> Verdict {
        match operand {
            Operand::Sink | Operand::Constant(_) => Ok(()),
            Operand::Name(name) => match self.find(name) {
                Some(Entity::Register {
                    ty: register,
                    vector: None,
                }) => {
                    let fits = register == ScalarType::Pred
                        || register.bits() == ty.bits()
                        || (wide && register.bits() > ty.bits());
                    if fits {
                        Ok(())
                    } else {
                        Err(mismatch(name, register, ty, wide))
                    }
                }
                _ => self.named(name, ty, wide),
            },
            _ => self.register(operand, ty, wide),
        }
    }

    fn list(&self, operand: &Operand, count: u32, check: &dyn Fn(&Operand) -> Verdict) -> Verdict {
        match operand {
            Operand::Vector(elements) if elements.len() == count as usize => {
                elements.iter().try_for_each(check)
            }
            Operand::Vector(elements) => Err(wrong_length(elements.len(), count)),
            Operand::Name(name) => match self.find(name) {
                Some(Entity::Register {
                    vector: Some(width),
                    ..
                }) if width.lanes() == u64::from(count) => Ok(()),
                None => Ok(()),
                Some(_) => Err(Complaint {
                    name: Some(name.to_string()),
                    ..complain(
                        rule::VECTOR_LENGTH,
                        format!("`{name}` stands where a list of {count} registers is needed"),
                    )
                }),
            },
            _ => Err(complain(
                rule::VECTOR_LENGTH,
                format!(
                    "{} stands where a list of {count} registers is needed",
                    describe(operand)
                ),
            )),
        }
    }

    /// The register an address is counted from.
    pub(super) fn address(&self, operand: &Operand, space: Option<Space>, wide: bool) -> Verdict {
        let Operand::Address(address) = operand else {
            return Ok(());
        };
        let AddressBase::Name(name) = &address.base else {
            return Ok(());
        };
        match self.find(name) {
            Some(Entity::Register { ty, vector: None }) => {
                let integer = class(ty) == Class::Integer
                    || matches!(
                        ty,
                        ScalarType::B8 | ScalarType::B16 | ScalarType::B32 | ScalarType::B64
                    );
                if !integer {
                    return Err(Complaint {
                        name: Some(name.to_string()),
                        ..complain(
                            rule::OPERAND_TYPE,
                            format!(
                                "`{name}` is a `.{ty}` register, and an address needs an integer"
                            ),
                        )
                    });
                }
                if wide && ty.bits() == 32 && matches!(space, None | Some(Space::Global)) {
                    return Err(Complaint {
                        name: Some(name.to_string()),
                        help: Some(
                            "widen it with `cvt.u64.u32`, or name the right state space".into(),
                        ),
                        ..complain(
                            rule::OPERAND_TYPE,
                            format!(
                                "`{name}` has 32 bits, and an address {} has 64",
                                if space.is_none() {
                                    "without a state space"
                                } else {
                                    "in `.global`"
                                }
                            ),
                        )
                    });
                }
                Ok(())
            }
            Some(Entity::Variable(variable)) => match space {
                Some(space) if space != variable.space => Err(Complaint {
                    name: Some(name.to_string()),
                    help: Some(format!(
                        "write `.{}`, or leave the state space out and use a generic address",
                        variable.space
                    )),
                    ..complain(
                        rule::WRONG_SPACE,
                        format!(
                            "`{name}` lives in `.{}`, and is accessed in `.{space}`",
                            variable.space
                        ),
                    )
                }),
                _ => Ok(()),
            },
            Some(Entity::Label) => Err(Complaint {
                name: Some(name.to_string()),
                ..complain(
                    rule::OPERAND_KIND,
                    format!("`{name}` is a label, and can't be used as an address"),
                )
            }),
            _ => Ok(()),
        }
    }

    /// The type and number of elements of a vector register.
    fn vector(&self, name: &str) -> Option<(ScalarType, u32)> {
        match self.find(name) {
            Some(Entity::Register {
                ty,
                vector: Some(width),
            }) => Some((ty, width.lanes() as u32)),
            _ => None,
        }
    }

    /// A vector register that `mov` packs into a scalar of type `ty`, or unpacks one to.
    fn packed(&self, name: &str, ty: ScalarType) -> Option<Verdict> {
        let (element, lanes) = self.vector(name)?;
        let fits = class(ty) == Class::Bits && element.bits() * lanes == ty.bits();
        Some(if fits {
            Ok(())
        } else {
            Err(Complaint {
                name: Some(name.to_string()),
                ..complain(
                    rule::VECTOR_LENGTH,
                    format!("the {lanes} `.{element}` of `{name}` do not make up a `.{ty}`"),
                )
            })
        })
    }

    /// The first operand of a `mov` of one value.
    fn move_to(&self, ty: ScalarType, to: &Operand) -> Verdict {
        if let Operand::Name(name) = to
            && let Some(verdict) = self.packed(name, ty)
        {
            return verdict;
        }
        match to {
            Operand::Vector(elements) => self.halves(ty, elements, true),
            _ => self.output(to, ty, false),
        }
    }

    /// The second operand of a `mov` of one value.
    fn move_from(&self, ty: ScalarType, from: &Operand) -> Verdict {
        if let Operand::Name(name) = from
            && let Some(verdict) = self.packed(name, ty)
        {
            return verdict;
        }
        match from {
            Operand::Vector(elements) => self.halves(ty, elements, false),
            Operand::Not(name) => self.named(name, ty, false),
            Operand::Name(name) => match self.find(name) {
                // An address, which is as wide as addresses are.
                Some(Entity::Variable(_) | Entity::Function(_)) => Ok(()),
                Some(Entity::Label) => Err(Complaint {
                    name: Some(name.to_string()),
                    ..complain(
                        rule::OPERAND_KIND,
                        format!("`{name}` is a label, and its address can't be taken"),
                    )
                }),
                _ => self.input(from, ty, false),
            },
            _ => self.input(from, ty, false),
        }
    }

    /// `mov.b64 {lo, hi}, d` and its kind: the elements together have the size of the type.
    fn halves(&self, ty: ScalarType, elements: &[Operand], written: bool) -> Verdict {
        let count = elements.len() as u32;
        if !matches!(count, 2 | 4 | 8 | 16) || !ty.bits().is_multiple_of(count) {
            return Err(complain(
                rule::VECTOR_LENGTH,
                format!("a list of {count} registers can't make up a `.{ty}`"),
            ));
        }
        let part = match ty.bits() / count {
            8 => ScalarType::B8,
            16 => ScalarType::B16,
            32 => ScalarType::B32,
            64 => ScalarType::B64,
            _ => return Ok(()),
        };
        elements.iter().try_for_each(|element| match element {
            Operand::Sink if !written => self.register(element, part, false),
            Operand::Constant(_) if written => self.output(element, part, false),
            _ => self.element(element, part, false),
        })
    }
}

fn literal(constant: &Constant, ty: ScalarType) -> Verdict {
    use ScalarType::*;
    let wrong = match kind(constant) {
        ConstantKind::Whole => matches!(ty, F32 | F64).then_some("a whole number"),
        ConstantKind::FloatBits => {
            (class(ty) == Class::Integer).then_some("a floating-point constant")
        }
        ConstantKind::Address => None,
    };
    match wrong {
        None => Ok(()),
        Some(what) => Err(Complaint {
            help: match (ty, kind(constant)) {
                (F32, ConstantKind::Whole) => Some("write `1.0`, or the bits: `0f3F800000`".into()),
                (F64, ConstantKind::Whole) => {
                    Some("write `1.0`, or the bits: `0d3FF0000000000000`".into())
                }
                _ => None,
            },
            ..complain(
                rule::OPERAND_TYPE,
                format!("{what} stands where `.{ty}` is needed"),
            )
        }),
    }
}

fn mismatch(name: &str, register: ScalarType, wanted: ScalarType, wide: bool) -> Complaint {
    let help = if wanted == ScalarType::Pred {
        Some("make a predicate with `setp`".to_string())
    } else if register == ScalarType::Pred {
        Some("turn a predicate into a number with `selp`".to_string())
    } else if wanted == ScalarType::B128 {
        Some("make one of two halves: `mov.b128 %q, {low, high}`".to_string())
    } else if register.bits() != wanted.bits() {
        Some(format!(
            "convert with `cvt`, or use a register of {}{} bits",
            if wide { "at least " } else { "" },
            wanted.bits()
        ))
    } else {
        Some(format!(
            "move the bits with `mov.b{}`, or convert the value with `cvt`",
            wanted.bits()
        ))
    };
    Complaint {
        help,
        name: Some(name.to_string()),
        ..complain(
            rule::OPERAND_TYPE,
            format!("`{name}` is a `.{register}` register, and `.{wanted}` is needed"),
        )
    }
}

fn wrong_length(found: usize, wanted: u32) -> Complaint {
    complain(
        rule::VECTOR_LENGTH,
        format!(
            "a list of {found} stands where {wanted} {} needed",
            if wanted == 1 { "is" } else { "are" }
        ),
    )
}

/// An operand, to begin a sentence about it.
fn describe(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) | Operand::Part { name, .. } => format!("`{name}`"),
        Operand::Not(name) => format!("`!{name}`"),
        Operand::NegatedPart { name, .. } => format!("`-{name}`"),
        Operand::Constant(_) => "a constant".into(),
        Operand::Address(_) => "an address".into(),
        Operand::Vector(elements) => format!("a list of {}", elements.len()),
        Operand::Pair(_) => "a pair".into(),
        Operand::Sink => "`_`".into(),
        Operand::Tuple(_) => "a list in parentheses".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::fits;
    use crate::types::ScalarType::*;

    /// The same answers as ptxas gives, see `tests/validate.rs`.
    #[test]
    fn registers_fit_by_size_and_kind() {
        assert!(fits(B32, F32, false) && fits(B32, U32, false) && fits(S32, U32, false));
        assert!(fits(F32, B32, false) && !fits(F32, U32, false) && !fits(U32, F32, false));
        assert!(!fits(B64, U32, false) && fits(B64, U32, true) && !fits(B32, U64, true));
        assert!(fits(F64, B32, true) && !fits(F64, F32, true) && fits(B64, F32, true));
        assert!(fits(Pred, Pred, false) && !fits(B32, Pred, true) && !fits(Pred, B8, true));
    }
}
