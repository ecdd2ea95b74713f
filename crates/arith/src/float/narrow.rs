//! Half precision: `f16` and `bf16`, alone and packed in pairs.
//!
//! Sums are computed in `f32` and rounded again. That is one rounding too many in
//! general, but not here: `f32` has more than twice the digits of either format.
//! Where it would not be enough (a fused operation, or a product near the end of
//! the range) the first rounding is to odd.

macro_rules! half_module {
    (
        $(#[$doc:meta])* $name:ident, $pair:ident, fraction $fraction:literal, infinity $infinity:literal,
        one $one:literal
    ) => {
        $(#[$doc])*
        pub mod $name {
            use super::super::{NAN16, Rounding, compare, minmax, soft};
            use compare::{FloatCmp, Test};

            use super::conversions::$name::{fused, product};
            pub use super::conversions::$name::{from_f32, to_f32};

            const SIGN: u16 = 0x8000;
            const INFINITY: u16 = $infinity;
            const ONE: u16 = $one;

            /// A subnormal as a zero of its sign, if `FTZ`.
            #[inline(always)]
            pub fn flush<const FTZ: bool>(a: u16) -> u16 {
                if FTZ && a & INFINITY == 0 { a & SIGN } else { a }
            }

            /// A NaN as the one that 16-bit instructions give.
            #[inline(always)]
            pub fn canonical(a: u16) -> u16 {
                if a & !SIGN > INFINITY { NAN16 } else { a }
            }

            /// What `.sat` does: clamps to zero and one, NaN becoming zero.
            #[inline(always)]
            pub fn saturate<const SAT: bool>(a: u16) -> u16 {
                if !SAT {
                    a
                } else if (a as i16) <= 0 || a > INFINITY {
                    0
                } else if a > ONE {
                    ONE
                } else {
                    a
                }
            }

            #[inline(always)]
            fn open<const FTZ: bool>(a: u16) -> f32 {
                f32::from_bits(to_f32(flush::<FTZ>(a)))
            }

            /// Rounds a result that is exact, or was rounded to odd. Half a place of
            /// full precision below the least normal number, rounding reaches it.
            #[inline(always)]
            fn close<const FTZ: bool, const SAT: bool>(result: f32) -> u16 {
                let least = f32::from_bits(to_f32(1 << $fraction));
                let tiny = result.abs() < least - least / (4 << $fraction) as f32;
                let rounded = from_f32(result.to_bits());
                saturate::<SAT>(if FTZ && tiny { rounded & SIGN } else { rounded })
            }

            /// `add.rn`.
            #[inline(always)]
            pub fn add<const FTZ: bool, const SAT: bool>(a: u16, b: u16) -> u16 {
                close::<FTZ, SAT>(open::<FTZ>(a) + open::<FTZ>(b))
            }

            /// `sub.rn`.
            #[inline(always)]
            pub fn sub<const FTZ: bool, const SAT: bool>(a: u16, b: u16) -> u16 {
                close::<FTZ, SAT>(open::<FTZ>(a) - open::<FTZ>(b))
            }

            /// `mul.rn`.
            #[inline(always)]
            pub fn mul<const FTZ: bool, const SAT: bool>(a: u16, b: u16) -> u16 {
                close::<FTZ, SAT>(product(open::<FTZ>(a), open::<FTZ>(b)))
            }

            /// `fma.rn`.
            #[inline(always)]
            pub fn fma<const FTZ: bool, const SAT: bool>(a: u16, b: u16, c: u16) -> u16 {
                close::<FTZ, SAT>(fused(open::<FTZ>(a), open::<FTZ>(b), open::<FTZ>(c)))
            }

            /// `fma.rn.relu`: a negative result becomes zero.
            #[inline(always)]
            pub fn fma_relu<const FTZ: bool>(a: u16, b: u16, c: u16) -> u16 {
                minmax::$name::relu(fma::<FTZ, false>(a, b, c))
            }

            /// `fma.rn.oob`: zero if a factor is the NaN that a tensor copy fills
            /// in outside its bounds ([`super::OOB_NAN`]).
            #[inline(always)]
            pub fn fma_oob<const RELU: bool>(a: u16, b: u16, c: u16) -> u16 {
                if a == super::OOB_NAN || b == super::OOB_NAN {
                    0
                } else if RELU {
                    fma_relu::<false>(a, b, c)
                } else {
                    fma::<false, false>(a, b, c)
                }
            }

            /// `abs`: an addition in hardware, so a NaN becomes canonical.
            #[inline(always)]
            pub fn abs<const FTZ: bool>(a: u16) -> u16 {
                canonical(flush::<FTZ>(a) & !SIGN)
            }

            /// `neg`: an addition in hardware, so a NaN becomes canonical.
            #[inline(always)]
            pub fn neg<const FTZ: bool>(a: u16) -> u16 {
                canonical(flush::<FTZ>(a) ^ SIGN)
            }

            /// `min`, with `.ftz`, `.NaN` and `.xorsign.abs`.
            #[inline(always)]
            pub fn min<const FTZ: bool, const NAN: bool, const XORSIGN: bool>(
                a: u16,
                b: u16,
            ) -> u16 {
                minmax::$name::min::<FTZ, NAN, XORSIGN>(a, b)
            }

            /// `max`, with `.ftz`, `.NaN` and `.xorsign.abs`.
            #[inline(always)]
            pub fn max<const FTZ: bool, const NAN: bool, const XORSIGN: bool>(
                a: u16,
                b: u16,
            ) -> u16 {
                minmax::$name::max::<FTZ, NAN, XORSIGN>(a, b)
            }

            /// `setp`, `set`.
            #[inline(always)]
            pub fn compare<const FTZ: bool>(op: FloatCmp, a: u16, b: u16) -> bool {
                compare::compare_native(op, open::<FTZ>(a), open::<FTZ>(b))
            }

            /// Classifies, as `testp` does wider types.
            #[inline(always)]
            pub fn test(what: Test, a: u16) -> bool {
                let a = to_f32(a);
                match what {
                    Test::Normal | Test::Subnormal => {
                        let magnitude = (a & 0x7fff_ffff) as u64;
                        let smallest = to_f32(1 << $fraction) as u64;
                        let subnormal = magnitude != 0 && magnitude < smallest;
                        subnormal == (what == Test::Subnormal) && compare::test_f32(Test::Finite, a)
                    }
                    _ => compare::test_f32(what, a),
                }
            }

            /// `ex2.approx`.
            #[inline]
            pub fn ex2<const FTZ: bool>(a: u16) -> u16 {
                close::<FTZ, false>(f64::from(open::<FTZ>(a)).exp2() as f32)
            }

            /// `tanh.approx`.
            #[inline]
            pub fn tanh(a: u16) -> u16 {
                close::<false, false>(f64::from(open::<false>(a)).tanh() as f32)
            }

            /// The format, for [`soft`].
            pub const FORMAT: soft::Format = soft::Format::new(15 - $fraction, $fraction);

            /// Rounds a value into the format, NaN becoming canonical.
            pub fn pack(value: soft::Value, rounding: Rounding) -> u16 {
                FORMAT.pack(value, rounding).map_or(NAN16, |bits| bits as u16)
            }
        }

        /// The same, two in a register.
        pub mod $pair {
            use super::$name;
            use crate::int::packed::map16x2;

            /// Applies `f` to both halves of a register.
            #[inline(always)]
            pub fn map1(a: u32, f: impl Fn(u16) -> u16) -> u32 {
                (f((a >> 16) as u16) as u32) << 16 | f(a as u16) as u32
            }

            /// Applies `f` to both halves of three registers.
            #[inline(always)]
            pub fn map3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
                let high = f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16);
                (high as u32) << 16 | f(a as u16, b as u16, c as u16) as u32
            }

            /// `add.rn`.
            #[inline(always)]
            pub fn add<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
                map16x2(a, b, $name::add::<FTZ, SAT>)
            }

            /// `sub.rn`.
            #[inline(always)]
            pub fn sub<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
                map16x2(a, b, $name::sub::<FTZ, SAT>)
            }

            /// `mul.rn`.
            #[inline(always)]
            pub fn mul<const FTZ: bool, const SAT: bool>(a: u32, b: u32) -> u32 {
                map16x2(a, b, $name::mul::<FTZ, SAT>)
            }

            /// `fma.rn`.
            #[inline(always)]
            pub fn fma<const FTZ: bool, const SAT: bool>(a: u32, b: u32, c: u32) -> u32 {
                map3(a, b, c, $name::fma::<FTZ, SAT>)
            }

            /// `fma.rn.relu`.
            #[inline(always)]
            pub fn fma_relu<const FTZ: bool>(a: u32, b: u32, c: u32) -> u32 {
                map3(a, b, c, $name::fma_relu::<FTZ>)
            }

            /// `fma.rn.oob`.
            #[inline(always)]
            pub fn fma_oob<const RELU: bool>(a: u32, b: u32, c: u32) -> u32 {
                map3(a, b, c, $name::fma_oob::<RELU>)
            }

            /// `abs`.
            #[inline(always)]
            pub fn abs<const FTZ: bool>(a: u32) -> u32 {
                map1(a, $name::abs::<FTZ>)
            }

            /// `neg`.
            #[inline(always)]
            pub fn neg<const FTZ: bool>(a: u32) -> u32 {
                map1(a, $name::neg::<FTZ>)
            }

            /// `min`.
            #[inline(always)]
            pub fn min<const FTZ: bool, const NAN: bool, const XORSIGN: bool>(
                a: u32,
                b: u32,
            ) -> u32 {
                map16x2(a, b, $name::min::<FTZ, NAN, XORSIGN>)
            }

            /// `max`.
            #[inline(always)]
            pub fn max<const FTZ: bool, const NAN: bool, const XORSIGN: bool>(
                a: u32,
                b: u32,
            ) -> u32 {
                map16x2(a, b, $name::max::<FTZ, NAN, XORSIGN>)
            }

            /// `ex2.approx`.
            #[inline]
            pub fn ex2<const FTZ: bool>(a: u32) -> u32 {
                map1(a, $name::ex2::<FTZ>)
            }

            /// `tanh.approx`.
            #[inline]
            pub fn tanh(a: u32) -> u32 {
                map1(a, $name::tanh)
            }
        }
    };
}

