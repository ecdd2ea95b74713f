//! Single precision.
//!
//! Plain functions are `.rn` and made of native operations on values that the
//! compiler can vectorise over lanes. Directed rounding goes through `f64`: the
//! result there is rounded to odd (its last bit set if anything was lost), which keeps the second
//! rounding, to `f32`, from seeing a false tie.

use super::{NAN32, Rounding};

const SIGN: u32 = 1 << 31;
const EXPONENT: u32 = 0x7f80_0000;

/// A subnormal as a zero of its sign, if `FTZ`.
#[inline(always)]
pub fn flush<const FTZ: bool>(a: u32) -> u32 {
    if FTZ && a & EXPONENT == 0 {
        a & SIGN
    } else {
        a
    }
}

/// A NaN as the one that `f32` instructions give.
#[inline(always)]
pub fn canonical(a: u32) -> u32 {
    if a & !SIGN > EXPONENT { NAN32 } else { a }
}

/// What `.sat` does: clamps to zero and one, NaN becoming zero.
#[inline(always)]
pub fn saturate<const SAT: bool>(a: u32) -> u32 {
    if !SAT {
        a
    } else if (a as i32) <= 0 || a > EXPONENT {
        // Zeros, all that is negative, and NaN.
        0
    } else if a > ONE {
        ONE
    } else {
        a
    }
}

const ONE: u32 = 0x3f80_0000;

#[inline(always)]
fn finish<const FTZ: bool, const SAT: bool>(result: f32) -> u32 {
    // Asked of the number and not of its bits: one vector comparison.
    let bits = if result.is_nan() {
        NAN32
    } else {
        result.to_bits()
    };
    saturate::<SAT>(flush::<FTZ>(bits))
}

/// What rounds, to the precision of `f32` but with no least exponent, to a number
/// below the least normal one. `x` is exact or rounded to odd.
#[inline(always)]
pub fn is_tiny(x: f64, rounding: Rounding) -> bool {
    const SCALE: f64 = f64::from_bits((1023 + 64) << 52);
    match rounding {
        Rounding::Nearest => x.abs() < TINY,
        // Far from the end of the range, rounding has its full precision.
        _ => narrow(x * SCALE, rounding).abs() < f32::from_bits((127 - 62) << 23),
    }
}

/// Half a place of full precision below the least normal number: from here on,
/// rounding to nearest reaches it.
const TINY: f64 = f64::from_bits(0x380f_ffff_f000_0000);

/// Rounds a result that is exact, or was rounded to odd.
#[inline(always)]
fn finish_wide<const FTZ: bool, const SAT: bool>(x: f64, rounding: Rounding) -> u32 {
    let rounded = canonical(narrow(x, rounding).to_bits());
    let rounded = if FTZ && is_tiny(x, rounding) {
        rounded & SIGN
    } else {
        rounded
    };
    saturate::<SAT>(rounded)
}

#[inline(always)]
fn open<const FTZ: bool>(a: u32) -> f32 {
    f32::from_bits(flush::<FTZ>(a))
}

/// `add.rn`.
#[inline(always)]
pub fn add<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    finish::<FTZ, SAT>(open::<FTZ>(a) + open::<FTZ>(b))
}

/// `sub.rn`.
#[inline(always)]
pub fn sub<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    finish::<FTZ, SAT>(open::<FTZ>(a) - open::<FTZ>(b))
}

/// `mul.rn`.
#[inline(always)]
pub fn mul<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
    let (a, b) = (open::<FTZ>(a), open::<FTZ>(b));
    let product = (a * b).to_bits();
    if !FTZ {
        return saturate::<SAT>(canonical(product));
    }
    // The same product far from the end of the range, where rounding has its full
    // precision. Of two factors of a tiny product one is below 2^-62.
    let (a, b) = (a.abs(), b.abs());
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    let scaled = small * f32::from_bits((127 + 64) << 23) * large;
    let tiny = scaled < f32::from_bits((127 - 62) << 23);
    saturate::<SAT>(canonical(if tiny { product & SIGN } else { product }))
}

/// `fma.rn`, and `mad.rn` on every architecture since sm_20. Correct without a
/// fused instruction on the host, and made of operations that vectorise; for a
/// whole warp, [`crate::lanes::fma_f32`] is faster where the host has one.
#[inline(always)]
pub fn fma<const FTZ: bool, const SAT: bool>(a: u32, b: u32, c: u32) -> u32 {
    let product = f64::from(open::<FTZ>(a)) * f64::from(open::<FTZ>(b));
    finish_wide::<FTZ, SAT>(
        odd_sum(product, f64::from(open::<FTZ>(c))),
        Rounding::Nearest,
    )
}

