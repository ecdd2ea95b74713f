//! Between integers and floats.
//!
//! Conversions to an integer always saturate; a NaN becomes zero, except that an `f64` source or a
//! 64-bit destination gives the destination's top bit alone.

use super::float::FloatType;
use super::integer::IntType;
use crate::float::Rounding;
use crate::float::f32::flush;
use crate::float::soft::{Exact, Value};

/// `cvt.rn.f32.s32`.
#[inline(always)]
pub fn s32_to_f32(a: u32) -> u32 {
    (a as i32 as f32).to_bits()
}

/// `cvt.rn.f32.u32`.
#[inline(always)]
pub fn u32_to_f32(a: u32) -> u32 {
    (a as f32).to_bits()
}

/// `cvt.f64.s32`: exact.
#[inline(always)]
pub fn s32_to_f64(a: u32) -> u64 {
    f64::from(a as i32).to_bits()
}

/// `cvt.f64.u32`: exact.
#[inline(always)]
pub fn u32_to_f64(a: u32) -> u64 {
    f64::from(a).to_bits()
}

/// Any integer type to any float type. `.sat` is left to
/// [`super::float::saturate`].
#[inline]
pub fn int_to_float(from: IntType, to: FloatType, rounding: Rounding, a: u64) -> u64 {
    let wide = from.extend(a);
    match (rounding, to, from.is_signed()) {
        (Rounding::Nearest, FloatType::F32, true) => (wide as i64 as f32).to_bits().into(),
        (Rounding::Nearest, FloatType::F32, false) => (wide as f32).to_bits().into(),
        (Rounding::Nearest, FloatType::F64, true) => (wide as i64 as f64).to_bits(),
        (Rounding::Nearest, FloatType::F64, false) => (wide as f64).to_bits(),
        _ => {
            let value = from.value(a);
            let exact = Exact::integer(value < 0, value.unsigned_abs() as u64);
            to.pack(Value::Finite(exact), rounding)
        }
    }
}

/// `cvt.rzi.s32.f32`.
#[inline(always)]
pub fn f32_to_s32<const FTZ: bool>(a: u32) -> u32 {
    // Truncation makes a zero of a subnormal anyway.
    (f32::from_bits(a) as i32) as u32
}

/// `cvt.rzi.u32.f32`.
#[inline(always)]
pub fn f32_to_u32<const FTZ: bool>(a: u32) -> u32 {
    f32::from_bits(a) as u32
}

/// A native float rounded to an integer.
#[inline(always)]
pub(super) fn integral(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => x.round_ties_even(),
        Rounding::NearestAway => x.round(),
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
    }
}

