//! Textures and surfaces: `tex`, `suld` and `sust`.
//!
//! An image's object is the address of its description ([`heist_launch::Texture`]); its texels are
//! ordinary global memory, so the checks of loads and stores hold for them too.

mod sample;
mod surface;

use crate::access::context::Cx;
use crate::access::group::{Does, groups};
use crate::access::look::watch;
use crate::code::{Flow, Slot};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::{Mods, only};
use crate::decode::qualifier::elements;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, Mask, each, first};
use crate::ops::memory::check_read_only;
use crate::race::access::AccessKind;
use crate::state::memory::window::Window;
use heist_launch::Texture;
use heist_ptx::{Address, Instruction, Operand, ScalarType, rule};
use sample::{border, numbers, taps};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    match i.opcode.base() {
        "tex" => fetch(d, i, mods),
        "suld" => surface::load(d, i, mods),
        "sust" => surface::store(d, i, mods),
        _ => Err(d.unsupported(i, i.opcode.row().map_or("", |row| row.tested.reason()))),
    }
}

/// How many axes an image has, and whether there are layers of it.
fn axes(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<(usize, bool)> {
    let forms = [
        ("1d", (1, false)),
        ("2d", (2, false)),
        ("3d", (3, false)),
        ("a1d", (1, true)),
        ("a2d", (2, true)),
    ];
    let found = forms.into_iter().find(|(name, _)| mods.has(name));
    found.map(|(_, form)| form).ok_or_else(|| {
        d.unsupported(
            i,
            "images of one to three axes and layers of them are simulated; cube maps and images of several samples are not",
        )
    })
}

/// An image and a place in it, as an instruction names them: `[image, {coordinates}]`.
struct Place {
    object: Addr,
    /// Axes of the image.
    axes: usize,
    layer: Option<Slot>,
    coordinates: Vec<Slot>,
}

impl Place {
    fn of(
        d: &mut Decoder<'_>,
        i: &Instruction,
        mods: &Mods<'_>,
        operand: &Operand,
        ty: ScalarType,
    ) -> Decoded<Place> {
        let (axes, layered) = axes(d, i, mods)?;
        let object = d.address(operand)?;
        let rest = match operand {
            Operand::Address(Address { rest, .. }) => &rest[..],
            _ => &[],
        };
        let coordinates = match (rest, object.window) {
            ([Operand::Vector(list)], None) => Some(list),
            _ => None,
        };
        let Some(list) = coordinates else {
            let why = "an image is named by an object in a register: images that are variables, and separate samplers, are not simulated";
            return Err(d.unsupported(i, why));
        };
        let (layer, list) = match (layered, &list[..]) {
            (true, [layer, list @ ..]) => (Some(d.src(layer, ScalarType::U32)?), list),
            (_, list) => (None, list),
        };
        let mut coordinates = Vec::new();
        for operand in list.iter().take(axes) {
            coordinates.push(d.src(operand, ty)?);
        }
        if coordinates.len() < axes {
            return Err(d.wrong(
                rule::VECTOR_LENGTH,
                format!("an image of {axes} axes has as many coordinates"),
            ));
        }
        Ok(Place {
            object,
            axes,
            layer,
            coordinates,
        })
    }

    /// Calls `act` for each image that the lanes name, with those lanes in the mask. Lanes that name
    /// no image are told.
    fn images(&self, cx: &mut Cx<'_>, mut act: impl FnMut(&mut Cx<'_>, &Texture)) {
        let (all, objects) = (cx.mask, self.object.eval(cx));
        let mut rest = all;
        while rest != 0 {
            let object = objects[first(rest)];
            let same = each(rest)
                .filter(|&lane| objects[lane] == object)
                .fold(0, |mask: Mask, lane| mask | 1 << lane);
            rest &= !same;
            cx.mask = same;
            if let Some(texture) = describe(cx, object) {
                act(cx, &texture);
            }
        }
        cx.mask = all;
    }
}

/// The image behind an object.
fn describe(cx: &mut Cx<'_>, object: u64) -> Option<Texture> {
    let found = cx.machine.global.find(object).and_then(|at| {
        let one = cx.machine.global.get(at)?;
        let bytes = one.region.bytes(object - one.base, Texture::LEN);
        (!one.freed).then(|| Texture::from_bytes(bytes))?
    });
    if found.is_none() {
        let what = cx.machine.global.describe(object);
        cx.report(rule::GLOBAL_OUT_OF_BOUNDS, cx.mask, |_, mut told| {
            told.message = format!("uses {object:#x} as an image, and it is {what}");
            told.help("pass a texture or surface object that was made and is not destroyed")
        });
    }
    found
}

