//! Which texels a coordinate means, and how they become the result.

use heist_arith::float::f16;
use heist_launch::{Outside, TexelKind, Texture};

/// A texel that a result is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tap {
    /// Its address; none where the border is taken.
    pub(super) at: Option<u64>,
    /// Its part of the result.
    pub(super) weight: f64,
}

impl Tap {
    const NONE: Tap = Tap {
        at: None,
        weight: 0.0,
    };
}

/// The parts of a whole: eight bits of a coordinate lie between two texels.
const WHOLE: u32 = 256;

/// The texels at a place of an image with so many axes: one, or two on each axis where the result is
/// interpolated. Coordinates on the other axes are whole: a layer.
pub(super) fn taps(texture: &Texture, axes: usize, at: [f64; 3]) -> ([Tap; 8], usize) {
    let mut found = [Tap::NONE; 8];
    let mut pairs = [([Some(0); 2], 0); 3];
    for (axis, pair) in pairs.iter_mut().enumerate() {
        let size = texture.size[axis];
        *pair = if axis < axes {
            along(texture, axis, at[axis])
        } else {
            // Layers are clamped.
            let layer = (at[axis] as i64).clamp(0, i64::from(size) - 1);
            ([Some(layer as u64); 2], 0)
        };
    }
    let count = if texture.linear { 1 << axes } else { 1 };
    let weights = weights(pairs.map(|(_, part)| part));
    for (number, tap) in found.iter_mut().enumerate().take(count) {
        let mut place = Some([0; 3]);
        for (axis, (texels, _)) in pairs.iter().enumerate() {
            place = place
                .zip(texels[number >> axis & 1])
                .map(|(mut place, texel)| {
                    place[axis] = texel;
                    place
                });
        }
        tap.weight = f64::from(weights[number]) / f64::from(WHOLE);
        tap.at = place.map(|[x, y, z]| {
            let texel = u64::from(texture.format.bytes());
            // A description that a kernel has made can say anything.
            let steps = [(z, texture.plane), (y, texture.pitch), (x, texel)];
            steps.into_iter().fold(texture.base, |at, (count, step)| {
                at.wrapping_add(count.wrapping_mul(step))
            })
        });
    }
    (found, count)
}

/// The parts of eight texels in a result, by the parts of the second ones on each axis. They are
/// rounded as an H200 does it: along x first, each of these along z, each of these along y; a half
/// goes to the upper one for the second texel along x, else to the lower one.
fn weights([x, y, z]: [u32; 3]) -> [u32; 8] {
    let mut all = [0; 8];
    for (right, part) in [(0, WHOLE - x), (1, x)] {
        let share = |whole: u32, of: u32| (whole * of + WHOLE / 2 - 1 + right) / WHOLE;
        let back = share(part, z);
        for (behind, part) in [(0, part - back), (1, back)] {
            let low = share(part, y);
            let first = right as usize | behind << 2;
            (all[first], all[first | 2]) = (part - low, low);
        }
    }
    all
}

/// The texels along an axis, and the part of the second in the result.
fn along(texture: &Texture, axis: usize, x: f64) -> ([Option<u64>; 2], u32) {
    let size = texture.size[axis];
    let outside = match texture.outside[axis] {
        // Images are repeated only where coordinates go from 0 to 1.
        Outside::Wrap | Outside::Mirror if !texture.normalised_coordinates => Outside::Clamp,
        outside => outside,
    };
    let x = if texture.normalised_coordinates {
        x * f64::from(size)
    } else {
        x
    };
    if !texture.linear {
        let texel = texel(x.floor() as i64, size, outside);
        return ([texel; 2], 0);
    }
    let whole = i64::from(WHOLE);
    let fixed = ((x * f64::from(WHOLE) + 0.5).floor() as i64).saturating_sub(whole / 2);
    let (first, part) = (fixed.div_euclid(whole), fixed.rem_euclid(whole) as u32);
    let both = [first, first.saturating_add(1)].map(|one| texel(one, size, outside));
    // At a clamped edge there is one texel alone.
    let part = if outside == Outside::Clamp && both[0] == both[1] {
        0
    } else {
        part
    };
    (both, part)
}

/// The texel that a whole coordinate means.
fn texel(at: i64, size: u32, outside: Outside) -> Option<u64> {
    let size = i64::from(size);
    let texel = match outside {
        Outside::Clamp => at.clamp(0, size - 1),
        Outside::Wrap => at.rem_euclid(size),
        Outside::Mirror => {
            let twice = at.rem_euclid(2 * size);
            twice.min(2 * size - 1 - twice)
        }
        Outside::Border if !(0..size).contains(&at) => return None,
        Outside::Border => at,
    };
    Some(texel as u64)
}

/// The border's channels, which are values of the image's format like any texel's.
pub(super) fn border(texture: &Texture) -> [f64; 4] {
    let width = u32::from(texture.format.bits);
    texture.border.map(|one| {
        let most = match texture.format.kind {
            TexelKind::Unsigned if texture.normalised_values => (1u64 << width) - 1,
            TexelKind::Signed if texture.normalised_values => (1u64 << (width - 1)) - 1,
            _ => return f64::from(one),
        };
        (f64::from(one) * most as f64 - 0.5).ceil() / most as f64
    })
}

