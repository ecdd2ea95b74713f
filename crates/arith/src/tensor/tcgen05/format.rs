//! The types of the factors, and what their bits mean.

use crate::cvt::tiny::{self, Tiny};
use crate::tensor::Element;
use std::sync::LazyLock;

/// The type of the elements of A or B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Format {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    E2m3,
    E3m2,
    E2m1,
    /// `e2m1` as `kind::mxf4` has it: two a byte.
    PackedE2m1,
    U8,
    S8,
}

impl Format {
    /// Elements in 16 bytes of shared memory. Those of 6 and 4 bits are 16 there, and
    /// padding follows; [`Format::PackedE2m1`] alone fills the bytes.
    pub const fn per_chunk(self) -> usize {
        match self {
            Format::F16 | Format::Bf16 => 8,
            Format::Tf32 => 4,
            Format::PackedE2m1 => 32,
            _ => 16,
        }
    }

    /// Bits that an element takes in tensor memory.
    pub const fn bits_in_tensor_memory(self) -> usize {
        match self {
            Format::F16 | Format::Bf16 => 16,
            Format::Tf32 => 32,
            Format::PackedE2m1 => 4,
            _ => 8,
        }
    }

    /// Whether products are of floats.
    pub const fn is_float(self) -> bool {
        !matches!(self, Format::U8 | Format::S8)
    }

    /// Whether A and B may be contiguous along M or N.
    pub const fn transposes(self) -> bool {
        !matches!(
            self,
            Format::E2m3 | Format::E3m2 | Format::E2m1 | Format::PackedE2m1
        )
    }

    /// Bits of an element as it is packed in shared memory.
    const fn bits(self) -> usize {
        match self {
            Format::F16 | Format::Bf16 => 16,
            Format::Tf32 => 32,
            Format::E2m3 | Format::E3m2 => 6,
            Format::E2m1 | Format::PackedE2m1 => 4,
            _ => 8,
        }
    }

    /// Element `at` of 16 bytes of shared memory, as bits.
    pub const fn of_chunk(self, chunk: u128, at: usize) -> u32 {
        let bits = self.bits();
        (chunk >> (at * bits)) as u32 & (u32::MAX >> (32 - bits))
    }

    /// The bits of an element of tensor memory: small formats stand as `mma.sync` has
    /// them in a register, four bits in the middle of a byte, six bits at its low end.
    pub const fn of_tensor_memory(self, bits: u32) -> u32 {
        match self {
            Format::E2m1 => bits >> 2 & 0xf,
            Format::E2m3 | Format::E3m2 => bits & 0x3f,
            _ => bits,
        }
    }

    /// The value of a float's bits.
    pub fn float(self, bits: u32) -> f64 {
        match self {
            Format::F16 => f64::from(Element::F16.float(bits)),
            Format::Bf16 => f64::from(Element::Bf16.float(bits)),
            Format::Tf32 => f64::from(Element::Tf32.float(bits)),
            Format::E4m3 => f64::from(Element::E4m3.float(bits)),
            Format::E5m2 => f64::from(Element::E5m2.float(bits)),
            Format::E2m3 => f64::from(SMALL[0][(bits & 0x3f) as usize]),
            Format::E3m2 => f64::from(SMALL[1][(bits & 0x3f) as usize]),
            Format::E2m1 | Format::PackedE2m1 => f64::from(SMALL[2][(bits & 0xf) as usize]),
            Format::U8 | Format::S8 => 0.0,
        }
    }

    /// The value of an integer's bits.
    pub fn integer(self, bits: u32) -> i32 {
        match self {
            Format::U8 => i32::from(bits as u8),
            Format::S8 => i32::from(bits as u8 as i8),
            _ => 0,
        }
    }
}

/// The numbers of the formats of 6 and 4 bits.
static SMALL: LazyLock<[[f32; 64]; 3]> = LazyLock::new(|| {
    [Tiny::E2m3, Tiny::E3m2, Tiny::E2m1].map(|of| {
        std::array::from_fn(|bits| {
            let mask = (1u32 << of.bits()) - 1;
            tiny::to_f32(of, bits as u8 & mask as u8)
        })
    })
});

/// The type of a scale factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// A power of two.
    Ue8m0,
    /// An `e4m3` without a sign.
    Ue4m3,
}

impl Scale {
    /// The value of a byte.
    pub fn value(self, byte: u8) -> f64 {
        match self {
            Scale::Ue8m0 if byte == 0xff => f64::NAN,
            Scale::Ue8m0 => 2f64.powi(i32::from(byte) - 127),
            Scale::Ue4m3 => f64::from(tiny::to_f32(Tiny::E4m3, byte & 0x7f)),
        }
    }
}
