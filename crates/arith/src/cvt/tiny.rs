//! The formats of 8, 6 and 4 bits.
//!
//! To them rounding is to nearest even and saturating (`.rn.satfinite`, the only
//! form PTX has, besides `.rs` in [`super::stochastic`]). A NaN becomes the
//! format's NaN, or, where it has none, the largest positive number.

use super::float::Limits;
use crate::float::soft::{Exact, F16, F32, Format, Value};
use crate::float::{NAN16, Rounding, bf16};

/// A format too small for arithmetic of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tiny {
    /// 8 bits: no infinity, NaN is `s1111111`, the largest number is 448.
    E4m3,
    /// 8 bits, as IEEE would have it; the largest number is 57344.
    E5m2,
    /// 6 bits, numbers only, up to 7.5.
    E2m3,
    /// 6 bits, numbers only, up to 28.
    E3m2,
    /// 4 bits, numbers only, up to 6.
    E2m1,
}

impl Tiny {
    /// The widths of its fields.
    pub const fn format(self) -> Format {
        match self {
            Tiny::E4m3 => Format::new(4, 3),
            Tiny::E5m2 => Format::new(5, 2),
            Tiny::E2m3 => Format::new(2, 3),
            Tiny::E3m2 => Format::new(3, 2),
            Tiny::E2m1 => Format::new(2, 1),
        }
    }

    /// Bits of one element.
    pub const fn bits(self) -> u32 {
        let format = self.format();
        1 + format.exponent + format.fraction
    }

    /// The largest magnitude's encoding.
    pub const fn largest(self) -> u8 {
        match self {
            Tiny::E4m3 => 0x7e,
            Tiny::E5m2 => 0x7b,
            Tiny::E2m3 | Tiny::E3m2 => 0x1f,
            Tiny::E2m1 => 0x7,
        }
    }

    /// What a NaN becomes.
    pub const fn nan(self) -> u8 {
        match self {
            Tiny::E4m3 | Tiny::E5m2 => 0x7f,
            _ => self.largest(),
        }
    }

    /// What the low bits of an encoding stand for.
    pub const fn unpack(self, bits: u8) -> Value {
        let format = self.format();
        let sign = format.sign_bit() as u8;
        let (negative, magnitude) = (bits & sign != 0, bits & (sign - 1));
        match self {
            Tiny::E4m3 if magnitude == 0x7f => return Value::Nan,
            Tiny::E5m2 => return format.unpack(bits as u64),
            _ => {}
        }
        // All other encodings are numbers, the top exponent's too.
        let field = magnitude >> format.fraction;
        let fraction = magnitude & ((1 << format.fraction) - 1);
        let (hidden, field) = if field == 0 {
            (0, 1)
        } else {
            (1 << format.fraction, field)
        };
        Value::Finite(Exact {
            negative,
            mantissa: (hidden | fraction) as u128,
            exponent: field as i32 - format.bias() - format.fraction as i32,
        })
    }

    /// Rounds a value into the format, saturating.
    pub fn pack(self, value: Value, rounding: Rounding, relu: bool) -> u8 {
        let (negative, magnitude) = match value {
            Value::Nan => return self.nan(),
            Value::Infinite { negative } => (negative, self.largest()),
            Value::Finite(exact) => {
                let magnitude = self.format().round_magnitude(exact, rounding);
                (exact.negative, magnitude.min(self.largest().into()) as u8)
            }
        };
        let sign = if negative {
            self.format().sign_bit() as u8
        } else {
            0
        };
        if relu && negative {
            0
        } else {
            sign | magnitude
        }
    }
}

/// `cvt.rn.satfinite` of one `f32`.
#[inline]
pub fn from_f32(to: Tiny, relu: bool, a: u32) -> u8 {
    to.pack(F32.unpack(a.into()), Rounding::Nearest, relu)
}

/// `cvt.rn.satfinite` of one `f16`.
#[inline]
pub fn from_f16(to: Tiny, relu: bool, a: u16) -> u8 {
    to.pack(F16.unpack(a.into()), Rounding::Nearest, relu)
}

