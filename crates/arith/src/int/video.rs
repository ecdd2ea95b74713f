//! The scalar video instructions: `vadd`, `vsub`, `vabsdiff`, `vmin`, `vmax`,
//! `vshl`, `vshr`, `vset` and `vmad`.
//!
//! Each selects a word, half or byte of its operands, extends it by the operand's
//! type, computes without overflow, saturates if asked, and then either combines
//! the result with `c` or merges it into a part of `c`.
//!
//! No GPU since Maxwell has these instructions; ptxas spells them out in others, and
//! what it writes is what every GPU answers (measured on an H200). It departs from the
//! manual's pseudo code in three corners, and so does this module:
//!
//! - `.sat` into a byte or half compares without a sign: a negative result becomes the
//!   part's *greatest* value (`0x7f`, `0xff`, `0x7fff`, `0xffff`), not its least.
//! - `vshl` and `vshr` saturate to 32 bits, whatever part the result is merged into, and
//!   `vshl` keeps 34 bits before it does so.
//! - `.min` and `.max` with `c` see the result cut to 32 bits; of a `.u32` they take one
//!   with bit 31 set to be greater than any `c`.
//!
//! Into `.h1` goes the lower half of the result, as the manual says and ptxas 13.4 does; the
//! assembler in the driver of CUDA 13.0 takes the upper half.

use super::IntCmp;

/// A part of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Part {
    /// All of it: no selector.
    Word,
    H0,
    H1,
    B0,
    B1,
    B2,
    B3,
}

impl Part {
    const fn shift(self) -> u32 {
        match self {
            Part::Word | Part::H0 | Part::B0 => 0,
            Part::B1 => 8,
            Part::H1 | Part::B2 => 16,
            Part::B3 => 24,
        }
    }

    const fn bits(self) -> u32 {
        match self {
            Part::Word => 32,
            Part::H0 | Part::H1 => 16,
            _ => 8,
        }
    }

    /// The part of a register, extended.
    #[inline(always)]
    const fn select(self, a: u32, signed: bool) -> i64 {
        let spare = 32 - self.bits();
        let top = (a >> self.shift()) << spare;
        if signed {
            ((top as i32) >> spare) as i64
        } else {
            (top >> spare) as i64
        }
    }

    /// What `.sat` makes of a sum, difference or choice that goes into this part.
    const fn saturate(self, x: i128, signed: bool) -> i128 {
        match self {
            Part::Word => Part::Word.clamp(x, signed),
            // The comparison is of 64 bits without a sign.
            _ if x < 0 => self.clamp(i128::MAX, signed),
            _ => self.clamp(x, signed),
        }
    }

    /// The nearest value that a destination part can hold.
    const fn clamp(self, x: i128, signed: bool) -> i128 {
        let (low, high) = if signed {
            (
                -(1i128 << (self.bits() - 1)),
                (1i128 << (self.bits() - 1)) - 1,
            )
        } else {
            (0, (1i128 << self.bits()) - 1)
        };
        if x < low {
            low
        } else if x > high {
            high
        } else {
            x
        }
    }

    /// `c` with this part replaced.
    #[inline(always)]
    const fn merge(self, x: u32, c: u32) -> u32 {
        let mask = (u32::MAX >> (32 - self.bits())) << self.shift();
        (c & !mask) | ((x << self.shift()) & mask)
    }
}

/// A source operand: which part of the register, and whether it is `.s32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VideoOperand {
    /// The selector.
    pub part: Part,
    /// The type.
    pub signed: bool,
}

/// What happens with the result and `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Nothing: there is no `c`.
    Plain,
    /// `.add`: the sum with `c`.
    Add,
    /// `.min`: the lesser of it and `c`.
    Min,
    /// `.max`: the greater of it and `c`.
    Max,
    /// `d.SEL`: the result replaces a part of `c`.
    Merge(Part),
}

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `vadd`
    Add,
    /// `vsub`
    Sub,
    /// `vabsdiff`
    AbsDiff,
    /// `vmin`
    Min,
    /// `vmax`
    Max,
    /// `vshl.clamp`; `b` is unsigned
    ShlClamp,
    /// `vshl.wrap`
    ShlWrap,
    /// `vshr.clamp`
    ShrClamp,
    /// `vshr.wrap`
    ShrWrap,
    /// `vset`: one or zero
    Set(IntCmp),
}

