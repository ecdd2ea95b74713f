//! The SIMD video instructions: `vadd2`, `vadd4` and their siblings.
//!
//! The elements of both sources are picked from the halves (or bytes) of `a` and
//! `b` together; the results either replace the elements of `c` that the mask
//! names, or are added to `c`.

use super::IntCmp;

/// What is computed in each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `vadd2`, `vadd4`
    Add,
    /// `vsub2`, `vsub4`
    Sub,
    /// `vavrg2`, `vavrg4`: halves are rounded away from zero.
    Average,
    /// `vabsdiff2`, `vabsdiff4`
    AbsDiff,
    /// `vmin2`, `vmin4`
    Min,
    /// `vmax2`, `vmax4`
    Max,
    /// `vset2`, `vset4`: one or zero
    Set(IntCmp),
}

/// One SIMD video instruction over `N` elements: 2 halves or 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoSimd<const N: usize> {
    /// The operation.
    pub op: Op,
    /// Which elements of `b:a` the first source is, lowest first. By default those
    /// of `a`.
    pub a_select: [u8; N],
    /// Which the second is. By default those of `b`.
    pub b_select: [u8; N],
    /// Whether the first source is `.s32`.
    pub a_signed: bool,
    /// Whether the second source is `.s32`.
    pub b_signed: bool,
    /// Whether `d` is `.s32`, which is where `.sat` clamps to.
    pub signed: bool,
    /// `.sat`
    pub sat: bool,
    /// `.add`: sum into `c` instead of replacing its elements.
    pub accumulate: bool,
    /// Which results are used, lowest first.
    pub mask: [bool; N],
}

impl<const N: usize> VideoSimd<N> {
    const BITS: u32 = match N {
        2 => 16,
        4 => 8,
        _ => panic!("a register has two halves or four bytes"),
    };

    /// The instruction without selectors, mask, saturation or accumulation.
    pub fn new(op: Op, a_signed: bool, b_signed: bool, signed: bool) -> VideoSimd<N> {
        VideoSimd {
            op,
            a_select: std::array::from_fn(|i| i as u8),
            b_select: std::array::from_fn(|i| (N + i) as u8),
            a_signed,
            b_signed,
            signed,
            sat: false,
            accumulate: false,
            mask: [true; N],
        }
    }

    #[inline(always)]
    fn element(pair: u64, index: u8, signed: bool) -> i32 {
        let spare = 32 - Self::BITS;
        let top = ((pair >> ((Self::BITS * u32::from(index)) & 63)) as u32) << spare;
        if signed {
            (top as i32) >> spare
        } else {
            (top >> spare) as i32
        }
    }

    /// The result for one lane.
    #[inline]
    pub fn run(&self, a: u32, b: u32, c: u32) -> u32 {
        let pair = u64::from(b) << 32 | u64::from(a);
        let ones = u32::MAX >> (32 - Self::BITS);
        let mut result = c;
        for i in 0..N {
            if !self.mask[i] {
                continue;
            }
            let x = Self::element(pair, self.a_select[i], self.a_signed);
            let y = Self::element(pair, self.b_select[i], self.b_signed);
            let value = match self.op {
                Op::Add => x + y,
                Op::Sub => x - y,
                Op::Average => (x + y + i32::from(x + y >= 0)) >> 1,
                Op::AbsDiff => (x - y).abs(),
                Op::Min => x.min(y),
                Op::Max => x.max(y),
                Op::Set(cmp) => i32::from(match cmp {
                    IntCmp::Eq => x == y,
                    IntCmp::Ne => x != y,
                    IntCmp::Lt => x < y,
                    IntCmp::Le => x <= y,
                    IntCmp::Gt => x > y,
                    IntCmp::Ge => x >= y,
                }),
            };
            let value = match (self.sat, self.signed) {
                (false, _) => value,
                (true, true) => value.clamp(-(1 << (Self::BITS - 1)), (1 << (Self::BITS - 1)) - 1),
                (true, false) => value.clamp(0, ones as i32),
            };
            if self.accumulate {
                result = result.wrapping_add(value as u32);
            } else {
                let shift = Self::BITS * i as u32;
                result = (result & !(ones << shift)) | (value as u32 & ones) << shift;
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_do_not_leak() {
        let add = VideoSimd::<4>::new(Op::Add, false, false, false);
        assert_eq!(add.run(0xff01_7f80, 0x01ff_0180, 0), 0x0000_8000);
        let sat = VideoSimd { sat: true, ..add };
        assert_eq!(sat.run(0xff01_7f80, 0x01ff_0180, 0), 0xffff_80ff);
        let signed = VideoSimd::<4> {
            sat: true,
            ..VideoSimd::new(Op::Add, true, true, true)
        };
        assert_eq!(signed.run(0x7f80_0101, 0x01ff_01ff, 0), 0x7f80_0200);
        let two = VideoSimd::<2>::new(Op::Sub, false, false, false);
        assert_eq!(two.run(0x0001_0000, 0x0000_0001, 0), 0x0001_ffff);
    }

    #[test]
    fn selection_masks_and_accumulation() {
        let add = VideoSimd::<2>::new(Op::Add, false, false, false);
        let crossed = VideoSimd {
            a_select: [3, 0],
            b_select: [1, 1],
            ..add
        };
        // Halves of b:a, counted from the lowest: 1, 2, 3, 4.
        assert_eq!(crossed.run(0x0002_0001, 0x0004_0003, 0), 0x0003_0006);
        let masked = VideoSimd {
            mask: [true, false],
            ..add
        };
        assert_eq!(
            masked.run(0x0002_0001, 0x0004_0003, 0xaaaa_bbbb),
            0xaaaa_0004
        );
        let sum = VideoSimd::<4> {
            accumulate: true,
            ..VideoSimd::new(Op::AbsDiff, false, false, false)
        };
        assert_eq!(sum.run(0x0102_0304, 0x0504_0302, 100), 100 + 4 + 2 + 2);
        let signed = VideoSimd::<4> {
            accumulate: true,
            ..VideoSimd::new(Op::Sub, true, true, true)
        };
        assert_eq!(signed.run(0x0000_00ff, 0x0000_0001, 10), 8);
    }

    #[test]
    fn averages_and_extremes() {
        let average = VideoSimd::<2>::new(Op::Average, true, true, true);
        assert_eq!(average.run(0xfffd_0003, 0x0000_0000, 0), 0xfffe_0002);
        let low = VideoSimd::<2>::new(Op::Min, true, true, true);
        assert_eq!(low.run(0xffff_0001, 0x0001_ffff, 0), 0xffff_ffff);
        let high = VideoSimd::<4>::new(Op::Max, false, false, false);
        assert_eq!(high.run(0xff01_0203, 0x0102_0301, 0), 0xff02_0303);
        let set = |cmp| {
            VideoSimd::<4>::new(Op::Set(cmp), false, false, false).run(0x0102_0304, 0x0202_0202, 0)
        };
        assert_eq!(set(IntCmp::Lt), 0x0100_0000);
        assert_eq!(set(IntCmp::Le), 0x0101_0000);
        assert_eq!(set(IntCmp::Eq), 0x0001_0000);
        assert_eq!(set(IntCmp::Ne), 0x0100_0101);
        assert_eq!(set(IntCmp::Gt), 0x0000_0101);
        assert_eq!(set(IntCmp::Ge), 0x0001_0101);
    }
}
