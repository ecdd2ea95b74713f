//! The types of matrix elements.

use std::sync::LazyLock;

use super::layout::{Decode, Encode};
use crate::cvt::tiny::{self, Tiny};
use crate::float::{NAN32, NAN64, bf16, f16, f32 as single};
use crate::lanes::Lanes;

/// The type of the elements of A or B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    B1,
    F64,
}

impl Element {
    /// How many bits one takes in a register.
    pub const fn bits(self) -> u32 {
        match self {
            Element::F64 => 64,
            Element::Tf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
            Element::S4 | Element::U4 => 4,
            Element::B1 => 1,
        }
    }

    /// How many fill a 32-bit register; one for those of 32 bits or more.
    pub const fn per_register(self) -> u32 {
        if self.bits() >= 32 {
            1
        } else {
            32 / self.bits()
        }
    }

    /// Whether products are of small floats.
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            Element::F16 | Element::Bf16 | Element::Tf32 | Element::E4m3 | Element::E5m2
        )
    }

    /// Whether products are of integers of 4 or 8 bits.
    pub const fn is_integer(self) -> bool {
        matches!(self, Element::S8 | Element::U8 | Element::S4 | Element::U4)
    }

    /// The value of a small float's bits. Anything else is zero.
    #[inline]
    pub fn float(self, bits: u32) -> f32 {
        f32::from_bits(match self {
            Element::F16 => f16::to_f32(bits as u16),
            Element::Bf16 => bf16::to_f32(bits as u16),
            Element::Tf32 => crate::cvt::float::truncate_to_tf32(bits),
            Element::E4m3 => E4M3[bits as u8 as usize].to_bits(),
            Element::E5m2 => E5M2[bits as u8 as usize].to_bits(),
            _ => 0,
        })
    }

    /// The value of a small integer's bits. Anything else is zero.
    #[inline]
    pub fn integer(self, bits: u32) -> i32 {
        match self {
            Element::S8 => bits as u8 as i8 as i32,
            Element::U8 => bits as u8 as i32,
            Element::S4 => ((bits << 28) as i32) >> 28,
            Element::U4 => (bits & 0xf) as i32,
            _ => 0,
        }
    }

    /// Element `j` of a register in every lane, as a number.
    #[inline(always)]
    pub(super) fn floats(self, register: &Lanes<u32>, j: u32) -> Lanes<f64> {
        let shift = (j * self.bits()) & 31;
        let wide = |bits: u32| f64::from(f32::from_bits(bits));
        match self {
            Element::F16 => each(register, |w| wide(f16::to_f32((w >> shift) as u16))),
            Element::Bf16 => each(register, |w| wide(bf16::to_f32((w >> shift) as u16))),
            Element::Tf32 => each(register, |w| wide(crate::cvt::float::truncate_to_tf32(w))),
            Element::E4m3 => by_table(&E4M3, register, shift),
            Element::E5m2 => by_table(&E5M2, register, shift),
            _ => [0.0; 32],
        }
    }

    /// Element `j` of a register in every lane, as a number.
    #[inline(always)]
    pub(super) fn integers(self, register: &Lanes<u32>, j: u32) -> Lanes<i32> {
        let shift = (j * self.bits()) & 31;
        match self {
            Element::S8 => each(register, |w| (w >> shift) as i8 as i32),
            Element::U8 => each(register, |w| (w >> shift) as u8 as i32),
            _ => each(register, |w| self.integer(w >> shift)),
        }
    }
}

/// `f` of every lane. A plain loop, which vectorises where `map` does not.
#[inline(always)]
pub(super) fn each<R: Copy, T: Copy + Default>(
    register: &Lanes<R>,
    f: impl Fn(R) -> T,
) -> Lanes<T> {
    let mut values = [T::default(); 32];
    for (value, word) in values.iter_mut().zip(register) {
        *value = f(*word);
    }
    values
}

#[inline(always)]
fn by_table(table: &[f32; 256], register: &Lanes<u32>, shift: u32) -> Lanes<f64> {
    each(register, |w| table[(w >> shift) as u8 as usize].into())
}

/// All the numbers of an 8-bit format.
fn table(of: Tiny) -> [f32; 256] {
    std::array::from_fn(|bits| tiny::to_f32(of, bits as u8))
}

static E4M3: LazyLock<[f32; 256]> = LazyLock::new(|| table(Tiny::E4m3));
static E5M2: LazyLock<[f32; 256]> = LazyLock::new(|| table(Tiny::E5m2));

/// The type of the elements of C or D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Accumulator {
    F16,
    F32,
    S32,
    F64,
}

