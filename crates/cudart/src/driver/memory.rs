//! Memory of the device and of the host, and what is known of addresses.

use super::context::within;
use crate::api::{allocate, fits};
use crate::heap::MANAGED;
use crate::raw;
use crate::status::{INVALID_VALUE, OUT_OF_MEMORY};
use std::ffi::{c_int, c_uint, c_void};

type Handle = *mut c_void;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAlloc_v2(to: *mut u64, len: usize) -> c_int {
    within(|runtime| {
        if len == 0 {
            return Err(INVALID_VALUE);
        }
        raw::put(to, allocate(runtime, "cuMemAlloc", len)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAllocPitch_v2(
    to: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    _: c_uint,
) -> c_int {
    within(|runtime| {
        let wide = width.next_multiple_of(512);
        let len = wide.saturating_mul(height);
        if len == 0 {
            return Err(INVALID_VALUE);
        }
        raw::put(pitch, wide);
        raw::put(to, allocate(runtime, "cuMemAllocPitch", len)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemGetAddressRange_v2(
    start: *mut u64,
    len: *mut usize,
    address: u64,
) -> c_int {
    within(|runtime| {
        let (at, bytes, _) = runtime.heap.place(address).ok_or(INVALID_VALUE)?;
        raw::put(start, at);
        raw::put(len, bytes as usize);
        Ok(())
    })
}

fn for_host(to: *mut u64, what: &str, len: usize) -> c_int {
    within(|runtime| {
        fits(runtime, len)?;
        let at = runtime.heap.shared(what, len).ok_or(OUT_OF_MEMORY)?;
        raw::put(to, at);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAllocHost_v2(to: *mut u64, len: usize) -> c_int {
    for_host(to, "cuMemAllocHost", len)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemHostAlloc(to: *mut u64, len: usize, _: c_uint) -> c_int {
    for_host(to, "cuMemHostAlloc", len)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAllocManaged(to: *mut u64, len: usize, _: c_uint) -> c_int {
    for_host(to, MANAGED, len)
}

/// `CUpointer_attribute`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuPointerGetAttribute(
    to: *mut c_void,
    attribute: c_int,
    address: u64,
) -> c_int {
    const HOST: u32 = 1;
    const DEVICE: u32 = 2;
    within(|runtime| {
        let (start, len, host) = runtime.heap.place(address).ok_or(INVALID_VALUE)?;
        let managed = runtime.heap.is_managed(address);
        match attribute {
            2 => {
                let device = host.is_none() || managed;
                raw::put(to.cast(), if device { DEVICE } else { HOST });
            }
            3 => raw::put(to.cast(), address),
            4 => {
                let host = host.ok_or(INVALID_VALUE)?;
                raw::put(to.cast(), host + (address - start));
            }
            7 | 20 => raw::put(to.cast(), start),
            8 => raw::put(to.cast(), u32::from(managed)),
            9 => raw::put(to.cast(), 0u32),
            10 | 15 => raw::put(to.cast(), 0u32),
            11 | 19 => raw::put(to.cast(), start),
            12 | 18 => raw::put(to.cast(), len),
            13 => raw::put(to.cast(), 1u32),
            16 => raw::put(to.cast(), 3u32),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

/// Attributes of an address that is none of the device are zeros.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_int,
    to: *mut *mut c_void,
    address: u64,
) -> c_int {
    for at in 0..count as usize {
        let (Some(attribute), Some(to)) = (
            raw::element(attributes, at),
            raw::element(to.cast_const(), at),
        ) else {
            return INVALID_VALUE;
        };
        if cuPointerGetAttribute(to, attribute, address) != 0 {
            let bytes = if matches!(attribute, 2 | 8 | 9 | 10 | 13 | 15 | 16) {
                4
            } else {
                8
            };
            raw::fill(to, &[0; 8][..bytes]);
        }
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuPointerSetAttribute(_: *const c_void, _: c_int, _: u64) -> c_int {
    within(|_| Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemPrefetchAsync_v2(_: u64, _: usize) -> c_int {
    within(|_| Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAdvise_v2(_: u64, _: usize) -> c_int {
    within(|_| Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemPrefetchAsync(_: u64, _: usize) -> c_int {
    within(|_| Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAdvise(_: u64, _: usize) -> c_int {
    within(|_| Ok(()))
}

same! {
    cuMemFree_v2 = crate::api::cudaFree: (at: Handle);
    cuMemFreeHost = crate::api::cudaFreeHost: (at: Handle);
    cuMemGetInfo_v2 = crate::api::cudaMemGetInfo: (free: *mut usize, total: *mut usize);
    cuMemHostRegister_v2 = crate::api::cudaHostRegister: (host: Handle, len: usize, flags: c_uint);
    cuMemHostUnregister = crate::api::cudaHostUnregister: (host: Handle);
    cuMemHostGetDevicePointer_v2 = crate::api::cudaHostGetDevicePointer: (to: *mut Handle, host: Handle, flags: c_uint);
    cuMemHostGetFlags = crate::api::cudaHostGetFlags: (to: *mut c_uint, host: Handle);
    cuMemAllocAsync = crate::api::cudaMallocAsync: (to: *mut Handle, len: usize, stream: Handle);
    cuMemAllocFromPoolAsync = crate::api::cudaMallocFromPoolAsync: (to: *mut Handle, len: usize, pool: usize, stream: Handle);
    cuMemFreeAsync = crate::api::cudaFreeAsync: (at: Handle, stream: Handle);
    cuMemPoolCreate = crate::api::cudaMemPoolCreate: (to: *mut usize, properties: *const c_void);
    cuMemPoolDestroy = crate::api::cudaMemPoolDestroy: (pool: usize);
    cuMemPoolTrimTo = crate::api::cudaMemPoolTrimTo: (pool: usize, keep: usize);
    cuMemPoolSetAccess = crate::api::cudaMemPoolSetAccess: (pool: usize, list: *const c_void, count: usize);
    cuMemPoolGetAccess = crate::api::cudaMemPoolGetAccess: (to: *mut c_int, pool: usize, place: *const c_void);
    cuMemPoolSetAttribute = crate::api::cudaMemPoolSetAttribute: (pool: usize, attribute: c_int, value: *const c_void);
    cuMemPoolGetAttribute = crate::api::cudaMemPoolGetAttribute: (pool: usize, attribute: c_int, to: *mut c_void);
}
