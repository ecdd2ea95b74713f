//! `cvt.rs`: rounding by random bits.
//!
//! The magnitude rounds away from zero if the part of it below the last place,
//! plus the random bits read as a fraction, reaches one.
//!
//! Where the bits come from, for `d = {a, b}` of `f16x2` and `bf16x2`, is
//! documented: the upper half of `rbits` (its low 13 bits for `f16`) for `a`, the
//! lower for `b`. For `d = {a, b, e, f}` of the 8- and 6-bit formats PTX says that
//! the lower half serves `e` and `f`, the upper `a` and `b`; on hardware `f` and
//! `b` read it as it is, `e` and `a` with its bits reversed. For `e2m1x4`, whose
//! halves are put together from the lower and the upper bytes of both halves, the
//! same is assumed.

use super::float::Limits;
use super::tiny::Tiny;
use crate::float::soft::{BF16, Exact, F16, F32, Format, Value};
use crate::float::{NAN16, Rounding};

/// The magnitude of `exact` in `format`, rounded by `random`, a fraction of
/// `bits` bits.
fn round(format: Format, exact: Exact, random: u32, bits: u32) -> u64 {
    let down = format.round_magnitude(exact, Rounding::Zero);
    if exact.mantissa == 0 {
        return down;
    }
    // The same fraction of the last place, added and truncated. The mantissa has
    // 24 bits, so there is room for the random ones below it.
    let top = exact.exponent + exact.mantissa.ilog2() as i32;
    let quantum = top.max(1 - format.bias()) - format.fraction as i32;
    // In units of 2^(exponent - 64).
    let weight = quantum - bits as i32 - exact.exponent + 64;
    if weight >= 100 {
        // Far below the last place: nothing but a fraction of one could carry.
        return down;
    }
    let dither = if weight < 0 {
        0
    } else {
        (random as u128) << weight
    };
    let sum = Exact {
        mantissa: (exact.mantissa << 64) + dither,
        exponent: exact.exponent - 64,
        ..exact
    };
    // Adding may carry into the next power of two, where truncation is coarser,
    // but then the result is that power.
    format.round_magnitude(sum, Rounding::Zero).min(down + 1)
}

fn half(format: Format, limits: Limits, a: u32, random: u32, bits: u32) -> u16 {
    let infinity = format.infinity() as u16;
    let result = match F32.unpack(a.into()) {
        Value::Nan => NAN16,
        Value::Infinite { negative } => infinity | (negative as u16) << 15,
        Value::Finite(exact) => {
            let magnitude = round(format, exact, random, bits).min(infinity.into());
            magnitude as u16 | (exact.negative as u16) << 15
        }
    };
    limits.apply(result, infinity)
}

/// `cvt.rs{.relu}{.satfinite}.f16x2.f32`.
pub fn f16x2(limits: Limits, a: u32, b: u32, rbits: u32) -> u32 {
    let high = half(F16, limits, a, rbits >> 16 & 0x1fff, 13);
    let low = half(F16, limits, b, rbits & 0x1fff, 13);
    (high as u32) << 16 | low as u32
}

/// `cvt.rs{.relu}{.satfinite}.bf16x2.f32`.
pub fn bf16x2(limits: Limits, a: u32, b: u32, rbits: u32) -> u32 {
    let high = half(BF16, limits, a, rbits >> 16, 16);
    let low = half(BF16, limits, b, rbits & 0xffff, 16);
    (high as u32) << 16 | low as u32
}

fn tiny(to: Tiny, relu: bool, a: u32, random: u16) -> u8 {
    match F32.unpack(a.into()) {
        Value::Finite(exact) => {
            let magnitude = round(to.format(), exact, random.into(), 16).min(to.largest().into());
            let sign = if exact.negative {
                to.format().sign_bit()
            } else {
                0
            };
            if relu && exact.negative {
                0
            } else {
                (sign | magnitude) as u8
            }
        }
        special => to.pack(special, Rounding::Zero, relu),
    }
}