/// Any float type to any integer type; the result is extended to 64 bits as the
/// destination says. `ftz` concerns an `f32` source, where it changes `.rmi` and
/// `.rpi` of subnormals.
#[inline]
pub fn float_to_int(from: FloatType, to: IntType, rounding: Rounding, ftz: bool, a: u64) -> u64 {
    let a = if ftz && from == FloatType::F32 {
        flush::<true>(a as u32).into()
    } else {
        a
    };
    let x = from.to_native(a);
    if x.is_nan() {
        let odd = from == FloatType::F64 || to.bits() == 64;
        return if odd {
            to.extend(1 << (to.bits() - 1))
        } else {
            0
        };
    }
    let rounded = integral(x, rounding);
    // Rust's casts clamp; a narrower destination clamps once more.
    match (to.bits(), to.is_signed()) {
        (64, true) => rounded as i64 as u64,
        (64, false) => rounded as u64,
        (_, _) => (rounded as i64).clamp(to.min() as i64, to.max() as i64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{floats32, floats64, ints64};
    use Rounding::{Down, Nearest, Up, Zero};

    #[test]
    fn integers_to_floats_are_correctly_rounded() {
        for a in ints64() {
            for from in [
                IntType::S64,
                IntType::U64,
                IntType::S32,
                IntType::U32,
                IntType::S8,
            ] {
                let value = from.value(a);
                for to in [FloatType::F32, FloatType::F64, FloatType::Bf16] {
                    let [near, zero, down, up] = [Nearest, Zero, Down, Up].map(|r| {
                        let bits = int_to_float(from, to, r, a);
                        // Exact: all of these are integers of at most 64 bits.
                        to.to_native(bits) as i128
                    });
                    assert!(down <= value && value <= up, "{from:?} {to:?} {value}");
                    assert!(near == down || near == up);
                    assert!((near - value).abs() <= (up - value).min(value - down));
                    assert_eq!(zero, if value < 0 { up } else { down });
                    if down == up {
                        assert_eq!(down, value);
                    }
                }
            }
            let small = a as u32;
            assert_eq!(
                u64::from(s32_to_f32(small)),
                int_to_float(IntType::S32, FloatType::F32, Nearest, a)
            );
            assert_eq!(
                u64::from(u32_to_f32(small)),
                int_to_float(IntType::U32, FloatType::F32, Nearest, a)
            );
            assert_eq!(
                s32_to_f64(small),
                int_to_float(IntType::S32, FloatType::F64, Nearest, a)
            );
            assert_eq!(
                u32_to_f64(small),
                int_to_float(IntType::U32, FloatType::F64, Zero, a)
            );
        }
        assert_eq!(
            int_to_float(IntType::S32, FloatType::F16, Nearest, 70000),
            0x7c00
        );
        assert_eq!(
            int_to_float(IntType::S32, FloatType::F16, Zero, 70000),
            0x7bff
        );
        assert_eq!(
            int_to_float(IntType::S32, FloatType::F16, Nearest, (-2i64) as u64),
            0xc000
        );
        // One and a half ulps of bf16 above 2^62, and a bit: rounding once matters.
        let a = (1u64 << 62) + (1 << 54) + 1;
        assert_eq!(
            int_to_float(IntType::U64, FloatType::Bf16, Nearest, a),
            0x5e81
        );
    }

    #[test]
    fn floats_to_integers_round_and_clamp() {
        let run = |x: f32, to, r| float_to_int(FloatType::F32, to, r, false, x.to_bits().into());
        for (x, near, zero, down, up) in [
            (2.5, 2, 2, 2, 3),
            (3.5, 4, 3, 3, 4),
            (-2.5, -2, -2, -3, -2),
            (-0.25, 0, 0, -1, 0),
        ] {
            for (r, expect) in [(Nearest, near), (Zero, zero), (Down, down), (Up, up)] {
                assert_eq!(run(x, IntType::S32, r) as i64, expect, "{x} {r:?}");
            }
        }
        assert_eq!(run(1e10, IntType::S32, Zero), 0x7fff_ffff);
        assert_eq!(run(-1e10, IntType::S32, Zero) as i64, i64::from(i32::MIN));
        assert_eq!(run(-5.0, IntType::U32, Zero), 0);
        assert_eq!(run(300.0, IntType::U8, Zero), 255);
        assert_eq!(run(-300.0, IntType::S8, Zero) as i64, -128);
        assert_eq!(run(f32::INFINITY, IntType::U64, Zero), u64::MAX);
        assert_eq!(run(f32::NEG_INFINITY, IntType::S64, Zero), 1 << 63);
        let tiny = f64::from_bits(1).to_bits();
        assert_eq!(
            float_to_int(FloatType::F64, IntType::S32, Up, false, tiny),
            1
        );
        assert_eq!(float_to_int(FloatType::F32, IntType::S32, Up, false, 1), 1);
        assert_eq!(float_to_int(FloatType::F32, IntType::S32, Up, true, 1), 0);
        assert_eq!(
            float_to_int(FloatType::F16, IntType::S16, Nearest, false, 0x4100),
            2
        );
        assert_eq!(
            float_to_int(FloatType::Bf16, IntType::S8, Up, false, 0x3f81),
            2
        );
    }

    #[test]
    fn not_a_number_becomes_zero_or_the_top_bit() {
        let single = u64::from(f32::NAN.to_bits());
        let double = f64::NAN.to_bits();
        let f32_to = |to| float_to_int(FloatType::F32, to, Zero, false, single);
        let f64_to = |to| float_to_int(FloatType::F64, to, Zero, false, double);
        assert_eq!(f32_to(IntType::S32), 0);
        assert_eq!(f32_to(IntType::U8), 0);
        assert_eq!(f32_to(IntType::S64), 1 << 63);
        assert_eq!(f32_to(IntType::U64), 1 << 63);
        assert_eq!(f64_to(IntType::U32), 0x8000_0000);
        assert_eq!(f64_to(IntType::S32) as u32, 0x8000_0000);
        assert_eq!(
            float_to_int(FloatType::F16, IntType::S64, Zero, false, 0x7fff),
            1 << 63
        );
        assert_eq!(f32_to_s32::<false>(f32::NAN.to_bits()), 0);
    }

    #[test]
    fn fast_paths_agree_with_the_general_one() {
        for a in floats32() {
            let general = |to| float_to_int(FloatType::F32, to, Zero, false, a.into()) as u32;
            assert_eq!(f32_to_s32::<false>(a), general(IntType::S32));
            assert_eq!(f32_to_u32::<false>(a), general(IntType::U32));
        }
        for a in floats64()
            .into_iter()
            .filter(|a| !f64::from_bits(*a).is_nan())
        {
            let got = float_to_int(FloatType::F64, IntType::S16, Nearest, false, a) as i64;
            let expect = f64::from_bits(a).round_ties_even().clamp(-32768.0, 32767.0);
            assert_eq!(got as f64, expect + 0.0);
        }
    }
}
