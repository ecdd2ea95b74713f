//! Copies in columns of pixels, for convolutions: im2col, and its wide forms.
//!
//! A tensor has channels, one to three axes of space and images. The copy walks over the pixels of
//! a box in space, which begins at the map's lower corner and ends at its upper one, counted from
//! the last pixel: along a row, then to the next row, the next plane, the next image. At each step
//! it takes the channels of the pixel that lies at some offset from there, which may be outside the
//! tensor.
//!
//! The wide forms walk along one row of each image alone, and copy a halo behind the pixels, which goes
//! on where the walk would, to the next image too. Of `im2col::w::128` a halo belongs to every 32
//! pixels. PTX tells its place in shared memory by a picture. Here the 128 pixels lie first, as a
//! matrix of 128 rows must; behind them the first halo pixel of each 32, then the second of each, as
//! `tcgen05.cp.4x256b` takes them to the last lane of each quarter behind a `tcgen05.shift`. NumSim of
//! TIRx (mlc-ai/TIRx-harness, `wide_im2col_multiissuer_case`) has both modes so. On hardware neither is
//! confirmed by us.

use super::tensor_map::{Piece, Row, misplaced};
use heist_launch::{Im2col, TensorMap, Wide};

/// What the instruction says beside the coordinates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Offsets {
    /// How far from each pixel of the walk the copied one lies, along the axes of space; nothing
    /// for a store.
    Space(Vec<u32>),
    /// Of a wide form: how many pixels of halo, and how far the box is moved along its row.
    Row { wide: Wide, halo: u32, offset: u32 },
}

/// Pixels of a wide copy that have a halo, where there are several.
const STRETCH: u64 = 32;

/// The pixels of a copy, in order: each as the step of the walk that it lies at.
fn steps(map: &TensorMap, offsets: &Offsets) -> Vec<u64> {
    let pixels = map.box_dims.get(1).map_or(0, |&pixels| u64::from(pixels));
    match *offsets {
        Offsets::Space(_) => (0..pixels).collect(),
        Offsets::Row {
            wide: Wide::W,
            halo,
            ..
        } => (0..pixels + u64::from(halo)).collect(),
        Offsets::Row {
            wide: Wide::W128,
            halo,
            ..
        } => {
            let behind = |step: u64| (1..=4).map(move |stretch| stretch * STRETCH + step);
            let halo = (0..u64::from(halo)).flat_map(behind);
            (0..4 * STRETCH).chain(halo).collect()
        }
    }
}

/// The bytes of shared memory that a copy takes.
pub(crate) fn bytes(map: &TensorMap, offsets: &Offsets) -> u64 {
    let channels = map
        .box_dims
        .first()
        .map_or(0, |&channels| u64::from(channels));
    steps(map, offsets).len() as u64 * channels * map.element.bytes()
}

/// An axis that the walk goes along.
struct Axis {
    low: i64,
    high: i64,
    step: i64,
}

/// The pieces of a copy at some coordinates, or why it can't be copied.
pub(crate) fn pieces(
    address: u64,
    map: &TensorMap,
    at: &[i32],
    offsets: &Offsets,
    target: u64,
) -> Result<Vec<Piece>, &'static str> {
    let Some(im2col) = &map.im2col else {
        return Err("a copy in im2col mode with a tensor map that was made for tiles");
    };
    if let Some(why) = misplaced(map, at) {
        return Err(why);
    }
    // Maps that kernels have changed can be anything.
    if map.validate().is_err() {
        return Err("the tensor map breaks the driver's rules");
    }
    let axes = walk(map, im2col, at, offsets)?;
    let shifts = shifts(map, offsets)?;
    let pixel = u64::from(map.box_dims[0]) * map.element.bytes();
    let mut out = Vec::new();
    for (number, step) in steps(map, offsets).into_iter().enumerate() {
        let mut inside = true;
        let mut start = address;
        // How many steps of the walk are left to the axes further out.
        let mut rest = step;
        let outer = at.iter().zip(&map.dims).skip(1).zip(&map.strides);
        for (axis, ((&origin, &dim), &stride)) in outer.enumerate() {
            let mut coordinate = i64::from(origin);
            match axes.get(axis) {
                Some(along) => {
                    // From the first pixel on, then from the lower corner on.
                    coordinate += shifts.moved(axis);
                    let first = (along.high - coordinate).div_euclid(along.step) + 1;
                    let first = first.max(1) as u64;
                    if rest < first {
                        coordinate += rest as i64 * along.step;
                        rest = 0;
                    } else {
                        let span = ((along.high - along.low).div_euclid(along.step) + 1).max(1);
                        let behind = rest - first;
                        coordinate = along.low + (behind % span as u64) as i64 * along.step;
                        rest = 1 + behind / span as u64;
                    }
                    coordinate += shifts.apart(axis);
                }
                // The images, or an axis that a wide form stays at.
                None if axis + 2 == map.rank() => coordinate += rest as i64,
                None => {}
            }
            inside &= (0..dim as i64).contains(&coordinate);
            start = start.wrapping_add((coordinate as u64).wrapping_mul(stride));
        }
        let row = Row {
            at: number as u64 * pixel,
            inside,
            start,
        };
        row.cut(map, at[0], target, &mut out);
    }
    Ok(out)
}

