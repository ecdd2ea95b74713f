//! Whole warps at a time, with the host's own vector instructions.
//!
//! The scalar functions vectorise well on their own; here is what the baseline
//! x86-64 target can't express, chosen once per call by what the host can do,
//! with the portable code as the fallback and the reference.

#![allow(unsafe_code)]

use crate::float;

/// The registers of one name across a warp.
pub type Lanes<T> = [T; 32];

/// Instruction sets that functions here and in [`crate::tensor`] are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// What the build targets.
    Baseline,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 (F and VL) besides.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Host {
    /// What this machine can do. A few loads: the answer is cached by `std`.
    #[inline]
    pub(crate) fn detect() -> Host {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                let wide =
                    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
                return if wide { Host::Avx512 } else { Host::Avx2 };
            }
        }
        Host::Baseline
    }
}

/// Defines a function whose body is compiled for each [`Host`]. In the body, the constant
/// `FUSES` says whether `mul_add` is an instruction there.
macro_rules! multiversion {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $([$($generics:tt)*] [$($names:tt)*])? ($($arg:ident: $ty:ty),* $(,)?) $body:block
    ) => {
        $(#[$meta])*
        // The one unsafe step is the call of what was compiled for the host, below.
        #[allow(unsafe_code)]
        $vis fn $name $(<$($generics)*>)? ($($arg: $ty),*) {
            #[inline(always)]
            fn body<const FUSES: bool $(, $($generics)*)?> ($($arg: $ty),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2 $(<$($generics)*>)? ($($arg: $ty),*) {
                body::<true $(, $($names)*)?> ($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512vl")]
            fn avx512 $(<$($generics)*>)? ($($arg: $ty),*) {
                body::<true $(, $($names)*)?> ($($arg),*)
            }

            match $crate::lanes::Host::detect() {
                $crate::lanes::Host::Baseline => body::<false $(, $($names)*)?> ($($arg),*),
                // SAFETY: `detect` found the features that the function enables.
                #[cfg(target_arch = "x86_64")]
                $crate::lanes::Host::Avx2 => unsafe { avx2 $(::<$($names)*>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::lanes::Host::Avx512 => unsafe { avx512 $(::<$($names)*>)? ($($arg),*) },
            }
        }
    };
}
pub(crate) use multiversion;

/// `fma.rn.f32` (and `mad.rn.f32`) over a warp: [`float::f32::fma`] per lane.
#[inline]
pub fn fma_f32<const FTZ: bool, const SAT: bool>(
    a: &Lanes<u32>,
    b: &Lanes<u32>,
    c: &Lanes<u32>,
    d: &mut Lanes<u32>,
) {
    #[cfg(target_arch = "x86_64")]
    if Host::detect() != Host::Baseline {
        // SAFETY: any other answer of `detect` means that AVX2 and FMA are there.
        unsafe { fused::f32::<FTZ, SAT>(a, b, c, d) };
        return;
    }
    for i in 0..32 {
        d[i] = float::f32::fma::<FTZ, SAT>(a[i], b[i], c[i]);
    }
}

/// `fma.rn.f64` over a warp: [`float::f64::fma`] per lane.
#[inline]
pub fn fma_f64(a: &Lanes<u64>, b: &Lanes<u64>, c: &Lanes<u64>, d: &mut Lanes<u64>) {
    #[cfg(target_arch = "x86_64")]
    if Host::detect() != Host::Baseline {
        // SAFETY: any other answer of `detect` means that AVX2 and FMA are there.
        unsafe { fused::f64(a, b, c, d) };
        return;
    }
    for i in 0..32 {
        d[i] = float::f64::fma(a[i], b[i], c[i]);
    }
}

/// With FMA enabled, `mul_add` is the instruction and the loops vectorise.
#[cfg(target_arch = "x86_64")]
mod fused {
    use super::Lanes;
    use crate::float;

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn f32<const FTZ: bool, const SAT: bool>(
        a: &Lanes<u32>,
        b: &Lanes<u32>,
        c: &Lanes<u32>,
        d: &mut Lanes<u32>,
    ) {
        use float::f32::{canonical, flush, saturate};
        for i in 0..32 {
            let [x, y, z] = [a[i], b[i], c[i]].map(|v| f32::from_bits(flush::<FTZ>(v)));
            let fused = canonical(x.mul_add(y, z).to_bits());
            d[i] = saturate::<SAT>(flush::<FTZ>(fused));
        }
        // What rounded up to the least normal number may have been tiny: those few
        // again, with care.
        let least = |d: u32| d & 0x7fff_ffff == 0x0080_0000;
        if FTZ && d.iter().any(|d| least(*d)) {
            for i in 0..32 {
                if least(d[i]) {
                    d[i] = float::f32::fma::<FTZ, SAT>(a[i], b[i], c[i]);
                }
            }
        }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn f64(a: &Lanes<u64>, b: &Lanes<u64>, c: &Lanes<u64>, d: &mut Lanes<u64>) {
        for i in 0..32 {
            d[i] = float::f64::fma(a[i], b[i], c[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Random, floats32, floats64};

    #[test]
    fn warps_agree_with_lanes() {
        let (singles, doubles) = (floats32(), floats64());
        let mut random = Random(21);
        for _ in 0..3000 {
            let mut pick = || singles[random.next() as usize % singles.len()];
            let [a, b, c] = [(); 3].map(|()| std::array::from_fn(|_| pick()));
            let mut d = [0; 32];
            fma_f32::<false, false>(&a, &b, &c, &mut d);
            let expect = std::array::from_fn(|i| float::f32::fma::<false, false>(a[i], b[i], c[i]));
            assert_eq!(d, expect);
            fma_f32::<true, true>(&a, &b, &c, &mut d);
            let expect = std::array::from_fn(|i| float::f32::fma::<true, true>(a[i], b[i], c[i]));
            assert_eq!(d, expect);
            // Products about the least normal number.
            let near = |exponent: u64, v: u64| (exponent << 23) as u32 | (v as u32 & 0x7f_ffff);
            let a = std::array::from_fn(|_| near(1, random.next() % 4));
            let b = std::array::from_fn(|_| near(126, 0x7f_fffc + random.next() % 4));
            fma_f32::<true, false>(&a, &b, &[0; 32], &mut d);
            let expect = std::array::from_fn(|i| float::f32::fma::<true, false>(a[i], b[i], 0));
            assert_eq!(d, expect);
            let mut pick = || doubles[random.next() as usize % doubles.len()];
            let [a, b, c] = [(); 3].map(|()| std::array::from_fn(|_| pick()));
            let mut d = [0; 32];
            fma_f64(&a, &b, &c, &mut d);
            assert_eq!(
                d,
                std::array::from_fn(|i| float::f64::fma(a[i], b[i], c[i]))
            );
        }
    }
}
