//! Arithmetic of `f16` and `bf16`, alone and in pairs, and of `f32` with a
//! narrower operand.

use crate::decode::map::{map2, map3, one, three, two};
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use heist_arith::float::{Rounding, bf16, bf16x2, f16, f16x2, f32 as single};
use heist_ptx::{Instruction, ScalarType};

macro_rules! family {
    ($name:ident, $t:ty, $m:ident) => {
        fn $name(
            d: &mut Decoder<'_>,
            i: &Instruction,
            mods: &Mods<'_>,
            ty: ScalarType,
        ) -> Decoded<()> {
            let (ftz, sat, relu) = (mods.has("ftz"), mods.has("sat"), mods.has("relu"));
            let (nan, xorsign, cost) = (mods.has("NaN"), mods.has("xorsign"), Cost::ALU);
            macro_rules! flags {
                ($decode:ident, $f:ident) => {
                    match (ftz, sat) {
                        (false, false) => $decode::<$t>(d, i, ty, cost, $m::$f::<false, false>),
                        (true, false) => $decode::<$t>(d, i, ty, cost, $m::$f::<true, false>),
                        (false, true) => $decode::<$t>(d, i, ty, cost, $m::$f::<false, true>),
                        (true, true) => $decode::<$t>(d, i, ty, cost, $m::$f::<true, true>),
                    }
                };
            }
            macro_rules! extremes {
                ($f:ident) => {
                    match (ftz, nan, xorsign) {
                        (false, false, false) => {
                            two::<$t>(d, i, ty, cost, $m::$f::<false, false, false>)
                        }
                        (false, false, true) => {
                            two::<$t>(d, i, ty, cost, $m::$f::<false, false, true>)
                        }
                        (false, true, false) => {
                            two::<$t>(d, i, ty, cost, $m::$f::<false, true, false>)
                        }
                        (false, true, true) => {
                            two::<$t>(d, i, ty, cost, $m::$f::<false, true, true>)
                        }
                        (true, false, false) => {
                            two::<$t>(d, i, ty, cost, $m::$f::<true, false, false>)
                        }
                        (true, false, true) => {
                            two::<$t>(d, i, ty, cost, $m::$f::<true, false, true>)
                        }
                        (true, true, false) => {
                            two::<$t>(d, i, ty, cost, $m::$f::<true, true, false>)
                        }
                        (true, true, true) => two::<$t>(d, i, ty, cost, $m::$f::<true, true, true>),
                    }
                };
            }
            match i.opcode.base() {
                "add" => flags!(two, add),
                "sub" => flags!(two, sub),
                "mul" => flags!(two, mul),
                "fma" if mods.has("oob") && relu => {
                    three::<$t>(d, i, ty, cost, $m::fma_oob::<true>)
                }
                "fma" if mods.has("oob") => three::<$t>(d, i, ty, cost, $m::fma_oob::<false>),
                "fma" if relu && ftz => three::<$t>(d, i, ty, cost, $m::fma_relu::<true>),
                "fma" if relu => three::<$t>(d, i, ty, cost, $m::fma_relu::<false>),
                "fma" | "mad" => flags!(three, fma),
                "abs" if ftz => one::<$t>(d, i, ty, cost, $m::abs::<true>),
                "abs" => one::<$t>(d, i, ty, cost, $m::abs::<false>),
                "neg" if ftz => one::<$t>(d, i, ty, cost, $m::neg::<true>),
                "neg" => one::<$t>(d, i, ty, cost, $m::neg::<false>),
                "min" => extremes!(min),
                "max" => extremes!(max),
                "ex2" if ftz => one::<$t>(d, i, ty, Cost::SPECIAL, $m::ex2::<true>),
                "ex2" => one::<$t>(d, i, ty, Cost::SPECIAL, $m::ex2::<false>),
                "tanh" => one::<$t>(d, i, ty, Cost::SPECIAL, $m::tanh),
                _ => Err(d.unsupported(i, "this type has no such operation")),
            }
        }
    };
}
family!(of_f16, u16, f16);
family!(of_bf16, u16, bf16);
family!(of_f16x2, u32, f16x2);
family!(of_bf16x2, u32, bf16x2);

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
            "rn", "ftz", "sat", "relu", "oob", "NaN", "xorsign", "abs", "approx",
        ],
    )?;
    match ty {
        ScalarType::F16 => of_f16(d, i, mods, ty),
        ScalarType::Bf16 => of_bf16(d, i, mods, ty),
        ScalarType::F16x2 => of_f16x2(d, i, mods, ty),
        _ => of_bf16x2(d, i, mods, ty),
    }
}

/// `add.f32.f16 d, a, c` and its kind: factors are narrow, the rest is `f32`.
pub(crate) fn mixed(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    ty: ScalarType,
) -> Decoded<()> {
    let narrow = mods.types().nth(1).unwrap_or(ty);
    let widen: fn(u16) -> u32 = match narrow {
        ScalarType::F16 => f16::to_f32,
        ScalarType::Bf16 => bf16::to_f32,
        _ => return Err(d.unsupported(i, "only f16 and bf16 operands widen")),
    };
    let rounding = mods.rounding().unwrap_or(Rounding::Nearest);
    let sat = mods.has("sat");
    let add: fn(Rounding, u32, u32) -> u32 = if sat {
        single::add_with::<false, true>
    } else {
        single::add_with::<false, false>
    };
    let fma: fn(Rounding, u32, u32, u32) -> u32 = if sat {
        single::fma_with::<false, true>
    } else {
        single::fma_with::<false, false>
    };
    let sub: fn(Rounding, u32, u32) -> u32 = if sat {
        single::sub_with::<false, true>
    } else {
        single::sub_with::<false, false>
    };
    let instr = match i.opcode.base() {
        base @ ("add" | "sub") => {
            let o = operands(d, i, 3)?;
            let (a, b) = (d.src(&o[1], narrow)?, d.src(&o[2], ty)?);
            let target = d.dst(&o[0], ty)?;
            let f = if base == "add" { add } else { sub };
            map2::<u16, u32, u32>(target, [a, b], move |a, b| f(rounding, widen(a), b))
        }
        "fma" => {
            let o = operands(d, i, 4)?;
            let (a, b, c) = (
                d.src(&o[1], narrow)?,
                d.src(&o[2], narrow)?,
                d.src(&o[3], ty)?,
            );
            let target = d.dst(&o[0], ty)?;
            map3::<u16, u16, u32, u32>(target, [a, b, c], move |a, b, c| {
                fma(rounding, widen(a), widen(b), c)
            })
        }
        _ => return Err(d.unsupported(i, "only add, sub and fma mix types")),
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}