/// The sum of two `f64`, rounded to odd where it is inexact. For operands whose
/// sum can't leave the range of `f64`.
#[inline(always)]
pub fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // What the addition lost, exactly.
    let back = sum - a;
    let lost = (a - (sum - back)) + (b - back);
    to_odd(sum, lost)
}

/// `near + lost`, where `near` is the sum's nearest `f64`, rounded to odd. A NaN
/// as `lost` (infinities were involved) changes nothing.
#[inline(always)]
pub fn to_odd(near: f64, lost: f64) -> f64 {
    let bits = near.to_bits();
    let inexact = (lost > 0.0) | (lost < 0.0);
    let even = bits & 1 == 0;
    // Away from zero if the signs agree, else towards it.
    let away = (lost.to_bits() ^ bits) >> 63 == 0;
    let step = if away { 1 } else { u64::MAX };
    f64::from_bits(bits.wrapping_add(if inexact & even { step } else { 0 }))
}

/// Rounds an `f64` to `f32`. Exact if the `f64` is, or was rounded to odd.
#[inline]
pub fn narrow(x: f64, rounding: Rounding) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    match rounding {
        Rounding::Nearest => near,
        Rounding::NearestAway => {
            // Differs from nearest even only on a tie that went inwards.
            let outer = if x > 0.0 {
                near.next_up()
            } else {
                near.next_down()
            };
            if back.abs() < x.abs() && (x - back) == (f64::from(outer) - x) {
                outer
            } else {
                near
            }
        }
        Rounding::Zero if back.abs() > x.abs() => f32::from_bits(near.to_bits() - 1),
        Rounding::Down if back > x => near.next_down(),
        Rounding::Up if back < x => near.next_up(),
        _ => near,
    }
}

/// Rounds an `f64` to `f32` to odd, so that one more rounding, to a narrower
/// format, sees whether anything was lost. Exact values stay as they are.
#[inline(always)]
pub fn narrow_to_odd(x: f64) -> f32 {
    let near = x as f32;
    let (bits, back) = (near.to_bits(), f64::from(near));
    let inexact = (back > x) | (back < x);
    let even = bits & 1 == 0;
    let step = if back.abs() < x.abs() { 1 } else { u32::MAX };
    // A tiny number rounds to a zero of its sign, whose neighbour is the smallest.
    f32::from_bits(bits.wrapping_add(if inexact & even { step } else { 0 }))
}

/// The sum with the sign that `rounding` gives to an exact zero.
#[inline]
fn signed_sum(a: f64, b: f64, rounding: Rounding) -> f64 {
    let sum = odd_sum(a, b);
    let both_positive = a.is_sign_positive() && b.is_sign_positive();
    if rounding == Rounding::Down && sum == 0.0 && !both_positive {
        -0.0
    } else {
        sum
    }
}

/// `add` with any rounding.
#[inline]
pub fn add_with<const FTZ: bool, const SAT: bool>(rounding: Rounding, a: u32, b: u32) -> u32 {
    let sum = signed_sum(open::<FTZ>(a).into(), open::<FTZ>(b).into(), rounding);
    finish_wide::<FTZ, SAT>(sum, rounding)
}

/// `sub` with any rounding.
#[inline]
pub fn sub_with<const FTZ: bool, const SAT: bool>(rounding: Rounding, a: u32, b: u32) -> u32 {
    add_with::<FTZ, SAT>(rounding, a, b ^ SIGN)
}

/// `mul` with any rounding.
#[inline]
pub fn mul_with<const FTZ: bool, const SAT: bool>(rounding: Rounding, a: u32, b: u32) -> u32 {
    let product = f64::from(open::<FTZ>(a)) * f64::from(open::<FTZ>(b));
    finish_wide::<FTZ, SAT>(product, rounding)
}

/// `fma` with any rounding.
#[inline]
pub fn fma_with<const FTZ: bool, const SAT: bool>(
    rounding: Rounding,
    a: u32,
    b: u32,
    c: u32,
) -> u32 {
    let product = f64::from(open::<FTZ>(a)) * f64::from(open::<FTZ>(b));
    finish_wide::<FTZ, SAT>(
        signed_sum(product, open::<FTZ>(c).into(), rounding),
        rounding,
    )
}

