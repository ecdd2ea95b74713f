//! `min` and `max` of floats, for every format.
//!
//! Minus zero is less than plus zero. A number wins over a NaN, unless `NAN` (the
//! modifier `.NaN`) lets the NaN through; a NaN that comes out is the format's
//! canonical one, but of two `f64` NaNs the second, made quiet, which is what the
//! emitted code does. `XORSIGN` is `.xorsign.abs`: the magnitudes are compared,
//! and a number that results takes the exclusive or of the operands' signs.

macro_rules! minmax {
    ($(#[$doc:meta])* $name:ident, $bits:ident, $int:ident, $infinity:expr, $both_nan:expr) => {
        $(#[$doc])*
        pub mod $name {
            type Bits = $bits;
            const SIGN: Bits = 1 << (Bits::BITS - 1);
            const INFINITY: Bits = $infinity;

            #[inline(always)]
            fn is_nan(a: Bits) -> bool {
                a & !SIGN > INFINITY
            }

            /// Orders as the numbers do, minus zero before plus zero.
            #[inline(always)]
            fn key(a: Bits) -> $int {
                (a ^ (((a as $int) >> (Bits::BITS - 1)) as Bits >> 1)) as $int
            }

            #[inline(always)]
            fn pick<const MAX: bool, const FTZ: bool, const NAN: bool, const XORSIGN: bool>(
                a: Bits,
                b: Bits,
            ) -> Bits {
                let sign = (a ^ b) & SIGN;
                let flush = |x: Bits| {
                    if FTZ && x & INFINITY == 0 { x & SIGN } else { x }
                };
                let (a, b) = (flush(a), flush(b));
                let (a, b) = if XORSIGN { (a & !SIGN, b & !SIGN) } else { (a, b) };
                let first = if MAX { key(a) > key(b) } else { key(a) < key(b) };
                let number = if (first & !is_nan(a)) | is_nan(b) { a } else { b };
                let number = if XORSIGN { number | sign } else { number };
                let no_number = is_nan(a) & is_nan(b) | NAN & (is_nan(a) | is_nan(b));
                if no_number { $both_nan(a, b) } else { number }
            }

            /// `min`.
            #[inline(always)]
            pub fn min<const FTZ: bool, const NAN: bool, const XORSIGN: bool>(
                a: Bits,
                b: Bits,
            ) -> Bits {
                pick::<false, FTZ, NAN, XORSIGN>(a, b)
            }

            /// `max`.
            #[inline(always)]
            pub fn max<const FTZ: bool, const NAN: bool, const XORSIGN: bool>(
                a: Bits,
                b: Bits,
            ) -> Bits {
                pick::<true, FTZ, NAN, XORSIGN>(a, b)
            }

            /// What `.relu` does to a result: below zero becomes plus zero, a NaN
            /// the canonical one.
            #[inline(always)]
            pub fn relu(a: Bits) -> Bits {
                if is_nan(a) {
                    $both_nan(a, a)
                } else if a & SIGN != 0 {
                    0
                } else {
                    a
                }
            }
        }
    };
}

minmax! {
    /// `min.f32`, `max.f32`.
    f32, u32, i32, 0x7f80_0000, |_, _| super::super::NAN32
}
minmax! {
    /// `min.f64`, `max.f64`.
    f64, u64, i64, 0x7ff0_0000_0000_0000, |a: u64, b: u64| (if is_nan(b) { b } else { a }) | 1 << 51
}
minmax! {
    /// `min.f16`, `max.f16`.
    f16, u16, i16, 0x7c00, |_, _| super::super::NAN16
}
minmax! {
    /// `min.bf16`, `max.bf16`.
    bf16, u16, i16, 0x7f80, |_, _| super::super::NAN16
}

/// `min.f32` of three. `ABS` is the modifier `.abs`.
#[inline(always)]
pub fn min3_f32<const FTZ: bool, const NAN: bool, const ABS: bool>(a: u32, b: u32, c: u32) -> u32 {
    let [a, b, c] = [a, b, c].map(|x| if ABS { x & 0x7fff_ffff } else { x });
    f32::min::<FTZ, NAN, false>(f32::min::<FTZ, NAN, false>(a, b), c)
}

/// `max.f32` of three. `ABS` is the modifier `.abs`.
#[inline(always)]
pub fn max3_f32<const FTZ: bool, const NAN: bool, const ABS: bool>(a: u32, b: u32, c: u32) -> u32 {
    let [a, b, c] = [a, b, c].map(|x| if ABS { x & 0x7fff_ffff } else { x });
    f32::max::<FTZ, NAN, false>(f32::max::<FTZ, NAN, false>(a, b), c)
}

#[cfg(test)]
mod tests {
    use super::super::{NAN16, NAN32};
    use super::*;
    use crate::sample::floats32;

    #[test]
    fn agrees_with_the_host_on_numbers() {
        for a in floats32() {
            for b in floats32() {
                let (x, y) = (
                    core::primitive::f32::from_bits(a),
                    core::primitive::f32::from_bits(b),
                );
                let low = f32::min::<false, false, false>(a, b);
                let high = f32::max::<false, false, false>(a, b);
                let low_nan = f32::min::<false, true, false>(a, b);
                if x.is_nan() || y.is_nan() {
                    let other = if x.is_nan() { b } else { a };
                    let expect = if x.is_nan() && y.is_nan() {
                        NAN32
                    } else {
                        other
                    };
                    assert_eq!((low, high, low_nan), (expect, expect, NAN32));
                } else if x == y {
                    // Equal, or zeros of different sign: the sign decides.
                    assert_eq!((low, high), (a | b, a & b), "{a:#x} {b:#x}");
                } else {
                    assert_eq!((low, high), (x.min(y).to_bits(), x.max(y).to_bits()));
                    assert_eq!(low_nan, low);
                }
            }
        }
    }

    #[test]
    fn xorsign_compares_magnitudes() {
        let b = |x: core::primitive::f32| x.to_bits();
        assert_eq!(f32::min::<false, false, true>(b(-3.0), b(2.0)), b(-2.0));
        assert_eq!(f32::max::<false, false, true>(b(-3.0), b(-2.0)), b(3.0));
        assert_eq!(f32::max::<false, false, true>(b(-3.0), NAN32), b(-3.0));
        assert_eq!(f32::max::<false, true, true>(b(-3.0), NAN32), NAN32);
    }

    #[test]
    fn three_operands_and_modifiers() {
        let b = |x: core::primitive::f32| x.to_bits();
        assert_eq!(
            min3_f32::<false, false, false>(b(3.0), b(-1.0), b(2.0)),
            b(-1.0)
        );
        assert_eq!(
            max3_f32::<false, false, true>(b(3.0), b(-4.0), b(2.0)),
            b(4.0)
        );
        assert_eq!(
            min3_f32::<false, false, false>(NAN32, NAN32, b(2.0)),
            b(2.0)
        );
        assert_eq!(min3_f32::<false, true, false>(b(1.0), NAN32, b(2.0)), NAN32);
        assert_eq!(f32::min::<true, false, false>(0x8000_0001, 5), 0x8000_0000);
        assert_eq!(f32::relu(b(-0.0)), 0);
        assert_eq!(f32::relu(b(-1.0)), 0);
        assert_eq!(f32::relu(0xffc0_0000), NAN32);
        assert_eq!(f32::relu(b(7.0)), b(7.0));
    }

    #[test]
    fn halves_and_doubles() {
        assert_eq!(f16::min::<false, false, false>(0x8000, 0x0000), 0x8000);
        assert_eq!(f16::max::<false, false, false>(0x7c01, 0x3c00), 0x3c00);
        assert_eq!(f16::max::<false, true, false>(0x7c01, 0x3c00), NAN16);
        assert_eq!(bf16::max::<false, false, false>(0x7f80, 0x3f80), 0x7f80);
        assert_eq!(bf16::min::<false, false, false>(0xff80, 0xff81), 0xff80);
        let (p, q) = (0x7ff0_0000_0000_0001, 0xfff0_0000_0000_0002);
        assert_eq!(f64::min::<false, false, false>(p, q), q | 1 << 51);
        assert_eq!(f64::min::<false, false, false>(p, 5), 5);
        assert_eq!(f64::max::<false, false, false>(1 << 63, 0), 0);
    }
}
