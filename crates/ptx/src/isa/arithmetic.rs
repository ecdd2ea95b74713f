//! Numbers: arithmetic, comparisons and conversions.

use super::needs::{Asking, Needs};
use super::operands::{BadOpcode, Form, Lookup, Slot, UNKNOWN, at_least, exactly};
use super::operands::{is_bits, is_integer};
use super::row::{Family, Row, Unit, Value};
use crate::arch::Feature;
use crate::types::ScalarType;

const INTEGER: &str = "tests/ptx/integer/min_max_abs_neg.ptx";

const fn number(name: &'static str, operands: fn(&Form<'_>) -> Lookup) -> Row {
    Row::computing(name, Family::Arithmetic, operands)
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    number("abs", signed).needs(sign_needs).tested("tests/ptx/float/sign.ptx"),
    number("add", binary).needs(sum_needs).value(Value::Sum).unit(Unit::Adder).tested("tests/ptx/integer/add_sub.ptx"),
    number("addc", binary).tested("tests/ptx/integer/carry.ptx"),
    number("copysign", binary).tested("tests/ptx/float/sign.ptx"),
    number("cos", approximated).tested("tests/ptx/approx/f32.ptx"),
    number("div", quotient).tested("tests/ptx/float/div.ptx"),
    number("dp2a", dot).unit(Unit::Multiplier).tested("tests/ptx/integer/dot.ptx"),
    number("dp4a", dot).unit(Unit::Multiplier).tested("tests/ptx/integer/dot.ptx"),
    number("ex2", approximated).needs(ex2_needs).tested("tests/ptx/approx/half.ptx"),
    number("fma", fused).needs(fma_needs).unit(Unit::Adder).tested("tests/ptx/float/fma.ptx"),
    number("lg2", approximated).tested("tests/ptx/approx/f32.ptx"),
    number("mad", product_sum).unit(Unit::Multiplier).tested("tests/ptx/integer/mad.ptx"),
    number("mad24", product_sum).unit(Unit::Multiplier).tested("tests/ptx/integer/mul24.ptx"),
    number("madc", ternary).unit(Unit::Multiplier).tested("tests/ptx/integer/carry.ptx"),
    number("max", extreme).needs(extreme_needs).tested(INTEGER),
    number("min", extreme).needs(extreme_needs).tested(INTEGER),
    number("mul", product).needs(sum_needs).unit(Unit::Multiplier).tested("tests/ptx/integer/mul.ptx"),
    number("mul24", product).unit(Unit::Multiplier).tested("tests/ptx/integer/mul24.ptx"),
    number("neg", signed).needs(sign_needs).tested("tests/ptx/float/sign.ptx"),
    number("rcp", root).tested("tests/ptx/float/rcp_sqrt.ptx"),
    number("rem", remainder).tested("tests/ptx/integer/div_rem.ptx"),
    number("rsqrt", approximated).tested("tests/ptx/approx/f64.ptx"),
    number("sad", ternary).tested(INTEGER),
    number("sin", approximated).tested("tests/ptx/approx/f32.ptx"),
    number("sqrt", root).tested("tests/ptx/float/rcp_sqrt.ptx"),
    number("sub", binary).needs(sum_needs).unit(Unit::Adder).tested("tests/ptx/float/sub.ptx"),
    number("subc", binary).tested("tests/ptx/integer/carry.ptx"),
    number("tanh", approximated).needs(tanh_needs).tested("tests/ptx/approx/half.ptx"),
    number("testp", test).value(Value::Decided).tested("tests/ptx/float/sign.ptx"),
    Row::computing("selp", Family::Compare, select).tested("tests/ptx/compare/setp.ptx"),
    Row::computing("set", Family::Compare, set).tested("tests/ptx/compare/set.ptx"),
    Row::computing("setp", Family::Compare, decide).value(Value::Decided).tested("tests/ptx/compare/setp.ptx"),
    Row::computing("slct", Family::Compare, select_by_sign).tested("tests/ptx/compare/select.ptx"),
    Row::computing("cvt", Family::Convert, convert).value(Value::Converted).reading_special()
        .needs(convert_needs).tested("tests/ptx/cvt/int_to_float.ptx"),
];