/// The channels of a texel as numbers.
pub(super) fn numbers(texture: &Texture, bits: u128) -> [f64; 4] {
    let format = texture.format;
    std::array::from_fn(|channel| {
        let width = u32::from(format.bits);
        if channel >= usize::from(format.channels) {
            return 0.0;
        }
        let raw = (bits >> (channel as u32 * width)) as u64 & (u64::MAX >> (64 - width));
        let signed = ((raw << (64 - width)) as i64) >> (64 - width);
        match (format.kind, texture.normalised_values) {
            (TexelKind::Float, _) if width == 16 => {
                f64::from(f32::from_bits(f16::to_f32(raw as u16)))
            }
            (TexelKind::Float, _) => f64::from(f32::from_bits(raw as u32)),
            (TexelKind::Unsigned, false) => raw as f64,
            (TexelKind::Signed, false) => signed as f64,
            (TexelKind::Unsigned, true) => raw as f64 / ((1u64 << width) - 1) as f64,
            (TexelKind::Signed, true) => {
                (signed as f64 / ((1u64 << (width - 1)) - 1) as f64).max(-1.0)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::TexelFormat;

    /// Four texels of one byte in a row, and two rows.
    fn image(linear: bool, outside: Outside, normalised_coordinates: bool) -> Texture {
        Texture {
            base: 1000,
            pitch: 4,
            plane: 8,
            size: [4, 2, 1],
            format: TexelFormat {
                channels: 1,
                bits: 8,
                kind: TexelKind::Unsigned,
            },
            outside: [outside; 3],
            linear,
            normalised_coordinates,
            normalised_values: false,
            border: [0.0; 4],
        }
    }

    fn nearest(outside: Outside, normalised: bool, x: f64) -> Option<u64> {
        let (taps, count) = taps(&image(false, outside, normalised), 2, [x, 0.0, 0.0]);
        assert_eq!((count, taps[0].weight), (1, 1.0));
        taps[0].at.map(|at| at - 1000)
    }

    #[test]
    fn coordinates_outside_are_clamped_repeated_mirrored_or_the_border() {
        use Outside::*;
        let of = |outside, normalised| {
            [-0.3, 0.1, 0.9, 1.3, 2.1].map(|x| {
                let x = if normalised { x } else { x * 4.0 };
                nearest(outside, normalised, x)
            })
        };
        let all = |texels: [u64; 5]| texels.map(Some);
        assert_eq!(of(Clamp, true), all([0, 0, 3, 3, 3]));
        assert_eq!(of(Wrap, true), all([2, 0, 3, 1, 0]));
        assert_eq!(of(Mirror, true), all([1, 0, 3, 2, 0]));
        assert_eq!(of(Border, true), [None, Some(0), Some(3), None, None]);
        // Repeated only where coordinates go from 0 to 1.
        assert_eq!(of(Wrap, false), all([0, 0, 3, 3, 3]));
    }

    #[test]
    fn a_result_is_interpolated_with_eight_bits() {
        let image = image(true, Outside::Clamp, false);
        let (found, count) = taps(&image, 2, [2.0, 1.0, 0.0]);
        assert_eq!(count, 4);
        let places: Vec<u64> = found[..4].iter().filter_map(|tap| tap.at).collect();
        assert_eq!(places, [1001, 1002, 1005, 1006]);
        assert!(found[..4].iter().all(|tap| tap.weight == 0.25));
        // A third is 85 of 256.
        let (found, _) = taps(&image, 1, [0.5 + 1.0 / 3.0, 0.0, 0.0]);
        assert_eq!(found[1].weight, 85.0 / 256.0);
        assert_eq!(found[0].weight, 171.0 / 256.0);
        // The parts of two axes are rounded together: 28.2 of 256 in the far corner.
        let third = 0.5 + 1.0 / 3.0;
        let (found, _) = taps(&image, 2, [third, third, 0.0]);
        let parts: Vec<f64> = found[..4].iter().map(|tap| tap.weight * 256.0).collect();
        assert_eq!(parts, [114.0, 57.0, 57.0, 28.0]);
        // A half goes up along x's second texel and down along its first.
        assert_eq!(weights([128, 1, 0])[..4], [128, 127, 0, 1]);
        assert_eq!(weights([100, 50, 200]).iter().sum::<u32>(), WHOLE);
        // In the middle of a texel it is that texel alone.
        let (found, _) = taps(&image, 1, [1.5, 0.0, 0.0]);
        assert_eq!((found[0].at, found[0].weight), (Some(1001), 1.0));
    }

    #[test]
    fn channels_are_numbers_or_fractions() {
        let mut image = image(false, Outside::Clamp, false);
        assert_eq!(numbers(&image, 0xff)[0], 255.0);
        image.normalised_values = true;
        assert_eq!(numbers(&image, 0xff)[0], 1.0);
        image.format.kind = TexelKind::Signed;
        assert_eq!(numbers(&image, 0x80)[0], -1.0);
        // A border of a half is 63 of 127.
        image.border[0] = 0.5;
        assert_eq!(border(&image)[0], 63.0 / 127.0);
        image.format = TexelFormat {
            channels: 2,
            bits: 16,
            kind: TexelKind::Float,
        };
        assert_eq!(numbers(&image, 0xc000_3c00), [1.0, -2.0, 0.0, 0.0]);
    }
}
