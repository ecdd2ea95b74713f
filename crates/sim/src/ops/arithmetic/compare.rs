//! Comparisons and selections.

use super::bits::pred_or_constant;
use crate::code::{Flow, Gate, Selects, Slot};
use crate::decode::map::{Combine, Targets, map3, test2, with};
use crate::decode::mods::{Mods, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, from_mask};
use heist_arith::float::compare::{
    FloatCmp, compare_f32, compare_f64, slct_first_f32, slct_first_s32,
};
use heist_arith::float::{bf16, f16};
use heist_arith::int::{self, IntCmp};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    match i.opcode.base() {
        "selp" => selp(d, i, mods),
        "slct" => slct(d, i, mods),
        "setp" => setp(d, i, mods),
        _ => set(d, i, mods),
    }
}

/// How the bits of two operands are compared.
#[derive(Clone, Copy)]
enum Test {
    Int(IntCmp),
    Float(FloatCmp),
}

fn test_of(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>, ty: ScalarType) -> Decoded<Test> {
    use ScalarType::*;
    let Some(&name) = mods.all.first() else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!("`{}` names no comparison", i.opcode),
        ));
    };
    if matches!(ty, F16 | F16x2 | Bf16 | Bf16x2 | F32 | F64) {
        return Ok(Test::Float(match name {
            "eq" => FloatCmp::Eq,
            "ne" => FloatCmp::Ne,
            "lt" => FloatCmp::Lt,
            "le" => FloatCmp::Le,
            "gt" => FloatCmp::Gt,
            "ge" => FloatCmp::Ge,
            "equ" => FloatCmp::Equ,
            "neu" => FloatCmp::Neu,
            "ltu" => FloatCmp::Ltu,
            "leu" => FloatCmp::Leu,
            "gtu" => FloatCmp::Gtu,
            "geu" => FloatCmp::Geu,
            "num" => FloatCmp::Num,
            "nan" => FloatCmp::Nan,
            _ => {
                return Err(d.wrong(
                    rule::BAD_MODIFIER,
                    format!("`.{name}` does not compare floats"),
                ));
            }
        }));
    }
    Ok(Test::Int(match name {
        "eq" => IntCmp::Eq,
        "ne" => IntCmp::Ne,
        "lt" | "lo" => IntCmp::Lt,
        "le" | "ls" => IntCmp::Le,
        "gt" | "hi" => IntCmp::Gt,
        "ge" | "hs" => IntCmp::Ge,
        _ => {
            return Err(d.wrong(
                rule::BAD_MODIFIER,
                format!("`.{name}` does not compare integers"),
            ));
        }
    }))
}

/// An instruction that puts a comparison into predicates. The operation is a
/// constant in each instance, so that the loop over the lanes has no branch.
fn comparison(
    d: &Decoder<'_>,
    i: &Instruction,
    ty: ScalarType,
    test: Test,
    ftz: bool,
    targets: Targets,
    s: [Slot; 2],
) -> Decoded<Box<dyn Instr>> {
    use ScalarType::*;
    macro_rules! ints {
        ($t:ty, $m:ident, $op:ident) => {
            match $op {
                IntCmp::Eq => test2::<$t>(targets, s, |a, b| int::$m::compare(IntCmp::Eq, a, b)),
                IntCmp::Ne => test2::<$t>(targets, s, |a, b| int::$m::compare(IntCmp::Ne, a, b)),
                IntCmp::Lt => test2::<$t>(targets, s, |a, b| int::$m::compare(IntCmp::Lt, a, b)),
                IntCmp::Le => test2::<$t>(targets, s, |a, b| int::$m::compare(IntCmp::Le, a, b)),
                IntCmp::Gt => test2::<$t>(targets, s, |a, b| int::$m::compare(IntCmp::Gt, a, b)),
                IntCmp::Ge => test2::<$t>(targets, s, |a, b| int::$m::compare(IntCmp::Ge, a, b)),
            }
        };
    }
    Ok(match (ty, test) {
        (U16 | B16, Test::Int(op)) => ints!(u16, u16, op),
        (S16, Test::Int(op)) => ints!(u16, s16, op),
        (U32 | B32, Test::Int(op)) => ints!(u32, u32, op),
        (S32, Test::Int(op)) => ints!(u32, s32, op),
        (U64 | B64, Test::Int(op)) => ints!(u64, u64, op),
        (S64, Test::Int(op)) => ints!(u64, s64, op),
        (F32, Test::Float(op)) if ftz => {
            test2::<u32>(targets, s, move |a, b| compare_f32::<true>(op, a, b))
        }
        (F32, Test::Float(op)) => {
            test2::<u32>(targets, s, move |a, b| compare_f32::<false>(op, a, b))
        }
        (F64, Test::Float(op)) => test2::<u64>(targets, s, move |a, b| compare_f64(op, a, b)),
        (F16, Test::Float(op)) if ftz => {
            test2::<u16>(targets, s, move |a, b| f16::compare::<true>(op, a, b))
        }
        (F16, Test::Float(op)) => {
            test2::<u16>(targets, s, move |a, b| f16::compare::<false>(op, a, b))
        }
        (Bf16, Test::Float(op)) => {
            test2::<u16>(targets, s, move |a, b| bf16::compare::<false>(op, a, b))
        }
        _ => return Err(d.unsupported(i, "this type has no comparison")),
    })
}