/// The type of an arithmetic instruction; `None` where there are several, which is
/// mixed precision, or one that registers can't have.
fn number_type(form: &Form<'_>) -> Result<Option<ScalarType>, BadOpcode> {
    let ty = match form.types[..] {
        [] if form.op.modifiers().any(|m| m.ends_with("8x4")) => return Ok(None),
        [] => return Err(BadOpcode::Missing("a type such as `.s32`")),
        [ty] => ty,
        _ => return Ok(None),
    };
    if is_bits(ty) || ty == ScalarType::Pred {
        return Err(BadOpcode::Type(
            ty,
            "arithmetic is on integers or floating-point numbers, not on untyped bits",
        ));
    }
    goes_with(form, ty)?;
    Ok(Some(ty))
}

/// Fails where a modifier of floating-point numbers stands beside another type.
fn goes_with(form: &Form<'_>, ty: ScalarType) -> Result<(), BadOpcode> {
    let flushes = |word: &str| word == "ftz";
    if is_integer(ty) {
        form.refused(
            flushes,
            "it flushes subnormal floating-point numbers to zero, and integers have none: leave it out",
        )?;
        return form.refused(
            |word| ROUNDINGS.contains(&word),
            "integers are not rounded: leave it out, or compute with a floating-point type",
        );
    }
    if ty == ScalarType::F64 && !matches!(form.op.base(), "rcp" | "rsqrt") {
        return form.refused(
            flushes,
            "subnormal numbers of `.f64` are kept: only `.f32` and halves have it; leave it out",
        );
    }
    Ok(())
}

/// A result and `inputs` operands of one type.
fn uniform(form: &Form<'_>, inputs: usize) -> Lookup {
    let Some(ty) = number_type(form)? else {
        return UNKNOWN;
    };
    let mut slots = vec![Slot::Out(ty)];
    slots.resize(1 + inputs, Slot::In(ty));
    exactly(slots)
}

fn signed(form: &Form<'_>) -> Lookup {
    use ScalarType::{U8, U16, U32, U64};
    match number_type(form)? {
        Some(ty @ (U8 | U16 | U32 | U64)) => Err(BadOpcode::Type(
            ty,
            "only numbers with a sign have another one: `.s16`, `.s32`, `.s64` or floating-point",
        )),
        _ => uniform(form, 1),
    }
}

fn remainder(form: &Form<'_>) -> Lookup {
    match number_type(form)? {
        Some(ty) if !is_integer(ty) => {
            Err(BadOpcode::Type(ty, "integers alone have a remainder here"))
        }
        _ => uniform(form, 2),
    }
}

/// Names of roundings, to floating-point numbers.
const ROUNDINGS: [&str; 4] = ["rn", "rz", "rm", "rp"];
/// The same, also to whole numbers and at random.
const CONVERSIONS: [&str; 10] = [
    "rn", "rz", "rm", "rp", "rna", "rs", "rni", "rzi", "rmi", "rpi",
];

/// Fails where an instruction on floating-point numbers does not say how it rounds, by one of `names`.
fn says(form: &Form<'_>, names: &[&str], what: &'static str) -> Result<(), BadOpcode> {
    match names.iter().any(|name| form.has(name)) {
        true => Ok(()),
        false => Err(BadOpcode::Missing(what)),
    }
}

const NO_ROUNDING: &str = "a rounding: `.rn` is to the nearest, `.rz` towards zero";

fn approximated(form: &Form<'_>) -> Lookup {
    let slots = uniform(form, 1)?;
    says(form, &["approx"], "`.approx`: it is an approximation")?;
    Ok(slots)
}

