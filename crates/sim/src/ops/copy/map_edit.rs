//! `tensormap.replace` and `tensormap.cp_fenceproxy`: tensor maps made by kernels.
//!
//! The bytes of a map are a handle of a map kept outside of memory. A changed map gets a new
//! handle, so copies of the old bytes still mean the old map.

use crate::access::context::Cx;
use crate::access::group::{Does, groups};
use crate::access::look::watch;
use crate::code::{Flow, Reach};
use crate::decode::map::with;
use crate::decode::mods::{Mods, operands};
use crate::decode::qualifier::{read_bits, scope_of, window_of};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each, first};
use crate::race::access::{AccessKind, Scope};
use crate::state::memory::window::Window;
use crate::state::tensor_map::{Axis, Encoded};
use heist_launch::{Fill, Interleave, Swizzle, TensorElement};
use heist_ptx::{Instruction, ScalarType, rule};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("cp_fenceproxy") {
        copy(d, i, mods)
    } else {
        replace(d, i, mods)
    }
}

/// What of a map is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Address,
    Rank,
    Axis(Axis),
    Element,
    Interleave,
    Swizzle,
    Fill,
}

fn replace(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let name = mods
        .all
        .iter()
        .copied()
        .find(|text| !matches!(*text, "replace" | "tile"))
        .unwrap_or("");
    let indexed = matches!(
        name,
        "box_dim" | "global_dim" | "global_stride" | "element_stride"
    );
    let o = operands(d, i, if indexed { 3 } else { 2 })?;
    let axis = if indexed {
        match d.immediate(&o[1]) {
            Some(axis) if axis < 5 => axis as usize,
            _ => {
                return Err(d.wrong(
                    rule::IMMEDIATE_RANGE,
                    "a tensor has up to five dimensions, counted from 0",
                ));
            }
        }
    } else {
        0
    };
    let field = match name {
        "global_address" => Field::Address,
        "rank" => Field::Rank,
        "box_dim" => Field::Axis(Axis::BoxDim(axis)),
        "global_dim" => Field::Axis(Axis::Dim(axis)),
        "global_stride" => Field::Axis(Axis::Stride(axis)),
        "element_stride" => Field::Axis(Axis::ElementStride(axis)),
        "elemtype" => Field::Element,
        "interleave_layout" => Field::Interleave,
        "swizzle_mode" => Field::Swizzle,
        "fill_mode" => Field::Fill,
        _ => return Err(d.unsupported(i, "this field of a tensor map is not simulated")),
    };
    let ty = if matches!(field, Field::Address | Field::Axis(Axis::Stride(_))) {
        ScalarType::B64
    } else {
        ScalarType::B32
    };
    let addr = d.address(&o[0])?;
    let window = window_of(d, mods).or(addr.window);
    let (value, rows) = d.src_any(&o[o.len() - 1], ty)?;
    let instr = with(move |cx| {
        let (addresses, values) = (addr.eval(cx), read_bits(cx, value, rows));
        let lanes = cx.mask;
        for lane in each(lanes) {
            cx.mask = 1 << lane;
            change(cx, window, addresses[lane], field, values[lane]);
        }
        cx.mask = lanes;
        Flow::Next
    });
    d.emit_reaching(instr, Cost::new(4, 24), Reach::Device);
    Ok(())
}

/// Changes one field of the map at an address.
fn change(cx: &mut Cx<'_>, window: Option<Window>, address: u64, field: Field, value: u64) {
    let all = [address; LANES];
    let mut bad = None;
    // The part of the bytes that says which map it is.
    groups(cx, window, &all, 16, Does::Writes, |cx, group| {
        watch(cx, group, false, Does::Writes, AccessKind::Plain);
        let offset = group.offsets[first(group.mask)];
        let Some(region) = cx.region(group.home) else {
            return;
        };
        let bytes = region.read(offset, 16).to_le_bytes();
        let known = cx.machine.tensor_maps.find(&bytes);
        let mut map = known.unwrap_or_else(Encoded::blank);
        if set(&mut map, field, value).is_none() {
            bad = Some(());
            return;
        }
        let bytes = cx.machine.tensor_maps.keep(map);
        if let Some(region) = cx.region(group.home) {
            region.write_bytes(offset, &bytes[..16]);
        }
    });
    if bad.is_some() {
        cx.report(rule::TENSOR_COPY, cx.mask, |_, mut told| {
            told.message = format!("{value:#x} is no value of this field of a tensor map");
            told
        });
    }
}

