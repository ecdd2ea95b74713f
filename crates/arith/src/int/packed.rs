//! Small integers packed in a 32-bit register: `mul24`, dot products, and the
//! `16x2` and `8x4` forms of `add`, `sub`, `min`, `max` and `neg`.

/// The low 24 bits of an operand, with their sign if `SIGNED`.
#[inline(always)]
fn low24<const SIGNED: bool>(a: u32) -> i64 {
    if SIGNED {
        (((a << 8) as i32) >> 8) as i64
    } else {
        (a & 0xff_ffff) as i64
    }
}

/// `mul24.lo`: the low 32 bits of the 48-bit product.
#[inline(always)]
pub fn mul24_lo<const SIGNED: bool>(a: u32, b: u32) -> u32 {
    (low24::<SIGNED>(a) * low24::<SIGNED>(b)) as u32
}

/// `mul24.hi`: bits 16 to 47 of the 48-bit product.
#[inline(always)]
pub fn mul24_hi<const SIGNED: bool>(a: u32, b: u32) -> u32 {
    ((low24::<SIGNED>(a) * low24::<SIGNED>(b)) >> 16) as u32
}

/// `mad24.lo`.
#[inline(always)]
pub fn mad24_lo<const SIGNED: bool>(a: u32, b: u32, c: u32) -> u32 {
    mul24_lo::<SIGNED>(a, b).wrapping_add(c)
}

/// `mad24.hi`.
#[inline(always)]
pub fn mad24_hi<const SIGNED: bool>(a: u32, b: u32, c: u32) -> u32 {
    mul24_hi::<SIGNED>(a, b).wrapping_add(c)
}

/// `mad24.hi.sat.s32`.
#[inline(always)]
pub fn mad24_hi_sat(a: u32, b: u32, c: u32) -> u32 {
    (mul24_hi::<true>(a, b) as i32).saturating_add(c as i32) as u32
}

#[inline(always)]
fn byte<const SIGNED: bool>(a: u32, i: u32) -> i32 {
    let byte = (a >> (8 * i)) as u8;
    if SIGNED {
        byte as i8 as i32
    } else {
        byte as i32
    }
}

#[inline(always)]
fn half<const SIGNED: bool>(a: u32, i: u32) -> i32 {
    let half = (a >> (16 * i)) as u16;
    if SIGNED {
        half as i16 as i32
    } else {
        half as i32
    }
}

/// `dp4a`: `c` plus the products of the four bytes; wraps. `A` and `B` say
/// whether that operand's type is `s32`.
#[inline(always)]
pub fn dp4a<const A: bool, const B: bool>(a: u32, b: u32, c: u32) -> u32 {
    (0..4).fold(c, |sum, i| {
        sum.wrapping_add((byte::<A>(a, i) * byte::<B>(b, i)) as u32)
    })
}

/// `dp2a.lo` (`HI` false) and `dp2a.hi`: `c` plus the products of the two halves
/// of `a` with two bytes of `b`, its lower or its upper ones; wraps.
#[inline(always)]
pub fn dp2a<const A: bool, const B: bool, const HI: bool>(a: u32, b: u32, c: u32) -> u32 {
    let first = if HI { 2 } else { 0 };
    (0..2).fold(c, |sum, i| {
        sum.wrapping_add(half::<A>(a, i).wrapping_mul(byte::<B>(b, first + i)) as u32)
    })
}

/// Applies `f` to both halves of two registers.
#[inline(always)]
pub fn map16x2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    let low = f(a as u16, b as u16);
    let high = f((a >> 16) as u16, (b >> 16) as u16);
    (high as u32) << 16 | low as u32
}

/// Applies `f` to the four bytes of two registers.
#[inline(always)]
pub fn map8x4(a: u32, b: u32, f: impl Fn(u8, u8) -> u8) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes([f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])])
}

