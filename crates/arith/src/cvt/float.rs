//! Between float formats: `f16`, `bf16`, `f32`, `f64` and `tf32`.
//!
//! A NaN becomes the destination's canonical one; only towards `f64` are its sign
//! and payload kept, and only from `bf16` to `f32`, which is a shift, are all of
//! its bits.

use super::mixed::integral;
use crate::float::soft::{BF16, F16, F32, F64, Format, Value};
use crate::float::{NAN16, NAN32, NAN64, Rounding, bf16, f16, f32 as single, minmax};

/// A float type with arithmetic of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FloatType {
    F16,
    Bf16,
    F32,
    F64,
}

impl FloatType {
    /// Its format.
    #[inline(always)]
    pub const fn format(self) -> Format {
        match self {
            FloatType::F16 => F16,
            FloatType::Bf16 => BF16,
            FloatType::F32 => F32,
            FloatType::F64 => F64,
        }
    }

    /// Its NaN.
    #[inline(always)]
    pub const fn nan(self) -> u64 {
        match self {
            FloatType::F16 | FloatType::Bf16 => NAN16 as u64,
            FloatType::F32 => NAN32 as u64,
            FloatType::F64 => NAN64,
        }
    }

    /// The number that the low bits of `a` are; every one fits an `f64`.
    #[inline(always)]
    pub fn to_native(self, a: u64) -> f64 {
        match self {
            FloatType::F16 => f32::from_bits(f16::to_f32(a as u16)).into(),
            FloatType::Bf16 => f32::from_bits(bf16::to_f32(a as u16)).into(),
            FloatType::F32 => f32::from_bits(a as u32).into(),
            FloatType::F64 => f64::from_bits(a),
        }
    }

    /// The bits of a rounded value, a NaN becoming canonical.
    pub fn pack(self, value: Value, rounding: Rounding) -> u64 {
        self.format().pack(value, rounding).unwrap_or(self.nan())
    }
}

/// What `.ftz` does to a value of this type: only `f32` subnormals are flushed.
#[inline(always)]
pub fn flush(of: FloatType, a: u64) -> u64 {
    if of == FloatType::F32 {
        single::flush::<true>(a as u32).into()
    } else {
        a
    }
}

/// What `.sat` does to a float result: clamps to zero and one, NaN becoming zero.
#[inline]
pub fn saturate(of: FloatType, a: u64) -> u64 {
    match of {
        FloatType::F16 => f16::saturate::<true>(a as u16).into(),
        FloatType::Bf16 => bf16::saturate::<true>(a as u16).into(),
        FloatType::F32 => single::saturate::<true>(a as u32).into(),
        FloatType::F64 => {
            let x = f64::from_bits(a);
            if x > 0.0 { x.min(1.0).to_bits() } else { 0 }
        }
    }
}

/// `cvt.f64.f32`: exact. The sign and payload of a NaN are kept, made quiet.
#[inline(always)]
pub fn f32_to_f64<const FTZ: bool>(a: u32) -> u64 {
    let a = single::flush::<FTZ>(a);
    let nan = (a as u64 & 1 << 31) << 32 | 0x7ff8 << 48 | (a as u64 & 0x003f_ffff) << 29;
    let wide = f64::from(f32::from_bits(a)).to_bits();
    if a & 0x7fff_ffff > 0x7f80_0000 {
        nan
    } else {
        wide
    }
}

/// `cvt.rn.f32.f64`.
#[inline(always)]
pub fn f64_to_f32<const FTZ: bool>(a: u64) -> u32 {
    let x = f64::from_bits(a);
    let bits = single::canonical((x as f32).to_bits());
    if FTZ && single::is_tiny(x, Rounding::Nearest) {
        bits & 1 << 31
    } else {
        bits
    }
}

/// Any float type to any other, or to itself. `.ftz` and `.sat` apply as PTX
/// says; without a rounding in the text (where the conversion is exact), any
/// will do.
#[inline]
pub fn convert(
    from: FloatType,
    to: FloatType,
    rounding: Rounding,
    ftz: bool,
    sat: bool,
    a: u64,
) -> u64 {
    use FloatType::{Bf16, F16, F32, F64};
    let a = if ftz { flush(from, a) } else { a };
    let result = match (from, to, rounding) {
        (F16, F32, _) => f16::to_f32(a as u16).into(),
        (Bf16, F32, _) => bf16::to_f32(a as u16).into(),
        (F32, F64, _) => f32_to_f64::<false>(a as u32),
        (F32, F16, Rounding::Nearest) => f16::from_f32(a as u32).into(),
        (F32, Bf16, Rounding::Nearest) => bf16::from_f32(a as u32).into(),
        (F64, F32, Rounding::Nearest) => f64_to_f32::<false>(a).into(),
        (F64, F64, _) => crate::float::f64::abs(a) | a & 1 << 63,
        // The only widening left: a NaN of half precision keeps its digits too.
        (F16, F64, _) => f32_to_f64::<false>(f16::to_f32(a as u16)),
        (Bf16, F64, _) => f32_to_f64::<false>(bf16::to_f32(a as u16)),
        _ => to.pack(from.format().unpack(a), rounding),
    };
    // Only from `f64` can a result be tiny that no operand was.
    let tiny = to == F32 && single::is_tiny(from.to_native(a), rounding);
    let result = if ftz && tiny {
        result & 1 << 31
    } else {
        result
    };
    if sat { saturate(to, result) } else { result }
}

