//! Logic, shifts, fields of bits.

use crate::code::{Flow, Gate, PredSrc};
use crate::decode::map::{map1, map2, one, one_to, three_to, two, two_to, with};
use crate::decode::mods::{Mods, operands};
use crate::decode::trail::Role;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, map3};
use heist_arith::int::permute::{self, PrmtMode};
use heist_arith::int::{self, bits};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    use ScalarType::*;
    let Some(ty) = mods.ty() else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!("`{}` names no type", i.opcode),
        ));
    };
    let cost = Cost::ALU;
    match i.opcode.base() {
        "and" => logic(d, i, ty, |a, b| a & b, |a, b| a & b),
        "or" => logic(d, i, ty, |a, b| a | b, |a, b| a | b),
        "xor" => logic(d, i, ty, |a, b| a ^ b, |a, b| a ^ b),
        "not" => match ty.bits() {
            1 => not_pred(d, i),
            16 => one::<u16>(d, i, ty, cost, |a| !a),
            64 => one::<u64>(d, i, ty, cost, |a| !a),
            _ => one::<u32>(d, i, ty, cost, |a| !a),
        },
        "cnot" => match ty.bits() {
            16 => one::<u16>(d, i, ty, cost, bits::cnot16),
            64 => one::<u64>(d, i, ty, cost, bits::cnot64),
            _ => one::<u32>(d, i, ty, cost, bits::cnot32),
        },
        "shl" => match ty.bits() {
            16 => two_to::<u16, u32, u16>(d, i, [ty, ty, U32], cost, int::u16::shl),
            64 => two_to::<u64, u32, u64>(d, i, [ty, ty, U32], cost, int::u64::shl),
            _ => two_to::<u32, u32, u32>(d, i, [ty, ty, U32], cost, int::u32::shl),
        },
        "shr" => match ty {
            S16 => two_to::<u16, u32, u16>(d, i, [ty, ty, U32], cost, int::s16::shr),
            U16 | B16 => two_to::<u16, u32, u16>(d, i, [ty, ty, U32], cost, int::u16::shr),
            S64 => two_to::<u64, u32, u64>(d, i, [ty, ty, U32], cost, int::s64::shr),
            U64 | B64 => two_to::<u64, u32, u64>(d, i, [ty, ty, U32], cost, int::u64::shr),
            S32 => two_to::<u32, u32, u32>(d, i, [ty, ty, U32], cost, int::s32::shr),
            _ => two_to::<u32, u32, u32>(d, i, [ty, ty, U32], cost, int::u32::shr),
        },
        "shf" => {
            let types = [ty, ty, ty, U32];
            match (mods.has("l"), mods.has("clamp")) {
                (true, true) => {
                    three_to::<u32, u32, u32, u32>(d, i, types, cost, permute::shf_l::<true>)
                }
                (true, false) => {
                    three_to::<u32, u32, u32, u32>(d, i, types, cost, permute::shf_l::<false>)
                }
                (false, true) => {
                    three_to::<u32, u32, u32, u32>(d, i, types, cost, permute::shf_r::<true>)
                }
                (false, false) => {
                    three_to::<u32, u32, u32, u32>(d, i, types, cost, permute::shf_r::<false>)
                }
            }
        }
        "lop3" => lop3(d, i, mods),
        "popc" if ty.bits() == 64 => one_to::<u64, u32>(d, i, ty, U32, cost, bits::popc64),
        "popc" => one_to::<u32, u32>(d, i, ty, U32, cost, bits::popc32),
        "clz" if ty.bits() == 64 => one_to::<u64, u32>(d, i, ty, U32, cost, bits::clz64),
        "clz" => one_to::<u32, u32>(d, i, ty, U32, cost, bits::clz32),
        "brev" if ty.bits() == 64 => one::<u64>(d, i, ty, cost, bits::brev64),
        "brev" => one::<u32>(d, i, ty, cost, bits::brev32),
        "bfind" => match (ty, mods.has("shiftamt")) {
            (S32, true) => one_to::<u32, u32>(d, i, ty, U32, cost, bits::bfind_s32::<true>),
            (S32, false) => one_to::<u32, u32>(d, i, ty, U32, cost, bits::bfind_s32::<false>),
            (S64, true) => one_to::<u64, u32>(d, i, ty, U32, cost, bits::bfind_s64::<true>),
            (S64, false) => one_to::<u64, u32>(d, i, ty, U32, cost, bits::bfind_s64::<false>),
            (U64, true) => one_to::<u64, u32>(d, i, ty, U32, cost, bits::bfind_u64::<true>),
            (U64, false) => one_to::<u64, u32>(d, i, ty, U32, cost, bits::bfind_u64::<false>),
            (_, true) => one_to::<u32, u32>(d, i, ty, U32, cost, bits::bfind_u32::<true>),
            (_, false) => one_to::<u32, u32>(d, i, ty, U32, cost, bits::bfind_u32::<false>),
        },
        "fns" => {
            three_to::<u32, u32, u32, u32>(d, i, [U32; 4], Cost::WIDE, |mask, base, offset| {
                bits::fns(mask, base, offset as i32)
            })
        }
        "bfe" => match ty {
            S32 => three_to::<u32, u32, u32, u32>(d, i, [ty, ty, U32, U32], cost, bits::bfe_s32),
            U64 => three_to::<u64, u32, u32, u64>(d, i, [ty, ty, U32, U32], cost, bits::bfe_u64),
            S64 => three_to::<u64, u32, u32, u64>(d, i, [ty, ty, U32, U32], cost, bits::bfe_s64),
            _ => three_to::<u32, u32, u32, u32>(d, i, [ty, ty, U32, U32], cost, bits::bfe_u32),
        },
        "bfi" => bfi(d, i, ty),
        "bmsk" if mods.has("clamp") => two::<u32>(d, i, ty, cost, bits::bmsk::<true>),
        "bmsk" => two::<u32>(d, i, ty, cost, bits::bmsk::<false>),
        "szext" => match (ty, mods.has("clamp")) {
            (S32, true) => two::<u32>(d, i, ty, cost, bits::szext_s32::<true>),
            (S32, false) => two::<u32>(d, i, ty, cost, bits::szext_s32::<false>),
            (_, true) => two::<u32>(d, i, ty, cost, bits::szext_u32::<true>),
            (_, false) => two::<u32>(d, i, ty, cost, bits::szext_u32::<false>),
        },
        _ => prmt(d, i, mods),
    }
}

