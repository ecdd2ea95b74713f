//! What the lanes of a warp do together: shuffles, votes, matches, reductions.
//!
//! A `.sync` instruction waits for the lanes that its mask names, wherever they
//! are, and runs for all of them at once. Here that also orders the lanes' memory accesses,
//! although the PTX manual promises it for `bar.warp.sync` only: hardware does it, and reports
//! about it would help nobody.

use crate::access::context::Cx;
use crate::access::doubt;
use crate::code::{Flow, Pred, PredSrc, Slot, Wait};
use crate::decode::map::with;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, Mask, each, first};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    match i.opcode.base() {
        "shfl" => shfl(d, i, mods),
        "vote" => vote(d, i, mods),
        "match" => match_lanes(d, i, mods),
        "redux" => redux(d, i, mods),
        "elect" => elect(d, i),
        _ => {
            let o = operands(d, i, 1)?;
            let target = d.dst(&o[0], ScalarType::B32)?;
            let instr = with(move |cx| {
                cx.write(target, &[cx.mask; LANES]);
                Flow::Next
            });
            d.emit(instr, Cost::ALU);
            Ok(())
        }
    }
}

/// `bar.warp.sync mask`.
pub(crate) fn decode_barrier(d: &mut Decoder<'_>, i: &Instruction) -> Decoded<()> {
    let o = operands(d, i, 1)?;
    let members = d.src(&o[0], ScalarType::B32)?;
    let instr = with(move |cx| {
        let named = own_mask(cx, members);
        if !check_members(cx, named) {
            return Flow::Next;
        }
        if cx.mask & named & cx.warp.live == named & cx.warp.live || cx.fragment.forced {
            cx.fragment.forced = false;
            report_missing(cx, named);
            let live = cx.warp.live;
            cx.warp.clock.sync_lanes(named, live);
            return Flow::Next;
        }
        cx.wait(Wait::WarpBarrier { members: named })
    });
    d.emit(instr, Cost::new(2, 0));
    Ok(())
}

/// Whether the running lanes are all named in their mask.
fn check_members(cx: &mut Cx<'_>, named: Mask) -> bool {
    let unnamed = cx.mask & !named;
    if unnamed != 0 {
        cx.report(rule::MEMBER_MASK, unnamed, |_, mut told| {
            told.message = format!("lanes {unnamed:#010x} run this, and their mask {named:#010x} does not name them");
            told.help("every lane that runs a `.sync` instruction is named in its mask; take the mask before the branch, or with `activemask`")
        });
    }
    unnamed == 0
}

/// Reports lanes that were waited for and never came.
fn report_missing(cx: &mut Cx<'_>, named: Mask) {
    // Lanes that have exited are not waited for, whenever they did.
    let missing = named & cx.warp.live & !cx.mask;
    if missing != 0 {
        cx.report(rule::MEMBER_MASK, cx.mask, |_, mut told| {
            told.message = format!("the mask names lanes {missing:#010x}, which never come here");
            told.help("name only lanes that run this instruction")
        });
    }
}

/// The mask of the first lane. Lanes with another mask run separately: subgroups of a warp may
/// reach one instruction together, each with its own mask.
fn own_mask(cx: &mut Cx<'_>, members: Slot) -> Mask {
    let masks = *cx.row(members);
    let named = masks[first(cx.mask)];
    let others = each(cx.mask)
        .filter(|&lane| masks[lane] != named)
        .fold(0, |others, lane| others | 1 << lane);
    if others != 0 {
        cx.divide(others);
        cx.mask &= !others;
    }
    named
}

/// Waits until all named lanes are here. None when the instruction must be run
/// again later; else the lanes that take part.
fn assemble(cx: &mut Cx<'_>, members: Option<Slot>) -> Result<Mask, Flow> {
    let Some(members) = members else {
        return Ok(cx.mask);
    };
    let named = own_mask(cx, members);
    let live = cx.warp.live;
    if !check_members(cx, named) {
        return Ok(cx.mask);
    }
    if cx.mask & named & live != named & live && !cx.fragment.forced {
        return Err(cx.retry(Wait::Gather { members: named }));
    }
    cx.fragment.forced = false;
    report_missing(cx, named);
    cx.warp.clock.sync_lanes(named, live);
    Ok(cx.mask & named)
}