/// `cvt.rni` and its siblings within one float type: the nearest integer of the
/// chosen direction, as a float. A zero keeps the operand's sign.
#[inline]
pub fn round_to_integral(of: FloatType, rounding: Rounding, ftz: bool, sat: bool, a: u64) -> u64 {
    let a = if ftz { flush(of, a) } else { a };
    let x = of.to_native(a);
    let result = if x.is_nan() {
        convert(of, of, Rounding::Nearest, false, false, a)
    } else {
        // Integers below the precision, or numbers that were integers: exact.
        let value = F64.unpack(integral(x, rounding).to_bits());
        of.pack(value, Rounding::Zero)
    };
    if sat { saturate(of, result) } else { result }
}

/// What becomes of a result beyond the range, and of a negative one, in `cvt` to
/// a narrow format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `.relu`: negative becomes zero.
    pub relu: bool,
    /// `.satfinite`: infinite becomes the largest finite number.
    pub satfinite: bool,
}

impl Limits {
    #[inline(always)]
    pub(super) fn apply(self, bits: u16, infinity: u16) -> u16 {
        let bits = if self.satfinite && bits & 0x7fff == infinity {
            bits - 1
        } else {
            bits
        };
        let negative = bits & 0x8000 != 0 && bits & 0x7fff <= infinity;
        if self.relu && negative { 0 } else { bits }
    }
}

/// `cvt.rn.f16.f32` and `cvt.rz.f16.f32` with `.relu` and `.satfinite`.
#[inline]
pub fn f32_to_f16(rounding: Rounding, limits: Limits, a: u32) -> u16 {
    let bits = convert(
        FloatType::F32,
        FloatType::F16,
        rounding,
        false,
        false,
        a.into(),
    );
    limits.apply(bits as u16, 0x7c00)
}

/// `cvt.rn.bf16.f32` and `cvt.rz.bf16.f32` with `.relu` and `.satfinite`.
#[inline]
pub fn f32_to_bf16(rounding: Rounding, limits: Limits, a: u32) -> u16 {
    let bits = convert(
        FloatType::F32,
        FloatType::Bf16,
        rounding,
        false,
        false,
        a.into(),
    );
    limits.apply(bits as u16, 0x7f80)
}

/// `cvt.f16x2.f32`: `a` in the upper half, `b` in the lower.
#[inline]
pub fn f32_to_f16x2(rounding: Rounding, limits: Limits, a: u32, b: u32) -> u32 {
    (f32_to_f16(rounding, limits, a) as u32) << 16 | f32_to_f16(rounding, limits, b) as u32
}

/// `cvt.bf16x2.f32`: `a` in the upper half, `b` in the lower.
#[inline]
pub fn f32_to_bf16x2(rounding: Rounding, limits: Limits, a: u32, b: u32) -> u32 {
    (f32_to_bf16(rounding, limits, a) as u32) << 16 | f32_to_bf16(rounding, limits, b) as u32
}

const TF32_MASK: u32 = 0xffff_e000;

/// `cvt.rna.tf32.f32`, exactly as it is emitted: half a unit is added to what is
/// finite, and the low bits are cleared.
#[inline(always)]
pub fn f32_to_tf32_rna<const SATFINITE: bool>(a: u32) -> u32 {
    let special = |x: u32| x & 0x7fff_ffff >= 0x7f80_0000;
    let rounded = if special(a) { a } else { a + 0x1000 } & TF32_MASK;
    if SATFINITE && special(rounded) {
        rounded.wrapping_add(TF32_MASK)
    } else {
        rounded
    }
}

/// `cvt.rn.tf32.f32` and `cvt.rz.tf32.f32`. A NaN becomes `0x7fffe000`.
#[inline]
pub fn f32_to_tf32(rounding: Rounding, limits: Limits, a: u32) -> u32 {
    const TF32: Format = Format::new(8, 10);
    let Some(bits) = TF32.pack(F32.unpack(a.into()), rounding) else {
        return NAN32 & TF32_MASK;
    };
    let bits = (bits as u32) << 13;
    let infinite = bits & 0x7fff_ffff == 0x7f80_0000;
    let bits = if limits.satfinite && infinite {
        bits - 0x2000
    } else {
        bits
    };
    if limits.relu {
        minmax::f32::relu(bits)
    } else {
        bits
    }
}

