//! Arithmetic of `f32`, `f64` and `f32x2`.

use crate::code::Flow;
use crate::decode::map::{Targets, map3, one, test2, three, two, with};
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::LANES;
use heist_arith::float::compare::{Test, test_f32, test_f64};
use heist_arith::float::{Rounding, approx, f32 as single, f64 as double, minmax};
use heist_ptx::{Instruction, ScalarType};

/// Picks the instance of a function for `.ftz` and `.sat`.
macro_rules! flags {
    ($decode:ident::<$t:ty>, $d:ident, $i:ident, $ty:ident, $cost:expr, $f:path, $ftz:expr, $sat:expr) => {{
        use $f as f;
        match ($ftz, $sat) {
            (false, false) => $decode::<$t>($d, $i, $ty, $cost, f::<false, false>),
            (true, false) => $decode::<$t>($d, $i, $ty, $cost, f::<true, false>),
            (false, true) => $decode::<$t>($d, $i, $ty, $cost, f::<false, true>),
            (true, true) => $decode::<$t>($d, $i, $ty, $cost, f::<true, true>),
        }
    }};
}

/// The same for a rounding other than to nearest.
macro_rules! rounded {
    ($decode:ident, $d:ident, $i:ident, $ty:ident, $f:path, $r:ident, $ftz:expr, $sat:expr, ($($arg:ident),*)) => {{
        use $f as f;
        match ($ftz, $sat) {
            (false, false) => $decode::<u32>($d, $i, $ty, Cost::ALU, move |$($arg),*| f::<false, false>($r, $($arg),*)),
            (true, false) => $decode::<u32>($d, $i, $ty, Cost::ALU, move |$($arg),*| f::<true, false>($r, $($arg),*)),
            (false, true) => $decode::<u32>($d, $i, $ty, Cost::ALU, move |$($arg),*| f::<false, true>($r, $($arg),*)),
            (true, true) => $decode::<u32>($d, $i, $ty, Cost::ALU, move |$($arg),*| f::<true, true>($r, $($arg),*)),
        }
    }};
}

macro_rules! ftz_only {
    ($decode:ident, $d:ident, $i:ident, $ty:ident, $cost:expr, $f:path, $ftz:expr) => {{
        use $f as f;
        if $ftz {
            $decode::<u32>($d, $i, $ty, $cost, f::<true>)
        } else {
            $decode::<u32>($d, $i, $ty, $cost, f::<false>)
        }
    }};
}

pub(crate) fn decode(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    ty: ScalarType,
) -> Decoded<()> {
    only(
        d,
        i,
        mods,
        &[
            "rn",
            "rz",
            "rm",
            "rp",
            "ftz",
            "sat",
            "approx",
            "full",
            "NaN",
            "xorsign",
            "abs",
            "finite",
            "infinite",
            "number",
            "notanumber",
            "normal",
            "subnormal",
        ],
    )?;
    // `add.f32.f16`: an operand narrower than the result is widened first.
    if mods.types().nth(1).is_some() {
        return super::half::mixed(d, i, mods, ty);
    }
    match ty {
        ScalarType::F64 => decode_double(d, i, mods, ty),
        ScalarType::F32x2 => decode_pair(d, i, mods),
        _ => decode_single(d, i, mods, ty),
    }
}

