//! Factors in shared memory, through their matrix descriptors.

use super::format::Format;
use crate::tensor::Element;
use crate::tensor::swizzle::Swizzle;
use crate::tensor::wgmma::{Descriptor, Major, Numbers, SharedOperand};

/// Reads a matrix descriptor of this generation; its fields are those of
/// [`Descriptor`], with other codes for the swizzle. An error says what is wrong.
pub fn decode(bits: u64) -> Result<Descriptor, String> {
    let version = bits >> 46 & 7;
    if version != 1 {
        return Err(format!(
            "bits 46 to 48 of the matrix descriptor are {version}, and 1 is wanted; a descriptor for wgmma has 0 there"
        ));
    }
    if bits >> 52 & 1 != 0 {
        return Err("the descriptor gives an absolute second address, which is for products that are 96 deep alone".to_owned());
    }
    if bits >> 53 & 0xff != 0 {
        return Err("bits 53 to 60 of the matrix descriptor are reserved and not zero".to_owned());
    }
    let swizzle = match bits >> 61 {
        0 => Swizzle::None,
        1 => Swizzle::B128Atom32,
        2 => Swizzle::B128,
        4 => Swizzle::B64,
        6 => Swizzle::B32,
        code => {
            return Err(format!(
                "the swizzle {code} of the matrix descriptor is none"
            ));
        }
    };
    // The fields of the places are the same.
    let places = Descriptor::decode(bits & !(0xffff << 46) & ((1 << 62) - 1));
    Ok(Descriptor {
        swizzle,
        base_offset: (bits >> 49) as u32 & 7,
        ..places
    })
}

/// A factor in shared memory: `mn` rows of A or columns of B, `k` deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// Its contiguous axis.
    pub major: Major,
    /// The type of its elements.
    pub format: Format,
    /// How many rows of A or columns of B.
    pub mn: usize,
    /// How many elements along k.
    pub k: usize,
}

impl Operand {
    /// The operand as lines of 16-byte chunks: how many lines (rows along the axis
    /// that is not contiguous) and chunks a line.
    pub const fn lines_and_chunks(&self) -> (usize, usize) {
        let per = self.format.per_chunk();
        match self.major {
            Major::K => (self.mn, self.k.div_ceil(per)),
            Major::Mn => (self.k, self.mn.div_ceil(per)),
        }
    }

    /// The address in shared memory of a 16-byte chunk.
    pub const fn chunk_address(&self, line: usize, chunk: usize) -> u32 {
        let descriptor = self.descriptor;
        if let (Major::Mn, Swizzle::B128Atom32) = (self.major, descriptor.swizzle) {
            // Blocks of four lines of 128 bytes.
            let offset = chunk % 8 * 16
                + chunk / 8 * descriptor.leading as usize
                + line % 4 * 128
                + line / 4 * descriptor.stride as usize;
            let address = descriptor.start as u64 + offset as u64;
            let origin = (descriptor.base_offset as u64) << 7;
            return descriptor.swizzle.apply_from(address, origin) as u32;
        }
        let like = SharedOperand {
            descriptor,
            major: self.major,
            element: Element::U8,
            mn: self.mn,
            k: self.k,
        };
        like.chunk_address(line, chunk)
    }

    /// The addresses of all chunks.
    pub fn chunks(self) -> impl Iterator<Item = u32> {
        let (lines, chunks) = self.lines_and_chunks();
        (0..lines)
            .flat_map(move |line| (0..chunks).map(move |chunk| self.chunk_address(line, chunk)))
    }

    /// Reads the operand through `load`, which is called with the address of each
    /// 16-byte chunk. The result has `mn` rows of `k` numbers, or with `columns` `k`
    /// rows of `mn`.
    pub fn read(&self, columns: bool, mut load: impl FnMut(u32) -> [u8; 16]) -> Numbers {
        let mut put = Fill::new(self.format, self.mn * self.k);
        let (step_mn, step_k) = if columns { (1, self.mn) } else { (self.k, 1) };
        let (step_line, step) = match self.major {
            Major::K => (step_mn, step_k),
            Major::Mn => (step_k, step_mn),
        };
        let along = match self.major {
            Major::K => self.k,
            Major::Mn => self.mn,
        };
        let per = self.format.per_chunk();
        let (lines, chunks) = self.lines_and_chunks();
        for line in 0..lines {
            for chunk in 0..chunks {
                let bytes = u128::from_le_bytes(load(self.chunk_address(line, chunk)));
                for at in 0..per.min(along - chunk * per) {
                    let bits = self.format.of_chunk(bytes, at);
                    put.put(line * step_line + (chunk * per + at) * step, bits);
                }
            }
        }
        put.numbers
    }
}

/// Numbers of a format that are put down one by one.
pub struct Fill {
    format: Format,
    numbers: Numbers,
}

impl Fill {
    /// `len` zeros.
    pub fn new(format: Format, len: usize) -> Fill {
        let numbers = if format.is_float() {
            Numbers::Floats(vec![0.0; len])
        } else {
            Numbers::Integers(vec![0; len])
        };
        Fill { format, numbers }
    }

    /// Puts the number with these bits down.
    #[inline]
    pub fn put(&mut self, at: usize, bits: u32) {
        match &mut self.numbers {
            Numbers::Floats(all) => {
                if let Some(slot) = all.get_mut(at) {
                    *slot = self.format.float(bits);
                }
            }
            Numbers::Integers(all) => {
                if let Some(slot) = all.get_mut(at) {
                    *slot = self.format.integer(bits);
                }
            }
        }
    }

    /// All of them.
    pub fn numbers(self) -> Numbers {
        self.numbers
    }
}
