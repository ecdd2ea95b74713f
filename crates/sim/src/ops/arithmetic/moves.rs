//! `mov` and its kind: copies, packing and unpacking, addresses, clocks.

use crate::code::{Flow, Reach, Slot};
use crate::decode::address::Base;
use crate::decode::map::{map1, with};
use crate::decode::mods::{Mods, operands};
use crate::decode::names::{Named, Storage, rows_of};
use crate::decode::operand::place_window;
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::LANES;
use crate::state::memory::window::Window;
use heist_ptx::{Instruction, Operand, ScalarType, rule};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    match i.opcode.base() {
        "mov" => mov(d, i, mods),
        "cvta" => cvta(d, i, mods),
        _ => isspacep(d, i, mods),
    }
}

fn mov(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = operands(d, i, 2)?;
    let Some(ty) = mods.ty() else {
        return Err(d.wrong(rule::MISSING_MODIFIER, "mov names no type"));
    };
    if ty == ScalarType::Pred {
        if matches!(&o[1], Operand::Name(name) if name == "%is_explicit_cluster") {
            if let Some(target) = d.pred_dst(&o[0])? {
                let instr = with(move |cx| {
                    let explicit = cx.machine.launch.cluster.is_some()
                        || cx.code.shape.required_cluster.is_some();
                    cx.set_pred(target, if explicit { u32::MAX } else { 0 });
                    Flow::Next
                });
                d.emit(instr, Cost::ALU);
            }
            return Ok(());
        }
        let source = super::bits::pred_or_constant(d, &o[1])?;
        if let Some(target) = d.pred_dst(&o[0])? {
            let instr = with(move |cx| {
                let bits = match source {
                    Ok(source) => cx.pred(source),
                    Err(constant) => constant,
                };
                cx.set_pred(target, bits);
                Flow::Next
            });
            d.emit(instr, Cost::ALU);
        }
        return Ok(());
    }
    let (to, from) = (d.parts_of(&o[0]), d.parts_of(&o[1]));
    if mods.has("v2") || mods.has("v4") {
        return each_part(d, to, from, ty);
    }
    match (to, from, &o[1]) {
        (Some(_), Some(_), _) => Err(d.wrong(
            rule::VECTOR_LENGTH,
            "a whole vector is moved to another by `mov.v2` or `mov.v4`",
        )),
        (Some(parts), None, whole) => unpack(d, &parts, whole, ty),
        (None, Some(parts), _) => pack(d, &o[0], &parts, ty),
        (None, None, Operand::Name(name)) if is_clock(name) => clock(d, &o[0], name, ty),
        (None, None, Operand::Name(name)) => {
            if let Some(Named::Memory(memory)) = d.find(name)
                && let Storage::Frame(at) = memory.place
            {
                return frame_address(d, &o[0], at, 0, ty);
            }
            copy(d, &o[0], &o[1], ty)
        }
        (None, None, source) => copy(d, &o[0], source, ty),
    }
}

fn copy(d: &mut Decoder<'_>, target: &Operand, source: &Operand, ty: ScalarType) -> Decoded<()> {
    let source = d.src(source, ty)?;
    let target = d.dst(target, ty)?;
    d.emit(copier(source, target, rows_of(ty)), Cost::ALU);
    Ok(())
}

/// `mov.v2.f32 v, {a, b}` and its kind: each part of a vector to that of another.
fn each_part(
    d: &mut Decoder<'_>,
    to: Option<Vec<Operand>>,
    from: Option<Vec<Operand>>,
    ty: ScalarType,
) -> Decoded<()> {
    let (Some(to), Some(from)) = (to, from) else {
        return Err(d.wrong(
            rule::UNSUPPORTED,
            "the simulator moves vectors from registers and lists only",
        ));
    };
    if to.len() != from.len() {
        return Err(d.wrong(
            rule::VECTOR_LENGTH,
            format!("{} values are moved to {} registers", from.len(), to.len()),
        ));
    }
    // Through fresh registers, for a part may be read after another is written.
    let rows = rows_of(ty);
    let mut copies = Vec::with_capacity(from.len());
    for part in &from {
        let source = d.src(part, ty)?;
        let between = d.fresh(rows);
        d.note_write(between);
        d.emit(copier(source, between, rows), Cost::ALU);
        copies.push(between);
    }
    for (between, part) in copies.into_iter().zip(&to) {
        if *part != Operand::Sink {
            d.note_read(between);
            let target = d.dst(part, ty)?;
            d.emit(copier(between, target, rows), Cost::ALU);
        }
    }
    Ok(())
}