fn shfl(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, &["sync", "up", "down", "bfly", "idx"])?;
    let o = operands(d, i, if mods.has("sync") { 5 } else { 4 })?;
    let (target, pred) = match &o[0] {
        Operand::Pair(pair) => (d.dst(&pair.0, ScalarType::B32)?, d.pred_dst(&pair.1)?),
        one => (d.dst(one, ScalarType::B32)?, None),
    };
    let a = d.src(&o[1], ScalarType::B32)?;
    let b = d.src(&o[2], ScalarType::B32)?;
    let c = d.src(&o[3], ScalarType::B32)?;
    let members = o
        .get(4)
        .map(|mask| d.src(mask, ScalarType::B32))
        .transpose()?;
    let names_all = |mask| {
        d.immediate(mask)
            .is_some_and(|bits| bits as Mask == Mask::MAX)
    };
    let leaves_out = o.get(4).is_some_and(|mask| !names_all(mask));
    d.trail.shuffles = Some(a.as_register().into_iter().count());
    let mode = mods
        .all
        .iter()
        .copied()
        .find(|text| *text != "sync")
        .unwrap_or("idx");
    let mode = match mode {
        "up" => Mode::Up,
        "down" => Mode::Down,
        "bfly" => Mode::Butterfly,
        _ => Mode::Index,
    };
    let instr = with(move |cx| {
        let there = match assemble(cx, members) {
            Ok(there) => there,
            Err(flow) => return flow,
        };
        let (values, by, clamps) = (*cx.row(a), *cx.row(b), *cx.row(c));
        let mut out = [0; LANES];
        let (mut inside, mut inactive) = (0, 0);
        for lane in each(cx.mask) {
            let (from, ok) = mode.source(lane as u32, by[lane], clamps[lane]);
            inside |= u32::from(ok) << lane;
            out[lane] = values[from as usize & 31];
            if there >> from & 1 == 0 {
                inactive |= 1 << lane;
            }
        }
        let source = |lane: usize| mode.source(lane as u32, by[lane], clamps[lane]).0;
        // Where the mask may leave lanes out, their values may not be used.
        let follows = leaves_out && cx.follows_values();
        if inactive != 0 && !follows {
            let from = source(first(inactive));
            cx.report(rule::INACTIVE_LANE, inactive, |_, mut told| {
                told.message = format!(
                    "takes a value from lane {from}, which takes no part: the value is not defined"
                );
                told.help("shuffle from lanes that are in the mask and run the instruction")
            });
            inactive = 0;
        }
        if inactive != 0 || cx.warp.doubts.is_some() {
            doubt::shuffled(cx, a.as_register(), inactive, source);
        }
        cx.write(target, &out);
        if let Some(pred) = pred {
            cx.set_pred(pred, inside);
        }
        Flow::Next
    });
    d.emit(instr, Cost::new(2, 24));
    Ok(())
}

#[derive(Clone, Copy)]
enum Mode {
    Up,
    Down,
    Butterfly,
    Index,
}

impl Mode {
    /// The lane that a value comes from, and whether that is inside the segment.
    fn source(self, lane: u32, by: u32, c: u32) -> (u32, bool) {
        let (by, clamp, segment) = (by & 31, c & 31, c >> 8 & 31);
        let most = lane & segment | clamp & !segment;
        let least = lane & segment;
        let (from, ok) = match self {
            Mode::Up => {
                let from = lane.wrapping_sub(by);
                (from, from as i32 >= most as i32)
            }
            Mode::Down => (lane + by, lane + by <= most),
            Mode::Butterfly => (lane ^ by, lane ^ by <= most),
            Mode::Index => {
                let from = least | by & !segment;
                (from, from <= most)
            }
        };
        if ok { (from, true) } else { (lane, false) }
    }
}

fn vote(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, &["sync", "all", "any", "uni", "ballot"])?;
    let o = operands(d, i, if mods.has("sync") { 3 } else { 2 })?;
    let source = crate::ops::arithmetic::bits::pred_or_constant(d, &o[1])?;
    let members = o
        .get(2)
        .map(|mask| d.src(mask, ScalarType::B32))
        .transpose()?;
    let cost = Cost::new(2, 16);
    let read = move |cx: &Cx<'_>, source: Result<PredSrc, u32>| match source {
        Ok(source) => cx.pred(source),
        Err(constant) => constant,
    };
    if mods.has("ballot") {
        let target = d.dst(&o[0], ScalarType::B32)?;
        let instr = with(move |cx| match assemble(cx, members) {
            Ok(there) => {
                let ballot = read(cx, source) & there;
                cx.write(target, &[ballot; LANES]);
                Flow::Next
            }
            Err(flow) => flow,
        });
        d.emit(instr, cost);
        return Ok(());
    }
    let (all, any) = (mods.has("all"), mods.has("any"));
    let Some(target) = d.pred_dst(&o[0])? else {
        return Ok(());
    };
    let instr = with(move |cx| match assemble(cx, members) {
        Ok(there) => {
            let yes = read(cx, source) & there;
            let holds = if all {
                yes == there
            } else if any {
                yes != 0
            } else {
                yes == there || yes == 0
            };
            cx.set_pred(target, if holds { u32::MAX } else { 0 });
            Flow::Next
        }
        Err(flow) => flow,
    });
    d.emit(instr, cost);
    Ok(())
}