/// `cvt.rn.satfinite` of one `bf16`.
#[inline]
pub fn from_bf16(to: Tiny, relu: bool, a: u16) -> u8 {
    from_f32(to, relu, bf16::to_f32(a))
}

/// One element as `bf16`, exactly. NaN becomes canonical.
#[inline]
pub fn to_bf16(from: Tiny, a: u8) -> u16 {
    bf16::pack(from.unpack(a), Rounding::Nearest)
}

/// One element as `f16`, exactly. NaN becomes canonical.
#[inline]
pub fn to_f16(from: Tiny, a: u8) -> u16 {
    F16.pack(from.unpack(a), Rounding::Nearest)
        .map_or(NAN16, |bits| bits as u16)
}

/// One element as `f32`, exactly.
#[inline]
pub fn to_f32(from: Tiny, a: u8) -> f32 {
    let bits = F32
        .pack(from.unpack(a), Rounding::Nearest)
        .unwrap_or(crate::float::NAN32 as u64);
    f32::from_bits(bits as u32)
}

/// How far apart the two elements of a pair are: a byte, but for `e2m1`, whose
/// pair fills one byte.
const fn stride(of: Tiny) -> u32 {
    if matches!(of, Tiny::E2m1) { 4 } else { 8 }
}

/// `cvt.rn.satfinite{.relu}.TYPEx2.f32`: `a` in the upper part, `b` in the lower.
#[inline]
pub fn pair_from_f32(to: Tiny, relu: bool, a: u32, b: u32) -> u16 {
    (from_f32(to, relu, a) as u16) << stride(to) | from_f32(to, relu, b) as u16
}

/// `cvt.rn.satfinite{.relu}.TYPEx2.f16x2`.
#[inline]
pub fn pair_from_f16x2(to: Tiny, relu: bool, a: u32) -> u16 {
    (from_f16(to, relu, (a >> 16) as u16) as u16) << stride(to)
        | from_f16(to, relu, a as u16) as u16
}

/// `cvt.rn{.relu}.f16x2.TYPEx2`.
#[inline]
pub fn pair_to_f16x2(from: Tiny, relu: bool, a: u16) -> u32 {
    let limits = Limits {
        relu,
        satfinite: false,
    };
    let one = |a: u16| limits.apply(to_f16(from, a as u8), 0x7c00) as u32;
    let mask = (1 << stride(from)) - 1;
    one(a >> stride(from) & mask) << 16 | one(a & mask)
}

/// `cvt.rn.satfinite{.relu}.TYPEx2.bf16x2`.
#[inline]
pub fn pair_from_bf16x2(to: Tiny, relu: bool, a: u32) -> u16 {
    pair_from_f32(to, relu, a & 0xffff_0000, a << 16)
}

/// `cvt.rn{.relu}.bf16x2.TYPEx2`.
#[inline]
pub fn pair_to_bf16x2(from: Tiny, relu: bool, a: u16) -> u32 {
    let limits = Limits {
        relu,
        satfinite: false,
    };
    let one = |a: u16| limits.apply(to_bf16(from, a as u8), 0x7f80) as u32;
    let mask = (1 << stride(from)) - 1;
    one((a >> stride(from)) & mask) << 16 | one(a & mask)
}

/// `cvt.rz` (`UP` false) and `cvt.rp` to `ue8m0`: the exponent of the magnitude,
/// down or up to a power of two. NaN is `0xff`; an infinity too, unless
/// `satfinite` makes it `0xfe`. The sign does not count.
#[inline]
pub fn ue8m0_from_f32<const UP: bool>(satfinite: bool, a: u32) -> u8 {
    let magnitude = a & 0x7fff_ffff;
    let (exponent, fraction) = (magnitude >> 23, magnitude & 0x007f_ffff);
    let past = match exponent {
        // 2^-127 is encoded as zero and lies half way up the subnormals.
        0 => fraction > 0x0040_0000,
        _ => fraction != 0,
    };
    match (exponent, fraction) {
        (255, 1..) => 0xff,
        (255, 0) => 0xff - satfinite as u8,
        (254, 1..) if UP => 0xff - satfinite as u8,
        _ => exponent as u8 + (UP && past) as u8,
    }
}