fn root(form: &Form<'_>) -> Lookup {
    let slots = uniform(form, 1)?;
    if !form.has("approx") {
        says(form, &ROUNDINGS, "a rounding such as `.rn`, or `.approx`")?;
    }
    Ok(slots)
}

fn quotient(form: &Form<'_>) -> Lookup {
    let slots = uniform(form, 2)?;
    let rough = form.has("approx") || form.has("full");
    if !rough && !form.types.iter().any(|&ty| is_integer(ty)) {
        says(
            form,
            &ROUNDINGS,
            "a rounding such as `.rn`, or `.approx` or `.full`",
        )?;
    }
    Ok(slots)
}

fn fused(form: &Form<'_>) -> Lookup {
    let slots = uniform(form, 3)?;
    says(form, &ROUNDINGS, NO_ROUNDING)?;
    Ok(slots)
}

fn binary(form: &Form<'_>) -> Lookup {
    uniform(form, 2)
}

fn ternary(form: &Form<'_>) -> Lookup {
    uniform(form, 3)
}

fn extreme(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match number_type(form)? {
        Some(ty) => at_least(3, vec![Out(ty), In(ty), In(ty), In(ty)]),
        None => UNKNOWN,
    }
}

fn product(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match product_type(form)? {
        Some((to, ty)) => exactly(vec![Out(to), In(ty), In(ty)]),
        None => UNKNOWN,
    }
}

fn product_sum(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match product_type(form)? {
        Some((_, ty)) if !is_integer(ty) => {
            says(form, &ROUNDINGS, NO_ROUNDING)?;
            uniform(form, 3)
        }
        Some((to, ty)) => exactly(vec![Out(to), In(ty), In(ty), In(to)]),
        None => UNKNOWN,
    }
}

/// The types of a product and of its factors.
fn product_type(form: &Form<'_>) -> Result<Option<(ScalarType, ScalarType)>, BadOpcode> {
    let Some(ty) = number_type(form)? else {
        return Ok(None);
    };
    if form.has("wide") {
        return match doubled(ty) {
            Some(wide) => Ok(Some((wide, ty))),
            None => Err(BadOpcode::Type(
                ty,
                "`.wide` takes 16-bit and 32-bit integers",
            )),
        };
    }
    if is_integer(ty) && !form.has("lo") && !form.has("hi") {
        return Err(BadOpcode::Missing(
            "`.lo`, `.hi` or `.wide`: which half of the product is meant",
        ));
    }
    Ok(Some((ty, ty)))
}

fn doubled(ty: ScalarType) -> Option<ScalarType> {
    use ScalarType::*;
    Some(match ty {
        U16 => U32,
        S16 => S32,
        U32 => U64,
        S32 => S64,
        _ => return None,
    })
}

fn dot(form: &Form<'_>) -> Lookup {
    use ScalarType::B32;
    use Slot::*;
    match form.first() {
        Some(_) => exactly(vec![Out(B32), In(B32), In(B32), In(B32)]),
        None => UNKNOWN,
    }
}

fn test(form: &Form<'_>) -> Lookup {
    match form.first() {
        Some(ty) => exactly(vec![Slot::OutPred, Slot::In(ty)]),
        None => UNKNOWN,
    }
}

fn decide(form: &Form<'_>) -> Lookup {
    use Slot::*;
    if !form.op.modifiers().any(is_comparison) {
        return Err(BadOpcode::Missing("a comparison such as `.eq` or `.lt`"));
    }
    let Some(&ty) = form.types.last() else {
        return Err(BadOpcode::Missing("a type such as `.s32`"));
    };
    compares(form, ty)?;
    at_least(3, vec![OutPreds, In(ty), In(ty), InPred])
}