fn logic(
    d: &mut Decoder<'_>,
    i: &Instruction,
    ty: ScalarType,
    word: fn(u32, u32) -> u32,
    long: fn(u64, u64) -> u64,
) -> Decoded<()> {
    match ty.bits() {
        1 => {
            let o = operands(d, i, 3)?;
            let (a, b) = (pred_or_constant(d, &o[1])?, pred_or_constant(d, &o[2])?);
            let Some(target) = d.pred_dst(&o[0])? else {
                return Ok(());
            };
            let decides = match i.opcode.base() {
                "and" => Some(false),
                "or" => Some(true),
                _ => None,
            };
            d.trail.gate = decides.map(|decides| Gate::Both {
                decides,
                of: [a, b],
            });
            let instr = with(move |cx| {
                let read = |cx: &crate::access::context::Cx<'_>, source: Result<PredSrc, u32>| {
                    match source {
                        Ok(source) => cx.pred(source),
                        Err(constant) => constant,
                    }
                };
                let bits = word(read(cx, a), read(cx, b));
                cx.set_pred(target, bits);
                Flow::Next
            });
            d.emit(instr, Cost::ALU);
            Ok(())
        }
        64 => two::<u64>(d, i, ty, Cost::ALU, long),
        // Those of 16 bits are words whose upper half is zero. Through the pointer the loop would not be vectorised.
        _ => {
            let o = operands(d, i, 3)?;
            let sources = [d.src(&o[1], ty)?, d.src(&o[2], ty)?];
            let target = d.dst(&o[0], ty)?;
            let instr = match i.opcode.base() {
                "and" => map2::<u32, u32, u32>(target, sources, |a, b| a & b),
                "or" => map2::<u32, u32, u32>(target, sources, |a, b| a | b),
                _ => map2::<u32, u32, u32>(target, sources, |a, b| a ^ b),
            };
            d.emit(instr, Cost::ALU);
            Ok(())
        }
    }
}

/// A predicate, or a constant as a mask of all lanes.
pub(crate) fn pred_or_constant(
    d: &mut Decoder<'_>,
    operand: &Operand,
) -> Decoded<Result<PredSrc, u32>> {
    match d.immediate(operand) {
        Some(value) => Ok(Err(if value == 0 { 0 } else { u32::MAX })),
        None => d.pred_src(operand).map(Ok),
    }
}

