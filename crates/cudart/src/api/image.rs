//! Arrays, textures and surfaces.

use super::copy::{Extent, Pitched};
use super::memory::{allocate, fits};
use crate::image::{Array, plain};
use crate::raw;
use crate::runtime::{Runtime, call};
use crate::status::{INVALID_VALUE, NOT_SUPPORTED};
use heist_launch::{Outside, TexelFormat, TexelKind, Texture};
use std::ffi::{c_int, c_uint, c_void};

/// `cudaChannelFormatDesc`: bits of each channel, and what they stand for.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Channels {
    bits: [c_int; 4],
    kind: c_int,
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_int,
) -> Channels {
    Channels {
        bits: [x, y, z, w],
        kind,
    }
}

const BAD_CHANNELS: c_int = 20;

impl Channels {
    /// Channels of one width, as many as the simulated texture unit takes.
    fn format(&self) -> Result<TexelFormat, c_int> {
        let channels = self.bits.iter().take_while(|&&bits| bits != 0).count();
        let bits = self.bits[0];
        let same = self.bits[..channels].iter().all(|&one| one == bits);
        let kind = match self.kind {
            0 => TexelKind::Signed,
            1 => TexelKind::Unsigned,
            2 => TexelKind::Float,
            _ => return Err(BAD_CHANNELS),
        };
        let narrow = matches!(bits, 8 | 16 | 32) && !(bits == 8 && kind == TexelKind::Float);
        if !same || !narrow || !matches!(channels, 1 | 2 | 4) {
            return Err(BAD_CHANNELS);
        }
        Ok(TexelFormat {
            channels: channels as u8,
            bits: bits as u8,
            kind,
        })
    }