/// `cvt.rs{.relu}.satfinite.TYPEx4.f32`, of `[a, b, e, f]`, the first in the
/// uppermost part of the result. For `e2m1` that is 16 bits.
pub fn four(to: Tiny, relu: bool, inputs: [u32; 4], rbits: u32) -> u32 {
    let [a, b, e, f] = inputs;
    let (high, low, stride) = match to {
        Tiny::E2m1 => {
            let bytes = rbits.to_le_bytes();
            (
                u16::from_le_bytes([bytes[1], bytes[3]]),
                u16::from_le_bytes([bytes[0], bytes[2]]),
                4,
            )
        }
        _ => ((rbits >> 16) as u16, rbits as u16, 8),
    };
    let parts = [
        (a, high.reverse_bits()),
        (b, high),
        (e, low.reverse_bits()),
        (f, low),
    ];
    parts.iter().fold(0, |d, (x, random)| {
        d << stride | tiny(to, relu, *x, *random) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cvt::float::{f32_to_bf16, f32_to_f16};
    use crate::cvt::tiny::to_f32;
    use crate::sample::{Random, floats32};

    const NONE: Limits = Limits {
        relu: false,
        satfinite: false,
    };

    #[test]
    fn without_random_bits_it_truncates() {
        for a in floats32() {
            // Beyond the range there is infinity, not the largest number.
            let zero = Rounding::Zero;
            let expect = f32_to_f16(zero, NONE, a);
            if expect & 0x7fff != 0x7bff {
                assert_eq!(f16x2(NONE, a, 0, 0) >> 16, u32::from(expect), "{a:#x}");
            }
            let expect = f32_to_bf16(zero, NONE, a);
            assert_eq!(bf16x2(NONE, 0, a, 0), u32::from(expect), "{a:#x}");
        }
        assert_eq!(
            f16x2(NONE, 1e6f32.to_bits(), 65519f32.to_bits(), 0),
            0x7c00_7bff
        );
    }

    #[test]
    fn normal_bf16_is_an_integer_addition() {
        let mut random = Random(51);
        for _ in 0..50_000 {
            let (a, r) = (random.next() as u32, random.next() as u32);
            let exponent = a >> 23 & 0xff;
            if (1..254).contains(&exponent) {
                let expect = (a + (r & 0xffff)) >> 16;
                assert_eq!(bf16x2(NONE, 0, a, r) & 0xffff, expect, "{a:#x} {r:#x}");
                let expect = (a + (r >> 16)) >> 16;
                assert_eq!(bf16x2(NONE, a, 0, r) >> 16, expect);
            }
        }
    }

    #[test]
    fn subnormals_round_by_their_own_unit() {
        // A quarter of the smallest f16 rounds up for the top quarter of values.
        let a = 2f32.powi(-26).to_bits();
        assert_eq!(f16x2(NONE, 0, a, 0x17ff) & 0xffff, 0);
        assert_eq!(f16x2(NONE, 0, a, 0x1800) & 0xffff, 1);
        assert_eq!(f16x2(NONE, 0, 1, 0x1fff) & 0xffff, 0);
        assert_eq!(f16x2(NONE, 0, 0x8000_0000, 0x1fff) & 0xffff, 0x8000);
    }

    #[test]
    fn limits_and_specials() {
        let sat = Limits {
            satfinite: true,
            relu: false,
        };
        let relu = Limits {
            satfinite: false,
            relu: true,
        };
        let max = f32::MAX.to_bits();
        assert_eq!(bf16x2(NONE, max, max, 0xffff_0001), 0x7f80_7f80);
        assert_eq!(bf16x2(NONE, max, max, 0), 0x7f7f_7f7f);
        assert_eq!(bf16x2(sat, max, max, u32::MAX), 0x7f7f_7f7f);
        assert_eq!(
            f16x2(relu, (-1f32).to_bits(), f32::NAN.to_bits(), 0),
            u32::from(NAN16)
        );
    }

    #[test]
    fn four_bytes_and_their_bits() {
        // Half way between 1 and 1.125: up when the top random bit is set.
        let x = 1.0625f32.to_bits();
        let d = |rbits| four(Tiny::E4m3, false, [x; 4], rbits);
        assert_eq!(d(0), 0x3838_3838);
        assert_eq!(d(0x0000_8000), 0x3838_3839);
        assert_eq!(d(0x0000_0001), 0x3838_3938);
        assert_eq!(d(0x8000_0000), 0x3839_3838);
        assert_eq!(d(0x0001_0000), 0x3938_3838);
        assert_eq!(
            four(Tiny::E2m1, false, [1.25f32.to_bits(); 4], 0x0080_0000),
            0x2223
        );
        assert_eq!(four(Tiny::E4m3, true, [x | 1 << 31; 4], 0), 0);
        assert_eq!(
            four(
                Tiny::E4m3,
                false,
                [f32::NAN.to_bits(), 1e9f32.to_bits(), 0, 0],
                0
            ),
            0x7f7e_0000
        );
    }

    #[test]
    fn the_mean_is_the_value() {
        let x = 0.3f32;
        let total: f64 = (0..=u16::MAX)
            .map(|r| f64::from(to_f32(Tiny::E2m3, tiny(Tiny::E2m3, false, x.to_bits(), r))))
            .sum();
        assert!((total / 65536.0 - f64::from(x)).abs() < 1e-4);
    }
}
