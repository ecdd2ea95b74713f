//! What operands an instruction takes.
//!
//! A signature is a list of [`Slot`]s, the last few of which may be left out.
//! A form whose rules are not known accepts any operands: a missing signature loses a check, a
//! wrong one would reject a correct file.

use crate::instruction::{Constant, Instruction, Integer, Opcode, Operand};
use crate::types::ScalarType;

/// What one operand must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A register that is written.
    Out(ScalarType),
    /// The same, and it may be wider than the type.
    OutWide(ScalarType),
    /// The same, or `_`.
    OutOrSink(ScalarType),
    /// A predicate that is written, or `_`, or a pair `p|q`.
    OutPreds,
    /// A predicate that is written.
    OutPred,
    /// `d|p`, or `d` alone.
    OutMaybePred(ScalarType),
    /// `d|p`, where `d` may be `_`.
    OutAndPred(ScalarType),
    /// `{a, b, ...}` of registers that are written, or of `_`.
    OutList(u32, ScalarType),
    /// What `mov` writes: a register, or the parts that make one up.
    MoveTo(ScalarType),
    /// A register or a constant.
    In(ScalarType),
    /// The same, and the register may be wider than the type.
    InWide(ScalarType),
    /// The same, or the address of a variable.
    InOrAddress(ScalarType),
    /// A predicate, perhaps negated, or a constant.
    InPred,
    /// `{a, b, ...}` of registers or constants.
    InList(u32, ScalarType),
    /// What `mov` reads: all of the above, or the parts that make it up.
    MoveFrom(ScalarType),
    /// A whole vector register, or a list of as many elements.
    Whole(u32, ScalarType),
    /// `{a, b, ...}` of this many 32-bit registers that hold packed values.
    Packed(u32),
    /// A constant.
    Immediate,
    /// `[...]`.
    Address,
    /// A label.
    Label,
    /// Anything.
    Any,
}

/// The operands of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// What each operand must be.
    pub(crate) slots: Vec<Slot>,
    /// How many of them must be there.
    pub(crate) required: usize,
}

/// Why an opcode has no signature although its rules are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadOpcode {
    /// A type is missing, or something else that it can't do without.
    Missing(&'static str),
    /// It has a type that it does not take.
    Type(ScalarType, &'static str),
}

/// A constant that an instruction does not take.
pub(crate) struct OutOfRange {
    /// The operand.
    pub(crate) at: usize,
    pub(crate) message: String,
    pub(crate) help: &'static str,
}

pub(crate) type Lookup = Result<Option<Signature>, BadOpcode>;

/// How a row finds its signature.
pub(super) type Operands = fn(&Form<'_>) -> Lookup;

/// How a row finds a constant that can't be.
pub(super) type Range = fn(&Instruction) -> Option<OutOfRange>;

/// An opcode with its types.
pub(crate) struct Form<'i> {
    pub(super) op: &'i Opcode,
    /// The types among its modifiers, in order. What registers can't have is not here.
    pub(super) types: Vec<ScalarType>,
}

impl<'i> Form<'i> {
    pub(super) fn of(op: &'i Opcode) -> Form<'i> {
        let types = op.modifiers().filter_map(|m| m.parse().ok()).collect();
        Form { op, types }
    }

    pub(super) fn has(&self, modifier: &str) -> bool {
        self.op.has(modifier)
    }

    /// The first type.
    pub(super) fn first(&self) -> Option<ScalarType> {
        self.types.first().copied()
    }

    /// The first type, which the instruction can't do without.
    pub(super) fn typed(&self) -> Result<ScalarType, BadOpcode> {
        self.first()
            .ok_or(BadOpcode::Missing("a type such as `.b32`"))
    }
}

pub(super) fn exactly(slots: Vec<Slot>) -> Lookup {
    Ok(Some(Signature {
        required: slots.len(),
        slots,
    }))
}

pub(super) fn at_least(required: usize, slots: Vec<Slot>) -> Lookup {
    Ok(Some(Signature { slots, required }))
}

pub(super) const UNKNOWN: Lookup = Ok(None);

/// Takes whatever it is given.
pub(super) const ANYTHING: Operands = |_| UNKNOWN;

/// Takes nothing.
pub(super) const NOTHING: Operands = |_| exactly(Vec::new());

pub(super) fn is_integer(ty: ScalarType) -> bool {
    use ScalarType::*;
    matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
}

pub(super) fn is_bits(ty: ScalarType) -> bool {
    use ScalarType::*;
    matches!(ty, B8 | B16 | B32 | B64 | B128)
}

/// The constant that operand `at` is.
pub(super) fn constant(instruction: &Instruction, at: usize) -> Option<Integer> {
    match instruction.operands.get(at) {
        Some(Operand::Constant(Constant::Int(value))) => Some(*value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(op: &str) -> Lookup {
        let op = Opcode::from(op);
        op.row().expect("a row").operands(&op)
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(matches!(of("mul.s32"), Err(BadOpcode::Missing(_))));
        assert!(matches!(of("add"), Err(BadOpcode::Missing(_))));
        assert!(matches!(of("setp.s32"), Err(BadOpcode::Missing(_))));
        assert!(matches!(of("and.u32"), Err(BadOpcode::Type(..))));
        assert_eq!(of("tex.2d.v4.f32.f32"), UNKNOWN);
    }
}