fn not_pred(d: &mut Decoder<'_>, i: &Instruction) -> Decoded<()> {
    let o = operands(d, i, 2)?;
    let a = d.pred_src(&o[1])?;
    if let Some(target) = d.pred_dst(&o[0])? {
        let instr = with(move |cx| {
            let bits = !cx.pred(a);
            cx.set_pred(target, bits);
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
    }
    Ok(())
}

fn lop3(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let ty = ScalarType::B32;
    let boolean = mods.has("or") || mods.has("and");
    let o = operands(d, i, if boolean { 6 } else { 5 })?;
    let (a, b, c) = (d.src(&o[1], ty)?, d.src(&o[2], ty)?, d.src(&o[3], ty)?);
    let Some(table) = d.immediate(&o[4]) else {
        return Err(d.wrong(rule::OPERAND_KIND, "the table of lop3 is a constant"));
    };
    let table = table as u8;
    if !boolean {
        let target = d.dst(&o[0], ty)?;
        let instr =
            crate::decode::map::map3::<u32, u32, u32, u32>(target, [a, b, c], move |a, b, c| {
                bits::lop3(a, b, c, table)
            });
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    let (target, pred) = match &o[0] {
        Operand::Pair(pair) => {
            let target = match &pair.0 {
                Operand::Sink => None,
                other => Some(d.dst(other, ty)?),
            };
            (target, d.pred_dst(&pair.1)?)
        }
        other => (Some(d.dst(other, ty)?), None),
    };
    let q = d.pred_src(&o[5])?;
    let and = mods.has("and");
    let instr = with(move |cx| {
        let out = map3(*cx.row(a), *cx.row(b), *cx.row(c), |a, b, c| {
            bits::lop3(a, b, c, table)
        });
        let mut nonzero = 0;
        for (lane, value) in out.iter().enumerate().take(LANES) {
            nonzero |= u32::from(*value != 0) << lane;
        }
        let other = cx.pred(q);
        let result = if and {
            nonzero & other
        } else {
            nonzero | other
        };
        if let Some(target) = target {
            cx.write(target, &out);
        }
        if let Some(pred) = pred {
            cx.set_pred(pred, result);
        }
        Flow::Next
    });
    d.emit(instr, Cost::ALU);
    Ok(())
}

fn bfi(d: &mut Decoder<'_>, i: &Instruction, ty: ScalarType) -> Decoded<()> {
    let o = operands(d, i, 5)?;
    let (a, b) = (d.src(&o[1], ty)?, d.src(&o[2], ty)?);
    let (pos, len) = (
        d.src(&o[3], ScalarType::U32)?,
        d.src(&o[4], ScalarType::U32)?,
    );
    let target = d.dst(&o[0], ty)?;
    let instr = if ty.bits() == 64 {
        with(move |cx| {
            let (a, b, pos, len) = (
                cx.read::<u64>(a),
                cx.read::<u64>(b),
                *cx.row(pos),
                *cx.row(len),
            );
            let out = std::array::from_fn(|at| bits::bfi_b64(a[at], b[at], pos[at], len[at]));
            cx.write::<u64>(target, &out);
            Flow::Next
        })
    } else {
        with(move |cx| {
            let (a, b, pos, len) = (*cx.row(a), *cx.row(b), *cx.row(pos), *cx.row(len));
            let out = std::array::from_fn(|at| bits::bfi_b32(a[at], b[at], pos[at], len[at]));
            cx.write::<u32>(target, &out);
            Flow::Next
        })
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}

fn prmt(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    use ScalarType::{B32, U32};
    let mode = mods.all.iter().find_map(|&text| {
        Some(match text {
            "f4e" => PrmtMode::F4e,
            "b4e" => PrmtMode::B4e,
            "rc8" => PrmtMode::Rc8,
            "ecl" => PrmtMode::Ecl,
            "ecr" => PrmtMode::Ecr,
            "rc16" => PrmtMode::Rc16,
            _ => return None,
        })
    });
    match mode {
        None => match i.operands.get(3).and_then(|operand| d.immediate(operand)) {
            Some(selector) => take_bytes(d, i, selector as u32),
            None => {
                three_to::<u32, u32, u32, u32>(d, i, [B32, B32, B32, U32], Cost::ALU, permute::prmt)
            }
        },
        Some(mode) => {
            three_to::<u32, u32, u32, u32>(d, i, [B32, B32, B32, U32], Cost::ALU, move |a, b, c| {
                permute::prmt(a, b, permute::prmt_selector(mode, c))
            })
        }
    }
}

/// `prmt` with a selector that is known: it reads the registers that it takes bytes of, and no other.
fn take_bytes(d: &mut Decoder<'_>, i: &Instruction, selector: u32) -> Decoded<()> {
    use ScalarType::B32;
    let o = operands(d, i, 4)?;
    let target = d.dst(&o[0], B32)?;
    let mut chosen = (0..4).map(|byte| selector >> (4 * byte) & 7);
    let takes = |second: bool| move |byte: u32| (byte >= 4) == second;
    match (chosen.clone().any(takes(false)), chosen.any(takes(true))) {
        (true, true) => {
            let sources = [d.src(&o[1], B32)?, d.src(&o[2], B32)?];
            d.trail.role = Role::Packs;
            let instr = map2(target, sources, move |a: u32, b: u32| {
                permute::prmt(a, b, selector)
            });
            d.emit(instr, Cost::ALU);
        }
        (first, _) => {
            let source = d.src(&o[if first { 1 } else { 2 }], B32)?;
            // The other one is not looked at.
            let instr = map1(target, source, move |a: u32| permute::prmt(a, a, selector));
            d.emit(instr, Cost::ALU);
        }
    }
    Ok(())
}