fn match_lanes(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, &["sync", "all", "any"])?;
    let o = operands(d, i, 3)?;
    let ty = mods.ty().unwrap_or(ScalarType::B32);
    let (target, pred) = match &o[0] {
        Operand::Pair(pair) => (d.dst(&pair.0, ScalarType::B32)?, d.pred_dst(&pair.1)?),
        one => (d.dst(one, ScalarType::B32)?, None),
    };
    let (a, rows) = (d.src(&o[1], ty)?, crate::decode::names::rows_of(ty));
    let members = Some(d.src(&o[2], ScalarType::B32)?);
    let all = mods.has("all");
    let instr = with(move |cx| match assemble(cx, members) {
        Ok(there) => {
            let values = crate::decode::qualifier::read_bits(cx, a, rows);
            let mut out = [0; LANES];
            for lane in each(there) {
                out[lane] = each(there)
                    .filter(|&other| values[other] == values[lane])
                    .fold(0, |mask, other| mask | 1 << other);
            }
            if all {
                let same = out[first(there)] == there;
                out = [if same { there } else { 0 }; LANES];
                if let Some(pred) = pred {
                    cx.set_pred(pred, if same { u32::MAX } else { 0 });
                }
            }
            cx.write(target, &out);
            Flow::Next
        }
        Err(flow) => flow,
    });
    d.emit(instr, Cost::new(8, 40));
    Ok(())
}

fn redux(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(
        d,
        i,
        mods,
        &[
            "sync", "add", "min", "max", "and", "or", "xor", "abs", "NaN",
        ],
    )?;
    let o = operands(d, i, 3)?;
    let ty = mods.ty().unwrap_or(ScalarType::U32);
    let a = d.src(&o[1], ty)?;
    let members = Some(d.src(&o[2], ScalarType::B32)?);
    let target = d.dst(&o[0], ty)?;
    let (abs, nan) = (mods.has("abs"), mods.has("NaN"));
    let name = mods.all.get(1).copied().unwrap_or("");
    let combine: fn(u32, u32) -> u32 = match (name, ty) {
        ("add", _) => u32::wrapping_add,
        ("min", ScalarType::S32) => |a, b| (a as i32).min(b as i32) as u32,
        ("max", ScalarType::S32) => |a, b| (a as i32).max(b as i32) as u32,
        ("min", ScalarType::F32) if nan => {
            heist_arith::float::minmax::f32::min::<false, true, false>
        }
        ("max", ScalarType::F32) if nan => {
            heist_arith::float::minmax::f32::max::<false, true, false>
        }
        ("min", ScalarType::F32) => heist_arith::float::minmax::f32::min::<false, false, false>,
        ("max", ScalarType::F32) => heist_arith::float::minmax::f32::max::<false, false, false>,
        ("min", _) => u32::min,
        ("max", _) => u32::max,
        ("and", _) => |a, b| a & b,
        ("or", _) => |a, b| a | b,
        ("xor", _) => |a, b| a ^ b,
        _ => return Err(d.unsupported(i, "redux has no such operation")),
    };
    let instr = with(move |cx| match assemble(cx, members) {
        Ok(there) => {
            let values = *cx.row(a);
            let take = |lane: usize| {
                if abs {
                    values[lane] & 0x7fff_ffff
                } else {
                    values[lane]
                }
            };
            let result = each(there).map(take).reduce(combine).unwrap_or(0);
            cx.write(target, &[result; LANES]);
            Flow::Next
        }
        Err(flow) => flow,
    });
    d.emit(instr, Cost::new(4, 16));
    Ok(())
}

/// `elect.sync d|p, mask`: the lowest lane.
fn elect(d: &mut Decoder<'_>, i: &Instruction) -> Decoded<()> {
    let o = operands(d, i, 2)?;
    let (target, pred): (Option<Slot>, Option<Pred>) = match &o[0] {
        Operand::Pair(pair) => {
            let target = match &pair.0 {
                Operand::Sink => None,
                other => Some(d.dst(other, ScalarType::B32)?),
            };
            (target, d.pred_dst(&pair.1)?)
        }
        one => (Some(d.dst(one, ScalarType::B32)?), None),
    };
    let members = Some(d.src(&o[1], ScalarType::B32)?);
    let instr = with(move |cx| match assemble(cx, members) {
        Ok(there) => {
            let leader = first(there);
            if let Some(target) = target {
                cx.write(target, &[leader as u32; LANES]);
            }
            if let Some(pred) = pred {
                cx.set_pred(pred, 1 << leader);
            }
            Flow::Next
        }
        Err(flow) => flow,
    });
    d.emit(instr, Cost::new(2, 16));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_stay_in_their_segment() {
        // `shfl.up` by 1 over the whole warp: lane 0 keeps its own.
        assert_eq!(Mode::Up.source(0, 1, 0), (0, false));
        assert_eq!(Mode::Up.source(5, 1, 0), (4, true));
        // `shfl.down` by 1 in segments of eight: lane 7 keeps its own.
        let c = 0x1807 | 0x1f & !0x18;
        assert_eq!(Mode::Down.source(6, 1, c), (7, true));
        assert_eq!(Mode::Down.source(7, 1, c), (7, false));
        assert_eq!(Mode::Index.source(13, 2, c), (10, true));
        assert_eq!(Mode::Butterfly.source(3, 16, 31), (19, true));
    }
}