fn decode_single(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    ty: ScalarType,
) -> Decoded<()> {
    let (ftz, sat) = (mods.has("ftz"), mods.has("sat"));
    let rounding = mods.rounding().unwrap_or(Rounding::Nearest);
    let nearest = rounding == Rounding::Nearest;
    let (nan, xorsign) = (mods.has("NaN"), mods.has("xorsign"));
    match i.opcode.base() {
        "add" if nearest => flags!(two::<u32>, d, i, ty, Cost::ALU, single::add, ftz, sat),
        "sub" if nearest => flags!(two::<u32>, d, i, ty, Cost::ALU, single::sub, ftz, sat),
        "mul" if nearest => flags!(two::<u32>, d, i, ty, Cost::ALU, single::mul, ftz, sat),
        "fma" | "mad" if nearest => fused(d, i, ty, ftz, sat),
        "add" => rounded!(two, d, i, ty, single::add_with, rounding, ftz, sat, (a, b)),
        "sub" => rounded!(two, d, i, ty, single::sub_with, rounding, ftz, sat, (a, b)),
        "mul" => rounded!(two, d, i, ty, single::mul_with, rounding, ftz, sat, (a, b)),
        "fma" | "mad" => rounded!(
            three,
            d,
            i,
            ty,
            single::fma_with,
            rounding,
            ftz,
            sat,
            (a, b, c)
        ),
        "div" if mods.has("approx") => {
            ftz_only!(two, d, i, ty, Cost::SPECIAL, approx::div_approx, ftz)
        }
        "div" if mods.has("full") => ftz_only!(two, d, i, ty, Cost::SPECIAL, approx::div_full, ftz),
        "div" if ftz => two::<u32>(d, i, ty, Cost::ROUTINE, move |a, b| {
            single::div_with::<true>(rounding, a, b)
        }),
        "div" => two::<u32>(d, i, ty, Cost::ROUTINE, move |a, b| {
            single::div_with::<false>(rounding, a, b)
        }),
        "rcp" if mods.has("approx") => ftz_only!(one, d, i, ty, Cost::SPECIAL, approx::rcp, ftz),
        "rcp" if ftz => one::<u32>(d, i, ty, Cost::ROUTINE, move |a| {
            single::rcp_with::<true>(rounding, a)
        }),
        "rcp" => one::<u32>(d, i, ty, Cost::ROUTINE, move |a| {
            single::rcp_with::<false>(rounding, a)
        }),
        "sqrt" if mods.has("approx") => ftz_only!(one, d, i, ty, Cost::SPECIAL, approx::sqrt, ftz),
        "sqrt" if ftz => one::<u32>(d, i, ty, Cost::ROUTINE, move |a| {
            single::sqrt_with::<true>(rounding, a)
        }),
        "sqrt" => one::<u32>(d, i, ty, Cost::ROUTINE, move |a| {
            single::sqrt_with::<false>(rounding, a)
        }),
        "rsqrt" => ftz_only!(one, d, i, ty, Cost::SPECIAL, approx::rsqrt, ftz),
        "sin" => ftz_only!(one, d, i, ty, Cost::SPECIAL, approx::sin, ftz),
        "cos" => ftz_only!(one, d, i, ty, Cost::SPECIAL, approx::cos, ftz),
        "lg2" => ftz_only!(one, d, i, ty, Cost::SPECIAL, approx::lg2, ftz),
        "ex2" => ftz_only!(one, d, i, ty, Cost::SPECIAL, approx::ex2, ftz),
        "tanh" => one::<u32>(d, i, ty, Cost::SPECIAL, approx::tanh),
        "abs" => ftz_only!(one, d, i, ty, Cost::ALU, single::abs, ftz),
        "neg" => ftz_only!(one, d, i, ty, Cost::ALU, single::neg, ftz),
        // The sign comes from the first operand, the magnitude from the second.
        "copysign" => two::<u32>(d, i, ty, Cost::ALU, single::copysign),
        "testp" => test(d, i, mods, ty),
        "min" | "max" if i.operands.len() == 4 => min_max_of_three(d, i, mods, ty),
        "min" => min_max(d, i, ty, false, ftz, nan, xorsign),
        "max" => min_max(d, i, ty, true, ftz, nan, xorsign),
        _ => Err(d.unsupported(i, "f32 has no such operation")),
    }
}