/// All but `vmad`: one scalar video instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Video {
    /// The operation.
    pub op: Op,
    /// How `a` is read.
    pub a: VideoOperand,
    /// How `b` is read.
    pub b: VideoOperand,
    /// Whether `d` (and so `c`) is `.s32`; of `vset` it is not.
    pub signed: bool,
    /// `.sat`
    pub sat: bool,
    /// The secondary operation.
    pub combine: Combine,
}

impl Video {
    /// The result for one lane.
    #[inline]
    pub fn run(&self, a: u32, b: u32, c: u32) -> u32 {
        let x = i128::from(self.a.part.select(a, self.a.signed));
        let y = i128::from(self.b.part.select(b, self.b.signed));
        let clamped = y.clamp(0, 32) as u32;
        let wrapped = y as u32 & 31;
        let result = match self.op {
            Op::Add => x + y,
            Op::Sub => x - y,
            Op::AbsDiff => (x - y).abs(),
            Op::Min => x.min(y),
            Op::Max => x.max(y),
            Op::ShlClamp => x << clamped,
            Op::ShlWrap => x << wrapped,
            Op::ShrClamp => x >> clamped,
            Op::ShrWrap => x >> wrapped,
            Op::Set(cmp) => i128::from(match cmp {
                IntCmp::Eq => x == y,
                IntCmp::Ne => x != y,
                IntCmp::Lt => x < y,
                IntCmp::Le => x <= y,
                IntCmp::Gt => x > y,
                IntCmp::Ge => x >= y,
            }),
        };
        let part = match self.combine {
            Combine::Merge(part) => part,
            _ => Part::Word,
        };
        let result = match (self.sat, self.op) {
            (false, _) => result,
            (true, Op::ShlClamp | Op::ShlWrap | Op::ShrClamp | Op::ShrWrap) => {
                let spare = 128 - 34;
                Part::Word.clamp((result << spare) >> spare, self.signed)
            }
            (true, _) => part.saturate(result, self.signed),
        } as u32;
        match self.combine {
            Combine::Plain => result,
            Combine::Add => result.wrapping_add(c),
            Combine::Min if self.exceeds(result, c) => c,
            Combine::Max if self.exceeds(result, c) => result,
            Combine::Min => result,
            Combine::Max => c,
            Combine::Merge(part) => part.merge(result, c),
        }
    }

    /// Whether `.min` and `.max` take the result to be greater than `c`.
    const fn exceeds(&self, result: u32, c: u32) -> bool {
        let wide = result as i32 as i64;
        if self.signed {
            wide > c as i32 as i64
        } else {
            wide as u64 > c as u64
        }
    }
}

/// `vmad`: a scaled multiply-add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoMad {
    /// How `a` is read.
    pub a: VideoOperand,
    /// How `b` is read.
    pub b: VideoOperand,
    /// Whether exactly one of `a` and `b` is negated.
    pub negate_product: bool,
    /// Whether `c` is negated.
    pub negate_c: bool,
    /// `.po`: plus one.
    pub plus_one: bool,
    /// `.shr7` and `.shr15`; zero for none.
    pub shift: u32,
    /// `.sat`
    pub sat: bool,
}