fn combine(mods: &Mods<'_>) -> Option<Combine> {
    match mods.all.get(1).copied() {
        Some("and") => Some(Combine::And),
        Some("or") => Some(Combine::Or),
        Some("xor") => Some(Combine::Xor),
        _ => None,
    }
}

fn setp(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let ty = mods.ty().unwrap_or(ScalarType::B32);
    let how = combine(mods);
    let o = operands(d, i, 3 + usize::from(how.is_some()))?;
    let (p, q) = match &o[0] {
        Operand::Pair(pair) => (d.pred_dst(&pair.0)?, d.pred_dst(&pair.1)?),
        one => (d.pred_dst(one)?, None),
    };
    let sources = [d.src(&o[1], ty)?, d.src(&o[2], ty)?];
    let with_pred = match how {
        None => None,
        Some(how) => Some((how, d.pred_src(&o[3])?)),
    };
    d.trail.gate = with_pred.and_then(|(how, pred)| {
        let decides = how.decides()?;
        Some(Gate::With { decides, pred })
    });
    let targets = Targets {
        p,
        q,
        with: with_pred,
    };
    let test = test_of(d, i, mods, ty)?;
    let ftz = mods.has("ftz");
    if matches!(ty, ScalarType::F16x2 | ScalarType::Bf16x2) {
        return setp_pair(d, ty, test, ftz, targets, sources);
    }
    let instr = comparison(d, i, ty, test, ftz, targets, sources)?;
    d.emit(instr, Cost::ALU);
    Ok(())
}

/// `setp.f16x2 p|q`: the low halves decide `p`, the high halves `q`.
fn setp_pair(
    d: &mut Decoder<'_>,
    ty: ScalarType,
    test: Test,
    ftz: bool,
    targets: Targets,
    sources: [Slot; 2],
) -> Decoded<()> {
    let Test::Float(op) = test else {
        return Err(d.wrong(rule::BAD_MODIFIER, "a pair of floats is compared as floats"));
    };
    let compare = half_compare(ty, ftz);
    let instr = with(move |cx| {
        let (a, b) = (*cx.row(sources[0]), *cx.row(sources[1]));
        let (mut low, mut high) = (0, 0);
        for lane in 0..LANES {
            low |= u32::from(compare(op, a[lane] as u16, b[lane] as u16)) << lane;
            high |= u32::from(compare(op, (a[lane] >> 16) as u16, (b[lane] >> 16) as u16)) << lane;
        }
        let combined = |cx: &crate::access::context::Cx<'_>, bits: u32| match targets.with {
            None => bits,
            Some((Combine::And, source)) => bits & cx.pred(source),
            Some((Combine::Or, source)) => bits | cx.pred(source),
            Some((Combine::Xor, source)) => bits ^ cx.pred(source),
        };
        let (low, high) = (combined(cx, low), combined(cx, high));
        if let Some(p) = targets.p {
            cx.set_pred(p, low);
        }
        if let Some(q) = targets.q {
            cx.set_pred(q, high);
        }
        Flow::Next
    });
    d.emit(instr, Cost::ALU);
    Ok(())
}

fn half_compare(ty: ScalarType, ftz: bool) -> fn(FloatCmp, u16, u16) -> bool {
    match (ty, ftz) {
        (ScalarType::Bf16 | ScalarType::Bf16x2, _) => bf16::compare::<false>,
        (_, true) => f16::compare::<true>,
        (_, false) => f16::compare::<false>,
    }
}