half_module! {
    /// Operations on `.f16`.
    f16, f16x2, fraction 10, infinity 0x7c00, one 0x3c00
}
half_module! {
    /// Operations on `.bf16`.
    bf16, bf16x2, fraction 7, infinity 0x7f80, one 0x3f80
}

/// The NaN that a tensor copy fills in outside its bounds, as `fma.oob` knows it.
/// PTX names it and keeps its bits to itself; these were seen on hardware
/// (sm_120), repeated to the width of wider elements.
pub const OOB_NAN: u16 = 0x7ff7;

/// To and from `f32`, without branches, and products that lose nothing which the
/// final rounding could see.
mod conversions {
    use super::super::{NAN16, f32 as single};

    pub(super) mod f16 {
        use super::NAN16;

        /// The product: exact, in digits and in range.
        #[inline(always)]
        pub(in super::super) fn product(a: f32, b: f32) -> f32 {
            a * b
        }

        /// The product and sum, rounded to odd: as `f32::odd_sum`, for which `f32`
        /// has digits and range enough.
        #[inline(always)]
        pub(in super::super) fn fused(a: f32, b: f32, c: f32) -> f32 {
            let product = a * b;
            let sum = product + c;
            let back = sum - product;
            let lost = (product - (sum - back)) + (c - back);
            let bits = sum.to_bits();
            let inexact = (lost > 0.0) | (lost < 0.0);
            let away = (lost.to_bits() ^ bits) >> 31 == 0;
            let step = if away { 1 } else { u32::MAX };
            f32::from_bits(bits.wrapping_add(if inexact & (bits & 1 == 0) { step } else { 0 }))
        }

