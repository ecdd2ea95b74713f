//! Logic, bit fields, and counting bits.
//!
//! `and`, `or`, `xor` and `not` are Rust's own operators and are not repeated.

/// `cnot`: one if `a` is zero, else zero.
#[inline(always)]
pub fn cnot32(a: u32) -> u32 {
    (a == 0) as u32
}

/// `cnot.b16`.
#[inline(always)]
pub fn cnot16(a: u16) -> u16 {
    (a == 0) as u16
}

/// `cnot.b64`.
#[inline(always)]
pub fn cnot64(a: u64) -> u64 {
    (a == 0) as u64
}

/// `lop3.b32`: any function of three bits, as its truth table. Bit `4a+2b+c` of
/// `lut` is the result for those inputs.
#[inline(always)]
pub fn lop3(a: u32, b: u32, c: u32, lut: u8) -> u32 {
    // A tree of multiplexers over masks that do not depend on the lane.
    let all = |bit: u32| 0u32.wrapping_sub((lut as u32 >> bit) & 1);
    let pick = |select: u32, one: u32, zero: u32| zero ^ (select & (one ^ zero));
    let b0 = |base: u32| pick(c, all(base + 1), all(base));
    let low = pick(b, b0(2), b0(0));
    let high = pick(b, b0(6), b0(4));
    pick(a, high, low)
}

/// `popc.b32`.
#[inline(always)]
pub fn popc32(a: u32) -> u32 {
    a.count_ones()
}

/// `popc.b64`.
#[inline(always)]
pub fn popc64(a: u64) -> u32 {
    a.count_ones()
}

/// `clz.b32`: 32 for zero.
#[inline(always)]
pub fn clz32(a: u32) -> u32 {
    a.leading_zeros()
}

/// `clz.b64`: 64 for zero.
#[inline(always)]
pub fn clz64(a: u64) -> u32 {
    a.leading_zeros()
}

/// `brev.b32`.
#[inline(always)]
pub fn brev32(a: u32) -> u32 {
    a.reverse_bits()
}

/// `brev.b64`.
#[inline(always)]
pub fn brev64(a: u64) -> u64 {
    a.reverse_bits()
}

/// `bfind.u32`: the position of the highest one, all ones if there is none.
/// With `SHIFTAMT`, the left shift that brings it to the top instead.
#[inline(always)]
pub fn bfind_u32<const SHIFTAMT: bool>(a: u32) -> u32 {
    match (a, SHIFTAMT) {
        (0, _) => u32::MAX,
        (_, true) => a.leading_zeros(),
        (_, false) => 31 - a.leading_zeros(),
    }
}

/// `bfind.s32`: as [`bfind_u32`], but of a negative number the highest zero.
#[inline(always)]
pub fn bfind_s32<const SHIFTAMT: bool>(a: u32) -> u32 {
    bfind_u32::<SHIFTAMT>(a ^ ((a as i32) >> 31) as u32)
}

/// `bfind.u64`.
#[inline(always)]
pub fn bfind_u64<const SHIFTAMT: bool>(a: u64) -> u32 {
    match (a, SHIFTAMT) {
        (0, _) => u32::MAX,
        (_, true) => a.leading_zeros(),
        (_, false) => 63 - a.leading_zeros(),
    }
}

/// `bfind.s64`.
#[inline(always)]
pub fn bfind_s64<const SHIFTAMT: bool>(a: u64) -> u32 {
    bfind_u64::<SHIFTAMT>(a ^ ((a as i64) >> 63) as u64)
}

/// `fns.b32`: the position of the `|offset|`-th set bit of `mask`, counted from
/// bit `base` upwards (or downwards if `offset` is negative); all ones if there
/// is none. With `offset` zero, `base` itself if that bit is set.
#[inline]
pub fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    if base >= 32 {
        return u32::MAX;
    }
    let (mut left, mut found) = match offset {
        0 => (mask & (1 << base), 0),
        1.. => (mask & (u32::MAX << base), offset as u32 - 1),
        _ => (mask & (u32::MAX >> (31 - base)), offset.unsigned_abs() - 1),
    };
    while left != 0 {
        let bit = if offset < 0 {
            31 - left.leading_zeros()
        } else {
            left.trailing_zeros()
        };
        if found == 0 {
            return bit;
        }
        left &= !(1 << bit);
        found -= 1;
    }
    u32::MAX
}