/// `set`: like `setp`, into a register as all ones or 1.0.
fn set(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    use ScalarType::*;
    let mut types = mods.types();
    let (Some(to), Some(from)) = (types.next(), types.next()) else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            "set names the type of its result and of its operands",
        ));
    };
    let how = combine(mods);
    let o = operands(d, i, 3 + usize::from(how.is_some()))?;
    let sources = [d.src(&o[1], from)?, d.src(&o[2], from)?];
    let third = match how {
        None => None,
        Some(how) => Some((how, pred_or_constant(d, &o[3])?)),
    };
    let target = d.dst(&o[0], to)?;
    let test = test_of(d, i, mods, from)?;
    let ftz = mods.has("ftz");
    if matches!(from, F16x2 | Bf16x2) {
        let Test::Float(op) = test else {
            return Err(d.wrong(rule::BAD_MODIFIER, "a pair of floats is compared as floats"));
        };
        let compare = half_compare(from, ftz);
        let yes = match to {
            F16x2 => 0x3c00,
            Bf16x2 => 0x3f80,
            _ => 0xffff,
        };
        let instr = with(move |cx| {
            let (a, b) = (*cx.row(sources[0]), *cx.row(sources[1]));
            let other = third_mask(cx, third);
            let out: [u32; LANES] = std::array::from_fn(|lane| {
                let half = |shift: u32| {
                    let bit = compare(op, (a[lane] >> shift) as u16, (b[lane] >> shift) as u16);
                    u32::from(third_applied(
                        third.map(|t| t.0),
                        bit,
                        other >> lane & 1 != 0,
                    )) * yes
                };
                half(0) | half(16) << 16
            });
            cx.write(target, &out);
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    let hidden = d.fresh_pred();
    let targets = Targets {
        p: Some(hidden),
        q: None,
        with: None,
    };
    let instr = comparison(d, i, from, test, ftz, targets, sources)?;
    let yes: u64 = match to {
        F32 => 0x3f80_0000,
        F16 => 0x3c00,
        Bf16 => 0x3f80,
        F16x2 => 0x3c00_3c00,
        U16 | S16 | B16 => 0xffff,
        _ => 0xffff_ffff,
    };
    d.emit(instr, Cost::ALU);
    let finish = with(move |cx| {
        let bits = cx.pred(crate::code::PredSrc {
            pred: hidden,
            negated: false,
        });
        let other = third_mask(cx, third);
        let result = match third.map(|t| t.0) {
            None => bits,
            Some(Combine::And) => bits & other,
            Some(Combine::Or) => bits | other,
            Some(Combine::Xor) => bits ^ other,
        };
        let out: [u32; LANES] = std::array::from_fn(|lane| {
            if result >> lane & 1 != 0 {
                yes as u32
            } else {
                0
            }
        });
        cx.write(target, &out);
        Flow::Next
    });
    d.emit(finish, Cost::ALU);
    Ok(())
}

type Third = Option<(Combine, Result<crate::code::PredSrc, u32>)>;

fn third_mask(cx: &crate::access::context::Cx<'_>, third: Third) -> u32 {
    match third {
        None => 0,
        Some((_, Ok(source))) => cx.pred(source),
        Some((_, Err(constant))) => constant,
    }
}

fn third_applied(how: Option<Combine>, bit: bool, other: bool) -> bool {
    match how {
        None => bit,
        Some(Combine::And) => bit & other,
        Some(Combine::Or) => bit | other,
        Some(Combine::Xor) => bit ^ other,
    }
}

fn selp(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let ty = mods.ty().unwrap_or(ScalarType::B32);
    let o = operands(d, i, 4)?;
    let (a, b) = (d.src(&o[1], ty)?, d.src(&o[2], ty)?);
    let p = pred_or_constant(d, &o[3])?;
    let target = d.dst(&o[0], ty)?;
    let register = |slot: Slot| (!slot.is_constant() && !slot.is_special()).then(|| slot.row());
    d.trail.selects = Some(Selects {
        from: [register(a), register(b)],
        by: p,
    });
    macro_rules! select {
        ($t:ty) => {
            with(move |cx| {
                let chosen = from_mask(match p {
                    Ok(source) => cx.pred(source),
                    Err(constant) => constant,
                });
                let out =
                    crate::lanes::map3(cx.read::<$t>(a), cx.read::<$t>(b), chosen, |a, b, p| {
                        if p { a } else { b }
                    });
                cx.write(target, &out);
                Flow::Next
            })
        };
    }
    let instr = match ty.bits() {
        128 => select!(u128),
        64 => select!(u64),
        _ => select!(u32),
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}

fn slct(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let mut types = mods.types();
    let (Some(ty), Some(by)) = (types.next(), types.next()) else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            "slct names the type of its values and of its selector",
        ));
    };
    let o = operands(d, i, 4)?;
    let s = [d.src(&o[1], ty)?, d.src(&o[2], ty)?, d.src(&o[3], by)?];
    let target = d.dst(&o[0], ty)?;
    let first: fn(u32) -> bool = match (by, mods.has("ftz")) {
        (ScalarType::F32, true) => slct_first_f32::<true>,
        (ScalarType::F32, false) => slct_first_f32::<false>,
        _ => slct_first_s32,
    };
    let instr = if ty.bits() == 64 {
        map3::<u64, u64, u32, u64>(target, s, move |a, b, c| if first(c) { a } else { b })
    } else {
        map3::<u32, u32, u32, u32>(target, s, move |a, b, c| if first(c) { a } else { b })
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}
