//! Comparing and classifying: `setp`, `set`, `testp`, and the choice of `slct`.

/// How `setp` and `set` compare floats. A trailing `u` (unordered) is true when
/// an operand is NaN; the others, except `Nan`, are false then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FloatCmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// Both are numbers.
    Num,
    /// At least one is NaN.
    Nan,
}

/// What `testp` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Test {
    Finite,
    Infinite,
    Number,
    NotANumber,
    /// Neither NaN, infinite nor subnormal. Zeros count as normal.
    Normal,
    Subnormal,
}

/// Compares native floats; every narrower type widens exactly to these. Pick
/// `op` outside the loop over lanes: with a constant it is one host comparison.
#[inline(always)]
pub fn compare_native<T: PartialOrd + Copy>(op: FloatCmp, a: T, b: T) -> bool {
    #[allow(clippy::eq_op)]
    let unordered = (a != a) | (b != b);
    match op {
        FloatCmp::Eq => a == b,
        // `!=` is true of NaN, which PTX calls `neu`.
        FloatCmp::Ne => (a != b) & !unordered,
        FloatCmp::Lt => a < b,
        FloatCmp::Le => a <= b,
        FloatCmp::Gt => a > b,
        FloatCmp::Ge => a >= b,
        FloatCmp::Equ => (a == b) | unordered,
        FloatCmp::Neu => a != b,
        FloatCmp::Ltu => (a < b) | unordered,
        FloatCmp::Leu => (a <= b) | unordered,
        FloatCmp::Gtu => (a > b) | unordered,
        FloatCmp::Geu => (a >= b) | unordered,
        FloatCmp::Num => !unordered,
        FloatCmp::Nan => unordered,
    }
}

/// `setp.f32`.
#[inline(always)]
pub fn compare_f32<const FTZ: bool>(op: FloatCmp, a: u32, b: u32) -> bool {
    let flush = super::f32::flush::<FTZ>;
    compare_native(op, f32::from_bits(flush(a)), f32::from_bits(flush(b)))
}

/// `setp.f64`.
#[inline(always)]
pub fn compare_f64(op: FloatCmp, a: u64, b: u64) -> bool {
    compare_native(op, f64::from_bits(a), f64::from_bits(b))
}

/// The part of `bits` that says how large it is, and the format's infinity.
#[inline(always)]
fn test(what: Test, magnitude: u64, infinity: u64, smallest_normal: u64) -> bool {
    match what {
        Test::Finite => magnitude < infinity,
        Test::Infinite => magnitude == infinity,
        Test::Number => magnitude <= infinity,
        Test::NotANumber => magnitude > infinity,
        Test::Normal => magnitude == 0 || (smallest_normal..infinity).contains(&magnitude),
        Test::Subnormal => magnitude != 0 && magnitude < smallest_normal,
    }
}

/// `testp.f32`.
#[inline(always)]
pub fn test_f32(what: Test, a: u32) -> bool {
    test(what, (a & 0x7fff_ffff).into(), 0x7f80_0000, 0x0080_0000)
}

/// `testp.f64`.
#[inline(always)]
pub fn test_f64(what: Test, a: u64) -> bool {
    test(what, a & !(1 << 63), 0x7ff << 52, 1 << 52)
}

/// Whether `slct` with an `f32` selector takes its first operand: at or above
/// zero, minus zero included; not for NaN.
#[inline(always)]
pub fn slct_first_f32<const FTZ: bool>(c: u32) -> bool {
    f32::from_bits(super::f32::flush::<FTZ>(c)) >= 0.0
}

/// Whether `slct` with an `s32` selector takes its first operand.
#[inline(always)]
pub fn slct_first_s32(c: u32) -> bool {
    c as i32 >= 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use FloatCmp::*;

    #[test]
    fn every_comparison_against_its_table() {
        // For each: on less, equal, greater, unordered.
        let table = [
            (Eq, [false, true, false, false]),
            (Ne, [true, false, true, false]),
            (Lt, [true, false, false, false]),
            (Le, [true, true, false, false]),
            (Gt, [false, false, true, false]),
            (Ge, [false, true, true, false]),
            (Equ, [false, true, false, true]),
            (Neu, [true, false, true, true]),
            (Ltu, [true, false, false, true]),
            (Leu, [true, true, false, true]),
            (Gtu, [false, false, true, true]),
            (Geu, [false, true, true, true]),
            (Num, [true, true, true, false]),
            (Nan, [false, false, false, true]),
        ];
        for (op, expect) in table {
            let pairs = [(1.0f32, 2.0f32), (-0.0, 0.0), (2.0, 1.0), (1.0, f32::NAN)];
            for ((a, b), expect) in pairs.into_iter().zip(expect) {
                assert_eq!(
                    compare_f32::<false>(op, a.to_bits(), b.to_bits()),
                    expect,
                    "{op:?} {a} {b}"
                );
                let (a, b) = (f64::from(a).to_bits(), f64::from(b).to_bits());
                assert_eq!(compare_f64(op, a, b), expect, "{op:?}");
            }
            let nan = f32::NAN.to_bits();
            assert_eq!(compare_f32::<false>(op, nan, nan), expect[3]);
        }
        assert!(compare_f32::<false>(Lt, 1, 2));
        assert!(compare_f32::<true>(Eq, 1, 0x8000_0002));
    }

    #[test]
    fn classes() {
        use Test::*;
        let all = [Finite, Infinite, Number, NotANumber, Normal, Subnormal];
        let rows = [
            (0u32, [true, false, true, false, true, false]),
            (0x8000_0000, [true, false, true, false, true, false]),
            (1, [true, false, true, false, false, true]),
            (0x807f_ffff, [true, false, true, false, false, true]),
            (0x0080_0000, [true, false, true, false, true, false]),
            (0xff7f_ffff, [true, false, true, false, true, false]),
            (0x7f80_0000, [false, true, true, false, false, false]),
            (0xff80_0001, [false, false, false, true, false, false]),
        ];
        for (bits, expect) in rows {
            for (what, expect) in all.into_iter().zip(expect) {
                assert_eq!(test_f32(what, bits), expect, "{what:?} {bits:#x}");
            }
        }
        assert!(
            test_f64(Subnormal, 5) && test_f64(Normal, 1 << 63) && !test_f64(Normal, 0x7ff << 52)
        );
        assert!(test_f64(NotANumber, (0x7ff << 52) | 1) && test_f64(Infinite, 0xfff << 52));
    }

    #[test]
    fn selection_by_sign() {
        assert!(slct_first_f32::<false>(0x8000_0000));
        assert!(!slct_first_f32::<false>(0x8000_0001));
        assert!(slct_first_f32::<true>(0x8000_0001));
        assert!(!slct_first_f32::<false>(super::super::NAN32));
        assert!(slct_first_s32(0) && !slct_first_s32(0x8000_0000));
    }
}
