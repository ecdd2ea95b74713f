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
    /// It has another modifier that does not go with its type or its operation.
    Modifier(String, &'static str),
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

    /// The first modifier of which `what` is true, which does not go with the rest for the reason `why`.
    pub(super) fn refused(
        &self,
        what: impl Fn(&str) -> bool,
        why: &'static str,
    ) -> Result<(), BadOpcode> {
        match self.op.modifiers().find(|word| what(word)) {
            Some(word) => Err(BadOpcode::Modifier(word.to_owned(), why)),
            None => Ok(()),
        }
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

    #[test]
    fn modifiers_that_go_with_other_types_are_refused() {
        for (op, word) in [
            ("add.ftz.u32", "ftz"),
            ("mul.rn.ftz.f64", "ftz"),
            ("sub.rn.s32", "rn"),
            ("setp.lt.b32", "lt"),
            ("setp.lo.s32", "lo"),
            ("setp.nan.and.u32", "nan"),
            ("setp.hs.f32", "hs"),
            ("set.ge.u32.b64", "ge"),
            ("cvt.rn.f32.f32", "rn"),
            ("cvt.rz.f64.f32", "rz"),
            ("cvt.rzi.f64.f32", "rzi"),
            ("cvt.rni.u32.u64", "rni"),
            ("cvt.rn.s32.f32", "rn"),
            ("cvt.rzi.f32.s32", "rzi"),
            ("st.const.u32", "const"),
            ("red.const.add.u32", "const"),
        ] {
            let Err(BadOpcode::Modifier(told, _)) = of(op) else {
                panic!("{op}: {:?}", of(op));
            };
            assert_eq!(told, word, "{op}");
        }
        for op in [
            "add.ftz.f32",
            "add.ftz.f16",
            "add.sat.s32",
            "rcp.rn.ftz.f64",
            "rsqrt.approx.ftz.f64",
            "setp.ne.b32",
            "setp.lo.u32",
            "setp.lt.s32",
            "setp.equ.f32",
            "set.eq.u32.b16",
            "cvt.f32.f32",
            "cvt.rni.f32.f32",
            "cvt.ftz.sat.f32.f32",
            "cvt.f64.f32",
            "cvt.rn.f32.f64",
            "cvt.rzi.s32.f32",
            "cvt.rn.f32.s32",
            "ld.const.u32",
            "atom.add.u32",
            "red.shared.max.s32",
            "nanosleep.u32",
        ] {
            assert!(of(op).is_ok(), "{op}: {:?}", of(op));
        }
        for op in ["red.global.u32", "atom.global.b32", "nanosleep"] {
            assert!(matches!(of(op), Err(BadOpcode::Missing(_))), "{op}");
        }
        assert!(matches!(of("nanosleep.s32"), Err(BadOpcode::Type(..))));
    }
}