/// What a tensor core makes of an `f32` register given as `tf32`: the low 13 bits
/// do not take part.
#[inline(always)]
pub fn truncate_to_tf32(a: u32) -> u32 {
    a & TF32_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Random, floats32, floats64};
    use FloatType::{Bf16, F16, F32, F64};
    use Rounding::{Down, Nearest, Up, Zero};

    fn plain(from: FloatType, to: FloatType, r: Rounding, a: u64) -> u64 {
        convert(from, to, r, false, false, a)
    }

    #[test]
    fn narrowing_brackets_the_value() {
        for a in floats64()
            .into_iter()
            .filter(|a| f64::from_bits(*a).is_finite())
        {
            let x = f64::from_bits(a);
            for to in [F16, Bf16, F32] {
                let [near, zero, down, up] =
                    [Nearest, Zero, Down, Up].map(|r| to.to_native(plain(F64, to, r, a)));
                assert!(down <= x && x <= up, "{to:?} {x:e}");
                assert!(near == down || near == up);
                assert_eq!(zero, if x < 0.0 { up } else { down });
                if up.is_finite() && down.is_finite() {
                    assert!((near - x).abs() <= (up - x).min(x - down));
                }
            }
        }
    }

    #[test]
    fn widening_is_exact_and_keeps_what_it_says() {
        for a in floats32() {
            let wide = plain(F32, F64, Nearest, a.into());
            if f32::from_bits(a).is_nan() {
                assert!(f64::from_bits(wide).is_nan() && wide >> 63 == u64::from(a >> 31));
            } else {
                assert_eq!(f64::from_bits(wide), f64::from(f32::from_bits(a)));
                assert_eq!(plain(F64, F32, Nearest, wide), u64::from(a));
            }
        }
        assert_eq!(plain(F32, F64, Nearest, 0x7fff_ffff), 0x7fff_ffff_e000_0000);
        assert_eq!(plain(F32, F64, Nearest, 0xff80_0001), 0xfff8_0000_2000_0000);
        assert_eq!(plain(Bf16, F32, Nearest, 0xff81), 0xff81_0000);
        assert_eq!(plain(F16, F32, Nearest, 0xfe01), u64::from(NAN32));
        assert_eq!(
            plain(F64, F32, Nearest, f64::NAN.to_bits()),
            u64::from(NAN32)
        );
        assert_eq!(plain(F16, Bf16, Nearest, 0x3c01), 0x3f80);
        assert_eq!(plain(F16, Bf16, Up, 0x3c01), 0x3f81);
        assert_eq!(plain(Bf16, F16, Nearest, 0x4780), 0x7c00);
        assert_eq!(
            plain(F64, F64, Nearest, 0x7ff0_0000_0000_0001),
            0x7ff8_0000_0000_0001
        );
        assert_eq!(plain(F16, F64, Nearest, 0xc000), (-2f64).to_bits());
    }

    #[test]
    fn double_to_half_rounds_once() {
        // A tie in f16 only after rounding to f32 first.
        let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(plain(F64, F16, Nearest, x.to_bits()), 0x3c01);
        assert_eq!(f16::from_f32((x as f32).to_bits()), 0x3c00);
    }

    #[test]
    fn flushing_and_saturation() {
        assert_eq!(
            convert(F32, F64, Nearest, true, false, 0x8000_0001),
            1 << 63
        );
        assert_eq!(
            convert(F64, F32, Nearest, true, false, 1e-40f64.to_bits()),
            0
        );
        assert_eq!(
            convert(F32, F32, Nearest, true, false, 0x8000_0001),
            0x8000_0000
        );
        assert_eq!(convert(F16, F16, Nearest, true, false, 1), 1);
        assert_eq!(
            convert(F32, F32, Nearest, false, true, f32::NAN.to_bits().into()),
            0
        );
        assert_eq!(
            convert(F32, F16, Nearest, false, true, 7f32.to_bits().into()),
            0x3c00
        );
        assert_eq!(
            convert(F32, F64, Nearest, false, true, 7f32.to_bits().into()),
            1f64.to_bits()
        );
        assert_eq!(saturate(F64, (-0.0f64).to_bits()), 0);
        assert_eq!(saturate(Bf16, 0x3f00), 0x3f00);
    }

    #[test]
    fn rounding_to_integers_within_a_type() {
        let run = |x: f32, r| {
            f32::from_bits(round_to_integral(F32, r, false, false, x.to_bits().into()) as u32)
        };
        assert_eq!(run(2.5, Nearest), 2.0);
        assert_eq!(run(-2.5, Down), -3.0);
        assert_eq!(run(-0.5, Nearest).to_bits(), (-0.0f32).to_bits());
        assert_eq!(run(1e30, Up), 1e30);
        assert_eq!(run(f32::NEG_INFINITY, Zero), f32::NEG_INFINITY);
        assert_eq!(round_to_integral(F32, Up, true, false, 1), 0);
        assert_eq!(
            round_to_integral(F32, Up, false, false, 1),
            u64::from(1f32.to_bits())
        );
        assert_eq!(
            round_to_integral(F32, Up, false, true, 2.5f32.to_bits().into()),
            u64::from(1f32.to_bits())
        );
        assert_eq!(
            round_to_integral(F32, Up, false, false, 0xffc0_0000),
            u64::from(NAN32)
        );
        assert_eq!(
            round_to_integral(F16, Nearest, false, false, 0x3e00),
            0x4000
        );
        assert_eq!(round_to_integral(Bf16, Zero, false, false, 0xbfc0), 0xbf80);
        assert_eq!(
            round_to_integral(F64, Down, false, false, 1.5f64.to_bits()),
            1f64.to_bits()
        );
    }

    #[test]
    fn limits_of_the_half_formats() {
        let sat = Limits {
            satfinite: true,
            relu: false,
        };
        let relu = Limits {
            satfinite: false,
            relu: true,
        };
        let bits = |x: f32| x.to_bits();
        assert_eq!(f32_to_f16(Nearest, sat, bits(1e9)), 0x7bff);
        assert_eq!(f32_to_f16(Nearest, sat, bits(f32::NEG_INFINITY)), 0xfbff);
        assert_eq!(f32_to_f16(Nearest, Limits::default(), bits(1e9)), 0x7c00);
        assert_eq!(f32_to_f16(Zero, Limits::default(), bits(1e9)), 0x7bff);
        assert_eq!(f32_to_f16(Nearest, relu, bits(-1.0)), 0);
        assert_eq!(f32_to_f16(Nearest, relu, bits(-0.0)), 0);
        assert_eq!(f32_to_f16(Nearest, relu, f32::NAN.to_bits()), NAN16);
        assert_eq!(f32_to_bf16(Nearest, sat, bits(f32::MAX)), 0x7f7f);
        assert_eq!(f32_to_bf16(Zero, Limits::default(), 0x3fff_ffff), 0x3fff);
        assert_eq!(
            f32_to_f16x2(Nearest, relu, bits(1.0), bits(-1.0)),
            0x3c00_0000
        );
        assert_eq!(
            f32_to_bf16x2(Nearest, relu, bits(1.0), bits(2.0)),
            0x3f80_4000
        );
    }

    #[test]
    fn tf32() {
        let none = Limits::default();
        assert_eq!(f32_to_tf32_rna::<false>(0x3f80_1000), 0x3f80_2000);
        assert_eq!(f32_to_tf32_rna::<false>(0x3f80_0fff), 0x3f80_0000);
        assert_eq!(f32_to_tf32_rna::<false>(0x7f7f_ffff), 0x7f80_0000);
        assert_eq!(f32_to_tf32_rna::<true>(0x7f7f_ffff), 0x7f7f_e000);
        assert_eq!(f32_to_tf32_rna::<true>(0xff80_0000), 0xff7f_e000);
        assert_eq!(f32_to_tf32_rna::<false>(0x7fff_ffff), 0x7fff_e000);
        assert_eq!(f32_to_tf32(Nearest, none, 0x3f80_1000), 0x3f80_0000);
        assert_eq!(f32_to_tf32(Nearest, none, 0x3f80_3000), 0x3f80_4000);
        assert_eq!(f32_to_tf32(Zero, none, 0x3f80_3fff), 0x3f80_2000);
        assert_eq!(f32_to_tf32(Nearest, none, 0x7fc0_0001), 0x7fff_e000);
        assert_eq!(
            f32_to_tf32(
                Nearest,
                Limits {
                    satfinite: true,
                    relu: false
                },
                0x7f7f_ffff
            ),
            0x7f7f_e000
        );
        assert_eq!(
            f32_to_tf32(
                Nearest,
                Limits {
                    satfinite: false,
                    relu: true
                },
                0xbf80_0000
            ),
            0
        );
        let mut random = Random(41);
        for _ in 0..10_000 {
            let a = random.next() as u32;
            if f32::from_bits(a).is_finite() {
                let x = f64::from(f32::from_bits(a));
                let got = f64::from(f32::from_bits(f32_to_tf32_rna::<false>(a)));
                let other = f64::from(f32::from_bits(f32_to_tf32(Nearest, none, a)));
                assert_eq!((got - x).abs(), (other - x).abs());
            }
        }
        assert_eq!(truncate_to_tf32(0x3f80_1fff), 0x3f80_0000);
    }
}
