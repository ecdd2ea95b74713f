//! Arrays, and the textures and surfaces over them.

use crate::operation::Place;
use crate::status::INVALID_VALUE;
use heist_launch::{Outside, TexelFormat, Texture};
use std::ffi::c_int;

/// Memory for an image; its handle is its address. Rows and planes lie behind each other.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    pub(crate) format: TexelFormat,
    /// Elements of a row, rows, planes or layers; zero for an axis that is not there.
    pub(crate) size: [usize; 3],
    /// The flags with which it was made.
    pub(crate) flags: u32,
}

impl Array {
    fn pitch(&self) -> usize {
        self.size[0] * self.format.bytes() as usize
    }

    fn plane(&self) -> usize {
        self.pitch() * self.size[1].max(1)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.plane() * self.size[2].max(1)
    }

    /// Where a byte of a row of a plane is.
    pub(crate) fn place(&self, handle: u64, [x, y, z]: [usize; 3]) -> Result<Place, c_int> {
        let inside = x < self.pitch() && y < self.size[1].max(1) && z < self.size[2].max(1);
        if !inside {
            return Err(INVALID_VALUE);
        }
        let at = handle + (z * self.plane() + y * self.pitch() + x) as u64;
        Ok(Place {
            at,
            pitch: self.pitch(),
            plane: self.plane(),
        })
    }

    /// The image in it, as a surface has it.
    pub(crate) fn image(&self, handle: u64) -> Texture {
        Texture {
            base: handle,
            pitch: self.pitch() as u64,
            plane: self.plane() as u64,
            size: self.size.map(|one| one.max(1) as u32),
            ..plain(self.format)
        }
    }
}

/// An image of a format, with nothing in it.
pub(crate) fn plain(format: TexelFormat) -> Texture {
    Texture {
        base: 0,
        pitch: 0,
        plane: 0,
        size: [1; 3],
        format,
        outside: [Outside::Border; 3],
        linear: false,
        normalised_coordinates: false,
        normalised_values: false,
        border: [0.0; 4],
    }
}