/// `div` with any rounding (`div.rn` and the rest; see [`super::approx`] for
/// `.approx` and `.full`).
#[inline]
pub fn div_with<const FTZ: bool>(rounding: Rounding, a: u32, b: u32) -> u32 {
    let (a, b) = (open::<FTZ>(a), open::<FTZ>(b));
    if rounding == Rounding::Nearest && !FTZ {
        return finish::<FTZ, false>(a / b);
    }
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    // The remainder is exact, and shows on which side the quotient lies.
    let rest = (-quotient).mul_add(b, a);
    finish_wide::<FTZ, false>(
        to_odd(quotient, if b < 0.0 { -rest } else { rest }),
        rounding,
    )
}

/// `rcp` with any rounding.
#[inline]
pub fn rcp_with<const FTZ: bool>(rounding: Rounding, a: u32) -> u32 {
    div_with::<FTZ>(rounding, ONE, a)
}

/// `sqrt` with any rounding.
#[inline]
pub fn sqrt_with<const FTZ: bool>(rounding: Rounding, a: u32) -> u32 {
    let a = f64::from(open::<FTZ>(a));
    let root = a.sqrt();
    let rest = (-root).mul_add(root, a);
    finish_wide::<FTZ, false>(to_odd(root, rest), rounding)
}

/// `abs`: an addition of zero in hardware, so a NaN becomes canonical.
#[inline(always)]
pub fn abs<const FTZ: bool>(a: u32) -> u32 {
    canonical(flush::<FTZ>(a) & !SIGN)
}

/// `neg`: an addition in hardware, so a NaN becomes canonical.
#[inline(always)]
pub fn neg<const FTZ: bool>(a: u32) -> u32 {
    canonical(flush::<FTZ>(a) ^ SIGN)
}

