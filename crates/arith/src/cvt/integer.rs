//! Integer to integer, with and without saturation, and `cvt.pack`.

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntType {
    bits: u32,
    signed: bool,
}

#[allow(missing_docs)]
impl IntType {
    pub const U8: IntType = IntType {
        bits: 8,
        signed: false,
    };
    pub const S8: IntType = IntType {
        bits: 8,
        signed: true,
    };
    pub const U16: IntType = IntType {
        bits: 16,
        signed: false,
    };
    pub const S16: IntType = IntType {
        bits: 16,
        signed: true,
    };
    pub const U32: IntType = IntType {
        bits: 32,
        signed: false,
    };
    pub const S32: IntType = IntType {
        bits: 32,
        signed: true,
    };
    pub const U64: IntType = IntType {
        bits: 64,
        signed: false,
    };
    pub const S64: IntType = IntType {
        bits: 64,
        signed: true,
    };
}

impl IntType {
    /// How wide it is.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Whether it has negative numbers.
    #[inline(always)]
    pub const fn is_signed(self) -> bool {
        self.signed
    }

    /// The smallest number, exact.
    #[inline(always)]
    pub const fn min(self) -> i128 {
        if self.signed {
            -1 << (self.bits - 1)
        } else {
            0
        }
    }

    /// The largest number, exact.
    #[inline(always)]
    pub const fn max(self) -> i128 {
        (1 << (self.bits - self.signed as u32)) - 1
    }

    /// The low bits of `a`, read as this type and extended to 64 bits.
    #[inline(always)]
    pub const fn extend(self, a: u64) -> u64 {
        let spare = 64 - self.bits;
        if self.signed {
            (((a << spare) as i64) >> spare) as u64
        } else {
            (a << spare) >> spare
        }
    }

    /// The number that the low bits of `a` are.
    #[inline(always)]
    pub const fn value(self, a: u64) -> i128 {
        let wide = self.extend(a);
        if self.signed {
            wide as i64 as i128
        } else {
            wide as i128
        }
    }

    /// The bits of this type, the rest zero.
    #[inline(always)]
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

/// `cvt` between integers. The result is extended to 64 bits as the destination
/// type says, which is what a wider register receives.
#[inline(always)]
pub fn convert(from: IntType, to: IntType, a: u64) -> u64 {
    to.extend(from.extend(a))
}

/// `cvt.sat` between integers: clamped to the destination's range, and extended
/// as in [`convert`].
#[inline(always)]
pub fn convert_sat(from: IntType, to: IntType, a: u64) -> u64 {
    from.value(a).clamp(to.min(), to.max()) as u64
}

/// `cvt.pack.sat` with fields of `bits` (16, 8, 4 or 2): `a` and `b`, read as
/// `s32` and clamped to the field, above which `c` is shifted in: `c:a:b`. For 16
/// bits PTX has no `c`; pass zero. Other widths count as the nearest of 1 to 16.
#[inline(always)]
pub fn pack_sat(bits: u32, signed: bool, a: u32, b: u32, c: u32) -> u32 {
    let bits = bits.clamp(1, 16);
    let field = IntType { bits, signed };
    let narrow = |v: u32| {
        let clamped = (v as i32 as i64).clamp(field.min() as i64, field.max() as i64);
        (clamped as u64 & field.mask()) as u32
    };
    let above = if bits < 16 { c << (2 * bits) } else { 0 };
    above | narrow(a) << bits | narrow(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::ints64;

    const ALL: [IntType; 8] = [
        IntType::U8,
        IntType::S8,
        IntType::U16,
        IntType::S16,
        IntType::U32,
        IntType::S32,
        IntType::U64,
        IntType::S64,
    ];

    #[test]
    fn saturation_is_the_nearest_number_of_the_type() {
        for from in ALL {
            for to in ALL {
                for a in ints64() {
                    let value = from.value(a);
                    let got = to.value(convert_sat(from, to, a));
                    assert_eq!(
                        got,
                        value.max(to.min()).min(to.max()),
                        "{from:?} {to:?} {a:#x}"
                    );
                    let plain = convert(from, to, a);
                    assert_eq!(to.value(plain), {
                        let m = (value & i128::from(to.mask())) as u64;
                        to.value(m)
                    });
                }
            }
        }
    }

    #[test]
    fn extension_and_truncation() {
        assert_eq!(
            convert(IntType::S8, IntType::S64, 0x80),
            0xffff_ffff_ffff_ff80
        );
        assert_eq!(convert(IntType::U8, IntType::S64, 0x80), 0x80);
        assert_eq!(convert(IntType::U32, IntType::S8, 0x1ff), u64::MAX);
        assert_eq!(convert(IntType::S32, IntType::U16, 0xffff_ffff), 0xffff);
        assert_eq!(convert_sat(IntType::S32, IntType::U8, 0xffff_ffff), 0);
        assert_eq!(
            convert_sat(IntType::U32, IntType::S32, 0xffff_ffff),
            0x7fff_ffff
        );
        assert_eq!(
            convert_sat(IntType::S16, IntType::S8, 0x8000),
            (-128i64) as u64
        );
        assert_eq!(
            convert_sat(IntType::U64, IntType::S64, u64::MAX),
            i64::MAX as u64
        );
    }

    #[test]
    fn packing() {
        assert_eq!(pack_sat(16, true, 40000, -40000i32 as u32, 0), 0x7fff_8000);
        assert_eq!(pack_sat(16, false, 70000, -1i32 as u32, 0), 0xffff_0000);
        assert_eq!(pack_sat(8, false, 300, 7, 0x1234), 0x1234_ff07);
        assert_eq!(
            pack_sat(8, true, -200i32 as u32, 200, 0xabcd_1234),
            0x1234_807f
        );
        assert_eq!(pack_sat(4, true, 7, -9i32 as u32, 0x00ff_ffff), 0xffff_ff78);
        assert_eq!(pack_sat(4, false, 20, 3, 0), 0xf3);
        assert_eq!(pack_sat(0, false, 5, 0, 1), pack_sat(1, false, 5, 0, 1));
        assert_eq!(pack_sat(99, true, 1, 2, 3), pack_sat(16, true, 1, 2, 3));
        assert_eq!(pack_sat(2, true, 5, -7i32 as u32, 0x0fff_ffff), 0xffff_fff6);
    }
}