        /// The same number in `f32`. A NaN becomes that of `f32` instructions, as
        /// `cvt.f32.f16` gives.
        #[inline(always)]
        pub fn to_f32(a: u16) -> u32 {
            const INFINITY: u32 = 0x7c00 << 13;
            let sign = ((a & 0x8000) as u32) << 16;
            let magnitude = ((a & 0x7fff) as u32) << 13;
            // Rebias by a multiplication, which normalises subnormals too.
            let scale = f32::from_bits((127 + 112) << 23);
            let finite = sign | (f32::from_bits(magnitude) * scale).to_bits();
            let number = if magnitude == INFINITY {
                sign | 0x7f80_0000
            } else {
                finite
            };
            if magnitude > INFINITY {
                super::super::super::NAN32
            } else {
                number
            }
        }

        /// `cvt.rn.f16.f32`.
        #[inline(always)]
        pub fn from_f32(a: u32) -> u16 {
            let sign = ((a >> 16) & 0x8000) as u16;
            let magnitude = a & 0x7fff_ffff;
            // Half an ulp, less one if the last kept bit is even.
            let rounded = magnitude + 0x0fff + ((magnitude >> 13) & 1);
            let normal = (rounded.wrapping_sub(112 << 23) >> 13) as u16;
            // One half has the ulp that a subnormal `f16` counts in.
            let shifted = f32::from_bits(magnitude) + 0.5;
            let subnormal = shifted.to_bits().wrapping_sub(0x3f00_0000) as u16;
            if magnitude > 0x7f80_0000 {
                NAN16
            } else if magnitude >= 0x477f_f000 {
                sign | 0x7c00
            } else if magnitude < 0x3880_0000 {
                sign | subnormal
            } else {
                sign | normal
            }
        }
    }

    pub(super) mod bf16 {
        use super::{NAN16, single};

        /// The product, rounded to odd where it leaves the range of `f32`.
        #[inline(always)]
        pub(in super::super) fn product(a: f32, b: f32) -> f32 {
            single::narrow_to_odd(f64::from(a) * f64::from(b))
        }

        /// The product and sum, rounded to odd.
        #[inline(always)]
        pub(in super::super) fn fused(a: f32, b: f32, c: f32) -> f32 {
            let product = f64::from(a) * f64::from(b);
            single::narrow_to_odd(single::odd_sum(product, c.into()))
        }

        /// The same number in `f32`: a shift, as `cvt.f32.bf16` is, so all bits of
        /// a NaN are kept.
        #[inline(always)]
        pub fn to_f32(a: u16) -> u32 {
            (a as u32) << 16
        }

        /// `cvt.rn.bf16.f32`.
        #[inline(always)]
        pub fn from_f32(a: u32) -> u16 {
            let rounded = a.wrapping_add(0x7fff + ((a >> 16) & 1));
            if a & 0x7fff_ffff > 0x7f80_0000 {
                NAN16
            } else {
                (rounded >> 16) as u16
            }
        }
    }
}

#[cfg(test)]
mod tests;