/// `copysign`: `b` with the sign of `a`.
#[inline(always)]
pub fn copysign(a: u32, b: u32) -> u32 {
    (a & SIGN) | (b & !SIGN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::soft::{Exact, F32, Value};
    use crate::sample::{Random, floats32};

    const MODES: [Rounding; 4] = [
        Rounding::Nearest,
        Rounding::Zero,
        Rounding::Down,
        Rounding::Up,
    ];

    /// Integer arithmetic on exact values, NaN canonical.
    fn model(rounding: Rounding, value: Value) -> u32 {
        F32.pack(value, rounding).map_or(NAN32, |bits| bits as u32)
    }

    fn unpack(a: u32) -> Value {
        F32.unpack(a.into())
    }

    fn zero(e: &Exact) -> bool {
        e.mantissa == 0
    }

    fn product(a: u32, b: u32) -> Value {
        use Value::*;
        match (unpack(a), unpack(b)) {
            (Nan, _) | (_, Nan) => Nan,
            (Finite(x), Finite(y)) => Finite(x.times(y)),
            (Finite(x), Infinite { .. }) | (Infinite { .. }, Finite(x)) if zero(&x) => Nan,
            _ => Infinite {
                negative: (a ^ b) & SIGN != 0,
            },
        }
    }

    fn sum(a: Value, b: Value, rounding: Rounding) -> Value {
        use Value::*;
        match (a, b) {
            (Nan, _) | (_, Nan) => Nan,
            (Finite(x), Finite(y)) => Finite(x.plus(y, rounding)),
            (Infinite { negative: s }, Infinite { negative: t }) if s != t => Nan,
            (Infinite { negative }, _) | (_, Infinite { negative }) => Infinite { negative },
        }
    }

    #[test]
    fn sums_and_products_are_correctly_rounded_in_every_mode() {
        let all = floats32();
        for &a in &all {
            for &b in &all {
                for mode in MODES {
                    let expect = model(mode, sum(unpack(a), unpack(b), mode));
                    assert_eq!(
                        add_with::<false, false>(mode, a, b),
                        expect,
                        "{mode:?} {a:#x} {b:#x}"
                    );
                    let expect = model(mode, sum(unpack(a), unpack(b ^ SIGN), mode));
                    assert_eq!(sub_with::<false, false>(mode, a, b), expect);
                    let expect = model(mode, product(a, b));
                    assert_eq!(mul_with::<false, false>(mode, a, b), expect);
                }
                assert_eq!(
                    add::<false, false>(a, b),
                    add_with::<false, false>(Rounding::Nearest, a, b)
                );
                assert_eq!(
                    sub::<false, false>(a, b),
                    sub_with::<false, false>(Rounding::Nearest, a, b)
                );
                assert_eq!(
                    mul::<false, false>(a, b),
                    mul_with::<false, false>(Rounding::Nearest, a, b)
                );
            }
        }
    }

    fn check_fma(a: u32, b: u32, c: u32) {
        for mode in MODES {
            let expect = model(mode, sum(product(a, b), unpack(c), mode));
            let got = fma_with::<false, false>(mode, a, b, c);
            assert_eq!(got, expect, "{mode:?} {a:#x} {b:#x} {c:#x}");
        }
        let expect = model(
            Rounding::Nearest,
            sum(product(a, b), unpack(c), Rounding::Nearest),
        );
        assert_eq!(fma::<false, false>(a, b, c), expect, "{a:#x} {b:#x} {c:#x}");
    }

    #[test]
    fn fused_multiply_add_rounds_once() {
        let all = floats32();
        for (i, &a) in all.iter().enumerate() {
            for &b in &all {
                for &c in all.iter().skip(i % 7).step_by(7) {
                    check_fma(a, b, c);
                }
            }
        }
        let mut random = Random(11);
        for _ in 0..50_000 {
            let (x, y) = (random.next(), random.next());
            check_fma(x as u32, (x >> 32) as u32, y as u32);
            // Where the product and the addend nearly tie.
            let near =
                |v: u64| 0x3f80_0000 | (v as u32 & 0x000f_f00f) ^ (v >> 20) as u32 & 0x8000_0000;
            let c = near(y >> 8).wrapping_sub(((y & 63) as u32) << 23);
            check_fma(near(x), near(x >> 32), c);
        }
        // Half an ulp and a hair: a product rounded first would tie.
        let (a, b) = (1.0f32 + f32::EPSILON, 1.0f32 + f32::EPSILON);
        let c = f32::from_bits(0x3380_0000);
        check_fma(a.to_bits(), b.to_bits(), c.to_bits());
        check_fma(1, 1, 0x0080_0000);
        check_fma(1, 0x8000_0001, 0x3f80_0000);
    }

    #[test]
    fn quotients_and_roots_are_correctly_rounded_in_every_mode() {
        use Value::*;
        let mut all = floats32();
        let mut random = Random(12);
        all.extend((0..60).map(|_| random.next() as u32));
        for &a in &all {
            for mode in MODES {
                let root = match unpack(a) {
                    Finite(x) if !x.negative && !zero(&x) => Finite(x.square_root()),
                    Finite(x) if zero(&x) => Finite(x),
                    Infinite { negative: false } => Infinite { negative: false },
                    _ => Nan,
                };
                assert_eq!(
                    sqrt_with::<false>(mode, a),
                    model(mode, root),
                    "{mode:?} {a:#x}"
                );
                for &b in &all {
                    let negative = (a ^ b) & SIGN != 0;
                    let quotient = match (unpack(a), unpack(b)) {
                        (Nan, _) | (_, Nan) | (Infinite { .. }, Infinite { .. }) => Nan,
                        (Infinite { .. }, _) => Infinite { negative },
                        (_, Infinite { .. }) => Finite(Exact::integer(negative, 0)),
                        (Finite(x), Finite(y)) => match (zero(&x), zero(&y)) {
                            (true, true) => Nan,
                            (true, _) => Finite(Exact::integer(negative, 0)),
                            (_, true) => Infinite { negative },
                            _ => Finite(x.over(y)),
                        },
                    };
                    let expect = model(mode, quotient);
                    assert_eq!(
                        div_with::<false>(mode, a, b),
                        expect,
                        "{mode:?} {a:#x} {b:#x}"
                    );
                }
            }
        }
        assert_eq!(
            rcp_with::<false>(Rounding::Nearest, 0x4000_0000),
            0x3f00_0000
        );
        assert_eq!(
            rcp_with::<true>(Rounding::Nearest, 0x8000_0001),
            0xff80_0000
        );
    }

    #[test]
    fn flushing_keeps_the_sign() {
        assert_eq!(add::<true, false>(1, 2), 0);
        assert_eq!(add::<true, false>(0x8000_0001, 0x8000_0001), 0x8000_0000);
        assert_eq!(add::<false, false>(1, 2), 3);
        // A normal operand times one half is subnormal.
        assert_eq!(mul::<true, false>(0x8080_0000, 0x3f00_0000), 0x8000_0000);
        assert_eq!(mul::<false, false>(0x8080_0000, 0x3f00_0000), 0x8040_0000);
        assert_eq!(fma::<true, false>(0x0080_0000, 0x3f00_0000, 0x0000_0005), 0);
        assert_eq!(abs::<true>(0x8000_0005), 0);
        assert_eq!(neg::<true>(0x0000_0005), 0x8000_0000);
        assert_eq!(neg::<false>(0x0000_0005), 0x8000_0005);
    }

    #[test]
    fn flushing_looks_at_the_result_of_full_precision() {
        // All of these round to the least normal number in its own format, the
        // first ones from too far below for a number of 24 digits.
        let below = (0x0080_0000, 0x3f7f_ffff);
        let close = (0x0080_0001, 0x3f7f_fffe);
        for ((a, b), kept) in [(below, false), (close, true)] {
            let least = 0x0080_0000;
            assert_eq!(mul::<false, false>(a, b), least);
            let expect = if kept { least } else { 0 };
            assert_eq!(mul::<true, false>(a, b), expect);
            assert_eq!(mul::<true, false>(a | SIGN, b), expect | SIGN);
            assert_eq!(fma::<true, false>(a, b, 0), expect);
            for mode in MODES {
                let up = mode == Rounding::Up && kept;
                let near = mode == Rounding::Nearest && kept;
                let expect = if up || near { least } else { 0 };
                assert_eq!(mul_with::<true, false>(mode, a, b), expect, "{mode:?}");
                assert_eq!(fma_with::<true, false>(mode, a, b, 0), expect, "{mode:?}");
            }
        }
        // A quotient just below, and one just above.
        assert_eq!(
            div_with::<true>(Rounding::Nearest, 0x0080_0000, 0x3f80_0001),
            0
        );
        assert_eq!(
            div_with::<true>(Rounding::Nearest, 0x0080_0001, 0x3f80_0001),
            0x0080_0000
        );
        let mut random = Random(13);
        for _ in 0..50_000 {
            let x = random.next();
            let near = |exponent: u64, v: u64| (exponent << 23) as u32 | (v as u32 & 0x7f_ffff);
            let (a, b) = (near(1 + x % 3, x >> 8), near(124 + (x >> 4) % 4, x >> 32));
            let expect = mul_with::<true, false>(Rounding::Nearest, a, b);
            assert_eq!(mul::<true, false>(a, b), expect, "{a:#x} {b:#x}");
            assert_eq!(fma::<true, false>(a, b, 0), expect);
        }
    }

    #[test]
    fn saturation_clamps_and_zeroes_nan() {
        let half = 0x3f00_0000;
        assert_eq!(add::<false, true>(half, half), ONE);
        assert_eq!(add::<false, true>(ONE, half), ONE);
        assert_eq!(add::<false, true>(0x7f80_0000, 0x7f80_0000), ONE);
        assert_eq!(add::<false, true>(0x7f80_0000, 0xff80_0000), 0);
        assert_eq!(sub::<false, true>(half, ONE), 0);
        assert_eq!(mul::<false, true>(0x8000_0000, ONE), 0);
        assert_eq!(mul::<false, true>(half, half), 0x3e80_0000);
    }

    #[test]
    fn not_a_number_is_canonical() {
        for nan in [0x7fc0_0000, 0xffc0_1234, 0x7f80_0001] {
            assert_eq!(add::<false, false>(nan, ONE), NAN32);
            assert_eq!(fma::<false, false>(ONE, nan, ONE), NAN32);
            assert_eq!(abs::<false>(nan), NAN32);
            assert_eq!(neg::<false>(nan), NAN32);
            assert_eq!(copysign(ONE, nan), nan & !SIGN);
        }
        assert_eq!(mul::<false, false>(0, 0x7f80_0000), NAN32);
        assert_eq!(sqrt_with::<false>(Rounding::Nearest, 0xbf80_0000), NAN32);
        assert_eq!(
            sqrt_with::<false>(Rounding::Nearest, 0x8000_0000),
            0x8000_0000
        );
    }

    #[test]
    fn ties_away_differ_from_ties_to_even() {
        let tie = 1.0 + f64::from(f32::EPSILON) / 2.0;
        assert_eq!(narrow(tie, Rounding::Nearest), 1.0);
        assert_eq!(narrow(tie, Rounding::NearestAway), 1.0 + f32::EPSILON);
        assert_eq!(narrow(-tie, Rounding::NearestAway), -1.0 - f32::EPSILON);
        assert_eq!(narrow(tie - 1e-12, Rounding::NearestAway), 1.0);
    }
}
