//! The 32 lanes of a warp, side by side.
//!
//! A register of a warp is one or more [`Row`]s: the values of all lanes next to
//! each other, so that an operation is one short loop that the compiler turns
//! into vector instructions. [`Lane`] says how a Rust type lies in rows, and
//! [`map1`], [`map3`] and [`either`] run a scalar function over all lanes with the
//! widest vectors that the machine has.

use bytemuck::{Pod, Zeroable};

/// Lanes in a warp.
pub(crate) const LANES: usize = 32;

/// One bit per lane.
pub(crate) type Mask = u32;

/// All lanes.
pub(crate) const ALL: Mask = u32::MAX;

/// 32 bits of every lane.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Row(pub(crate) [u32; LANES]);

impl Row {
    /// The same value in every lane.
    pub(crate) const fn splat(value: u32) -> Row {
        Row([value; LANES])
    }
}

/// The lanes whose bits are set, in order.
pub(crate) fn each(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let lane = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(lane)
    })
}

/// The lowest lane of a mask; 0 for an empty one.
pub(crate) fn first(mask: Mask) -> usize {
    (mask.trailing_zeros() & 31) as usize
}

/// A type that a register holds in each lane.
pub(crate) trait Lane: Copy + Default + Send + Sync + 'static {
    /// Rows that one register of this type takes.
    const ROWS: usize;
    /// What lies in the rows for each lane, of which a value is made.
    type Bits: Copy;
    /// All lanes where they lie, without a copy.
    fn view(rows: &[Row]) -> &[Self::Bits; LANES];
    /// A lane's value.
    fn of(bits: Self::Bits) -> Self;
    /// Reads all lanes from the first [`Lane::ROWS`] of `rows`.
    fn unpack(rows: &[Row]) -> [Self; LANES];
    /// Writes all lanes.
    fn pack(values: &[Self; LANES], rows: &mut [Row]);
}

/// Lanes that lie in memory exactly as in the rows.
macro_rules! direct {
    ($($ty:ty: $rows:literal),*) => {$(
        impl Lane for $ty {
            const ROWS: usize = $rows;
            type Bits = $ty;
            #[inline(always)]
            fn view(rows: &[Row]) -> &[$ty; LANES] {
                const NONE: &[Row; $rows] = &[Row([0; LANES]); $rows];
                let rows: &[Row; $rows] = rows[..$rows].try_into().unwrap_or(NONE);
                bytemuck::cast_ref(rows)
            }
            #[inline(always)]
            fn of(bits: $ty) -> $ty {
                bits
            }
            #[inline(always)]
            fn unpack(rows: &[Row]) -> [$ty; LANES] {
                let rows: &[Row; $rows] = rows[..$rows].try_into().unwrap_or(&[Row([0; LANES]); $rows]);
                bytemuck::cast(*rows)
            }
            #[inline(always)]
            fn pack(values: &[$ty; LANES], rows: &mut [Row]) {
                bytemuck::cast_slice_mut::<Row, $ty>(&mut rows[..$rows]).copy_from_slice(values);
            }
        }
    )*};
}
direct!(u32: 1, i32: 1, f32: 1, u64: 2, i64: 2, f64: 2, u128: 4);

/// Narrow integers live in the low bits of a 32-bit register, zero above.
macro_rules! narrow {
    ($($ty:ty, $unsigned:ty),*) => {$(
        impl Lane for $ty {
            const ROWS: usize = 1;
            type Bits = u32;
            #[inline(always)]
            fn view(rows: &[Row]) -> &[u32; LANES] {
                &rows[0].0
            }
            #[inline(always)]
            fn of(bits: u32) -> $ty {
                bits as $ty
            }
            #[inline(always)]
            fn unpack(rows: &[Row]) -> [$ty; LANES] {
                rows[0].0.map(|bits| bits as $ty)
            }
            #[inline(always)]
            fn pack(values: &[$ty; LANES], rows: &mut [Row]) {
                rows[0].0 = values.map(|value| u32::from(value as $unsigned));
            }
        }
    )*};
}
narrow!(u8, u8, i8, u8, u16, u16, i16, u16);

pub(crate) use wide::{either, has_fused, map1, map3, wide};

/// Loops over all lanes, compiled for machines with 256-bit vectors and fused multiply-add, and once
/// more for any machine.
mod wide {
    #![allow(unsafe_code)]
    use super::LANES;

    #[cfg(target_arch = "x86_64")]
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Asked for every instruction: one byte, 0 until it is known.
    #[cfg(target_arch = "x86_64")]
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    #[cfg(target_arch = "x86_64")]
    const HAS_NOT: u8 = 1;
    #[cfg(target_arch = "x86_64")]
    const HAS: u8 = 2;