/// The offsets, axis by axis of space.
struct Shifts<'o>(&'o Offsets);

impl Shifts<'_> {
    /// How far the walk itself is moved.
    fn moved(&self, axis: usize) -> i64 {
        match *self.0 {
            Offsets::Row { offset, .. } if axis == 0 => i64::from(offset),
            _ => 0,
        }
    }

    /// How far from the walk the copied pixel lies.
    fn apart(&self, axis: usize) -> i64 {
        match self.0 {
            Offsets::Space(all) => all.get(axis).map_or(0, |&offset| i64::from(offset)),
            Offsets::Row { .. } => 0,
        }
    }
}

fn shifts<'o>(map: &TensorMap, offsets: &'o Offsets) -> Result<Shifts<'o>, &'static str> {
    match offsets {
        Offsets::Space(all) if !all.is_empty() => {
            if all.len() != map.rank() - 2 {
                return Err("a copy in im2col mode has an offset for each axis of space");
            }
            let bits = [16, 8, 5][map.rank() - 3];
            if all.iter().any(|offset| offset >> bits != 0) {
                return Err(
                    "an offset of im2col is below 2^16, 2^8 or 2^5 for one, two or three axes of space",
                );
            }
        }
        Offsets::Space(_) => {}
        Offsets::Row { wide, halo, .. } => {
            let most = match wide {
                Wide::W => 512,
                Wide::W128 => 32,
            };
            if *halo >= most {
                return Err(
                    "the halo of im2col::w is below 512 pixels, that of im2col::w::128 below 32",
                );
            }
        }
    }
    Ok(Shifts(offsets))
}

