//! Video instructions: arithmetic on bytes and halves of registers.

use crate::code::Slot;
use crate::decode::map::map3;
use crate::decode::mods::{Mods, only};
use crate::decode::{Cost, Decoded, Decoder};
use heist_arith::int::IntCmp;
use heist_arith::int::video::{Combine, Op, Part, Video, VideoMad, VideoOperand};
use heist_arith::int::video_simd::{self, VideoSimd};
use heist_ptx::{Constant, Instruction, Operand, ScalarType, UnaryOp, rule};

const KNOWN: &[&str] = &[
    "sat", "add", "min", "max", "clamp", "wrap", "po", "shr7", "shr15", "eq", "ne", "lt", "le",
    "gt", "ge",
];

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, KNOWN)?;
    let base = i.opcode.base();
    if i.operands.len() < 3 {
        crate::decode::mods::operands(d, i, 4)?;
    }
    match base {
        "vmad" => multiply_add(d, i, mods),
        _ if base.ends_with('2') => simd::<2>(d, i, mods),
        _ if base.ends_with('4') => simd::<4>(d, i, mods),
        _ => scalar(d, i, mods),
    }
}

fn compare(mods: &Mods<'_>) -> Option<IntCmp> {
    mods.all.iter().find_map(|text| {
        Some(match *text {
            "eq" => IntCmp::Eq,
            "ne" => IntCmp::Ne,
            "lt" => IntCmp::Lt,
            "le" => IntCmp::Le,
            "gt" => IntCmp::Gt,
            "ge" => IntCmp::Ge,
            _ => return None,
        })
    })
}

/// Which types are signed: of the result and the two sources. `vset` names no type
/// of its result, which is unsigned.
fn signs(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<[bool; 3]> {
    let types: Vec<bool> = mods.types().map(|ty| ty == ScalarType::S32).collect();
    match types[..] {
        [result, a, b] => Ok([result, a, b]),
        [a, b] if i.opcode.base().starts_with("vset") => Ok([false, a, b]),
        _ => Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!(
                "`{}` names the types of its result and its sources",
                i.opcode
            ),
        )),
    }
}

/// The part of a register that an operand names.
fn part(part: heist_ptx::Part) -> Option<Part> {
    Some(match part {
        heist_ptx::Part::Byte(0) => Part::B0,
        heist_ptx::Part::Byte(1) => Part::B1,
        heist_ptx::Part::Byte(2) => Part::B2,
        heist_ptx::Part::Byte(3) => Part::B3,
        heist_ptx::Part::Half(0) => Part::H0,
        heist_ptx::Part::Half(1) => Part::H1,
        _ => return None,
    })
}

/// A source and the part that is read of it, and whether it is negated.
fn source(d: &mut Decoder<'_>, operand: &Operand) -> Decoded<(Slot, Part, bool)> {
    match operand {
        Operand::NegatedPart { name, part } => {
            let part = Operand::Part {
                name: name.clone(),
                part: *part,
            };
            let (slot, part, _) = source(d, &part)?;
            Ok((slot, part, true))
        }
        Operand::Part { name, part: of } => match part(*of) {
            Some(part) => {
                let slot = d.src(&Operand::Name(name.clone()), ScalarType::B32)?;
                Ok((slot, part, false))
            }
            None => Ok((d.src(operand, ScalarType::B32)?, Part::Word, false)),
        },
        Operand::Constant(Constant::Unary(UnaryOp::Minus, inner)) => match &**inner {
            Constant::Symbol(name) => {
                let slot = d.src(&Operand::Name(name.clone()), ScalarType::B32)?;
                Ok((slot, Part::Word, true))
            }
            _ => Ok((d.src(operand, ScalarType::B32)?, Part::Word, false)),
        },
        _ => Ok((d.src(operand, ScalarType::B32)?, Part::Word, false)),
    }
}

/// The destination and the part that is written of it.
fn target(d: &mut Decoder<'_>, operand: &Operand) -> Decoded<(Slot, Option<Part>)> {
    if let Operand::Part { name, part: of } = operand
        && let Some(part) = part(*of)
    {
        let slot = d.dst(&Operand::Name(name.clone()), ScalarType::B32)?;
        return Ok((slot, Some(part)));
    }
    Ok((d.dst(operand, ScalarType::B32)?, None))
}