fn copier(source: Slot, target: Slot, rows: u32) -> Box<dyn Instr> {
    match rows {
        1 => map1::<u32, u32>(target, source, |value| value),
        2 => map1::<u64, u64>(target, source, |value| value),
        _ => map1::<u128, u128>(target, source, |value| value),
    }
}

fn frame_address(
    d: &mut Decoder<'_>,
    target: &Operand,
    at: u32,
    start: u64,
    ty: ScalarType,
) -> Decoded<()> {
    let (target, rows) = d.dst_any(target, ty)?;
    let instr = with(move |cx| {
        let address = u64::from(cx.fragment.local + at) + start;
        let addresses =
            std::array::from_fn(|lane| address + if start == 0 { 0 } else { tag(cx, lane) });
        crate::decode::qualifier::write_bits(cx, target, rows, &addresses);
        Flow::Next
    });
    d.emit(instr, Cost::ALU);
    Ok(())
}

/// What the generic address of a thread's local memory has above its offset.
fn tag(cx: &crate::access::context::Cx<'_>, lane: usize) -> u64 {
    (u64::from(cx.warp.number) * 32 + lane as u64) << crate::state::memory::window::LOCAL_SHIFT
}

fn is_clock(name: &str) -> bool {
    matches!(
        name,
        "%clock"
            | "%clock_hi"
            | "%clock64"
            | "%globaltimer"
            | "%globaltimer_lo"
            | "%globaltimer_hi"
    )
}

fn clock(d: &mut Decoder<'_>, target: &Operand, name: &str, ty: ScalarType) -> Decoded<()> {
    let (target, rows) = d.dst_any(target, ty)?;
    let nanoseconds = name.starts_with("%globaltimer");
    let shift = if name.ends_with("_hi") { 32 } else { 0 };
    let instr = with(move |cx| {
        cx.machine.spinners.timed = true;
        let now = cx.warp.settle() + cx.team.offset;
        let value = if nanoseconds {
            // Far from zero, as a real one is.
            1_000_000_000_000 + now * cx.machine.device.cycle_ps() / 1000
        } else {
            now
        };
        crate::decode::qualifier::write_bits(cx, target, rows, &[value >> shift; LANES]);
        Flow::Next
    });
    // The device's time is known at interactions only.
    d.emit_reaching(instr, Cost::new(4, 16), Reach::Device);
    Ok(())
}

/// `mov.b64 {lo, hi}, a`.
fn unpack(d: &mut Decoder<'_>, parts: &[Operand], whole: &Operand, ty: ScalarType) -> Decoded<()> {
    let bits = ty.bits() / parts.len() as u32;
    let source = d.src(whole, ty)?;
    let part_ty = part_type(d, bits)?;
    let mut targets = Vec::new();
    for part in parts {
        targets.push(match part {
            Operand::Sink => None,
            part => Some(d.dst_any(part, part_ty)?),
        });
    }
    let rows = rows_of(ty);
    let instr = with(move |cx| {
        let values: [u128; LANES] = match rows {
            1 => cx.row(source).map(u128::from),
            2 => cx.read::<u64>(source).map(u128::from),
            _ => cx.read(source),
        };
        for (at, target) in targets.iter().enumerate() {
            let shift = bits * at as u32;
            let mask = (1u128 << bits) - 1;
            if let &Some((slot, rows)) = target {
                let part = values.map(|value| (value >> shift & mask) as u64);
                crate::decode::qualifier::write_bits(cx, slot, rows, &part);
            }
        }
        Flow::Next
    });
    d.emit(instr, Cost::ALU);
    Ok(())
}