macro_rules! packed_module {
    ($(#[$doc:meta])* $name:ident, $map:ident, $bits:ident, $int:ident) => {
        $(#[$doc])*
        pub mod $name {
            use super::$map;
            type Bits = core::primitive::$bits;
            type Int = core::primitive::$int;

            /// `add`: each wraps.
            #[inline(always)]
            pub fn add(a: u32, b: u32) -> u32 {
                $map(a, b, |x, y| x.wrapping_add(y))
            }

            /// `sub`: each wraps.
            #[inline(always)]
            pub fn sub(a: u32, b: u32) -> u32 {
                $map(a, b, |x, y| x.wrapping_sub(y))
            }

            /// `add.sat`: each clamps to its type's range.
            #[inline(always)]
            pub fn add_sat(a: u32, b: u32) -> u32 {
                $map(a, b, |x, y| (x as Int).saturating_add(y as Int) as Bits)
            }

            /// `sub.sat`: each clamps to its type's range.
            #[inline(always)]
            pub fn sub_sat(a: u32, b: u32) -> u32 {
                $map(a, b, |x, y| (x as Int).saturating_sub(y as Int) as Bits)
            }

            /// `min`.
            #[inline(always)]
            pub fn min(a: u32, b: u32) -> u32 {
                $map(a, b, |x, y| Ord::min(x as Int, y as Int) as Bits)
            }

            /// `max`.
            #[inline(always)]
            pub fn max(a: u32, b: u32) -> u32 {
                $map(a, b, |x, y| Ord::max(x as Int, y as Int) as Bits)
            }

            /// `neg`: each wraps.
            #[inline(always)]
            pub fn neg(a: u32) -> u32 {
                sub(0, a)
            }
        }
    };
}

packed_module! {
    /// Operations on `.u16x2`.
    u16x2, map16x2, u16, u16
}
packed_module! {
    /// Operations on `.s16x2`.
    s16x2, map16x2, u16, i16
}
packed_module! {
    /// Operations on `.u8x4`.
    u8x4, map8x4, u8, u8
}
packed_module! {
    /// Operations on `.s8x4`.
    s8x4, map8x4, u8, i8
}

/// What `.relu` does to an `s32` result: negative becomes zero.
#[inline(always)]
pub fn relu_s32(a: u32) -> u32 {
    if (a as i32) < 0 { 0 } else { a }
}

/// What `.relu` does to an `s16x2` result.
#[inline(always)]
pub fn relu_s16x2(a: u32) -> u32 {
    s16x2::max(a, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::ints32;

    #[test]
    fn products_of_24_bits() {
        assert_eq!(mul24_lo::<false>(0xff00_0003, 5), 15);
        assert_eq!(mul24_lo::<true>(0x00ff_ffff, 5), -5i32 as u32);
        assert_eq!(mul24_hi::<false>(0x00ff_ffff, 0x00ff_ffff), 0xffff_fe00);
        assert_eq!(mul24_hi::<true>(0x0080_0000, 0x0080_0000), 0x4000_0000);
        assert_eq!(mul24_hi::<true>(0x0080_0000, 1), 0xffff_ff80);
        assert_eq!(
            mad24_hi_sat(0x0080_0000, 0x0080_0000, 0x7000_0000),
            0x7fff_ffff
        );
        assert_eq!(mad24_lo::<false>(3, 4, 5), 17);
        assert_eq!(mad24_hi::<false>(1 << 16, 4, u32::MAX), 3);
    }

    #[test]
    fn dot_products_agree_with_wide_sums() {
        for a in ints32() {
            for b in ints32() {
                let bytes = |v: u32, s: bool| {
                    v.to_le_bytes()
                        .map(|x| if s { x as i8 as i64 } else { x as i64 })
                };
                let halves = |v: u32, s: bool| {
                    [v as u16, (v >> 16) as u16].map(|x| if s { x as i16 as i64 } else { x as i64 })
                };
                let dot = |s: bool, t: bool| -> u32 {
                    bytes(a, s)
                        .iter()
                        .zip(bytes(b, t))
                        .map(|(x, y)| x * y)
                        .sum::<i64>() as u32
                };
                assert_eq!(dp4a::<true, true>(a, b, 9), dot(true, true).wrapping_add(9));
                assert_eq!(dp4a::<false, true>(a, b, 0), dot(false, true));
                assert_eq!(dp4a::<true, false>(a, b, 0), dot(true, false));
                assert_eq!(dp4a::<false, false>(a, b, 0), dot(false, false));
                let h = halves(a, true);
                let y = bytes(b, false);
                let low = (h[0] * y[0] + h[1] * y[1]) as u32;
                let high = (h[0] * y[2] + h[1] * y[3]) as u32;
                assert_eq!(dp2a::<true, false, false>(a, b, 1), low.wrapping_add(1));
                assert_eq!(dp2a::<true, false, true>(a, b, 0), high);
            }
        }
    }

    #[test]
    fn lanes_do_not_leak() {
        assert_eq!(u16x2::add(0x0001_ffff, 0x0001_0001), 0x0002_0000);
        assert_eq!(u16x2::sub(0x0001_0000, 0x0000_0001), 0x0001_ffff);
        assert_eq!(s16x2::add_sat(0x7fff_8000, 0x0001_ffff), 0x7fff_8000);
        assert_eq!(u16x2::add_sat(0xffff_0001, 0x0001_0001), 0xffff_0002);
        assert_eq!(s16x2::min(0xffff_0001, 0x0001_ffff), 0xffff_ffff);
        assert_eq!(u16x2::max(0xffff_0001, 0x0001_ffff), 0xffff_ffff);
        assert_eq!(s16x2::max(0xffff_0001, 0x0001_ffff), 0x0001_0001);
        assert_eq!(relu_s16x2(0xffff_7fff), 0x0000_7fff);
        assert_eq!(relu_s32(0x8000_0000), 0);
        assert_eq!(relu_s32(9), 9);
        assert_eq!(u8x4::add(0xff01_7f80, 0x01ff_0180), 0x0000_8000);
        assert_eq!(s8x4::add_sat(0xff01_7f80, 0x01ff_0180), 0x0000_7f80);
        assert_eq!(s8x4::neg(0x0180_ff00), 0xff80_0100);
        assert_eq!(s8x4::min(0xff01_7f80, 0x01ff_0180), 0xffff_0180);
        assert_eq!(u8x4::sub_sat(0x0102_0304, 0x0201_0403), 0x0001_0001);
    }
}
