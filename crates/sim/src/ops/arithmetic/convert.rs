//! `cvt`.

use crate::code::{Flow, Slot};
use crate::decode::map::{map1, map2, map3, with};
use crate::decode::mods::{Mods, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use heist_arith::cvt::float::{self, Limits};
use heist_arith::cvt::tiny::{self, Tiny};
use heist_arith::cvt::{FloatType, IntType, integer, mixed, stochastic};
use heist_arith::float::Rounding;
use heist_ptx::{Instruction, ScalarType, rule};

fn int_type(ty: ScalarType) -> Option<IntType> {
    use ScalarType::*;
    Some(match ty {
        U8 | B8 => IntType::U8,
        S8 => IntType::S8,
        U16 | B16 => IntType::U16,
        S16 => IntType::S16,
        U32 | B32 => IntType::U32,
        S32 => IntType::S32,
        U64 | B64 => IntType::U64,
        S64 => IntType::S64,
        _ => return None,
    })
}

fn float_type(ty: ScalarType) -> Option<FloatType> {
    Some(match ty {
        ScalarType::F16 => FloatType::F16,
        ScalarType::Bf16 => FloatType::Bf16,
        ScalarType::F32 => FloatType::F32,
        ScalarType::F64 => FloatType::F64,
        _ => return None,
    })
}

fn tiny_pair(name: &str) -> Option<Tiny> {
    Some(match name {
        "e4m3x2" => Tiny::E4m3,
        "e5m2x2" => Tiny::E5m2,
        "e2m3x2" => Tiny::E2m3,
        "e3m2x2" => Tiny::E3m2,
        "e2m1x2" => Tiny::E2m1,
        _ => return None,
    })
}

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("pack") {
        return pack(d, i, mods);
    }
    // Types by their spelling, since the narrowest ones are no register types.
    let is_type = |text: &&str| {
        text.parse::<ScalarType>().is_ok()
            || tiny_pair(text).is_some()
            || text.starts_with("ue8m0")
            || text.ends_with("x4")
    };
    let types: Vec<&str> = mods.all.iter().copied().filter(is_type).collect();
    let [to, from] = types[..] else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            "cvt names the type of its result and of its operand",
        ));
    };
    let rounding = mods.rounding();
    let limits = Limits {
        relu: mods.has("relu"),
        satfinite: mods.has("satfinite"),
    };
    if let Some(instr) = narrow(d, i, mods, to, from, rounding, limits)? {
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    let (Ok(to), Ok(from)) = (to.parse::<ScalarType>(), from.parse::<ScalarType>()) else {
        return Err(d.unsupported(i, "there is no such conversion"));
    };
    scalar(d, i, mods, to, from, rounding)
}

/// Conversions of whole registers, one lane one value.
fn scalar(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    to: ScalarType,
    from: ScalarType,
    rounding: Option<Rounding>,
) -> Decoded<()> {
    let o = operands(d, i, 2)?;
    let (ftz, sat) = (mods.has("ftz"), mods.has("sat"));
    let (source, source_rows) = d.src_any(&o[1], from)?;
    let (target, target_rows) = d.dst_any(&o[0], to)?;
    let plain = !ftz && !sat;
    if source_rows == crate::decode::names::rows_of(from)
        && target_rows == crate::decode::names::rows_of(to)
    {
        let instr = quick(target, source, to, from, rounding).filter(|_| plain);
        if let Some(instr) = instr {
            d.emit(instr, Cost::ALU);
            return Ok(());
        }
    }
    let instr = match (
        float_type(to),
        float_type(from),
        int_type(to),
        int_type(from),
    ) {
        (_, _, Some(to), Some(from)) if sat => {
            general(target, target_rows, source, source_rows, move |a| {
                integer::convert_sat(from, to, a)
            })
        }
        (_, _, Some(to), Some(from)) => {
            general(target, target_rows, source, source_rows, move |a| {
                integer::convert(from, to, a)
            })
        }
        (Some(to), _, _, Some(from)) => {
            let rounding = rounding.unwrap_or(Rounding::Nearest);
            general(target, target_rows, source, source_rows, move |a| {
                let bits = mixed::int_to_float(from, to, rounding, a);
                if sat { float::saturate(to, bits) } else { bits }
            })
        }
        (_, Some(from), Some(to), _) => {
            let rounding = rounding.unwrap_or(Rounding::Zero);
            general(target, target_rows, source, source_rows, move |a| {
                mixed::float_to_int(from, to, rounding, ftz, a)
            })
        }
        (Some(to), Some(from), _, _) => {
            let integral = ["rni", "rzi", "rmi", "rpi"]
                .iter()
                .any(|text| mods.has(text));
            let rounding = rounding.unwrap_or(Rounding::Nearest);
            let relu = mods.has("relu");
            let satfinite = mods.has("satfinite");
            if integral && to == from {
                general(target, target_rows, source, source_rows, move |a| {
                    float::round_to_integral(to, rounding, ftz, sat, a)
                })
            } else if relu || satfinite {
                let limits = Limits { relu, satfinite };
                match to {
                    FloatType::F16 => general(target, target_rows, source, source_rows, move |a| {
                        float::f32_to_f16(rounding, limits, a as u32).into()
                    }),
                    FloatType::Bf16 => {
                        general(target, target_rows, source, source_rows, move |a| {
                            float::f32_to_bf16(rounding, limits, a as u32).into()
                        })
                    }
                    _ => return Err(d.unsupported(i, "there is no such conversion")),
                }
            } else {
                general(target, target_rows, source, source_rows, move |a| {
                    float::convert(from, to, rounding, ftz, sat, a)
                })
            }
        }
        _ => return Err(d.unsupported(i, "there is no such conversion")),
    };
    d.emit(instr, Cost::new(2, 6));
    Ok(())
}

