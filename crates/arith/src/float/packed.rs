//! Two `f32` in a 64-bit register (`.f32x2`), and `f32` arithmetic with operands of
//! half precision (`add.f32.f16` and its siblings).

/// Operations on `.f32x2`: the first element is the lower half.
pub mod f32x2 {
    use super::super::{Rounding, f32};

    /// Applies `f` to both halves of two registers.
    #[inline(always)]
    pub fn map2(a: u64, b: u64, f: impl Fn(u32, u32) -> u32) -> u64 {
        (f((a >> 32) as u32, (b >> 32) as u32) as u64) << 32 | f(a as u32, b as u32) as u64
    }

    /// Applies `f` to both halves of three registers.
    #[inline(always)]
    pub fn map3(a: u64, b: u64, c: u64, f: impl Fn(u32, u32, u32) -> u32) -> u64 {
        let high = f((a >> 32) as u32, (b >> 32) as u32, (c >> 32) as u32);
        (high as u64) << 32 | f(a as u32, b as u32, c as u32) as u64
    }

    /// `add.rn`.
    #[inline(always)]
    pub fn add<const FTZ: bool>(a: u64, b: u64) -> u64 {
        map2(a, b, f32::add::<FTZ, false>)
    }

    /// `sub.rn`.
    #[inline(always)]
    pub fn sub<const FTZ: bool>(a: u64, b: u64) -> u64 {
        map2(a, b, f32::sub::<FTZ, false>)
    }

    /// `mul.rn`.
    #[inline(always)]
    pub fn mul<const FTZ: bool>(a: u64, b: u64) -> u64 {
        map2(a, b, f32::mul::<FTZ, false>)
    }

    /// `fma.rn`.
    #[inline(always)]
    pub fn fma<const FTZ: bool>(a: u64, b: u64, c: u64) -> u64 {
        map3(a, b, c, f32::fma::<FTZ, false>)
    }

    /// `add` with any rounding.
    #[inline]
    pub fn add_with<const FTZ: bool>(rounding: Rounding, a: u64, b: u64) -> u64 {
        map2(a, b, |x, y| f32::add_with::<FTZ, false>(rounding, x, y))
    }

    /// `sub` with any rounding.
    #[inline]
    pub fn sub_with<const FTZ: bool>(rounding: Rounding, a: u64, b: u64) -> u64 {
        map2(a, b, |x, y| f32::sub_with::<FTZ, false>(rounding, x, y))
    }

    /// `mul` with any rounding.
    #[inline]
    pub fn mul_with<const FTZ: bool>(rounding: Rounding, a: u64, b: u64) -> u64 {
        map2(a, b, |x, y| f32::mul_with::<FTZ, false>(rounding, x, y))
    }

    /// `fma` with any rounding.
    #[inline]
    pub fn fma_with<const FTZ: bool>(rounding: Rounding, a: u64, b: u64, c: u64) -> u64 {
        map3(a, b, c, |x, y, z| {
            f32::fma_with::<FTZ, false>(rounding, x, y, z)
        })
    }
}

/// `f32` arithmetic where `a` (and `b` of `fma`) is of half precision and widened
/// first, exactly. `BF16` picks between `bf16` and `f16`.
pub mod mixed {
    use super::super::{Rounding, bf16, f16, f32};

    #[inline(always)]
    fn widen<const BF16: bool>(a: u16) -> u32 {
        if BF16 {
            bf16::to_f32(a)
        } else {
            f16::to_f32(a)
        }
    }

    /// `add{.rnd}{.sat}.f32.TYPE`: `a + c`.
    #[inline]
    pub fn add<const BF16: bool, const SAT: bool>(rounding: Rounding, a: u16, c: u32) -> u32 {
        f32::add_with::<false, SAT>(rounding, widen::<BF16>(a), c)
    }

    /// `sub{.rnd}{.sat}.f32.TYPE`: `a - c`.
    #[inline]
    pub fn sub<const BF16: bool, const SAT: bool>(rounding: Rounding, a: u16, c: u32) -> u32 {
        f32::sub_with::<false, SAT>(rounding, widen::<BF16>(a), c)
    }

    /// `fma.rnd{.sat}.f32.TYPE`: `a * b + c`.
    #[inline]
    pub fn fma<const BF16: bool, const SAT: bool>(
        rounding: Rounding,
        a: u16,
        b: u16,
        c: u32,
    ) -> u32 {
        f32::fma_with::<false, SAT>(rounding, widen::<BF16>(a), widen::<BF16>(b), c)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NAN32, Rounding};
    use super::{f32x2, mixed};

    fn pair(low: f32, high: f32) -> u64 {
        u64::from(high.to_bits()) << 32 | u64::from(low.to_bits())
    }

    #[test]
    fn halves_are_independent() {
        let (a, b) = (pair(1.0, 2.0), pair(3.0, -5.0));
        assert_eq!(f32x2::add::<false>(a, b), pair(4.0, -3.0));
        assert_eq!(f32x2::sub::<false>(a, b), pair(-2.0, 7.0));
        assert_eq!(f32x2::mul::<false>(a, b), pair(3.0, -10.0));
        assert_eq!(f32x2::fma::<false>(a, b, a), pair(4.0, -8.0));
        assert_eq!(f32x2::add::<true>(1 << 32 | 1, 1), 0);
        let tiny = pair(1e-20, -1e-20);
        let up = f32x2::add_with::<false>(Rounding::Up, pair(1.0, 1.0), tiny);
        assert_eq!(up, pair(1.0f32.next_up(), 1.0));
        let down = f32x2::sub_with::<false>(Rounding::Down, pair(1.0, 1.0), tiny);
        assert_eq!(down, pair(1.0f32.next_down(), 1.0));
        let third = pair(1.0 / 3.0, 1.0 / 3.0);
        let product = f32x2::mul_with::<false>(Rounding::Zero, third, third);
        let expect =
            crate::float::f32::mul_with::<false, false>(Rounding::Zero, third as u32, third as u32);
        assert_eq!(product, u64::from(expect) << 32 | u64::from(expect));
        assert_eq!(
            f32x2::fma_with::<false>(Rounding::Zero, a, b, a),
            pair(4.0, -8.0)
        );
    }

    #[test]
    fn half_operands_widen_exactly() {
        let one = 1f32.to_bits();
        let rn = Rounding::Nearest;
        assert_eq!(mixed::add::<false, false>(rn, 0x3c00, one), 2f32.to_bits());
        assert_eq!(mixed::sub::<true, false>(rn, 0x4000, one), 1f32.to_bits());
        assert_eq!(
            mixed::fma::<false, false>(rn, 0x4000, 0x4200, one),
            7f32.to_bits()
        );
        assert_eq!(mixed::fma::<true, true>(rn, 0x4000, 0x4040, one), one);
        assert_eq!(mixed::add::<true, false>(rn, 0x7fc0, one), NAN32);
        assert_eq!(
            mixed::add::<false, false>(Rounding::Up, 1, one),
            1f32.next_up().to_bits()
        );
    }
}