/// Fails where numbers of this type are not compared so.
fn compares(form: &Form<'_>, ty: ScalarType) -> Result<(), BadOpcode> {
    use ScalarType::*;
    let signed = ["eq", "ne", "lt", "le", "gt", "ge"];
    let unsigned = ["lo", "ls", "hi", "hs"];
    match ty {
        B16 | B32 | B64 => form.refused(
            |word| is_comparison(word) && !matches!(word, "eq" | "ne"),
            "untyped bits are equal or not, and have no order: say `.s32` or `.u32`, of the right size",
        ),
        S16 | S32 | S64 => form.refused(
            move |word| is_comparison(word) && !signed.contains(&word),
            "numbers with a sign have `.eq`, `.ne`, `.lt`, `.le`, `.gt` and `.ge`",
        ),
        U16 | U32 | U64 => form.refused(
            move |word| {
                is_comparison(word) && !signed.contains(&word) && !unsigned.contains(&word)
            },
            "numbers without a sign have `.eq`, `.ne`, `.lt`, `.le`, `.gt` and `.ge`, or `.lo`, `.ls`, `.hi` and `.hs`",
        ),
        F16 | Bf16 | F32 | F64 => form.refused(
            move |word| unsigned.contains(&word),
            "`.lo`, `.ls`, `.hi` and `.hs` are of unsigned integers: write `.lt`, `.le`, `.gt` or `.ge`",
        ),
        _ => Ok(()),
    }
}

#[rustfmt::skip]
fn is_comparison(modifier: &str) -> bool {
    matches!(
        modifier,
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "lo" | "ls" | "hi" | "hs"
            | "equ" | "neu" | "ltu" | "leu" | "gtu" | "geu" | "num" | "nan"
    )
}

fn set(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match form.types[..] {
        [to, from] => {
            compares(form, from)?;
            at_least(3, vec![Out(to), In(from), In(from), InPred])
        }
        _ => UNKNOWN,
    }
}

fn select(form: &Form<'_>) -> Lookup {
    use Slot::*;
    let ty = form.typed()?;
    exactly(vec![Out(ty), In(ty), In(ty), InPred])
}

fn select_by_sign(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match form.types[..] {
        [ty, by] => exactly(vec![Out(ty), In(ty), In(ty), In(by)]),
        _ => UNKNOWN,
    }
}

fn convert(form: &Form<'_>) -> Lookup {
    use ScalarType::*;
    use Slot::*;
    let simple = |ty: ScalarType| is_integer(ty) || matches!(ty, F16 | Bf16 | F32 | F64);
    let packs = form.has("pack");
    match form.types[..] {
        [to, from] if simple(to) && simple(from) && !packs => {
            let narrows = matches!((to, from), (F16 | Bf16, F32 | F64) | (F32, F64));
            if narrows || is_integer(to) != is_integer(from) {
                says(
                    form,
                    &CONVERSIONS,
                    "a rounding: `.rn` to floating-point numbers, `.rzi` to integers",
                )?;
            }
            rounds(form, to, from)?;
            exactly(vec![OutWide(to), InWide(from)])
        }
        [ty] if simple(ty) && !packs && form.op.modifiers().all(|m| !m.contains("x2")) => {
            // One type of two; narrow formats are not in the list of types.
            let narrow = form
                .op
                .modifiers()
                .any(|m| m.starts_with('e') || m.starts_with("ue") || m.contains("x4"));
            if narrow {
                UNKNOWN
            } else {
                Err(BadOpcode::Missing("two types: to and from"))
            }
        }
        _ => UNKNOWN,
    }
}

/// Fails where a conversion says a rounding that it does not have.
fn rounds(form: &Form<'_>, to: ScalarType, from: ScalarType) -> Result<(), BadOpcode> {
    use ScalarType::*;
    let to_floats = |word: &str| ROUNDINGS.contains(&word);
    let to_whole = |word: &str| matches!(word, "rni" | "rzi" | "rmi" | "rpi");
    let exact = match (to, from) {
        (F32 | F64, F16) | (F64, F32) => true,
        _ => is_integer(to) && is_integer(from),
    };
    if exact {
        return form.refused(
            |word| to_floats(word) || to_whole(word),
            "every value has its own in the other type, or bits are cut off: nothing is rounded; leave it out",
        );
    }
    match (is_integer(to), is_integer(from)) {
        (true, false) => form.refused(
            to_floats,
            "integers are rounded to by `.rni`, `.rzi`, `.rmi` or `.rpi`",
        ),
        (false, true) => form.refused(
            to_whole,
            "floating-point numbers are rounded to by `.rn`, `.rz`, `.rm` or `.rp`",
        ),
        _ if to == from => form.refused(
            to_floats,
            "a number of the same type is not rounded, except to a whole one, by `.rni` or `.rzi`: leave it out",
        ),
        _ => form.refused(
            to_whole,
            "only within one type are floating-point numbers rounded to whole ones; say `.rn`, and round in a second `cvt`",
        ),
    }
}