fn scalar(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let [signed, a_signed, b_signed] = signs(d, i, mods)?;
    let clamp = mods.has("clamp");
    let op = match (i.opcode.base(), compare(mods)) {
        ("vadd", _) => Op::Add,
        ("vsub", _) => Op::Sub,
        ("vabsdiff", _) => Op::AbsDiff,
        ("vmin", _) => Op::Min,
        ("vmax", _) => Op::Max,
        ("vshl", _) if clamp => Op::ShlClamp,
        ("vshl", _) => Op::ShlWrap,
        ("vshr", _) if clamp => Op::ShrClamp,
        ("vshr", _) => Op::ShrWrap,
        ("vset", Some(cmp)) => Op::Set(cmp),
        _ => return Err(d.unsupported(i, "there is no such video instruction")),
    };
    let (a, a_part, _) = source(d, &i.operands[1])?;
    let (b, b_part, _) = source(d, &i.operands[2])?;
    let c = match i.operands.get(3) {
        Some(c) => Some(d.src(c, ScalarType::B32)?),
        None => None,
    };
    let (target, merged) = target(d, &i.operands[0])?;
    let combine = match merged {
        Some(part) => Combine::Merge(part),
        None if mods.has("add") => Combine::Add,
        None if mods.has("min") => Combine::Min,
        None if mods.has("max") => Combine::Max,
        None => Combine::Plain,
    };
    if c.is_none() && combine != Combine::Plain {
        crate::decode::mods::operands(d, i, 4)?;
    }
    let video = Video {
        op,
        a: VideoOperand {
            part: a_part,
            signed: a_signed,
        },
        b: VideoOperand {
            part: b_part,
            signed: b_signed,
        },
        signed,
        sat: mods.has("sat"),
        combine,
    };
    let c = c.unwrap_or(a);
    let instr = map3::<u32, u32, u32, u32>(target, [a, b, c], move |a, b, c| video.run(a, b, c));
    d.emit(instr, Cost::WIDE);
    Ok(())
}

fn multiply_add(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let [_, a_signed, b_signed] = signs(d, i, mods)?;
    let o = crate::decode::mods::operands(d, i, 4)?;
    let (a, a_part, a_negated) = source(d, &o[1])?;
    let (b, b_part, b_negated) = source(d, &o[2])?;
    let (c, _, negate_c) = source(d, &o[3])?;
    let target = d.dst(&o[0], ScalarType::B32)?;
    let video = VideoMad {
        a: VideoOperand {
            part: a_part,
            signed: a_signed,
        },
        b: VideoOperand {
            part: b_part,
            signed: b_signed,
        },
        negate_product: a_negated != b_negated,
        negate_c,
        plus_one: mods.has("po"),
        shift: if mods.has("shr7") {
            7
        } else if mods.has("shr15") {
            15
        } else {
            0
        },
        sat: mods.has("sat"),
    };
    let instr = map3::<u32, u32, u32, u32>(target, [a, b, c], move |a, b, c| video.run(a, b, c));
    d.emit(instr, Cost::WIDE);
    Ok(())
}

/// The register of an operand of a SIMD instruction, and the elements that it picks of it,
/// lowest first.
fn picked<const N: usize>(d: &Decoder<'_>, operand: &Operand) -> Decoded<(Operand, Vec<u8>)> {
    use heist_ptx::Part;
    let Operand::Part { name, part } = operand else {
        return Ok((operand.clone(), Vec::new()));
    };
    let mut picks: Vec<u8> = match (N, part) {
        (4, Part::Byte(one)) | (2, Part::Half(one)) => vec![*one],
        (4, Part::Bytes(picks)) | (2, Part::Halves(picks)) => picks.digits().collect(),
        _ => {
            return Err(d.wrong(
                rule::OPERAND_KIND,
                format!("`{name}` has no such elements here"),
            ));
        }
    };
    picks.reverse();
    Ok((Operand::Name(name.clone()), picks))
}

/// The elements of both sources that one source is made of.
fn selected<const N: usize>(
    d: &mut Decoder<'_>,
    operand: &Operand,
    select: &mut [u8; N],
) -> Decoded<Slot> {
    let (register, picks) = picked::<N>(d, operand)?;
    if picks.len() == N {
        select.copy_from_slice(&picks);
    } else if !picks.is_empty() {
        return Err(d.wrong(
            rule::OPERAND_KIND,
            format!(
                "a selector picks {N} elements, and here are {}",
                picks.len()
            ),
        ));
    }
    d.src(&register, ScalarType::B32)
}

/// `vadd2` and `vadd4` and their kind.
fn simd<const N: usize>(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let [signed, a_signed, b_signed] = signs(d, i, mods)?;
    let base = i.opcode.base();
    let op = match (base.trim_end_matches(['2', '4']), compare(mods)) {
        ("vadd", _) => video_simd::Op::Add,
        ("vsub", _) => video_simd::Op::Sub,
        ("vavrg", _) => video_simd::Op::Average,
        ("vabsdiff", _) => video_simd::Op::AbsDiff,
        ("vmin", _) => video_simd::Op::Min,
        ("vmax", _) => video_simd::Op::Max,
        ("vset", Some(cmp)) => video_simd::Op::Set(cmp),
        _ => return Err(d.unsupported(i, "there is no such video instruction")),
    };
    let o = crate::decode::mods::operands(d, i, 4)?;
    let mut video = VideoSimd::<N> {
        sat: mods.has("sat"),
        accumulate: mods.has("add"),
        ..VideoSimd::new(op, a_signed, b_signed, signed)
    };
    let a = selected(d, &o[1], &mut video.a_select)?;
    let b = selected(d, &o[2], &mut video.b_select)?;
    let c = d.src(&o[3], ScalarType::B32)?;
    let (target, used) = picked::<N>(d, &o[0])?;
    if !used.is_empty() {
        video.mask = std::array::from_fn(|at| used.contains(&(at as u8)));
    }
    let target = d.dst(&target, ScalarType::B32)?;
    let instr = map3::<u32, u32, u32, u32>(target, [a, b, c], move |a, b, c| video.run(a, b, c));
    d.emit(instr, Cost::WIDE);
    Ok(())
}
