//! Bits: logic, shifts, fields and permutations.

use super::operands::{BadOpcode, Form, Lookup, Slot, at_least, exactly, is_bits};
use super::row::{Family, Row, Unit};
use crate::arch::Feature;
use crate::types::ScalarType;

const fn bits(name: &'static str, operands: fn(&Form<'_>) -> Lookup) -> Row {
    Row::computing(name, Family::Logic, operands)
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    bits("and", both).unit(Unit::Logic).tested("tests/ptx/bits/logic.ptx"),
    bits("bfe", |form| typed(form, &[Of, U32, U32])).tested("tests/ptx/bits/field.ptx"),
    bits("bfi", |form| typed(form, &[Of, Of, U32, U32])).tested("tests/ptx/bits/field.ptx"),
    bits("bfind", count).tested("tests/ptx/bits/count.ptx"),
    bits("bmsk", |form| typed(form, &[Of, U32])).needs(|_, needs| needs.add(Feature::SignExtend)).tested("tests/ptx/bits/field.ptx"),
    bits("brev", |form| { wide(form)?; typed(form, &[Of]) }).tested("tests/ptx/bits/count.ptx"),
    bits("clz", count_bits).tested("tests/ptx/bits/count.ptx"),
    bits("cnot", |form| { untyped(form)?; typed(form, &[Of]) }).tested("tests/ptx/bits/logic.ptx"),
    bits("fns", |form| typed(form, &[Of, Of, S32])).tested("tests/ptx/bits/fns.ptx"),
    bits("lop3", table).tested("tests/ptx/bits/lop3.ptx"),
    bits("not", negation).unit(Unit::Logic).tested("tests/ptx/bits/logic.ptx"),
    bits("or", both).unit(Unit::Logic).tested("tests/ptx/bits/logic.ptx"),
    bits("popc", count_bits).tested("tests/ptx/bits/count.ptx"),
    bits("prmt", |form| typed(form, &[Of, Of, Of])).tested("tests/ptx/bits/prmt.ptx"),
    bits("shf", |form| typed(form, &[Of, Of, U32])).tested("tests/ptx/bits/funnel.ptx"),
    bits("shl", |form| { untyped(form)?; typed(form, &[Of, U32]) }).tested("tests/ptx/bits/shift.ptx"),
    bits("shr", |form| typed(form, &[Of, U32])).tested("tests/ptx/bits/shift.ptx"),
    bits("szext", |form| typed(form, &[Of, U32])).needs(|_, needs| needs.add(Feature::SignExtend)).tested("tests/ptx/bits/field.ptx"),
    bits("xor", both).unit(Unit::Logic).tested("tests/ptx/bits/logic.ptx"),
];

/// An operand: of the instruction's own type, or of a fixed one.
#[derive(Clone, Copy)]
enum Input {
    Of,
    U32,
    S32,
}
use Input::{Of, S32, U32};

/// A result of the instruction's type, and these inputs.
fn typed(form: &Form<'_>, inputs: &[Input]) -> Lookup {
    let ty = form.typed()?;
    let mut slots = vec![Slot::Out(ty)];
    slots.extend(inputs.iter().map(|input| match input {
        Of => Slot::In(ty),
        U32 => Slot::In(ScalarType::U32),
        S32 => Slot::In(ScalarType::S32),
    }));
    exactly(slots)
}

/// The type of logic, which is on untyped bits or on predicates.
fn untyped(form: &Form<'_>) -> Result<ScalarType, BadOpcode> {
    let ty = form.typed()?;
    if is_bits(ty) || ty == ScalarType::Pred {
        Ok(ty)
    } else {
        Err(BadOpcode::Type(
            ty,
            "logic is on untyped bits: `.b16`, `.b32` or `.b64`",
        ))
    }
}

fn both(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match untyped(form)? {
        ScalarType::Pred => exactly(vec![OutPred, InPred, InPred]),
        ty => exactly(vec![Out(ty), In(ty), In(ty)]),
    }
}

fn negation(form: &Form<'_>) -> Lookup {
    match untyped(form)? {
        ScalarType::Pred => exactly(vec![Slot::OutPred, Slot::InPred]),
        _ => typed(form, &[Of]),
    }
}

/// The type of what works on whole words.
fn wide(form: &Form<'_>) -> Result<(), BadOpcode> {
    match form.typed()? {
        ScalarType::B32 | ScalarType::B64 => Ok(()),
        ty => Err(BadOpcode::Type(
            ty,
            "it is on untyped bits: `.b32` or `.b64`",
        )),
    }
}

fn count_bits(form: &Form<'_>) -> Lookup {
    wide(form)?;
    count(form)
}

fn count(form: &Form<'_>) -> Lookup {
    exactly(vec![Slot::Out(ScalarType::U32), Slot::In(form.typed()?)])
}

fn table(form: &Form<'_>) -> Lookup {
    use Slot::*;
    let ty = form.typed()?;
    at_least(
        5,
        vec![OutMaybePred(ty), In(ty), In(ty), In(ty), Immediate, InPred],
    )
}