/// `mov.b64 d, {lo, hi}`.
fn pack(d: &mut Decoder<'_>, whole: &Operand, parts: &[Operand], ty: ScalarType) -> Decoded<()> {
    let bits = ty.bits() / parts.len() as u32;
    let part_ty = part_type(d, bits)?;
    let mut sources = Vec::new();
    for part in parts {
        sources.push(d.src_any(part, part_ty)?);
    }
    let target = d.dst(whole, ty)?;
    let rows = rows_of(ty);
    let instr = with(move |cx| {
        let mut values = [0u128; LANES];
        let mask = (1u128 << bits) - 1;
        for (at, &(slot, rows)) in sources.iter().enumerate() {
            let part = crate::decode::qualifier::read_bits(cx, slot, rows);
            let shift = bits * at as u32;
            for lane in 0..LANES {
                values[lane] |= (u128::from(part[lane]) & mask) << shift;
            }
        }
        match rows {
            1 => cx.write(target, &values.map(|value| value as u32)),
            2 => cx.write(target, &values.map(|value| value as u64)),
            _ => cx.write(target, &values),
        }
        Flow::Next
    });
    d.emit(instr, Cost::ALU);
    Ok(())
}

fn part_type(d: &Decoder<'_>, bits: u32) -> Decoded<ScalarType> {
    Ok(match bits {
        8 => ScalarType::B8,
        16 => ScalarType::B16,
        32 => ScalarType::B32,
        64 => ScalarType::B64,
        _ => return Err(d.wrong(rule::VECTOR_LENGTH, "the parts do not add up to the whole")),
    })
}

/// `cvta`: between an offset in a window and a generic address.
fn cvta(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = operands(d, i, 2)?;
    let ty = mods.ty().unwrap_or(ScalarType::U64);
    let Some(window) = crate::decode::qualifier::window_of(d, mods) else {
        return Err(d.wrong(rule::MISSING_MODIFIER, "cvta names no state space"));
    };
    let to_space = mods.has("to");
    let start = window.start();
    if let Operand::Name(name) = &o[1]
        && let Some(Named::Memory(memory)) = d.find(name)
    {
        let start = place_window(memory.place).start();
        let addr = d.named_address(name, 0)?;
        if let Base::Frame(at) = addr.base {
            return frame_address(d, &o[0], at, start, ty);
        }
        let target = d.dst(&o[0], ty)?;
        let instr = with(move |cx| {
            let values = addr.eval(cx).map(|address| address.wrapping_add(start));
            crate::decode::qualifier::write_bits(cx, target, rows_of(ty), &values);
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    let (source, source_rows) = d.src_any(&o[1], ty)?;
    let (target, rows) = d.dst_any(&o[0], ty)?;
    if window != Window::Local && (source_rows, rows) == (2, 2) {
        // A subtraction is an addition that wraps around.
        let plus = if to_space {
            start.wrapping_neg()
        } else {
            start
        };
        let instr = map1::<u64, u64>(target, source, move |address| address.wrapping_add(plus));
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    let instr = with(move |cx| {
        let values = crate::decode::qualifier::read_bits(cx, source, source_rows);
        let local = window == Window::Local;
        let moved = std::array::from_fn(|lane| {
            let start = start + if local { tag(cx, lane) } else { 0 };
            if to_space {
                values[lane].wrapping_sub(start)
            } else {
                values[lane].wrapping_add(start)
            }
        });
        crate::decode::qualifier::write_bits(cx, target, rows, &moved);
        Flow::Next
    });
    d.emit(instr, Cost::ALU);
    Ok(())
}

fn isspacep(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = operands(d, i, 2)?;
    let Some(window) = crate::decode::qualifier::window_of(d, mods) else {
        return Err(d.wrong(rule::MISSING_MODIFIER, "isspacep names no state space"));
    };
    let (source, rows) = d.src_any(&o[1], ScalarType::U64)?;
    let Some(target) = d.pred_dst(&o[0])? else {
        return Ok(());
    };
    let instr = with(move |cx| {
        let addresses = crate::decode::qualifier::read_bits(cx, source, rows);
        let rank = cx.warp.rank;
        let mut bits = 0;
        for (lane, &address) in addresses.iter().enumerate() {
            let (found, offset) = Window::of(address);
            let mine = || crate::state::memory::window::SharedPlace::of(offset as u32).rank == rank;
            let holds = match window {
                Window::OwnShared => found == Window::Shared && mine(),
                window => found == window,
            };
            bits |= u32::from(holds) << lane;
        }
        cx.set_pred(target, bits);
        Flow::Next
    });
    d.emit(instr, Cost::ALU);
    Ok(())
}
