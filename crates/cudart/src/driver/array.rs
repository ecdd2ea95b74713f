//! Arrays, textures and surfaces.

use super::context::within;
use crate::api::{Sampling, create_array, create_surface, create_texture};
use crate::image::Array;
use crate::raw;
use crate::runtime::Runtime;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED};
use heist_launch::{TexelFormat, TexelKind};
use std::ffi::{c_int, c_uint, c_void};

/// `CUarray_format` with a number of channels.
fn format(kind: c_int, channels: c_uint) -> Result<TexelFormat, c_int> {
    let (bits, kind) = match kind {
        0x01 => (8, TexelKind::Unsigned),
        0x02 => (16, TexelKind::Unsigned),
        0x03 => (32, TexelKind::Unsigned),
        0x08 => (8, TexelKind::Signed),
        0x09 => (16, TexelKind::Signed),
        0x0a => (32, TexelKind::Signed),
        0x10 => (16, TexelKind::Float),
        0x20 => (32, TexelKind::Float),
        _ => return Err(NOT_SUPPORTED),
    };
    if !matches!(channels, 1 | 2 | 4) {
        return Err(INVALID_VALUE);
    }
    Ok(TexelFormat {
        channels: channels as u8,
        bits,
        kind,
    })
}

/// The number of a format.
fn number(format: TexelFormat) -> c_int {
    let wide = match format.bits {
        8 => 1,
        16 => 2,
        _ => 3,
    };
    match format.kind {
        TexelKind::Unsigned => wide,
        TexelKind::Signed => wide + 7,
        TexelKind::Float if wide == 2 => 0x10,
        TexelKind::Float => 0x20,
    }
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Flat {
    size: [usize; 2],
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Deep {
    size: [usize; 3],
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuArrayCreate_v2(to: *mut u64, wish: *const Flat) -> c_int {
    within(|runtime| {
        let wish = raw::get(wish).ok_or(INVALID_VALUE)?;
        let format = format(wish.format, wish.channels)?;
        let array = Array {
            format,
            size: [wish.size[0], wish.size[1], 0],
            flags: 0,
        };
        raw::put(to, create_array(runtime, array)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuArray3DCreate_v2(to: *mut u64, wish: *const Deep) -> c_int {
    within(|runtime| {
        let wish = raw::get(wish).ok_or(INVALID_VALUE)?;
        let format = format(wish.format, wish.channels)?;
        let array = Array {
            format,
            size: wish.size,
            flags: wish.flags,
        };
        raw::put(to, create_array(runtime, array)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuArray3DGetDescriptor_v2(to: *mut Deep, array: u64) -> c_int {
    within(|runtime| {
        let array = runtime.array(array)?;
        let deep = Deep {
            size: array.size,
            format: number(array.format),
            channels: c_uint::from(array.format.channels),
            flags: array.flags,
        };
        raw::put(to, deep);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuArrayGetDescriptor_v2(to: *mut Flat, array: u64) -> c_int {
    within(|runtime| {
        let array = runtime.array(array)?;
        let flat = Flat {
            size: [array.size[0], array.size[1]],
            format: number(array.format),
            channels: c_uint::from(array.format.channels),
        };
        raw::put(to, flat);
        Ok(())
    })
}

/// `CUDA_RESOURCE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Described {
    kind: c_int,
    /// The array, or the memory's address.
    at: u64,
    format: c_int,
    channels: c_uint,
    /// Bytes of linear memory, or the elements of a row.
    width: usize,
    height: usize,
    pitch: usize,
}

impl Described {
    fn image(&self, runtime: &mut Runtime) -> Result<heist_launch::Texture, c_int> {
        let format = match self.kind {
            0 => None,
            _ => Some(format(self.format, self.channels)?),
        };
        let size = [self.width, self.height, self.pitch];
        crate::api::image_over(runtime, self.kind, self.at, format, size)
    }
}

/// The start of `CUDA_TEXTURE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TextureWish {
    outside: [c_int; 3],
    linear: c_int,
    flags: c_uint,
    levels: [u32; 5],
    border: [f32; 4],
}

const AS_INTEGER: c_uint = 1;
const NORMALISED_COORDINATES: c_uint = 2;
const SRGB: c_uint = 0x10;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuTexObjectCreate(
    to: *mut u64,
    resource: *const Described,
    wish: *const TextureWish,
    view: *const c_void,
) -> c_int {
    within(|runtime| {
        let (Some(resource), Some(wish)) = (raw::get(resource), raw::get(wish)) else {
            return Err(INVALID_VALUE);
        };
        let image = resource.image(runtime)?;
        // Whole numbers of up to 16 bits are read as fractions, unless the program says otherwise.
        let fractions = wish.flags & AS_INTEGER == 0
            && image.format.kind != TexelKind::Float
            && image.format.bits < 32;
        let flag = |bit: c_uint| c_int::from(wish.flags & bit != 0);
        let sampling = Sampling {
            outside: wish.outside,
            linear: wish.linear,
            normalised_values: c_int::from(fractions),
            gamma: flag(SRGB),
            border: wish.border,
            normalised_coordinates: flag(NORMALISED_COORDINATES),
        };
        let linear = resource.kind == 2;
        raw::put(
            to,
            create_texture(runtime, image, linear, &sampling, !view.is_null())?,
        );
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuSurfObjectCreate(to: *mut u64, resource: *const Described) -> c_int {
    within(|runtime| {
        let resource = raw::get(resource).ok_or(INVALID_VALUE)?;
        if resource.kind != 0 {
            return Err(INVALID_VALUE);
        }
        let image = resource.image(runtime)?;
        raw::put(to, create_surface(runtime, &image));
        Ok(())
    })
}

same! {
    cuArrayDestroy = crate::api::cudaFreeArray: (array: u64);
    cuTexObjectDestroy = crate::api::cudaDestroyTextureObject: (object: u64);
    cuSurfObjectDestroy = crate::api::cudaDestroySurfaceObject: (object: u64);
}
