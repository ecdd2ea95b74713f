//! Extended-precision arithmetic: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`
//! and `madc`, with the carry flag `CC.CF` as an explicit `bool`.
//!
//! Subtraction adds the complement: after `sub.cc` the flag is the carry out of
//! `a + !b + 1`, that is, set where nothing was borrowed, and `subc` computes
//! `a + !b + CC.CF`. PTX speaks of a borrow, which is the same within a chain of
//! subtractions; the assembler implements it as a carry, which an `addc` after a `sub.cc` sees, as
//! in the compiler's own 128-bit division. The signed and unsigned spellings compute the same,
//! except for the upper half of a product.

macro_rules! carry_module {
    ($(#[$doc:meta])* $name:ident, $signed:ident, $unsigned:ident) => {
        $(#[$doc])*
        pub mod $name {
            type Bits = core::primitive::$name;

            /// `add.cc` with `carry` false, `addc` with the flag: the sum and the
            /// carry out (which plain `addc` drops).
            #[inline(always)]
            pub fn add(a: Bits, b: Bits, carry: bool) -> (Bits, bool) {
                let (sum, first) = a.overflowing_add(b);
                let (sum, second) = sum.overflowing_add(carry as Bits);
                (sum, first | second)
            }

            /// `sub.cc` with `carry` true, `subc` with the flag: the difference
            /// and the carry out, which is false where something was borrowed.
            #[inline(always)]
            pub fn sub(a: Bits, b: Bits, carry: bool) -> (Bits, bool) {
                add(a, !b, carry)
            }

            /// `mad.lo.cc`, `madc.lo`: the lower half of the product, plus `c`.
            #[inline(always)]
            pub fn mad_lo(a: Bits, b: Bits, c: Bits, carry: bool) -> (Bits, bool) {
                add(a.wrapping_mul(b), c, carry)
            }

            /// `mad.hi.cc`, `madc.hi` of a signed type.
            #[inline(always)]
            pub fn mad_hi_signed(a: Bits, b: Bits, c: Bits, carry: bool) -> (Bits, bool) {
                add(super::super::$signed::mul_hi(a, b), c, carry)
            }

            /// `mad.hi.cc`, `madc.hi` of an unsigned type.
            #[inline(always)]
            pub fn mad_hi_unsigned(a: Bits, b: Bits, c: Bits, carry: bool) -> (Bits, bool) {
                add(super::super::$unsigned::mul_hi(a, b), c, carry)
            }
        }
    };
}

carry_module! {
    /// 32 bits at a time.
    u32, s32, u32
}
carry_module! {
    /// 64 bits at a time.
    u64, s64, u64
}

#[cfg(test)]
mod tests {
    use super::{u32 as c32, u64 as c64};
    use crate::sample::{ints32, ints64};

    #[test]
    fn chained_halves_are_the_whole() {
        for a in ints64() {
            for b in ints64() {
                let split = |v: u64| (v as u32, (v >> 32) as u32);
                let join = |lo: u32, hi: u32| (hi as u64) << 32 | lo as u64;
                let ((al, ah), (bl, bh)) = (split(a), split(b));
                let (lo, carry) = c32::add(al, bl, false);
                let (hi, carry) = c32::add(ah, bh, carry);
                assert_eq!((join(lo, hi), carry), a.overflowing_add(b));
                let (lo, carry) = c32::sub(al, bl, true);
                let (hi, carry) = c32::sub(ah, bh, carry);
                assert_eq!((join(lo, hi), !carry), a.overflowing_sub(b));
                let wide = a as u128 + b as u128 + 1;
                assert_eq!(c64::add(a, b, true), (wide as u64, wide >> 64 != 0));
            }
        }
    }

    #[test]
    fn multiply_add_chains_make_a_wide_product() {
        for a in ints32() {
            for b in ints32() {
                let c = 0xfedc_ba98_7654_3210u64;
                let (lo, carry) = c32::mad_lo(a, b, c as u32, false);
                let (hi, carry) = c32::mad_hi_unsigned(a, b, (c >> 32) as u32, carry);
                let (sum, over) = (a as u64 * b as u64).overflowing_add(c);
                assert_eq!(((hi as u64) << 32 | lo as u64, carry), (sum, over));
                let (lo, carry) = c32::mad_lo(a, b, 5, false);
                let (hi, _) = c32::mad_hi_signed(a, b, 0, carry);
                let signed = (a as i32 as i64) * (b as i32 as i64) + 5;
                assert_eq!((hi as u64) << 32 | lo as u64, signed as u64);
            }
        }
    }
}
