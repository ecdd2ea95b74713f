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
        let array = Array {
            format,
            size: extent.0,
            flags,
        };
        raw::put(to, create_array(runtime, array)?);
        Ok(())
    })
}

/// Memory for an array; its handle.
pub(crate) fn create_array(runtime: &mut Runtime, array: Array) -> Result<u64, c_int> {
    if array.flags & CUBE != 0 {
        runtime
            .report
            .remark("cube maps are not there: the call returned cudaErrorNotSupported (801)");
        return Err(NOT_SUPPORTED);
    }
    if array.size[0] == 0 {
        return Err(INVALID_VALUE);
    }
    fits(runtime, array.bytes())?;
    let at = runtime.heap.array(array.bytes());
    runtime.arrays.insert(at, array);
    Ok(at)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFreeArray(array: u64) -> c_int {
    call(|runtime| {
        if array == 0 {
            return Ok(());
        }
        runtime.arrays.remove(&array).ok_or(INVALID_VALUE)?;
        runtime.order.host_waits_for_all();
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
            at: allocate(runtime, "cudaMalloc3D", len)?,
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
        let format = match self.kind {
            LINEAR | PITCHED => Some(self.channels.format()?),
            _ => None,
        };
        let size = [self.width, self.height, self.pitch];
        image_over(runtime, self.kind, self.at, format, size)
    }
}

/// The image that a description of either interface means; the size is bytes or elements of a row, rows,
/// and bytes from row to row.
pub(crate) fn image_over(
    runtime: &mut Runtime,
    kind: c_int,
    at: u64,
    format: Option<TexelFormat>,
    [width, height, pitch]: [usize; 3],
) -> Result<Texture, c_int> {
    let (size, pitch, format) = match (kind, format) {
        (ARRAY, _) => return Ok(runtime.array(at)?.image(at)),
        (LINEAR, Some(format)) => ([width / format.bytes() as usize, 1], 0, format),
        (PITCHED, Some(format)) => ([width, height], pitch, format),
        _ => {
            runtime.report.remark(
                "textures with several levels are not there: the call returned \
                 cudaErrorNotSupported (801)",
            );
            return Err(NOT_SUPPORTED);
        }
    };
    if size.contains(&0) || runtime.heap.place(at).is_none() {
        return Err(INVALID_VALUE);
    }
    Ok(Texture {
        base: at,
        pitch: pitch as u64,
        size: [size[0] as u32, size[1] as u32, 1],
        ..plain(format)
    })
}

/// The start of `cudaTextureDesc`; what follows is about levels.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sampling {
    pub(crate) outside: [c_int; 3],
    pub(crate) linear: c_int,
    pub(crate) normalised_values: c_int,
    pub(crate) gamma: c_int,
    pub(crate) border: [f32; 4],
    pub(crate) normalised_coordinates: c_int,
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
        let image = resource.image(runtime)?;
        let linear = resource.kind == LINEAR;
        let made = create_texture(runtime, image, linear, &sampling, !view.is_null())?;
        raw::put(to, made);
        Ok(())
    })
}

/// A texture over an image, or over linear memory: that is read at whole coordinates, and as zeros outside.
pub(crate) fn create_texture(
    runtime: &mut Runtime,
    mut image: Texture,
    linear: bool,
    sampling: &Sampling,
    viewed: bool,
) -> Result<u64, c_int> {
    if viewed || sampling.gamma != 0 {
        runtime.report.remark(
            "textures in another format than their memory's, and sRGB, are not there: the \
             call returned cudaErrorNotSupported (801)",
        );
        return Err(NOT_SUPPORTED);
    }
    if !linear {
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
    Ok(object(runtime, &image))
}

/// A surface over an array.
pub(crate) fn create_surface(runtime: &mut Runtime, image: &Texture) -> u64 {
    object(runtime, image)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaCreateSurfaceObject(to: *mut u64, resource: *const Resource) -> c_int {
    call(|runtime| {
        let resource = raw::get(resource).ok_or(INVALID_VALUE)?;
        if resource.kind != ARRAY {
            return Err(INVALID_VALUE);
        }
        let image = resource.image(runtime)?;
        raw::put(to, create_surface(runtime, &image));
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