/// The conversions of hot loops.
fn quick(
    target: Slot,
    source: Slot,
    to: ScalarType,
    from: ScalarType,
    rounding: Option<Rounding>,
) -> Option<Box<dyn Instr>> {
    use ScalarType::*;
    let nearest = rounding == Some(Rounding::Nearest);
    match (to, from) {
        (F32, S32) if nearest => Some(map1(target, source, mixed::s32_to_f32)),
        (F32, U32) if nearest => Some(map1(target, source, mixed::u32_to_f32)),
        (F64, S32) => Some(map1(target, source, mixed::s32_to_f64)),
        (F64, U32) => Some(map1(target, source, mixed::u32_to_f64)),
        (S32, F32) if rounding == Some(Rounding::Zero) => {
            Some(map1(target, source, mixed::f32_to_s32::<false>))
        }
        (U32, F32) if rounding == Some(Rounding::Zero) => {
            Some(map1(target, source, mixed::f32_to_u32::<false>))
        }
        (U64, U32) => Some(map1::<u32, u64>(target, source, u64::from)),
        (S64, S32) => Some(map1::<u32, u64>(target, source, |a| a as i32 as i64 as u64)),
        (U32 | S32, U64 | S64) => Some(map1::<u64, u32>(target, source, |a| a as u32)),
        (F64, F32) => Some(map1(target, source, float::f32_to_f64::<false>)),
        (F32, F64) if nearest => Some(map1(target, source, float::f64_to_f32::<false>)),
        _ => None,
    }
}

/// A conversion through 64 bits.
fn general(
    target: Slot,
    target_rows: u32,
    source: Slot,
    source_rows: u32,
    f: impl Fn(u64) -> u64 + Send + Sync + 'static,
) -> Box<dyn Instr> {
    with(move |cx| {
        let values = crate::decode::qualifier::read_bits(cx, source, source_rows).map(&f);
        crate::decode::qualifier::write_bits(cx, target, target_rows, &values);
        Flow::Next
    })
}

/// Conversions to and from `tf32`, packed pairs and the narrow formats.
fn narrow(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    to: &str,
    from: &str,
    rounding: Option<Rounding>,
    limits: Limits,
) -> Decoded<Option<Box<dyn Instr>>> {
    use ScalarType::*;
    let round = rounding.unwrap_or(Rounding::Nearest);
    let stochastic_rounding = mods.has("rs");
    let instr: Box<dyn Instr> = match (to, from) {
        ("tf32", "f32") => {
            let o = operands(d, i, 2)?;
            let (a, target) = (d.src(&o[1], F32)?, d.dst(&o[0], B32)?);
            match (round, limits.satfinite) {
                (Rounding::NearestAway, true) => map1(target, a, float::f32_to_tf32_rna::<true>),
                (Rounding::NearestAway, false) => map1(target, a, float::f32_to_tf32_rna::<false>),
                _ => map1::<u32, u32>(target, a, move |a| float::f32_to_tf32(round, limits, a)),
            }
        }
        ("f16x2" | "bf16x2", "f32") if stochastic_rounding => {
            let o = operands(d, i, 4)?;
            let s = [d.src(&o[1], F32)?, d.src(&o[2], F32)?, d.src(&o[3], B32)?];
            let target = d.dst(&o[0], B32)?;
            if to == "f16x2" {
                map3::<u32, u32, u32, u32>(target, s, move |a, b, r| {
                    stochastic::f16x2(limits, a, b, r)
                })
            } else {
                map3::<u32, u32, u32, u32>(target, s, move |a, b, r| {
                    stochastic::bf16x2(limits, a, b, r)
                })
            }
        }
        ("f16x2" | "bf16x2", "f32") => {
            let o = operands(d, i, 3)?;
            let s = [d.src(&o[1], F32)?, d.src(&o[2], F32)?];
            let target = d.dst(&o[0], B32)?;
            if to == "f16x2" {
                map2::<u32, u32, u32>(target, s, move |a, b| {
                    float::f32_to_f16x2(round, limits, a, b)
                })
            } else {
                map2::<u32, u32, u32>(target, s, move |a, b| {
                    float::f32_to_bf16x2(round, limits, a, b)
                })
            }
        }
        _ => return tiny_formats(d, i, to, from, round, limits),
    };
    Ok(Some(instr))
}