    #[cfg(target_arch = "x86_64")]
    #[inline(never)]
    fn has_wide() -> bool {
        match KNOWN.load(Ordering::Relaxed) {
            0 => {
                let has = std::is_x86_feature_detected!("avx2")
                    && std::is_x86_feature_detected!("fma")
                    && std::is_x86_feature_detected!("bmi2");
                KNOWN.store(if has { HAS } else { HAS_NOT }, Ordering::Relaxed);
                has
            }
            known => known == HAS,
        }
    }

    /// Whether [`wide`] code has a fused multiply-add of the machine's own.
    pub(crate) fn has_fused() -> bool {
        #[cfg(target_arch = "x86_64")]
        return has_wide();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt,lzcnt,f16c")]
    fn enabled<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    /// Runs `work` with wide vectors enabled where the machine has them; what it inlines is compiled
    /// for them. `plain` does the same on other machines, and for the first step of a process, which
    /// asks what the machine has. The simulator is some six hundred such steps, so `plain` should
    /// be a call of what many of them share.
    #[inline(always)]
    pub(crate) fn either<T, R>(
        with: T,
        work: impl FnOnce(T) -> R,
        plain: impl FnOnce(T) -> R,
    ) -> R {
        #[cfg(target_arch = "x86_64")]
        {
            if KNOWN.load(Ordering::Relaxed) == HAS {
                // SAFETY: the features that `enabled` names were all found on this
                // machine (bmi1, popcnt, lzcnt and f16c come with avx2 and bmi2).
                return unsafe {
                    enabled(
                        #[inline(always)]
                        || work(with),
                    )
                };
            }
            has_wide();
            plain(with)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = plain;
            work(with)
        }
    }

    /// The same for work that is not shared: it is compiled twice.
    #[inline(always)]
    pub(crate) fn wide<R>(work: impl FnOnce() -> R) -> R {
        either(
            work,
            #[inline(always)]
            |work| work(),
            otherwise,
        )
    }

    #[inline(never)]
    fn otherwise<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    #[inline(always)]
    pub(crate) fn map1<A: Copy, R: Copy + Default>(
        a: [A; LANES],
        f: impl Fn(A) -> R,
    ) -> [R; LANES] {
        wide(
            #[inline(always)]
            || {
                let mut out = [R::default(); LANES];
                for lane in 0..LANES {
                    out[lane] = f(a[lane]);
                }
                out
            },
        )
    }

    #[inline(always)]
    pub(crate) fn map3<A: Copy, B: Copy, C: Copy, R: Copy + Default>(
        a: [A; LANES],
        b: [B; LANES],
        c: [C; LANES],
        f: impl Fn(A, B, C) -> R,
    ) -> [R; LANES] {
        wide(
            #[inline(always)]
            || {
                let mut out = [R::default(); LANES];
                for lane in 0..LANES {
                    out[lane] = f(a[lane], b[lane], c[lane]);
                }
                out
            },
        )
    }
}

/// Turns booleans into a mask.
#[inline(always)]
pub(crate) fn to_mask(values: [bool; LANES]) -> Mask {
    let mut mask = 0;
    for (lane, value) in values.into_iter().enumerate() {
        mask |= u32::from(value) << lane;
    }
    mask
}

/// Turns a mask into booleans.
#[inline(always)]
pub(crate) fn from_mask(mask: Mask) -> [bool; LANES] {
    std::array::from_fn(|lane| mask >> lane & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_packing_in_every_type() {
        let values: [u64; LANES] = std::array::from_fn(|lane| (lane as u64) << 33 | 7);
        let mut rows = [Row::splat(0); 2];
        u64::pack(&values, &mut rows);
        assert_eq!(u64::unpack(&rows), values);
        let narrow: [i16; LANES] = std::array::from_fn(|lane| -(lane as i16));
        i16::pack(&narrow, &mut rows);
        assert_eq!(i16::unpack(&rows), narrow);
        assert_eq!(rows[0].0[1], 0xffff, "narrow values are zero above");
    }

    #[test]
    fn masks_and_booleans_agree() {
        let mask = 0x8000_0005;
        assert_eq!(to_mask(from_mask(mask)), mask);
        assert_eq!(each(mask).collect::<Vec<_>>(), [0, 2, 31]);
    }

    #[test]
    fn maps_run_the_function_on_every_lane() {
        let a: [u32; LANES] = std::array::from_fn(|lane| lane as u32);
        assert_eq!(map1(a, |lane| lane + lane)[31], 62);
        let f = [1.5f32; LANES];
        assert_eq!(map3(f, f, f, |x, y, z| x.mul_add(y, z))[7], 3.75);
    }
}