fn fused(
    d: &mut Decoder<'_>,
    i: &Instruction,
    ty: ScalarType,
    ftz: bool,
    sat: bool,
) -> Decoded<()> {
    let o = operands(d, i, 4)?;
    let (a, b, c) = (d.src(&o[1], ty)?, d.src(&o[2], ty)?, d.src(&o[3], ty)?);
    let target = d.dst(&o[0], ty)?;
    if !ftz && !sat && crate::lanes::has_fused() {
        let fma = |a: f32, b: f32, c: f32| single::canonical(a.mul_add(b, c).to_bits());
        d.emit(map3(target, [a, b, c], fma), Cost::ALU);
        return Ok(());
    }
    macro_rules! fma {
        ($ftz:literal, $sat:literal) => {
            with(move |cx| {
                let mut out = [0; LANES];
                heist_arith::lanes::fma_f32::<$ftz, $sat>(
                    cx.row(a),
                    cx.row(b),
                    cx.row(c),
                    &mut out,
                );
                cx.write(target, &out);
                Flow::Next
            })
        };
    }
    let instr = match (ftz, sat) {
        (false, false) => fma!(false, false),
        (true, false) => fma!(true, false),
        (false, true) => fma!(false, true),
        (true, true) => fma!(true, true),
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}

fn min_max(
    d: &mut Decoder<'_>,
    i: &Instruction,
    ty: ScalarType,
    max: bool,
    ftz: bool,
    nan: bool,
    xorsign: bool,
) -> Decoded<()> {
    macro_rules! pick {
        ($($ftz:literal $nan:literal $xor:literal),*) => {
            match (ftz, nan, xorsign) {
                $(($ftz, $nan, $xor) if max => two::<u32>(d, i, ty, Cost::ALU, minmax::f32::max::<$ftz, $nan, $xor>),
                ($ftz, $nan, $xor) => two::<u32>(d, i, ty, Cost::ALU, minmax::f32::min::<$ftz, $nan, $xor>),)*
            }
        };
    }
    pick!(false false false, false false true, false true false, false true true,
          true false false, true false true, true true false, true true true)
}

fn min_max_of_three(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    ty: ScalarType,
) -> Decoded<()> {
    let max = i.opcode.base() == "max";
    macro_rules! pick {
        ($($ftz:literal $nan:literal $abs:literal),*) => {
            match (mods.has("ftz"), mods.has("NaN"), mods.has("abs")) {
                $(($ftz, $nan, $abs) if max => three::<u32>(d, i, ty, Cost::ALU, minmax::max3_f32::<$ftz, $nan, $abs>),
                ($ftz, $nan, $abs) => three::<u32>(d, i, ty, Cost::ALU, minmax::min3_f32::<$ftz, $nan, $abs>),)*
            }
        };
    }
    pick!(false false false, false false true, false true false, false true true,
          true false false, true false true, true true false, true true true)
}

fn decode_double(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    ty: ScalarType,
) -> Decoded<()> {
    let rounding = mods.rounding().unwrap_or(Rounding::Nearest);
    let nearest = rounding == Rounding::Nearest;
    let cost = Cost::DOUBLE;
    match i.opcode.base() {
        "add" if nearest => two::<u64>(d, i, ty, cost, double::add),
        "sub" if nearest => two::<u64>(d, i, ty, cost, double::sub),
        "mul" if nearest => two::<u64>(d, i, ty, cost, double::mul),
        "fma" | "mad" if nearest => {
            let o = operands(d, i, 4)?;
            let (a, b, c) = (d.src(&o[1], ty)?, d.src(&o[2], ty)?, d.src(&o[3], ty)?);
            let target = d.dst(&o[0], ty)?;
            let instr = with(move |cx| {
                let mut out = [0; LANES];
                heist_arith::lanes::fma_f64(&cx.read(a), &cx.read(b), &cx.read(c), &mut out);
                cx.write(target, &out);
                Flow::Next
            });
            d.emit(instr, cost);
            Ok(())
        }
        "add" => two::<u64>(d, i, ty, cost, move |a, b| double::add_with(rounding, a, b)),
        "sub" => two::<u64>(d, i, ty, cost, move |a, b| double::sub_with(rounding, a, b)),
        "mul" => two::<u64>(d, i, ty, cost, move |a, b| double::mul_with(rounding, a, b)),
        "fma" | "mad" => three::<u64>(d, i, ty, cost, move |a, b, c| {
            double::fma_with(rounding, a, b, c)
        }),
        "div" => two::<u64>(d, i, ty, Cost::ROUTINE, move |a, b| {
            double::div_with(rounding, a, b)
        }),
        "rcp" if mods.has("approx") => one::<u64>(d, i, ty, Cost::SPECIAL, approx::rcp_ftz_f64),
        "rcp" => one::<u64>(d, i, ty, Cost::ROUTINE, move |a| {
            double::rcp_with(rounding, a)
        }),
        "sqrt" => one::<u64>(d, i, ty, Cost::ROUTINE, move |a| {
            double::sqrt_with(rounding, a)
        }),
        "rsqrt" if mods.has("ftz") => one::<u64>(d, i, ty, Cost::SPECIAL, approx::rsqrt_ftz_f64),
        "rsqrt" => one::<u64>(d, i, ty, Cost::SPECIAL, approx::rsqrt_f64),
        "abs" => one::<u64>(d, i, ty, cost, double::abs),
        "neg" => one::<u64>(d, i, ty, cost, double::neg),
        "copysign" => two::<u64>(d, i, ty, cost, double::copysign),
        "testp" => test(d, i, mods, ty),
        "min" => two::<u64>(d, i, ty, cost, minmax::f64::min::<false, false, false>),
        "max" => two::<u64>(d, i, ty, cost, minmax::f64::max::<false, false, false>),
        _ => Err(d.unsupported(i, "f64 has no such operation")),
    }
}

/// Two `f32` in a 64-bit register.
fn decode_pair(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let ty = ScalarType::F32x2;
    let rounding = mods.rounding().unwrap_or(Rounding::Nearest);
    let ftz = mods.has("ftz");
    let both2 = |f: fn(Rounding, u32, u32) -> u32| {
        move |a: u64, b: u64| {
            u64::from(f(rounding, a as u32, b as u32))
                | u64::from(f(rounding, (a >> 32) as u32, (b >> 32) as u32)) << 32
        }
    };
    match (i.opcode.base(), ftz) {
        ("add", false) => two::<u64>(d, i, ty, Cost::ALU, both2(single::add_with::<false, false>)),
        ("add", true) => two::<u64>(d, i, ty, Cost::ALU, both2(single::add_with::<true, false>)),
        ("sub", false) => two::<u64>(d, i, ty, Cost::ALU, both2(single::sub_with::<false, false>)),
        ("sub", true) => two::<u64>(d, i, ty, Cost::ALU, both2(single::sub_with::<true, false>)),
        ("mul", false) => two::<u64>(d, i, ty, Cost::ALU, both2(single::mul_with::<false, false>)),
        ("mul", true) => two::<u64>(d, i, ty, Cost::ALU, both2(single::mul_with::<true, false>)),
        ("fma", _) => {
            let f: fn(Rounding, u32, u32, u32) -> u32 = if ftz {
                single::fma_with::<true, false>
            } else {
                single::fma_with::<false, false>
            };
            three::<u64>(d, i, ty, Cost::ALU, move |a, b, c| {
                u64::from(f(rounding, a as u32, b as u32, c as u32))
                    | u64::from(f(
                        rounding,
                        (a >> 32) as u32,
                        (b >> 32) as u32,
                        (c >> 32) as u32,
                    )) << 32
            })
        }
        _ => Err(d.unsupported(i, "f32x2 has no such operation")),
    }
}

fn test(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>, ty: ScalarType) -> Decoded<()> {
    let what = match mods.all.first().copied() {
        Some("finite") => Test::Finite,
        Some("infinite") => Test::Infinite,
        Some("number") => Test::Number,
        Some("notanumber") => Test::NotANumber,
        Some("normal") => Test::Normal,
        Some("subnormal") => Test::Subnormal,
        _ => return Err(d.unsupported(i, "testp has no such property")),
    };
    let o = operands(d, i, 2)?;
    let a = d.src(&o[1], ty)?;
    let targets = Targets {
        p: d.pred_dst(&o[0])?,
        q: None,
        with: None,
    };
    let instr = if ty == ScalarType::F64 {
        test2::<u64>(targets, [a, a], move |a, _| test_f64(what, a))
    } else {
        test2::<u32>(targets, [a, a], move |a, _| test_f32(what, a))
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}
