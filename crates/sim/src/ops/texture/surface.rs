//! Surfaces: images that a kernel reads and writes at whole coordinates, of which the first counts bytes.

use super::{Place, read};
use crate::access::context::Cx;
use crate::access::group::{Does, groups};
use crate::access::look::watch;
use crate::code::Flow;
use crate::decode::map::with;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::qualifier::{elements, lanes_of, read_bits, write_bits};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, Mask, each, first};
use crate::race::access::AccessKind;
use crate::state::memory::window::Window;
use heist_launch::Texture;
use heist_ptx::{Instruction, ScalarType, rule};

/// What becomes of an access outside of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// The kernel ends with an error.
    Trap,
    /// The nearest texel is taken.
    Clamp,
    /// Reads give zeros, writes are dropped.
    Zero,
}

const KNOWN: &[&str] = &[
    "b", "1d", "2d", "3d", "a1d", "a2d", "v2", "v4", "trap", "clamp", "zero", "ca", "cg", "cs",
    "cv", "wb", "wt",
];

/// What both instructions have.
struct Access {
    place: Place,
    edge: Edge,
    /// Bytes of an element, and how many there are.
    element: u32,
    count: usize,
}

impl Access {
    fn of(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>, image: usize) -> Decoded<Access> {
        if mods.has("p") {
            return Err(d.unsupported(
                i,
                "surfaces are read and written as plain bytes (`.b`) only",
            ));
        }
        only(d, i, mods, KNOWN)?;
        let operand = &operands(d, i, 2)?[image];
        let Some(ty) = mods.ty() else {
            return Err(d.wrong(rule::MISSING_MODIFIER, "a surface access names its type"));
        };
        let edge = if mods.has("clamp") {
            Edge::Clamp
        } else if mods.has("zero") {
            Edge::Zero
        } else {
            Edge::Trap
        };
        Ok(Access {
            place: Place::of(d, i, mods, operand, ScalarType::S32)?,
            edge,
            element: ty.bytes(),
            count: lanes_of(mods),
        })
    }

    fn bytes(&self) -> u32 {
        self.element * self.count as u32
    }

    /// The address in each lane; none for what is outside.
    fn addresses(&self, cx: &mut Cx<'_>, image: &Texture, does: Does) -> [Option<u64>; LANES] {
        let mut at = [[0i64; 3]; LANES];
        for (axis, &slot) in self.place.coordinates.iter().enumerate() {
            for (at, &bits) in at.iter_mut().zip(cx.row(slot)) {
                at[axis] = i64::from(bits as i32);
            }
        }
        if let Some(slot) = self.place.layer {
            for (at, &bits) in at.iter_mut().zip(cx.row(slot)) {
                at[2] = i64::from(bits as i32);
            }
        }
        let width = i64::from(image.size[0]) * i64::from(image.format.bytes());
        let most = [
            width - i64::from(self.bytes()),
            i64::from(image.size[1]) - 1,
            i64::from(image.size[2]) - 1,
        ];
        let mut outside: Mask = 0;
        let mut found = [None; LANES];
        for lane in each(cx.mask) {
            let inside = (0..3).all(|axis| (0..=most[axis]).contains(&at[lane][axis]));
            let place: [i64; 3] = match (inside, self.edge) {
                (true, _) => at[lane],
                (false, Edge::Clamp) => {
                    std::array::from_fn(|axis| at[lane][axis].clamp(0, most[axis].max(0)))
                }
                (false, edge) => {
                    outside |= u32::from(edge == Edge::Trap) << lane;
                    continue;
                }
            };
            let [x, y, z] = place.map(|one| one as u64);
            // A description that a kernel has made can say anything.
            let steps = [(z, image.plane), (y, image.pitch), (x, 1)];
            let place = steps.into_iter().fold(image.base, |at, (count, step)| {
                at.wrapping_add(count.wrapping_mul(step))
            });
            found[lane] = Some(place);
        }
        if outside != 0 {
            let [x, y, z] = at[first(outside)];
            let (size, [_, rows, planes]) = (self.bytes(), image.size);
            cx.report(rule::GLOBAL_OUT_OF_BOUNDS, outside, |_, mut told| {
                told.message = format!(
                    "{} {size} bytes of a surface at byte {x} of row {y} of plane {z}, and it has {width} bytes, {rows} rows and {planes} planes",
                    does.verb()
                );
                told.note("the first coordinate of a surface counts bytes, the others rows and planes")
                    .help("check the coordinates before the access, or let the boundary mode be clamp or zero")
            });
        }
        found
    }
}

/// `suld`.
pub(super) fn load(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let access = Access::of(d, i, mods, 1)?;
    let ty = mods.ty().unwrap_or(ScalarType::B32);
    let mut targets = Vec::new();
    for operand in elements(d, &i.operands[0], access.count)? {
        targets.push(d.dst_any(&operand, ty)?);
    }
    let instr = with(move |cx| {
        access.place.images(cx, |cx, image| {
            let at = access.addresses(cx, image, Does::Reads);
            let values = read(cx, &at, access.bytes(), false);
            let width = 8 * access.element;
            for (number, &(slot, rows)) in targets.iter().enumerate() {
                let shift = number as u32 * width;
                let bits = values.map(|value| (value >> shift) as u64 & (u64::MAX >> (64 - width)));
                write_bits(cx, slot, rows, &bits);
            }
        });
        Flow::Next
    });
    d.emit(instr, Cost::GLOBAL);
    Ok(())
}

/// `sust`.
pub(super) fn store(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let access = Access::of(d, i, mods, 0)?;
    let ty = mods.ty().unwrap_or(ScalarType::B32);
    let mut sources = Vec::new();
    for operand in elements(d, &i.operands[1], access.count)? {
        sources.push(d.src_any(&operand, ty)?);
    }
    let cost = Cost {
        latency: 0,
        ..Cost::GLOBAL
    };
    let instr = with(move |cx| {
        let width = 8 * access.element;
        let mut values = [0u128; LANES];
        for (number, &(slot, rows)) in sources.iter().enumerate() {
            for (value, bits) in values.iter_mut().zip(read_bits(cx, slot, rows)) {
                let bits = bits & (u64::MAX >> (64 - width));
                *value |= u128::from(bits) << (number as u32 * width);
            }
        }
        access.place.images(cx, |cx, image| {
            let at = access.addresses(cx, image, Does::Writes);
            write(cx, &at, access.bytes(), &values);
        });
        cx.team.progress += 1;
        cx.machine.changes += 1;
        Flow::Next
    });
    d.emit(instr, cost);
    Ok(())
}

fn write(cx: &mut Cx<'_>, at: &[Option<u64>; LANES], size: u32, values: &[u128; LANES]) {
    let all = cx.mask;
    cx.mask = each(all)
        .filter(|&lane| at[lane].is_some())
        .fold(0, |mask: Mask, lane| mask | 1 << lane);
    if cx.mask != 0 {
        let addresses = at.map(|at| at.unwrap_or(0));
        let global = Some(Window::Global);
        groups(cx, global, &addresses, size, Does::Writes, |cx, group| {
            watch(cx, group, false, Does::Writes, AccessKind::Plain);
            if let Some(region) = cx.region(group.home) {
                for lane in each(group.mask) {
                    region.write(group.offsets[lane], size as usize, values[lane]);
                }
            }
        });
    }
    cx.mask = all;
}