impl VideoMad {
    /// The result for one lane.
    #[inline]
    pub fn run(&self, a: u32, b: u32, c: u32) -> u32 {
        let signed = self.a.signed || self.b.signed || self.negate_product || self.negate_c;
        let product = i128::from(self.a.part.select(a, self.a.signed))
            * i128::from(self.b.part.select(b, self.b.signed));
        // Negation is the complement plus one, the one being that of `.po`.
        let negative = !self.plus_one;
        let (product, c, one) = match (negative && self.negate_product, negative && self.negate_c) {
            (true, _) => (!product, c, 1),
            (_, true) => (product, !c, 1),
            _ => (product, c, i128::from(self.plus_one)),
        };
        let sum = product + i128::from(Part::Word.select(c, signed)) + one;
        let result = sum >> self.shift.min(127);
        if self.sat {
            Part::Word.clamp(result, signed) as u32
        } else {
            result as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: VideoOperand = VideoOperand {
        part: Part::Word,
        signed: false,
    };
    const S: VideoOperand = VideoOperand {
        part: Part::Word,
        signed: true,
    };

    fn video(op: Op, a: VideoOperand, b: VideoOperand, signed: bool) -> Video {
        Video {
            op,
            a,
            b,
            signed,
            sat: false,
            combine: Combine::Plain,
        }
    }

    #[test]
    fn parts_are_extended_by_their_type() {
        let byte = |signed| VideoOperand {
            part: Part::B2,
            signed,
        };
        let half = |signed| VideoOperand {
            part: Part::H1,
            signed,
        };
        let run = |a, b| video(Op::Add, a, b, true).run(0x8080_8080, 0xffff_0000, 0);
        assert_eq!(run(byte(false), half(true)), 127);
        assert_eq!(run(byte(true), half(true)), -129i32 as u32);
        assert_eq!(run(byte(true), half(false)), 65535 - 128);
        assert_eq!(run(U, S), 0x8080_8080u32.wrapping_add(0xffff_0000));
    }

    #[test]
    fn arithmetic_is_exact_before_saturation() {
        let sat = |op, a, b, signed| Video {
            sat: true,
            ..video(op, a, b, signed)
        };
        assert_eq!(
            sat(Op::Add, U, U, false).run(0xffff_ffff, 5, 0),
            0xffff_ffff
        );
        assert_eq!(sat(Op::Add, U, U, true).run(0xffff_ffff, 5, 0), 0x7fff_ffff);
        assert_eq!(sat(Op::Sub, U, U, false).run(3, 5, 0), 0);
        assert_eq!(sat(Op::Sub, U, U, true).run(3, 5, 0), -2i32 as u32);
        assert_eq!(
            video(Op::AbsDiff, S, S, false).run(0x8000_0000, 0x7fff_ffff, 0),
            0xffff_ffff
        );
        assert_eq!(
            video(Op::Min, S, U, true).run(0xffff_ffff, 1, 0),
            0xffff_ffff
        );
        assert_eq!(video(Op::Max, S, U, true).run(0xffff_ffff, 1, 0), 1);
        assert_eq!(video(Op::Min, U, U, true).run(0xffff_ffff, 1, 0), 1);
    }

    #[test]
    fn shifts() {
        assert_eq!(video(Op::ShlClamp, U, U, false).run(1, 40, 0), 0);
        assert_eq!(video(Op::ShlWrap, U, U, false).run(1, 40, 0), 256);
        assert_eq!(
            video(Op::ShrClamp, S, U, true).run(0x8000_0000, 40, 0),
            0xffff_ffff
        );
        assert_eq!(
            video(Op::ShrWrap, U, U, false).run(0x8000_0000, 40, 0),
            0x0080_0000
        );
        let sat = Video {
            sat: true,
            ..video(Op::ShlClamp, U, U, false)
        };
        assert_eq!(sat.run(3, 31, 0), 0xffff_ffff);
    }

    #[test]
    fn secondary_operations() {
        let with = |combine, signed| Video {
            combine,
            ..video(Op::Sub, S, S, signed)
        };
        assert_eq!(with(Combine::Add, true).run(5, 7, 10), 8);
        assert_eq!(with(Combine::Min, true).run(5, 7, 10), -2i32 as u32);
        assert_eq!(with(Combine::Max, true).run(5, 7, 0xffff_ffff), 0xffff_ffff);
        assert_eq!(
            with(Combine::Merge(Part::B1), true).run(5, 7, 0x1122_3344),
            0x1122_fe44
        );
        assert_eq!(
            with(Combine::Merge(Part::H1), true).run(5, 7, 0x1122_3344),
            0xfffe_3344
        );
        let sat = Video {
            sat: true,
            ..with(Combine::Merge(Part::B0), true)
        };
        assert_eq!(sat.run(500, 7, 0x1122_3344), 0x1122_337f);
        assert_eq!(sat.run(12, 7, 0x1122_3344), 0x1122_3305);
        let set = |cmp| Video {
            combine: Combine::Add,
            ..video(Op::Set(cmp), S, U, false)
        };
        assert_eq!(set(IntCmp::Lt).run(0xffff_ffff, 0, 10), 11);
        assert_eq!(set(IntCmp::Ge).run(0xffff_ffff, 0, 10), 10);
        assert_eq!(set(IntCmp::Eq).run(4, 4, 10), 11);
        assert_eq!(set(IntCmp::Ne).run(4, 4, 10), 10);
        assert_eq!(set(IntCmp::Le).run(4, 4, 0), 1);
        assert_eq!(set(IntCmp::Gt).run(4, 4, 0), 0);
    }

    /// What ptxas's code gives for what the manual would have clamped to the least value.
    #[test]
    fn negative_results_that_are_merged_saturate_upwards() {
        let sat = |op, part, signed| Video {
            sat: true,
            combine: Combine::Merge(part),
            ..video(op, S, S, signed)
        };
        let minus_two = |part, signed| sat(Op::Sub, part, signed).run(5, 7, 0x1122_3344);
        assert_eq!(minus_two(Part::B1, true), 0x1122_7f44);
        assert_eq!(minus_two(Part::B1, false), 0x1122_ff44);
        assert_eq!(minus_two(Part::H1, true), 0x7fff_3344);
        assert_eq!(minus_two(Part::H1, false), 0xffff_3344);
        let shift = |op, part| sat(op, part, true).run(-300i32 as u32, 0, 0);
        assert_eq!(shift(Op::ShrClamp, Part::B0), 0xd4);
        assert_eq!(shift(Op::ShlClamp, Part::B0), 0xd4);
        let wide = Video {
            sat: true,
            ..video(Op::ShlClamp, U, U, false)
        };
        assert_eq!(wide.run(7, 31, 0), 0, "bit 33 counts as the sign");
    }

    #[test]
    fn comparisons_with_c_see_32_bits() {
        let with = |combine, signed| Video {
            combine,
            ..video(Op::Add, U, U, signed)
        };
        assert_eq!(with(Combine::Max, true).run(0x7fff_ffff, 1, 3), 3);
        assert_eq!(
            with(Combine::Max, false).run(0x7fff_ffff, 1, 0xffff_ffff),
            0x8000_0000
        );
        assert_eq!(
            with(Combine::Min, false).run(0x7fff_ffff, 1, 0xffff_ffff),
            0xffff_ffff
        );
    }

    #[test]
    fn multiply_add() {
        let mad = VideoMad {
            a: U,
            b: U,
            negate_product: false,
            negate_c: false,
            plus_one: false,
            shift: 0,
            sat: false,
        };
        assert_eq!(mad.run(3, 4, 5), 17);
        assert_eq!(
            VideoMad {
                plus_one: true,
                ..mad
            }
            .run(3, 4, 5),
            18
        );
        assert_eq!(
            VideoMad {
                negate_product: true,
                ..mad
            }
            .run(3, 4, 5),
            -7i32 as u32
        );
        assert_eq!(
            VideoMad {
                negate_c: true,
                ..mad
            }
            .run(3, 4, 5),
            7
        );
        assert_eq!(VideoMad { shift: 7, ..mad }.run(1000, 1000, 0), 7812);
        assert_eq!(
            VideoMad { shift: 15, ..mad }.run(0xffff_ffff, 0xffff_ffff, 0),
            0xfffc_0000
        );
        assert_eq!(
            VideoMad { sat: true, ..mad }.run(0xffff_ffff, 2, 0),
            0xffff_ffff
        );
        assert_eq!(
            VideoMad {
                a: S,
                sat: true,
                ..mad
            }
            .run(0x8000_0000, 2, 0),
            0x8000_0000
        );
        assert_eq!(
            VideoMad {
                a: S,
                shift: 7,
                ..mad
            }
            .run(-129i32 as u32, 1, 0),
            -2i32 as u32
        );
    }
}