macro_rules! fields {
    ($bfe_u:ident, $bfe_s:ident, $bfi:ident, $bits:ident, $int:ident, $name:literal, $counts:literal, $which:literal) => {
        #[doc = concat!("`bfe.u", $name, "`: `len` bits of `a` from bit `pos`, zero-extended. ",
                                 $which, " of `pos` and `len` count.")]
        #[inline(always)]
        pub fn $bfe_u(a: $bits, pos: u32, len: u32) -> $bits {
            let (pos, len) = (pos & $counts, len & $counts);
            let field = if pos < $bits::BITS { a >> pos } else { 0 };
            if len < $bits::BITS { field & !($bits::MAX << len) } else { field }
        }

        #[doc = concat!("`bfe.s", $name, "`: as `bfe.u", $name, "`, but filled above the field with its ",
                                 "top bit, or with the top bit of `a` where the field reaches past it.")]
        #[inline(always)]
        pub fn $bfe_s(a: $bits, pos: u32, len: u32) -> $bits {
            const MSB: u32 = $bits::BITS - 1;
            let (pos, len) = (pos & $counts, len & $counts);
            let field = ((a as $int) >> if pos < MSB { pos } else { MSB }) as $bits;
            let spare = $bits::BITS - if len < $bits::BITS { len } else { $bits::BITS };
            match len {
                0 => 0,
                _ => (((field << spare) as $int) >> spare) as $bits,
            }
        }

        #[doc = concat!("`bfi.b", $name, "`: `b` with `len` of its bits from bit `pos` replaced by the ",
                                 "low bits of `a`. ", $which, " of `pos` and `len` count.")]
        #[inline(always)]
        pub fn $bfi(a: $bits, b: $bits, pos: u32, len: u32) -> $bits {
            let (pos, len) = (pos & $counts, len & $counts);
            if pos >= $bits::BITS {
                return b;
            }
            let ones = if len < $bits::BITS { !($bits::MAX << len) } else { $bits::MAX };
            (b & !(ones << pos)) | ((a & ones) << pos)
        }
    };
}

// The ISA says that the low eight bits count in both widths. The assembler makes the
// 64-bit forms of clamping shifts that look at all bits, and so an H200 answers.
fields!(
    bfe_u32,
    bfe_s32,
    bfi_b32,
    u32,
    i32,
    "32",
    0xff,
    "Only the low eight bits"
);
fields!(
    bfe_u64,
    bfe_s64,
    bfi_b64,
    u64,
    i64,
    "64",
    0xffff_ffff,
    "All bits"
);

/// `bmsk.wrap` (`CLAMP` false) and `bmsk.clamp`: `len` ones from bit `pos`.
#[inline(always)]
pub fn bmsk<const CLAMP: bool>(pos: u32, len: u32) -> u32 {
    let (at, width) = (pos & 31, len & 31);
    let reaches_top = at + width >= 32 || (CLAMP && (pos >= 32 || len >= 32));
    let from = if CLAMP && pos >= 32 {
        0
    } else {
        u32::MAX << at
    };
    let above = if reaches_top {
        0
    } else {
        u32::MAX << (at + width)
    };
    from & !above
}

/// `szext.wrap.u32` (`CLAMP` false) and `szext.clamp.u32`: the low `n` bits of
/// `a`, zero-extended.
#[inline(always)]
pub fn szext_u32<const CLAMP: bool>(a: u32, n: u32) -> u32 {
    if CLAMP && n >= 32 {
        a
    } else {
        a & !(u32::MAX << (n & 31))
    }
}