fn set(map: &mut Encoded, field: Field, value: u64) -> Option<()> {
    let number = value as u32;
    match field {
        Field::Address => map.tensor = value,
        // Given as one less than it is.
        Field::Rank => return map.set_rank(number.checked_add(1)? as usize),
        Field::Axis(axis) => return map.set_axis(axis, value),
        Field::Element => {
            map.map.element = match number {
                0 => TensorElement::U8,
                1 => TensorElement::U16,
                2 => TensorElement::U32,
                3 => TensorElement::S32,
                4 => TensorElement::U64,
                5 => TensorElement::S64,
                6 => TensorElement::F16,
                7 => TensorElement::F32,
                8 => TensorElement::F32Ftz,
                9 => TensorElement::F64,
                10 => TensorElement::Bf16,
                11 => TensorElement::Tf32,
                12 => TensorElement::Tf32Ftz,
                13 => TensorElement::B4,
                14 => TensorElement::B4Padded,
                15 => TensorElement::B6Padded,
                _ => return None,
            }
        }
        Field::Interleave => {
            map.map.interleave = match number {
                0 => Interleave::None,
                1 => Interleave::Bytes16,
                2 => Interleave::Bytes32,
                _ => return None,
            }
        }
        Field::Swizzle => {
            map.map.swizzle = match number {
                0 => Swizzle::None,
                1 => Swizzle::Bytes32,
                2 => Swizzle::Bytes64,
                3 => Swizzle::Bytes128,
                _ => return None,
            }
        }
        Field::Fill => {
            map.map.fill = match number {
                0 => Fill::Zeros,
                1 => Fill::Nan,
                _ => return None,
            }
        }
    }
    Some(())
}

/// The lanes that copy the first 64 bytes of a map.
const FIRST_HALF: u32 = 0xffff;

/// `tensormap.cp_fenceproxy [to], [from], 128`: the warp copies a map and releases it.
fn copy(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = operands(d, i, 3)?;
    let scope = scope_of(mods).unwrap_or(Scope::Gpu);
    let (to, from) = (d.address(&o[0])?, d.address(&o[1])?);
    let instr = with(move |cx| {
        if let Err(flow) = crate::ops::matrix::operands::assemble(cx) {
            return flow;
        }
        let lead = first(cx.mask);
        let spread = |base: u64| std::array::from_fn(|lane| base.wrapping_add(4 * lane as u64));
        let sources: [u64; LANES] = spread(from.eval(cx)[lead]);
        let targets: [u64; LANES] = spread(to.eval(cx)[lead]);
        let mut words = [0u32; LANES];
        let shared = Some(Window::Shared);
        groups(cx, shared, &sources, 4, Does::Reads, |cx, group| {
            // The second half holds nothing of a map, and compilers copy only the first one here.
            let mut half = *group;
            half.mask &= FIRST_HALF;
            if half.mask != 0 {
                watch(cx, &half, false, Does::Reads, AccessKind::Plain);
            }
            if let Some(region) = cx.region(group.home) {
                for lane in each(group.mask) {
                    words[lane] = region.read(group.offsets[lane], 4) as u32;
                }
            }
        });
        let global = Some(Window::Global);
        groups(cx, global, &targets, 4, Does::Writes, |cx, group| {
            watch(cx, group, false, Does::Writes, AccessKind::Plain);
            if let Some(region) = cx.region(group.home) {
                for lane in each(group.mask) {
                    region.write(group.offsets[lane], 4, u128::from(words[lane]));
                }
            }
        });
        crate::ops::barrier::fence::release_maps(cx, scope);
        Flow::Next
    });
    d.emit_reaching(instr, Cost::GLOBAL, Reach::Device);
    Ok(())
}
