//! The approximate functions.
//!
//! Each is computed in double precision and rounded once, so it lies within half
//! an ulp or so of the true value, well inside the error that PTX documents for
//! it; hardware gives other bits within that error. Special operands give exactly
//! what PTX's tables say. Where PTX documents no error (`sin` and `cos` of large
//! arguments, which hardware reduces roughly), the accurate value is given.

use super::f32::{canonical, flush, is_tiny};
use super::soft::{F64, Format, Value};
use super::{NAN32, Rounding, f32 as single};

#[inline(always)]
fn open<const FTZ: bool>(a: u32) -> f64 {
    f64::from(f32::from_bits(flush::<FTZ>(a)))
}

#[inline(always)]
fn close<const FTZ: bool>(result: f64) -> u32 {
    let bits = canonical((result as f32).to_bits());
    if FTZ && is_tiny(result, Rounding::Nearest) {
        bits & 1 << 31
    } else {
        bits
    }
}

/// `rcp.approx.f32`.
#[inline(always)]
pub fn rcp<const FTZ: bool>(a: u32) -> u32 {
    close::<FTZ>(1.0 / open::<FTZ>(a))
}

/// `sqrt.approx.f32`.
#[inline(always)]
pub fn sqrt<const FTZ: bool>(a: u32) -> u32 {
    close::<FTZ>(open::<FTZ>(a).sqrt())
}

/// `rsqrt.approx.f32`. Of minus zero, minus infinity.
#[inline(always)]
pub fn rsqrt<const FTZ: bool>(a: u32) -> u32 {
    close::<FTZ>(1.0 / open::<FTZ>(a).sqrt())
}

/// `sin.approx.f32`.
#[inline]
pub fn sin<const FTZ: bool>(a: u32) -> u32 {
    close::<FTZ>(open::<FTZ>(a).sin())
}

/// `cos.approx.f32`.
#[inline]
pub fn cos<const FTZ: bool>(a: u32) -> u32 {
    close::<FTZ>(open::<FTZ>(a).cos())
}

/// `lg2.approx.f32`. Of zero, minus infinity; below zero, NaN.
#[inline]
pub fn lg2<const FTZ: bool>(a: u32) -> u32 {
    close::<FTZ>(open::<FTZ>(a).log2())
}

/// `ex2.approx.f32`.
#[inline]
pub fn ex2<const FTZ: bool>(a: u32) -> u32 {
    close::<FTZ>(open::<FTZ>(a).exp2())
}

/// `tanh.approx.f32`. Subnormals are kept.
#[inline]
pub fn tanh(a: u32) -> u32 {
    close::<false>(open::<false>(a).tanh())
}

/// `div.approx.f32`: computed as a product with the reciprocal, so a divisor of
/// magnitude above 2^126 gives zero, or NaN for an infinite dividend.
#[inline(always)]
pub fn div_approx<const FTZ: bool>(a: u32, b: u32) -> u32 {
    const TWO_126: u32 = 0x7e80_0000;
    let magnitude = b & 0x7fff_ffff;
    let huge = magnitude > TWO_126 && magnitude < 0x7f80_0000;
    let quotient = if huge {
        open::<FTZ>(a) * f64::copysign(0.0, open::<FTZ>(b))
    } else {
        open::<FTZ>(a) / open::<FTZ>(b)
    };
    close::<FTZ>(quotient)
}

/// `div.full.f32`: within two ulps over the whole range.
#[inline(always)]
pub fn div_full<const FTZ: bool>(a: u32, b: u32) -> u32 {
    single::div_with::<FTZ>(Rounding::Nearest, a, b)
}

/// What `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` share: they look at the
/// upper word only, and give an upper word (a 20-bit fraction) over a zero.
fn gross(a: u64, f: impl Fn(f64) -> f64) -> u64 {
    const UPPER: Format = Format::new(11, 20);
    let upper = a & 0xffff_ffff_0000_0000;
    let flush = |x: u64| {
        if x & (0x7ff << 52) == 0 {
            x & 1 << 63
        } else {
            x
        }
    };
    if F64.unpack(a) == Value::Nan {
        return u64::from(NAN32) << 32;
    }
    let result = f(f64::from_bits(flush(upper)));
    match UPPER.pack(F64.unpack(result.to_bits()), Rounding::Nearest) {
        Some(word) => flush(word << 32),
        None => u64::from(NAN32) << 32,
    }
}

/// `rcp.approx.ftz.f64`: a coarse reciprocal to start an iteration from.
pub fn rcp_ftz_f64(a: u64) -> u64 {
    gross(a, |x| 1.0 / x)
}

/// `rsqrt.approx.ftz.f64`: a coarse reciprocal root to start an iteration from.
pub fn rsqrt_ftz_f64(a: u64) -> u64 {
    gross(a, |x| 1.0 / x.sqrt())
}