/// Conversions of formats of eight bits and fewer, in pairs.
fn tiny_formats(
    d: &mut Decoder<'_>,
    i: &Instruction,
    to: &str,
    from: &str,
    round: Rounding,
    limits: Limits,
) -> Decoded<Option<Box<dyn Instr>>> {
    use ScalarType::*;
    let instr: Box<dyn Instr> = match (to, from) {
        (_, "f32") if tiny_pair(to).is_some() => {
            let Some(tiny) = tiny_pair(to) else {
                return Ok(None);
            };
            let o = operands(d, i, 3)?;
            let s = [d.src(&o[1], F32)?, d.src(&o[2], F32)?];
            let target = d.dst(&o[0], if tiny == Tiny::E2m1 { B8 } else { B16 })?;
            let relu = limits.relu;
            map2::<u32, u32, u16>(target, s, move |a, b| tiny::pair_from_f32(tiny, relu, a, b))
        }
        (_, "f16x2") if tiny_pair(to).is_some() => {
            let Some(tiny) = tiny_pair(to) else {
                return Ok(None);
            };
            let o = operands(d, i, 2)?;
            let (a, target) = (d.src(&o[1], B32)?, d.dst(&o[0], B16)?);
            let relu = limits.relu;
            map1::<u32, u16>(target, a, move |a| tiny::pair_from_f16x2(tiny, relu, a))
        }
        ("f16x2", _) if tiny_pair(from).is_some() => {
            let Some(tiny) = tiny_pair(from) else {
                return Ok(None);
            };
            let o = operands(d, i, 2)?;
            let source = if tiny == Tiny::E2m1 { B8 } else { B16 };
            let (a, target) = (d.src(&o[1], source)?, d.dst(&o[0], B32)?);
            let relu = limits.relu;
            map1::<u16, u32>(target, a, move |a| tiny::pair_to_f16x2(tiny, relu, a))
        }
        ("ue8m0x2", "f32") => {
            let o = operands(d, i, 3)?;
            let s = [d.src(&o[1], F32)?, d.src(&o[2], F32)?];
            let target = d.dst(&o[0], B16)?;
            let satfinite = limits.satfinite;
            if round == Rounding::Up {
                map2::<u32, u32, u16>(target, s, move |a, b| {
                    tiny::ue8m0x2_from_f32::<true>(satfinite, a, b)
                })
            } else {
                map2::<u32, u32, u16>(target, s, move |a, b| {
                    tiny::ue8m0x2_from_f32::<false>(satfinite, a, b)
                })
            }
        }
        ("ue8m0x2", "bf16x2") => {
            let o = operands(d, i, 2)?;
            let (a, target) = (d.src(&o[1], B32)?, d.dst(&o[0], B16)?);
            let satfinite = limits.satfinite;
            if round == Rounding::Up {
                map1::<u32, u16>(target, a, move |a| {
                    tiny::ue8m0x2_from_bf16x2::<true>(satfinite, a)
                })
            } else {
                map1::<u32, u16>(target, a, move |a| {
                    tiny::ue8m0x2_from_bf16x2::<false>(satfinite, a)
                })
            }
        }
        ("bf16x2", "ue8m0x2") => {
            let o = operands(d, i, 2)?;
            let (a, target) = (d.src(&o[1], B16)?, d.dst(&o[0], B32)?);
            map1::<u16, u32>(target, a, tiny::ue8m0x2_to_bf16x2)
        }
        _ => return Ok(None),
    };
    Ok(Some(instr))
}

/// `cvt.pack.sat.u8.s32.b32 d, a, b, c`.
fn pack(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    use ScalarType::{B32, S32};
    let field = mods.all.iter().copied().find(|text| {
        matches!(
            *text,
            "u16" | "s16" | "u8" | "s8" | "u4" | "s4" | "u2" | "s2"
        )
    });
    let Some(field) = field else {
        return Err(d.unsupported(i, "cvt.pack packs fields of 16, 8, 4 or 2 bits"));
    };
    let signed = field.starts_with('s');
    let bits: u32 = field[1..].parse().unwrap_or(8);
    let instr = if i.operands.len() == 3 {
        let s = [d.src(&i.operands[1], S32)?, d.src(&i.operands[2], S32)?];
        let target = d.dst(&i.operands[0], B32)?;
        map2::<u32, u32, u32>(target, s, move |a, b| {
            integer::pack_sat(bits, signed, a, b, 0)
        })
    } else {
        let o = operands(d, i, 4)?;
        let s = [d.src(&o[1], S32)?, d.src(&o[2], S32)?, d.src(&o[3], B32)?];
        let target = d.dst(&o[0], B32)?;
        map3::<u32, u32, u32, u32>(target, s, move |a, b, c| {
            integer::pack_sat(bits, signed, a, b, c)
        })
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}