    fn of(format: TexelFormat) -> Channels {
        let mut bits = [0; 4];
        bits[..usize::from(format.channels)].fill(c_int::from(format.bits));
        let kind = match format.kind {
            TexelKind::Signed => 0,
            TexelKind::Unsigned => 1,
            TexelKind::Float => 2,
        };
        Channels { bits, kind }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMallocArray(
    to: *mut u64,
    channels: *const Channels,
    width: usize,
    height: usize,
    flags: c_uint,
) -> c_int {
    cudaMalloc3DArray(to, channels, Extent([width, height, 0]), flags)
}

const CUBE: c_uint = 4;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMalloc3DArray(
    to: *mut u64,
    channels: *const Channels,
    extent: Extent,
    flags: c_uint,
) -> c_int {
    call(|runtime| {
        let format = raw::get(channels).ok_or(INVALID_VALUE)?.format()?;
        if flags & CUBE != 0 {
            runtime
                .report
                .remark("cube maps are not there: the call returned cudaErrorNotSupported (801)");
            return Err(NOT_SUPPORTED);
        }
        if extent.0[0] == 0 {
            return Err(INVALID_VALUE);
        }
        let array = Array {
            format,
            size: extent.0,
            flags,
        };
        fits(runtime, array.bytes())?;
        let at = runtime.heap.array(array.bytes());
        runtime.arrays.insert(at, array);
        raw::put(to, at);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFreeArray(array: u64) -> c_int {
    call(|runtime| {
        if array == 0 {
            return Ok(());
        }
        runtime.arrays.remove(&array).ok_or(INVALID_VALUE)?;
        runtime.free(array)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaArrayGetInfo(
    channels: *mut Channels,
    extent: *mut Extent,
    flags: *mut c_uint,
    array: u64,
) -> c_int {
    call(|runtime| {
        let array = runtime.array(array)?;
        raw::put(channels, Channels::of(array.format));
        raw::put(extent, Extent(array.size));
        raw::put(flags, array.flags);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetChannelDesc(to: *mut Channels, array: u64) -> c_int {
    call(|runtime| {
        raw::put(to, Channels::of(runtime.array(array)?.format));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMalloc3D(to: *mut Pitched, extent: Extent) -> c_int {
    call(|runtime| {
        let [width, height, depth] = extent.0;
        let pitch = width.next_multiple_of(512);
        let len = pitch.saturating_mul(height).saturating_mul(depth);
        let made = Pitched {
            at: allocate(runtime, len)?,
            pitch,
            width,
            height,
        };
        raw::put(to, made);
        Ok(())
    })
}

/// `cudaResourceDesc`: a kind, and an array or memory of the device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Resource {
    kind: c_int,
    pad: c_int,
    /// The array, or the memory's address.
    at: u64,
    channels: Channels,
    pad_too: c_int,
    /// Bytes of linear memory, or the elements of a row.
    width: usize,
    height: usize,
    pitch: usize,
}

const ARRAY: c_int = 0;
const LINEAR: c_int = 2;
const PITCHED: c_int = 3;

impl Resource {
    fn image(&self, runtime: &mut Runtime) -> Result<Texture, c_int> {
        let (size, pitch, format) = match self.kind {
            ARRAY => return Ok(runtime.array(self.at)?.image(self.at)),
            LINEAR => {
                let format = self.channels.format()?;
                ([self.width / format.bytes() as usize, 1], 0, format)
            }
            PITCHED => (
                [self.width, self.height],
                self.pitch,
                self.channels.format()?,
            ),
            _ => {
                runtime.report.remark(
                    "textures with several levels are not there: the call returned \
                     cudaErrorNotSupported (801)",
                );
                return Err(NOT_SUPPORTED);
            }
        };
        if size.contains(&0) || runtime.heap.place(self.at).is_none() {
            return Err(INVALID_VALUE);
        }
        Ok(Texture {
            base: self.at,
            pitch: pitch as u64,
            size: [size[0] as u32, size[1] as u32, 1],
            ..plain(format)
        })
    }
}

/// The start of `cudaTextureDesc`; what follows is about levels.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sampling {
    outside: [c_int; 3],
    linear: c_int,
    normalised_values: c_int,
    gamma: c_int,
    border: [f32; 4],
    normalised_coordinates: c_int,
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaCreateTextureObject(
    to: *mut u64,
    resource: *const Resource,
    sampling: *const Sampling,
    view: *const c_void,
) -> c_int {
    call(|runtime| {
        let (Some(resource), Some(sampling)) = (raw::get(resource), raw::get(sampling)) else {
            return Err(INVALID_VALUE);
        };
        if !view.is_null() || sampling.gamma != 0 {
            runtime.report.remark(
                "textures in another format than their memory's, and sRGB, are not there: the \
                 call returned cudaErrorNotSupported (801)",
            );
            return Err(NOT_SUPPORTED);
        }
        let mut image = resource.image(runtime)?;
        // Linear memory is read at whole coordinates, and as zeros outside.
        if resource.kind != LINEAR {
            image.outside = sampling.outside.map(|mode| match mode {
                0 => Outside::Wrap,
                1 => Outside::Clamp,
                2 => Outside::Mirror,
                _ => Outside::Border,
            });
            image.border = sampling.border;
            image.linear = sampling.linear != 0;
            image.normalised_coordinates = sampling.normalised_coordinates != 0;
        }
        image.normalised_values =
            sampling.normalised_values != 0 && image.format.kind != TexelKind::Float;
        if image.linear && !image.normalised_values && image.format.kind != TexelKind::Float {
            // Whole numbers can't be interpolated.
            return Err(INVALID_VALUE);
        }
        raw::put(to, object(runtime, &image));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaCreateSurfaceObject(to: *mut u64, resource: *const Resource) -> c_int {
    call(|runtime| {
        let resource = raw::get(resource).ok_or(INVALID_VALUE)?;
        if resource.kind != ARRAY {
            return Err(INVALID_VALUE);
        }
        let image = resource.image(runtime)?;
        raw::put(to, object(runtime, &image));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDestroyTextureObject(object: u64) -> c_int {
    call(|runtime| {
        runtime.heap.free(object);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDestroySurfaceObject(object: u64) -> c_int {
    cudaDestroyTextureObject(object)
}

/// Where the descriptions of textures and surfaces lie: their objects are these addresses.
const OBJECTS: u64 = 0x8_0000_0000;

/// A texture or surface object.
fn object(runtime: &mut Runtime, image: &Texture) -> u64 {
    let number = runtime.handle() as u64;
    let at = OBJECTS + 256 * number;
    let name = format!("texture or surface object {number}");
    runtime.heap.variable(&name, at, image.to_bytes().to_vec());
    at
}