/// `rsqrt.approx.f64` without `.ftz`: accurate to a few ulps in PTX; here the
/// nearest double or its neighbour.
pub fn rsqrt_f64(a: u64) -> u64 {
    let x = f64::from_bits(a);
    if x.is_nan() {
        return super::f64::abs(a) | a & 1 << 63;
    }
    let result = 1.0 / x.sqrt();
    if result.is_nan() {
        super::NAN64
    } else {
        result.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: u32 = 0x7f80_0000;
    const MINUS: u32 = 1 << 31;

    fn bits(x: f32) -> u32 {
        x.to_bits()
    }

    /// The rows of PTX's tables: -inf, -1 (or a negative number), -0, +0, +inf.
    #[test]
    fn special_operands() {
        type Row = (fn(u32) -> u32, [u32; 5]);
        let table: [Row; 7] = [
            (rcp::<false>, [MINUS, bits(-1.0), INF | MINUS, INF, 0]),
            (sqrt::<false>, [NAN32, NAN32, MINUS, 0, INF]),
            (rsqrt::<false>, [NAN32, NAN32, INF | MINUS, INF, 0]),
            (lg2::<false>, [NAN32, NAN32, INF | MINUS, INF | MINUS, INF]),
            (ex2::<false>, [0, bits(0.5), bits(1.0), bits(1.0), INF]),
            (tanh, [bits(-1.0), bits(-0.7615942), MINUS, 0, bits(1.0)]),
            (sin::<false>, [NAN32, bits(-0.84147096), MINUS, 0, NAN32]),
        ];
        for (i, (f, expect)) in table.into_iter().enumerate() {
            for (a, expect) in [INF | MINUS, bits(-1.0), MINUS, 0, INF]
                .into_iter()
                .zip(expect)
            {
                assert_eq!(f(a), expect, "row {i}, operand {a:#x}");
            }
            assert_eq!(f(0xffc0_0001), NAN32);
        }
        assert_eq!(cos::<false>(0), bits(1.0));
        assert_eq!(cos::<false>(INF), NAN32);
    }

    #[test]
    fn subnormals_are_kept_or_flushed() {
        assert_eq!(rcp::<true>(1), INF);
        assert_eq!(rcp::<false>(0x0040_0000), bits(2f32.powi(127)));
        assert_eq!(rcp::<true>(0x7f00_0000), 0);
        assert_eq!(rcp::<false>(0x7f00_0000), 0x0040_0000);
        assert_eq!(lg2::<true>(1), INF | MINUS);
        assert_eq!(lg2::<false>(1), bits(-149.0));
        assert_eq!(ex2::<true>(bits(-127.0)), 0);
        assert_eq!(ex2::<false>(bits(-127.0)), 0x0040_0000);
        assert_eq!(sqrt::<true>(1), 0);
        assert_eq!(sin::<true>(0x8000_0003), MINUS);
        assert_eq!(sin::<false>(0x8000_0003), 0x8000_0003);
    }

    #[test]
    fn exact_cases_are_exact() {
        assert_eq!(ex2::<false>(bits(10.0)), bits(1024.0));
        assert_eq!(lg2::<false>(bits(1024.0)), bits(10.0));
        assert_eq!(rsqrt::<false>(bits(16.0)), bits(0.25));
        assert_eq!(sqrt::<false>(bits(2.25)), bits(1.5));
        assert_eq!(rcp::<false>(bits(3.0)), bits(1.0 / 3.0));
    }

    #[test]
    fn division_by_the_huge() {
        let huge = bits(1.5 * 2f32.powi(127));
        assert_eq!(div_approx::<false>(bits(3.0), huge), 0);
        assert_eq!(div_approx::<false>(bits(-3.0), huge), MINUS);
        assert_eq!(div_approx::<false>(INF, huge), NAN32);
        assert_eq!(div_approx::<false>(bits(6.0), bits(3.0)), bits(2.0));
        assert_eq!(div_approx::<false>(bits(2.0), INF), 0);
        let b = 2f32.powi(126);
        assert_eq!(div_approx::<false>(bits(b), bits(b)), bits(1.0));
        assert_eq!(div_full::<false>(huge, huge), bits(1.0));
        assert_eq!(div_full::<false>(bits(1.0), 0), INF);
    }

    #[test]
    fn coarse_doubles_use_the_upper_word() {
        let three = 3f64.to_bits();
        let third = f64::from_bits(rcp_ftz_f64(three));
        assert!((third * 3.0 - 1.0).abs() < 2f64.powi(-20));
        assert_eq!(rcp_ftz_f64(three) & 0xffff_ffff, 0);
        assert_eq!(rcp_ftz_f64(three | 0xffff_ffff), rcp_ftz_f64(three));
        assert_eq!(rcp_ftz_f64(1), 0x7ff0_0000_0000_0000);
        assert_eq!(rcp_ftz_f64(f64::MAX.to_bits()), 0);
        assert_eq!(rcp_ftz_f64(f64::NEG_INFINITY.to_bits()), 1 << 63);
        assert_eq!(rcp_ftz_f64(f64::NAN.to_bits()), 0x7fff_ffff_0000_0000);
        assert_eq!(rsqrt_ftz_f64(4f64.to_bits()), 0.5f64.to_bits());
        assert_eq!(rsqrt_ftz_f64((-4f64).to_bits()), 0x7fff_ffff_0000_0000);
        assert_eq!(rsqrt_ftz_f64(1 << 63), f64::NEG_INFINITY.to_bits());
        assert_eq!(rsqrt_f64(0.25f64.to_bits()), 2f64.to_bits());
        assert_eq!(rsqrt_f64((-1f64).to_bits()), super::super::NAN64);
    }
}