/// Reads one texel or a part of it in each lane that has an address; the others get zeros.
fn read(cx: &mut Cx<'_>, at: &[Option<u64>; LANES], size: u32, only: bool) -> [u128; LANES] {
    let mut values = [0; LANES];
    let all = cx.mask;
    cx.mask = each(all)
        .filter(|&lane| at[lane].is_some())
        .fold(0, |mask: Mask, lane| mask | 1 << lane);
    let addresses = at.map(|at| at.unwrap_or(0));
    let global = Some(Window::Global);
    if cx.mask != 0 {
        groups(cx, global, &addresses, size, Does::Reads, |cx, group| {
            watch(cx, group, false, Does::Reads, AccessKind::Plain);
            if only {
                check_read_only(cx, group, false);
            }
            if let Some(region) = cx.region(group.home) {
                for lane in each(group.mask) {
                    values[lane] = region.read(group.offsets[lane], size as usize);
                }
            }
        });
    }
    cx.mask = all;
    values
}

const FETCH: &[&str] = &["1d", "2d", "3d", "a1d", "a2d", "v4", "level"];

/// `tex`.
fn fetch(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    axes(d, i, mods)?;
    only(d, i, mods, FETCH)?;
    let types: Vec<ScalarType> = mods.types().collect();
    let (Some(&[result, coordinate]), Some(target), Some(source)) = (
        types.first_chunk::<2>(),
        i.operands.first(),
        i.operands.get(1),
    ) else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            "`tex` names the type of its result and of its coordinates",
        ));
    };
    if !matches!(result, ScalarType::F32 | ScalarType::U32 | ScalarType::S32) {
        return Err(d.unsupported(i, "textures are read as 32-bit values only"));
    }
    let place = Place::of(d, i, mods, source, coordinate)?;
    // A level is given too for images that have one alone, as all have here.
    if let (true, Some(level)) = (mods.has("level"), i.operands.get(2)) {
        d.src(level, coordinate)?;
    }
    let mut targets = Vec::new();
    for operand in elements(d, target, 4)? {
        targets.push(match operand {
            Operand::Sink => None,
            operand => Some(d.dst(&operand, result)?),
        });
    }
    let whole = coordinate == ScalarType::S32;
    let float = result == ScalarType::F32;
    let instr = with(move |cx| {
        place.images(cx, |cx, texture| {
            let results = texels(cx, &place, texture, whole);
            for (channel, slot) in targets.iter().enumerate() {
                if let Some(slot) = slot {
                    let bits = results.map(|one| match float {
                        true => (one[channel] as f32).to_bits(),
                        false => one[channel] as i64 as u32,
                    });
                    cx.write(*slot, &bits);
                }
            }
        });
        Flow::Next
    });
    d.emit(instr, Cost::GLOBAL);
    Ok(())
}

/// What the lanes read of one image: four channels each.
fn texels(cx: &mut Cx<'_>, place: &Place, texture: &Texture, whole: bool) -> [[f64; 4]; LANES] {
    let mut at = [[0.0; 3]; LANES];
    for (axis, &slot) in place.coordinates.iter().enumerate() {
        for (at, &bits) in at.iter_mut().zip(cx.row(slot)) {
            at[axis] = match whole {
                true => f64::from(bits as i32),
                false => f64::from(f32::from_bits(bits)),
            };
        }
    }
    if let Some(slot) = place.layer {
        for (at, &bits) in at.iter_mut().zip(cx.row(slot)) {
            // Layers are the last axis of an image in memory.
            at[2] = f64::from(bits as i32);
        }
    }
    let all = at.map(|at| taps(texture, place.axes, at));
    let mut results = [[0.0; 4]; LANES];
    for number in 0..all[0].1 {
        let addresses = all.map(|(taps, _)| taps[number].at);
        let raw = read(cx, &addresses, texture.format.bytes(), true);
        for lane in each(cx.mask) {
            let tap = all[lane].0[number];
            let channels = match tap.at {
                Some(_) => numbers(texture, raw[lane]),
                None => border(texture),
            };
            for (sum, channel) in results[lane].iter_mut().zip(channels) {
                *sum += tap.weight * channel;
            }
        }
    }
    results
}