/// The axes that the walk goes along, the row first.
fn walk(
    map: &TensorMap,
    im2col: &Im2col,
    at: &[i32],
    offsets: &Offsets,
) -> Result<Vec<Axis>, &'static str> {
    let moved = match (im2col.wide, offsets) {
        (None, Offsets::Space(_)) => 0,
        (Some(made), Offsets::Row { wide, offset, .. }) if made == *wide => i64::from(*offset),
        _ => return Err("a copy in another im2col mode than its tensor map was made for"),
    };
    let mut axes = Vec::new();
    for (axis, (&lower, &upper)) in im2col.lower.iter().zip(&im2col.upper).enumerate() {
        let low = i64::from(lower) + moved;
        let high = map.dims[axis + 1] as i64 - 1 + i64::from(upper) + moved;
        let first = i64::from(at[axis + 1]) + moved;
        // Of a wide form the first pixel may lie before the box.
        if first > high || (first < low && im2col.wide.is_none()) {
            return Err("the copy begins at a pixel outside of the box between the map's corners");
        }
        axes.push(Axis {
            low,
            high,
            step: i64::from(map.element_strides[axis + 1]),
        });
    }
    Ok(axes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::{BufferRef, Swizzle, TensorElement};

    /// The address of each pixel's first channel by the definition: a walk, pixel by pixel.
    fn walked(map: &TensorMap, at: &[i32], offsets: &Offsets, address: u64) -> Vec<Option<u64>> {
        let im2col = map.im2col.as_ref().expect("columns");
        let space = im2col.lower.len();
        let (halo, moved, wide) = match offsets {
            Offsets::Space(_) => (0, 0, None),
            Offsets::Row { wide, halo, offset } => (*halo, *offset as i64, Some(*wide)),
        };
        let mut place: Vec<i64> = at.iter().map(|&c| i64::from(c)).collect();
        place[1] += moved;
        let last = place.len() - 1;
        let mut walk = Vec::new();
        for _ in 0..4096 {
            walk.push(place.clone());
            let mut axis = 0;
            loop {
                if axis == space {
                    place[last] += 1;
                    break;
                }
                place[axis + 1] += i64::from(map.element_strides[axis + 1]);
                let high = map.dims[axis + 1] as i64 - 1 + i64::from(im2col.upper[axis]) + moved;
                if place[axis + 1] <= high {
                    break;
                }
                place[axis + 1] = i64::from(im2col.lower[axis]) + moved;
                axis += 1;
            }
        }
        let pixels = map.box_dims[1] as usize;
        let order: Vec<usize> = match wide {
            None => (0..pixels).collect(),
            Some(Wide::W) => (0..pixels + halo as usize).collect(),
            Some(Wide::W128) => {
                let of = |step| [32 + step, 64 + step, 96 + step, 128 + step];
                (0..128).chain((0..halo as usize).flat_map(of)).collect()
            }
        };
        let place_of = |step: usize| {
            let mut place = walk[step].clone();
            if let Offsets::Space(all) = offsets {
                for (axis, &offset) in all.iter().enumerate() {
                    place[axis + 1] += i64::from(offset);
                }
            }
            if place[0] >= map.dims[0] as i64 {
                return None;
            }
            let mut bytes = place[0] * map.element.bytes() as i64;
            let outer = place.iter().zip(&map.dims).skip(1).zip(&map.strides);
            for ((&at, &dim), &stride) in outer {
                if !(0..dim as i64).contains(&at) {
                    return None;
                }
                bytes += at * stride as i64;
            }
            Some(address + bytes as u64)
        };
        order.into_iter().map(place_of).collect()
    }

    fn map(dims: &[u64], channels: u32, pixels: u32, corners: [&[i32]; 2]) -> TensorMap {
        let buffer = BufferRef::Argument(0);
        let mut map = TensorMap::dense(buffer, TensorElement::F16, dims, &[channels, pixels]);
        map.im2col = Some(Im2col {
            lower: corners[0].to_vec(),
            upper: corners[1].to_vec(),
            wide: None,
        });
        map
    }

    fn compare(map: &TensorMap, at: &[i32], offsets: &Offsets) {
        let what = format!("{map} at {at:?} {offsets:?}");
        let all = pieces(4096, map, at, offsets, 0).unwrap_or_else(|why| panic!("{what}: {why}"));
        let expected = walked(map, at, offsets, 4096);
        let pixel = u64::from(map.box_dims[0]) * 2;
        assert_eq!(bytes(map, offsets), expected.len() as u64 * pixel, "{what}");
        let covered: u64 = all.iter().map(|piece| piece.len).sum();
        assert_eq!(covered, bytes(map, offsets), "{what}");
        for (number, first) in expected.iter().enumerate() {
            // The first chunk of a pixel lies where the swizzle puts it.
            let place = number as u64 * pixel;
            let shared = match map.swizzle {
                Swizzle::None => place,
                Swizzle::Bytes32 => place ^ (place >> 3 & 0x10),
                Swizzle::Bytes64 => place ^ (place >> 3 & 0x30),
                Swizzle::Bytes128 => place ^ (place >> 3 & 0x70),
            };
            let found = all.iter().find(|piece| piece.shared == shared);
            assert_eq!(
                found.map(|piece| piece.global),
                Some(*first),
                "{what}: pixel {number}"
            );
        }
    }

    #[test]
    fn the_examples_of_the_manual() {
        // Sizes there are images first, here channels first.
        let first = map(&[64, 14, 9, 64], 8, 64, [&[-1, -1], &[-1, -1]]);
        compare(&first, &[0, 4, 7, 7], &Offsets::Space(vec![0, 0]));
        let second = map(&[64, 14, 9, 64], 8, 64, [&[0, 0], &[-2, -2]]);
        compare(&second, &[0, 4, 6, 7], &Offsets::Space(vec![2, 2]));
        let mut strided = map(&[64, 14, 8, 64], 16, 32, [&[-1, -1], &[-1, -1]]);
        strided.element_strides = vec![1, 2, 2, 1];
        compare(&strided, &[0, 5, 5, 7], &Offsets::Space(vec![1, 1]));
    }

    #[test]
    fn columns_of_one_to_three_axes_of_space() {
        for (dims, lower, upper, steps) in [
            (vec![32, 7, 5], vec![-1], vec![0], vec![1, 2, 1]),
            (
                vec![32, 7, 6, 5],
                vec![-2, 0],
                vec![1, -1],
                vec![1, 1, 3, 1],
            ),
            (
                vec![32, 4, 3, 5, 3],
                vec![0, -1, -1],
                vec![0, 1, 0],
                vec![1, 2, 1, 2, 1],
            ),
        ] {
            let mut map = map(&dims, 16, 50, [&lower, &upper]);
            map.element_strides = steps;
            for swizzle in Swizzle::ALL {
                let map = map.clone().swizzle(*swizzle);
                let space = lower.len();
                for number in 0..40u32 {
                    let mut at = vec![16 * (number as i32 % 3)];
                    for axis in 0..space {
                        let (low, high) = (lower[axis], dims[axis + 1] as i32 - 1 + upper[axis]);
                        at.push(low + (number as i32 * 7 + axis as i32) % (high - low + 1));
                    }
                    at.push(number as i32 % 5);
                    let apart = (0..space as u32).map(|axis| (number + axis) % 3).collect();
                    if map.validate().is_ok() {
                        compare(&map, &at, &Offsets::Space(apart));
                    }
                }
            }
        }
    }

    #[test]
    fn wide_copies_stay_in_their_row() {
        for (wide, pixels) in [(Wide::W, 40), (Wide::W128, 1)] {
            for (lower, upper, step) in [(0, 0, 1), (-1, 0, 2), (-1, -1, 3)] {
                let mut map = map(&[64, 7, 9, 128], 64, pixels, [&[lower], &[upper]]);
                map.element_strides = vec![1, step, 1, 1];
                map = map.swizzle(Swizzle::Bytes128);
                map.im2col.as_mut().expect("columns").wide = Some(wide);
                for (halo, offset) in [(0, 0), (2, 0), (1, 1), (0, 2)] {
                    let offsets = Offsets::Row { wide, halo, offset };
                    compare(&map, &[0, lower, 2, 7], &offsets);
                    compare(&map, &[0, 3, 8, 0], &offsets);
                    // Before the box, along the row alone.
                    compare(&map, &[0, lower - 2, 2, 7], &offsets);
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_copied() {
        let plain = map(&[64, 14, 9, 64], 8, 64, [&[-1, -1], &[-1, -1]]);
        let why = |map: &TensorMap, at: &[i32], offsets: &Offsets| {
            pieces(4096, map, at, offsets, 0).expect_err("it can't be")
        };
        let none = Offsets::Space(vec![0, 0]);
        assert!(why(&plain, &[0, -2, 0, 0], &none).contains("outside of the box"));
        assert!(why(&plain, &[0, 13, 0, 0], &none).contains("outside of the box"));
        assert!(why(&plain, &[0, 0, 0], &none).contains("number of dimensions"));
        assert!(why(&plain, &[0, 0, 0, 0], &Offsets::Space(vec![0])).contains("each axis"));
        assert!(why(&plain, &[0, 0, 0, 0], &Offsets::Space(vec![0, 256])).contains("below 2^16"));
        let wide = Offsets::Row {
            wide: Wide::W,
            halo: 0,
            offset: 0,
        };
        assert!(why(&plain, &[0, 0, 0, 0], &wide).contains("another im2col mode"));
        let mut row = map(&[64, 14, 9, 64], 8, 64, [&[0], &[0]]).swizzle(Swizzle::Bytes32);
        row.im2col.as_mut().expect("columns").wide = Some(Wide::W128);
        assert!(why(&row, &[0, 0, 0, 0], &wide).contains("another im2col mode"));
        let halo = Offsets::Row {
            wide: Wide::W128,
            halo: 32,
            offset: 0,
        };
        assert!(why(&row, &[0, 0, 0, 0], &halo).contains("halo"));
        let tiled = TensorMap::dense(
            BufferRef::Argument(0),
            TensorElement::F16,
            &[64, 8, 8],
            &[8, 8, 1],
        );
        assert!(why(&tiled, &[0, 0, 0], &none).contains("made for tiles"));
        assert!(super::super::tensor_map::pieces(4096, &plain, &[0, 0, 0, 0], 0).is_err());
    }
}