/// What all arithmetic needs; whether that is all.
fn number_needs(i: &Asking<'_>, needs: &mut Needs, bf16_feature: Feature) -> bool {
    use Feature::*;
    let bf16 = i.has("bf16") || i.has("bf16x2");
    if i.has("f32") && (bf16 || i.has("f16") || i.has("f16x2")) {
        needs.add(MixedPrecision);
        return true;
    }
    needs.when(i.has("f32x2"), F32x2);
    needs.when(i.has("u8x4") || i.has("s8x4"), PackedInt8);
    needs.when(bf16, bf16_feature);
    false
}

fn packed_needs(i: &Asking<'_>, needs: &mut Needs) {
    needs.when(i.has("u16x2") || i.has("s16x2"), Feature::PackedInt16);
}

fn sum_needs(i: &Asking<'_>, needs: &mut Needs) {
    if !number_needs(i, needs, Feature::Bf16Arithmetic) {
        packed_needs(i, needs);
    }
}

fn sign_needs(i: &Asking<'_>, needs: &mut Needs) {
    number_needs(i, needs, Feature::Bf16Fma);
}

fn fma_needs(i: &Asking<'_>, needs: &mut Needs) {
    if !number_needs(i, needs, Feature::Bf16Fma) {
        needs.when(i.has("relu"), Feature::FmaRelu);
    }
}

fn extreme_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    if number_needs(i, needs, Bf16Fma) {
        return;
    }
    packed_needs(i, needs);
    needs.when(i.has("xorsign"), XorSignAbs);
    needs.when(i.has("NaN"), MinMaxNan);
    needs.when(i.has("f16") || i.has("f16x2"), F16MinMax);
    let integer = i.has("s32") || i.has("s16x2");
    needs.when(i.has("relu") && integer, IntegerRelu);
    let three = i.instruction.operands.len() == 4;
    needs.when(i.has("f32") && three, MinMaxThree);
}

fn ex2_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    needs.when(i.has("bf16") || i.has("bf16x2"), TanhAndEx2Bf16);
    needs.when(i.has("f16") || i.has("f16x2"), TanhAndEx2F16);
}

fn tanh_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    let bf16 = i.has("bf16") || i.has("bf16x2");
    needs.add(if bf16 { TanhAndEx2Bf16 } else { TanhAndEx2F16 });
}

fn convert_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    let any = |starts: &[&str]| i.any(|m| starts.iter().any(|start| m.starts_with(start)));
    needs.when(i.has("rs"), StochasticRounding);
    needs.when(any(&["e2m1", "e2m3", "e3m2", "ue8m0"]), Fp4Convert);
    needs.when(any(&["e4m3", "e5m2"]), Fp8Convert);
    let bf16 = i.has("bf16") || i.has("bf16x2") || i.has("tf32");
    let to = i.modifiers().rev().nth(1);
    let from = i.modifiers().next_back();
    let integer = |ty: Option<&str>| ty.and_then(|ty| ty.parse().ok()).is_some_and(is_integer);
    needs.when(bf16 && (integer(to) || integer(from)), Bf16FromInteger);
    needs.when(
        bf16 && to.is_some_and(|ty| ty.starts_with("bf16") || ty == "tf32"),
        Bf16Convert,
    );
}
