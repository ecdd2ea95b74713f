//! Textures and surfaces: an image in memory, and how coordinates become texels of it.
//!
//! On a GPU the object that a kernel is given is an opaque number. On the simulated one it is the
//! address of [`Texture::LEN`] bytes that describe it.
//!
//! ```
//! use heist_launch::{Outside, TexelFormat, TexelKind, Texture};
//!
//! let format = TexelFormat { channels: 4, bits: 8, kind: TexelKind::Unsigned };
//! let image = Texture {
//!     base: 0x1000, pitch: 64 * 4, plane: 0, size: [64, 32, 1], format,
//!     outside: [Outside::Clamp; 3], linear: false, normalised_coordinates: false,
//!     normalised_values: true, border: [0.0; 4],
//! };
//! assert_eq!(image.format.bytes(), 4);
//! assert_eq!(Texture::from_bytes(&image.to_bytes()), Some(image));
//! ```

/// An image in memory, as a kernel reads or writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Texture {
    /// Where its first texel is.
    pub base: u64,
    /// Bytes from a row to the next.
    pub pitch: u64,
    /// Bytes from a plane or layer to the next.
    pub plane: u64,
    /// Texels: width, height, and depth or layers. One where there is no such axis.
    pub size: [u32; 3],
    /// What a texel is.
    pub format: TexelFormat,
    /// What becomes of coordinates outside, on each axis.
    pub outside: [Outside; 3],
    /// The result is interpolated between the nearest texels.
    pub linear: bool,
    /// Coordinates go from 0 to 1 instead of from 0 to the number of texels.
    pub normalised_coordinates: bool,
    /// Integers are read as fractions of their largest value.
    pub normalised_values: bool,
    /// What is read outside with [`Outside::Border`].
    pub border: [f32; 4],
}

/// What a texel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TexelFormat {
    /// 1, 2 or 4.
    pub channels: u8,
    /// Bits of each channel: 8, 16 or 32.
    pub bits: u8,
    /// What they stand for.
    pub kind: TexelKind,
}

impl TexelFormat {
    /// Bytes of a texel.
    pub fn bytes(self) -> u32 {
        u32::from(self.channels) * u32::from(self.bits) / 8
    }
}

/// What the bits of a channel stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TexelKind {
    /// A whole number.
    Unsigned,
    /// A whole number with a sign.
    Signed,
    /// A floating-point number.
    Float,
}

/// What becomes of coordinates outside of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// The image is repeated.
    Wrap,
    /// The texel at the edge is taken.
    Clamp,
    /// The image is repeated, every second time mirrored.
    Mirror,
    /// The border's colour is taken.
    Border,
}

const MARK: u64 = 0x4845_4953_5454_4558;

impl Texture {
    /// Bytes of a description.
    pub const LEN: usize = 80;

    /// The bytes that describe it.
    pub fn to_bytes(&self) -> [u8; Texture::LEN] {
        let mut bytes = [0; Texture::LEN];
        for (at, word) in [MARK, self.base, self.pitch, self.plane]
            .into_iter()
            .enumerate()
        {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let border = self.border.map(f32::to_bits);
        for (at, word) in self.size.into_iter().chain(border).enumerate() {
            bytes[32 + 4 * at..36 + 4 * at].copy_from_slice(&word.to_le_bytes());
        }
        let small = [
            self.format.channels,
            self.format.bits,
            self.format.kind as u8,
            self.outside[0] as u8,
            self.outside[1] as u8,
            self.outside[2] as u8,
            u8::from(self.linear),
            u8::from(self.normalised_coordinates),
            u8::from(self.normalised_values),
        ];
        bytes[60..60 + small.len()].copy_from_slice(&small);
        bytes
    }

    /// The image that some bytes describe; none where they are no description.
    pub fn from_bytes(bytes: &[u8]) -> Option<Texture> {
        let wide = |at: usize| {
            let word = bytes.get(8 * at..8 * at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(word))
        };
        let narrow = |at: usize| {
            let word = bytes.get(32 + 4 * at..36 + 4 * at)?.try_into().ok()?;
            Some(u32::from_le_bytes(word))
        };
        let small = bytes.get(60..69)?;
        if wide(0)? != MARK {
            return None;
        }
        let outside = |at: usize| {
            Some(match small[at] {
                0 => Outside::Wrap,
                1 => Outside::Clamp,
                2 => Outside::Mirror,
                3 => Outside::Border,
                _ => return None,
            })
        };
        let border = |at: usize| narrow(3 + at).map(f32::from_bits);
        let texture = Texture {
            base: wide(1)?,
            pitch: wide(2)?,
            plane: wide(3)?,
            size: [narrow(0)?, narrow(1)?, narrow(2)?],
            format: TexelFormat {
                channels: small[0],
                bits: small[1],
                kind: match small[2] {
                    0 => TexelKind::Unsigned,
                    1 => TexelKind::Signed,
                    2 => TexelKind::Float,
                    _ => return None,
                },
            },
            outside: [outside(3)?, outside(4)?, outside(5)?],
            linear: small[6] != 0,
            normalised_coordinates: small[7] != 0,
            normalised_values: small[8] != 0,
            border: [border(0)?, border(1)?, border(2)?, border(3)?],
        };
        let whole = matches!(texture.format.channels, 1 | 2 | 4)
            && matches!(texture.format.bits, 8 | 16 | 32)
            && texture.size.iter().all(|&texels| texels > 0);
        whole.then_some(texture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let texture = Texture {
            base: 0x1234_5678_9abc,
            pitch: 512,
            plane: 8192,
            size: [100, 16, 3],
            format: TexelFormat {
                channels: 4,
                bits: 16,
                kind: TexelKind::Signed,
            },
            outside: [Outside::Mirror, Outside::Border, Outside::Clamp],
            linear: true,
            normalised_coordinates: false,
            normalised_values: true,
            border: [0.5, -1.0, 2.0, 0.0],
        };
        let bytes = texture.to_bytes();
        assert_eq!(Texture::from_bytes(&bytes), Some(texture.clone()));
        assert_eq!(texture.format.bytes(), 8);
        for kind in [TexelKind::Unsigned, TexelKind::Signed, TexelKind::Float] {
            let mut other = texture.clone();
            other.format.kind = kind;
            other.outside = [Outside::Wrap, Outside::Mirror, Outside::Clamp];
            assert_eq!(Texture::from_bytes(&other.to_bytes()), Some(other));
        }

        assert_eq!(Texture::from_bytes(&[0; Texture::LEN]), None);
        let mut empty = bytes;
        empty[32..36].fill(0);
        assert_eq!(Texture::from_bytes(&empty), None);
    }
}
