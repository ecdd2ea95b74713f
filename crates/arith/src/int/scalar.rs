//! The operations whose result depends on the width and sign of the type.

/// How `setp` and `set` compare integers. The unsigned spellings `lo`, `ls`,
/// `hi`, `hs` are `Lt`, `Le`, `Gt`, `Ge` on an unsigned type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IntCmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

macro_rules! integer_module {
    (
        $(#[$doc:meta])* $name:ident, bits $bits:ident, as $ty:ident, wide $wide:ident/$wide_bits:ident,
        signed $signed:literal
    ) => {
        $(#[$doc])*
        pub mod $name {
            use super::IntCmp;

            type Bits = core::primitive::$bits;
            type Int = core::primitive::$ty;
            type Wide = core::primitive::$wide;
            type WideBits = core::primitive::$wide_bits;
            const WIDTH: core::primitive::u32 = Bits::BITS;

            /// `add`, and `sub` with a negated operand: wraps.
            #[inline(always)]
            pub fn add(a: Bits, b: Bits) -> Bits {
                a.wrapping_add(b)
            }

            /// `sub`: wraps.
            #[inline(always)]
            pub fn sub(a: Bits, b: Bits) -> Bits {
                a.wrapping_sub(b)
            }

            /// `add.sat`: clamps to the type's range. PTX has it for `s32` (and
            /// packed types).
            #[inline(always)]
            pub fn add_sat(a: Bits, b: Bits) -> Bits {
                (a as Int).saturating_add(b as Int) as Bits
            }

            /// `sub.sat`: clamps to the type's range.
            #[inline(always)]
            pub fn sub_sat(a: Bits, b: Bits) -> Bits {
                (a as Int).saturating_sub(b as Int) as Bits
            }

            /// `mul.lo`: the lower half of the product.
            #[inline(always)]
            pub fn mul_lo(a: Bits, b: Bits) -> Bits {
                a.wrapping_mul(b)
            }

            /// `mul.hi`: the upper half of the product.
            #[inline(always)]
            pub fn mul_hi(a: Bits, b: Bits) -> Bits {
                (((a as Int as Wide) * (b as Int as Wide)) >> WIDTH) as Bits
            }

            /// `mul.wide`: the whole product, twice as wide. (PTX spells it for 16
            /// and 32 bits only.)
            #[inline(always)]
            pub fn mul_wide(a: Bits, b: Bits) -> WideBits {
                (a as Int as WideBits).wrapping_mul(b as Int as WideBits)
            }

            /// `mad.wide`: the whole product plus a `c` of its width; wraps.
            #[inline(always)]
            pub fn mad_wide(a: Bits, b: Bits, c: WideBits) -> WideBits {
                mul_wide(a, b).wrapping_add(c)
            }

            /// `mad.lo`.
            #[inline(always)]
            pub fn mad_lo(a: Bits, b: Bits, c: Bits) -> Bits {
                mul_lo(a, b).wrapping_add(c)
            }

            /// `mad.hi`: the upper half of the product, plus `c`.
            #[inline(always)]
            pub fn mad_hi(a: Bits, b: Bits, c: Bits) -> Bits {
                mul_hi(a, b).wrapping_add(c)
            }

            /// `mad.hi.sat`: as [`mad_hi`], the sum clamped (PTX: `s32` only).
            #[inline(always)]
            pub fn mad_hi_sat(a: Bits, b: Bits, c: Bits) -> Bits {
                add_sat(mul_hi(a, b), c)
            }

            /// `sad`: `c + |a - b|`, the difference taken without overflow.
            #[inline(always)]
            pub fn sad(a: Bits, b: Bits, c: Bits) -> Bits {
                c.wrapping_add((a as Int).abs_diff(b as Int) as Bits)
            }

            /// `div`, truncating. By zero: all ones.
            #[inline]
            pub fn div(a: Bits, b: Bits) -> Bits {
                if b == 0 { Bits::MAX } else { (a as Int).wrapping_div(b as Int) as Bits }
            }

            /// `rem`, with the sign of the dividend. By zero: all ones.
            #[inline]
            pub fn rem(a: Bits, b: Bits) -> Bits {
                if b == 0 { Bits::MAX } else { (a as Int).wrapping_rem(b as Int) as Bits }
            }

            /// `min`.
            #[inline(always)]
            pub fn min(a: Bits, b: Bits) -> Bits {
                if (a as Int) < (b as Int) { a } else { b }
            }

            /// `max`.
            #[inline(always)]
            pub fn max(a: Bits, b: Bits) -> Bits {
                if (a as Int) > (b as Int) { a } else { b }
            }

            /// `abs`: the most negative number is its own absolute value.
            #[inline(always)]
            pub fn abs(a: Bits) -> Bits {
                if $signed && (a >> (WIDTH - 1)) == 1 { a.wrapping_neg() } else { a }
            }

            /// `neg`: wraps.
            #[inline(always)]
            pub fn neg(a: Bits) -> Bits {
                a.wrapping_neg()
            }

            /// `shl`: a shift of the width or more gives zero.
            #[inline(always)]
            pub fn shl(a: Bits, n: core::primitive::u32) -> Bits {
                if n < WIDTH { a << (n & (WIDTH - 1)) } else { 0 }
            }

            /// `shr`: arithmetic for a signed type, logical otherwise; a shift of
            /// the width or more leaves only sign bits, or zero.
            #[inline(always)]
            pub fn shr(a: Bits, n: core::primitive::u32) -> Bits {
                if $signed {
                    ((a as Int) >> if n < WIDTH { n } else { WIDTH - 1 }) as Bits
                } else if n < WIDTH {
                    a >> (n & (WIDTH - 1))
                } else {
                    0
                }
            }

            /// `setp` and `set`: the comparison itself. With a constant `op` it is
            /// one host instruction, so pick `op` outside the loop over lanes.
            #[inline(always)]
            pub fn compare(op: IntCmp, a: Bits, b: Bits) -> bool {
                let (a, b) = (a as Int, b as Int);
                match op {
                    IntCmp::Eq => a == b,
                    IntCmp::Ne => a != b,
                    IntCmp::Lt => a < b,
                    IntCmp::Le => a <= b,
                    IntCmp::Gt => a > b,
                    IntCmp::Ge => a >= b,
                }
            }
        }
    };
}

integer_module! {
    /// Operations on `.u16`.
    u16, bits u16, as u16, wide u32/u32, signed false
}
integer_module! {
    /// Operations on `.s16`.
    s16, bits u16, as i16, wide i32/u32, signed true
}
integer_module! {
    /// Operations on `.u32`.
    u32, bits u32, as u32, wide u64/u64, signed false
}
integer_module! {
    /// Operations on `.s32`.
    s32, bits u32, as i32, wide i64/u64, signed true
}
integer_module! {
    /// Operations on `.u64`.
    u64, bits u64, as u64, wide u128/u128, signed false
}
integer_module! {
    /// Operations on `.s64`.
    s64, bits u64, as i64, wide i128/u128, signed true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{ints16, ints32, ints64};

    #[test]
    fn products_agree_with_exact_arithmetic() {
        for a in ints32() {
            for b in ints32() {
                let signed = (a as i32 as i128) * (b as i32 as i128);
                let unsigned = (a as u128) * (b as u128);
                assert_eq!(s32::mul_lo(a, b), signed as core::primitive::u32);
                assert_eq!(s32::mul_hi(a, b), (signed >> 32) as core::primitive::u32);
                assert_eq!(u32::mul_hi(a, b), (unsigned >> 32) as core::primitive::u32);
                assert_eq!(s32::mul_wide(a, b), signed as core::primitive::u64);
                assert_eq!(u32::mul_wide(a, b), unsigned as core::primitive::u64);
                assert_eq!(s32::mad_wide(a, b, 5), (signed + 5) as core::primitive::u64);
                let clamped =
                    ((signed >> 32) + a as i32 as i128).clamp(i32::MIN as i128, i32::MAX as i128);
                assert_eq!(s32::mad_hi_sat(a, b, a), clamped as core::primitive::u32);
            }
        }
        for a in ints16() {
            for b in ints16() {
                let signed = (a as i16 as i64) * (b as i16 as i64);
                assert_eq!(s16::mul_hi(a, b), (signed >> 16) as core::primitive::u16);
                assert_eq!(s16::mul_wide(a, b), signed as core::primitive::u32);
                assert_eq!(
                    u16::mul_wide(a, b),
                    a as core::primitive::u32 * b as core::primitive::u32
                );
            }
        }
        assert_eq!(
            u64::mul_hi(core::primitive::u64::MAX, core::primitive::u64::MAX),
            core::primitive::u64::MAX - 1
        );
        assert_eq!(
            s64::mul_hi(core::primitive::u64::MAX, core::primitive::u64::MAX),
            0
        );
    }

    #[test]
    fn saturation_and_differences_agree_with_exact_arithmetic() {
        for a in ints32() {
            for b in ints32() {
                let (x, y) = (a as i32 as i64, b as i32 as i64);
                let clamp =
                    |v: i64| v.clamp(i32::MIN as i64, i32::MAX as i64) as core::primitive::u32;
                assert_eq!(s32::add_sat(a, b), clamp(x + y));
                assert_eq!(s32::sub_sat(a, b), clamp(x - y));
                assert_eq!(
                    s32::sad(a, b, 7),
                    ((x - y).unsigned_abs() as core::primitive::u32).wrapping_add(7)
                );
                assert_eq!(
                    u32::sad(a, b, 7),
                    (a as i64 - b as i64).unsigned_abs().wrapping_add(7) as core::primitive::u32
                );
                assert_eq!(s32::min(a, b) as i32 as i64, x.min(y));
                assert_eq!(s32::max(a, b) as i32 as i64, x.max(y));
                assert_eq!(u32::min(a, b), Ord::min(a, b));
            }
        }
    }

    #[test]
    fn division_truncates_and_by_zero_is_all_ones() {
        assert_eq!(s32::div(-7i32 as _, 2), -3i32 as _);
        assert_eq!(s32::rem(-7i32 as _, 2), -1i32 as _);
        assert_eq!(s32::rem(7, -2i32 as _), 1);
        assert_eq!(u32::div(-7i32 as _, 2), 0x7fff_fffc);
        assert_eq!(s32::div(0x8000_0000, -1i32 as _), 0x8000_0000);
        assert_eq!(s32::rem(0x8000_0000, -1i32 as _), 0);
        assert_eq!(s64::div(1 << 63, -1i64 as _), 1 << 63);
        for a in [0, 1, 0x8000] {
            assert_eq!(u16::div(a, 0), 0xffff);
            assert_eq!(s16::rem(a, 0), 0xffff);
            assert_eq!(u32::rem(a.into(), 0), 0xffff_ffff);
            assert_eq!(s32::div(a.into(), 0), 0xffff_ffff);
            assert_eq!(s64::div(a.into(), 0), core::primitive::u64::MAX);
            assert_eq!(u64::rem(a.into(), 0), core::primitive::u64::MAX);
        }
    }

    #[test]
    fn shifts_clamp() {
        assert_eq!(u32::shl(1, 31), 0x8000_0000);
        assert_eq!(u32::shl(1, 32), 0);
        assert_eq!(u32::shl(1, 0xffff_ffff), 0);
        assert_eq!(u32::shr(0x8000_0000, 31), 1);
        assert_eq!(u32::shr(0x8000_0000, 32), 0);
        assert_eq!(s32::shr(0x8000_0000, 32), 0xffff_ffff);
        assert_eq!(s32::shr(0x7000_0000, 200), 0);
        assert_eq!(s16::shr(0x8000, 3), 0xf000);
        assert_eq!(u16::shl(0xffff, 15), 0x8000);
        assert_eq!(u16::shl(0xffff, 16), 0);
        assert_eq!(s64::shr(1 << 63, 64), core::primitive::u64::MAX);
        assert_eq!(u64::shr(1 << 63, 64), 0);
        assert_eq!(u64::shl(1, 63), 1 << 63);
    }

    #[test]
    fn absolute_value_of_the_most_negative_is_itself() {
        assert_eq!(s32::abs(0x8000_0000), 0x8000_0000);
        assert_eq!(s32::abs(-5i32 as _), 5);
        assert_eq!(s16::abs(0xffff), 1);
        assert_eq!(s64::neg(1), core::primitive::u64::MAX);
    }

    #[test]
    fn comparisons_follow_the_sign_of_the_type() {
        for a in ints64() {
            for b in ints64() {
                let (x, y) = (a as i64, b as i64);
                assert_eq!(s64::compare(IntCmp::Lt, a, b), x < y);
                assert_eq!(s64::compare(IntCmp::Ge, a, b), x >= y);
                assert_eq!(u64::compare(IntCmp::Gt, a, b), a > b);
                assert_eq!(u64::compare(IntCmp::Le, a, b), a <= b);
                assert_eq!(u64::compare(IntCmp::Eq, a, b), a == b);
                assert_eq!(s64::compare(IntCmp::Ne, a, b), a != b);
            }
        }
    }
}