/// `szext.wrap.s32` and `szext.clamp.s32`: the low `n` bits of `a`,
/// sign-extended. Of no bits, zero.
#[inline(always)]
pub fn szext_s32<const CLAMP: bool>(a: u32, n: u32) -> u32 {
    let spare = 32 - (n & 31);
    if CLAMP && n >= 32 {
        a
    } else if spare == 32 {
        0
    } else {
        (((a << spare) as i32) >> spare) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{ints32, ints64};

    /// The ISA's own bit-by-bit definition, with all bits of `pos` and `len` counting in 64 bits.
    fn bfe_model(a: u64, width: u32, pos: u32, len: u32, signed: bool) -> u64 {
        let counts = if width == 32 { 0xff } else { u32::MAX };
        let (pos, len, msb) = (pos & counts, len & counts, width - 1);
        let sign = if !signed || len == 0 {
            0
        } else {
            (a >> msb.min(pos + len - 1)) & 1
        };
        (0..width).fold(0, |d, i| {
            let bit = if i < len && pos + i <= msb {
                (a >> (pos + i)) & 1
            } else {
                sign
            };
            d | bit << i
        })
    }

    #[test]
    fn fields_agree_with_the_bitwise_definition() {
        let places = [0, 1, 5, 8, 31, 32, 33, 60, 63, 64, 65, 200, 255, 256, 0x105];
        for pos in places {
            for len in places {
                for a in ints32() {
                    let wide = a as u64;
                    assert_eq!(
                        bfe_u32(a, pos, len) as u64,
                        bfe_model(wide, 32, pos, len, false)
                    );
                    assert_eq!(
                        bfe_s32(a, pos, len) as u64,
                        bfe_model(wide, 32, pos, len, true)
                    );
                    let into = 0xa5a5_0ff0;
                    let model = (0..32).fold(into, |f, i| {
                        let (p, n) = (pos & 0xff, len & 0xff);
                        if i < n && p + i < 32 {
                            (f & !(1 << (p + i))) | ((a >> i) & 1) << (p + i)
                        } else {
                            f
                        }
                    });
                    assert_eq!(bfi_b32(a, into, pos, len), model, "{a:#x} {pos} {len}");
                }
                for a in ints64() {
                    assert_eq!(bfe_u64(a, pos, len), bfe_model(a, 64, pos, len, false));
                    assert_eq!(bfe_s64(a, pos, len), bfe_model(a, 64, pos, len, true));
                }
            }
        }
        assert_eq!(bfi_b64(0xff, 0, 60, 8), 0xf << 60);
        assert_eq!(bfi_b64(0xff, 7, 64, 8), 7);
        assert_eq!(bfi_b64(0xff, 7, 256, 4), 7);
        assert_eq!(bfe_u64(u64::MAX, 256, 4), 0);
        assert_eq!(bfi_b64(5, u64::MAX, 0, 64), 5);
    }

    #[test]
    fn lop3_is_its_truth_table() {
        let (a, b, c) = (0xf0f0_f0f0, 0xcccc_cccc, 0xaaaa_aaaa);
        for lut in 0..=255u8 {
            assert_eq!(lop3(a, b, c, lut), u32::from(lut) * 0x0101_0101, "{lut:#x}");
        }
        assert_eq!(lop3(3, 5, 9, 0x96), 3 ^ 5 ^ 9);
        assert_eq!(lop3(3, 5, 9, 0xe8), (3 & 5) | (5 & 9) | (3 & 9));
    }

    #[test]
    fn finding_bits() {
        assert_eq!(bfind_u32::<false>(0), u32::MAX);
        assert_eq!(bfind_u32::<true>(0), u32::MAX);
        assert_eq!(bfind_u32::<false>(0x8000_0000), 31);
        assert_eq!(bfind_u32::<true>(1), 31);
        assert_eq!(bfind_s32::<false>(u32::MAX), u32::MAX);
        assert_eq!(bfind_s32::<false>(0xffff_fffe), 0);
        assert_eq!(bfind_s32::<true>(0x8000_0000), 1);
        assert_eq!(bfind_u64::<false>(1 << 40), 40);
        assert_eq!(bfind_s64::<false>(!(1 << 40)), 40);
        assert_eq!(bfind_s64::<true>(0), u32::MAX);
        assert_eq!((cnot16(0), cnot32(4), cnot64(0)), (1, 0, 1));
        assert_eq!((popc32(0xf0f), popc64(u64::MAX)), (8, 64));
        assert_eq!((clz32(0), clz64(0), clz32(1)), (32, 64, 31));
        assert_eq!((brev32(1), brev64(1)), (1 << 31, 1 << 63));
    }

    /// The ISA's loop.
    fn fns_model(mask: u32, base: u32, offset: i32) -> u32 {
        if offset == 0 {
            return if base < 32 && mask >> base & 1 == 1 {
                base
            } else {
                u32::MAX
            };
        }
        let (mut pos, mut count) = (base as i64, offset.unsigned_abs() - 1);
        while (0..32).contains(&pos) {
            if mask >> pos & 1 == 1 {
                if count == 0 {
                    return pos as u32;
                }
                count -= 1;
            }
            pos += i64::from(offset.signum());
        }
        u32::MAX
    }

    #[test]
    fn nth_set_bit_agrees_with_the_loop() {
        for mask in ints32() {
            for base in [0, 1, 15, 30, 31, 32, 100] {
                for offset in [-33, -32, -3, -1, 0, 1, 2, 8, 32, 33, i32::MIN, i32::MAX] {
                    assert_eq!(fns(mask, base, offset), fns_model(mask, base, offset));
                }
            }
        }
    }

    #[test]
    fn masks_and_extension() {
        assert_eq!(bmsk::<true>(4, 8), 0xff0);
        assert_eq!(bmsk::<true>(28, 8), 0xf000_0000);
        assert_eq!(bmsk::<true>(0, 32), u32::MAX);
        assert_eq!(bmsk::<true>(32, 4), 0);
        assert_eq!(bmsk::<true>(3, 0), 0);
        assert_eq!(bmsk::<false>(36, 8), 0xff0);
        assert_eq!(bmsk::<false>(4, 32), 0);
        assert_eq!(szext_u32::<true>(0xffff_ffff, 8), 0xff);
        assert_eq!(szext_u32::<true>(0xffff_ffff, 40), 0xffff_ffff);
        assert_eq!(szext_u32::<false>(0xffff_ffff, 40), 0xff);
        assert_eq!(szext_s32::<true>(0x80, 8), 0xffff_ff80);
        assert_eq!(szext_s32::<true>(0x7f, 8), 0x7f);
        assert_eq!(szext_s32::<false>(0x7f, 32), 0);
        assert_eq!(szext_s32::<true>(0x7f, 32), 0x7f);
        assert_eq!(szext_u32::<false>(5, 0), 0);
    }
}