impl Accumulator {
    /// How many fill a 32-bit register; one for those of 32 bits or more.
    pub const fn per_register(self) -> u32 {
        if matches!(self, Accumulator::F16) {
            2
        } else {
            1
        }
    }
}

impl Decode<u32, f64> for Element {
    #[inline(always)]
    fn decode(&self, register: &Lanes<u32>, j: u32) -> Lanes<f64> {
        self.floats(register, j)
    }
}

impl Decode<u32, i32> for Element {
    #[inline(always)]
    fn decode(&self, register: &Lanes<u32>, j: u32) -> Lanes<i32> {
        self.integers(register, j)
    }
}

impl Decode<u32, f64> for Accumulator {
    #[inline(always)]
    fn decode(&self, register: &Lanes<u32>, j: u32) -> Lanes<f64> {
        match self {
            Accumulator::F16 => Element::F16.floats(register, j),
            _ => each(register, |w| f64::from(f32::from_bits(w))),
        }
    }
}

impl Encode<u32, f64> for Accumulator {
    #[inline(always)]
    fn encode(&self, word: u32, j: u32, sum: f64) -> u32 {
        match (self, j) {
            (Accumulator::F16, 0) => (word & 0xffff_0000) | round_f16(sum) as u32,
            (Accumulator::F16, _) => (word & 0xffff) | (round_f16(sum) as u32) << 16,
            _ => round_f32(sum),
        }
    }
}

/// Doubles, as they are.
pub(super) struct Doubles;

impl Decode<u64, f64> for Doubles {
    #[inline(always)]
    fn decode(&self, register: &Lanes<u64>, _: u32) -> Lanes<f64> {
        each(register, f64::from_bits)
    }
}

impl Encode<u64, f64> for Doubles {
    #[inline(always)]
    fn encode(&self, _: u64, _: u32, sum: f64) -> u64 {
        if sum.is_nan() { NAN64 } else { sum.to_bits() }
    }
}

/// Adds integers to what a register holds, clamping or wrapping.
pub(super) struct Sum {
    pub(super) satfinite: bool,
}

impl Encode<u32, i32> for Sum {
    #[inline(always)]
    fn encode(&self, word: u32, _: u32, sum: i32) -> u32 {
        let before = word as i32;
        if self.satfinite {
            before.saturating_add(sum) as u32
        } else {
            before.wrapping_add(sum) as u32
        }
    }
}

/// The nearest `f32` to a sum, as bits.
#[inline(always)]
pub(super) fn round_f32(sum: f64) -> u32 {
    let bits = (sum as f32).to_bits();
    if sum.is_nan() { NAN32 } else { bits }
}

/// The nearest `f16` to a sum, as bits.
#[inline(always)]
pub(super) fn round_f16(sum: f64) -> u16 {
    f16::from_f32(single::narrow_to_odd(sum).to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_hold_their_elements_from_the_low_end() {
        let lane = |w: u32| [w; 32];
        assert_eq!(Element::F16.floats(&lane(0x4000_3c00), 0)[7], 1.0);
        assert_eq!(Element::F16.floats(&lane(0x4000_3c00), 1)[7], 2.0);
        assert_eq!(Element::Bf16.floats(&lane(0x4000_3f80), 1)[0], 2.0);
        assert_eq!(Element::Tf32.floats(&lane(0x3f80_1fff), 0)[0], 1.0);
        assert_eq!(Element::E4m3.floats(&lane(0x3800_0000), 3)[0], 1.0);
        assert_eq!(Element::E5m2.floats(&lane(0x0000_c000), 1)[0], -2.0);
        assert_eq!(Element::S8.integers(&lane(0x8000_0000), 3)[0], -128);
        assert_eq!(Element::U8.integers(&lane(0x8000_0000), 3)[0], 128);
        assert_eq!(Element::S4.integers(&lane(0xf000_0000), 7)[0], -1);
        assert_eq!(Element::U4.integers(&lane(0xf000_0000), 7)[0], 15);
        assert!(Element::F16.is_float() && !Element::F64.is_float() && Element::S4.is_integer());
    }

    #[test]
    fn sums_round_once() {
        assert_eq!(round_f32(1.0 + 2f64.powi(-24)), 0x3f80_0000);
        assert_eq!(round_f32(f64::NAN), NAN32);
        assert_eq!(round_f16(1.0 + 2f64.powi(-11) + 2f64.powi(-40)), 0x3c01);
        assert_eq!(round_f16(1e6), 0x7c00);
    }
}