/// `cvt.{rz,rp}.ue8m0x2.f32`: `a` in the upper byte.
#[inline]
pub fn ue8m0x2_from_f32<const UP: bool>(satfinite: bool, a: u32, b: u32) -> u16 {
    (ue8m0_from_f32::<UP>(satfinite, a) as u16) << 8 | ue8m0_from_f32::<UP>(satfinite, b) as u16
}

/// `cvt.{rz,rp}.ue8m0x2.bf16x2`.
#[inline]
pub fn ue8m0x2_from_bf16x2<const UP: bool>(satfinite: bool, a: u32) -> u16 {
    ue8m0x2_from_f32::<UP>(satfinite, a & 0xffff_0000, bf16::to_f32(a as u16))
}

/// One `ue8m0` as `bf16`: a power of two.
#[inline]
pub fn ue8m0_to_bf16(a: u8) -> u16 {
    match a {
        0 => 0x0040,
        0xff => NAN16,
        _ => (a as u16) << 7,
    }
}

/// `cvt.rn.bf16x2.ue8m0x2`.
#[inline]
pub fn ue8m0x2_to_bf16x2(a: u16) -> u32 {
    (ue8m0_to_bf16((a >> 8) as u8) as u32) << 16 | ue8m0_to_bf16(a as u8) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use Tiny::{E2m1, E2m3, E3m2, E4m3, E5m2};

    const ALL: [Tiny; 5] = [E4m3, E5m2, E2m3, E3m2, E2m1];

    /// From the formats' definitions: sign, exponent, fraction, in doubles.
    fn model(of: Tiny, bits: u8) -> f64 {
        let (e, m, bias) = match of {
            E4m3 => (4, 3, 7),
            E5m2 => (5, 2, 15),
            E2m3 => (2, 3, 1),
            E3m2 => (3, 2, 3),
            E2m1 => (2, 1, 1),
        };
        let field = i32::from(bits >> m) & ((1 << e) - 1);
        let fraction = f64::from(bits & ((1 << m) - 1)) / f64::from(1 << m);
        let sign = if bits >> (e + m) & 1 == 1 { -1.0 } else { 1.0 };
        match (of, field, bits & ((1 << m) - 1)) {
            (E4m3, 15, 7) => f64::NAN,
            (E5m2, 31, 0) => sign * f64::INFINITY,
            (E5m2, 31, _) => f64::NAN,
            (_, 0, _) => sign * fraction * 2f64.powi(1 - bias),
            _ => sign * (1.0 + fraction) * 2f64.powi(field - bias),
        }
    }

    #[test]
    fn every_encoding_means_what_its_fields_say() {
        for of in ALL {
            for bits in 0..1u16 << of.bits() {
                let bits = bits as u8;
                let (x, y) = (model(of, bits), f64::from(to_f32(of, bits)));
                assert!(
                    x == y || (x.is_nan() && y.is_nan()),
                    "{of:?} {bits:#x}: {x} {y}"
                );
                let half = f32::from_bits(crate::float::f16::to_f32(to_f16(of, bits)));
                assert!(f64::from(half) == x || (x.is_nan() && half.is_nan()));
                if x.is_finite() {
                    assert_eq!(from_f32(of, false, to_f32(of, bits).to_bits()), bits);
                    assert_eq!(from_f16(of, false, to_f16(of, bits)), bits);
                }
            }
        }
    }

    #[test]
    fn rounding_picks_the_nearest_encoding() {
        for of in ALL {
            let numbers: Vec<(f64, u8)> = (0..=of.largest()).map(|b| (model(of, b), b)).collect();
            for pair in numbers.windows(2) {
                let ((low, a), (high, b)) = (pair[0], pair[1]);
                let middle = (low + high) / 2.0;
                let even = if a & 1 == 0 { a } else { b };
                for (x, expect) in [(middle, even), (middle * 0.999, a), (middle * 1.001, b)] {
                    let bits = (x as f32).to_bits();
                    assert_eq!(from_f32(of, false, bits), expect, "{of:?} {x}");
                    let sign = 1 << (of.bits() - 1);
                    assert_eq!(from_f32(of, false, bits | 1 << 31), expect | sign);
                    assert_eq!(from_f32(of, true, bits | 1 << 31), 0);
                }
            }
            for x in [1e9f32, f32::INFINITY] {
                assert_eq!(from_f32(of, false, x.to_bits()), of.largest());
            }
        }
        let nan = 0xffc0_0000;
        let got = ALL.map(|of| from_f32(of, false, nan));
        assert_eq!(got, [0x7f, 0x7f, 0x1f, 0x1f, 0x7]);
        assert_eq!(from_f32(E4m3, false, 448f32.to_bits()), 0x7e);
        assert_eq!(from_f32(E4m3, false, 464f32.to_bits()), 0x7e);
        assert_eq!(from_f32(E4m3, false, 1000f32.to_bits()), 0x7e);
    }

    #[test]
    fn pairs() {
        let one = 1f32.to_bits();
        let minus_two = (-2f32).to_bits();
        assert_eq!(pair_from_f32(E4m3, false, one, minus_two), 0x38c0);
        assert_eq!(pair_from_f32(E5m2, true, one, minus_two), 0x3c00);
        assert_eq!(pair_from_f32(E2m1, false, one, minus_two), 0x2c);
        assert_eq!(pair_from_f32(E2m3, false, one, minus_two), 0x0830);
        assert_eq!(pair_from_f16x2(E4m3, false, 0x3c00_c000), 0x38c0);
        assert_eq!(pair_to_f16x2(E4m3, false, 0x38c0), 0x3c00_c000);
        assert_eq!(pair_to_f16x2(E4m3, true, 0x38c0), 0x3c00_0000);
        assert_eq!(pair_to_f16x2(E2m1, false, 0x2c), 0x3c00_c000);
        assert_eq!(pair_to_f16x2(E3m2, false, 0x0c30), 0x3c00_c000);
        assert_eq!(pair_to_f16x2(E4m3, false, 0x7f7e), 0x7fff_5f00);
        assert_eq!(pair_from_bf16x2(E4m3, false, 0x3f80_c000), 0x38c0);
        assert_eq!(from_bf16(E4m3, true, 0xc000), 0);
        assert_eq!(pair_to_bf16x2(E4m3, false, 0x38c0), 0x3f80_c000);
        assert_eq!(pair_to_bf16x2(E2m1, true, 0x2c), 0x3f80_0000);
        assert_eq!(pair_to_bf16x2(E5m2, false, 0x7f7c), 0x7fff_7f80);
    }

    #[test]
    fn powers_of_two() {
        let b = |x: f32| x.to_bits();
        assert_eq!(ue8m0_from_f32::<false>(false, b(1.5)), 127);
        assert_eq!(ue8m0_from_f32::<true>(false, b(1.5)), 128);
        assert_eq!(ue8m0_from_f32::<true>(false, b(-2.0)), 128);
        assert_eq!(ue8m0_from_f32::<true>(false, b(f32::MAX)), 0xff);
        assert_eq!(ue8m0_from_f32::<true>(true, b(f32::MAX)), 0xfe);
        assert_eq!(ue8m0_from_f32::<false>(true, b(f32::INFINITY)), 0xfe);
        assert_eq!(ue8m0_from_f32::<false>(true, b(f32::NAN)), 0xff);
        assert_eq!(ue8m0_from_f32::<true>(false, 0x0040_0000), 0);
        assert_eq!(ue8m0_from_f32::<true>(false, 0x0040_0001), 1);
        assert_eq!(ue8m0_from_f32::<false>(false, 0x007f_ffff), 0);
        assert_eq!(ue8m0x2_from_f32::<false>(false, b(1.0), b(2.0)), 0x7f80);
        assert_eq!(ue8m0x2_from_bf16x2::<false>(false, 0x3f80_4000), 0x7f80);
        assert_eq!(ue8m0x2_to_bf16x2(0x7f80), 0x3f80_4000);
        assert_eq!(ue8m0x2_to_bf16x2(0x00ff), 0x0040_7fff);
    }
}
