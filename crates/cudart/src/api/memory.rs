//! Memory: allocations, and what is known of addresses.

use crate::heap::MANAGED;
use crate::operation::Operation;
use crate::perform::submit;
use crate::raw;
use crate::runtime::{Runtime, call};
use crate::status::{INVALID_VALUE, OUT_OF_MEMORY};
use std::ffi::{c_int, c_uint, c_void};

type Pointer = *mut c_void;
type Stream = *mut c_void;

/// Bytes of memory that the device has left for `len` more.
pub(crate) fn fits(runtime: &Runtime, len: usize) -> Result<(), c_int> {
    let most = runtime.device.gpu().memory_bytes;
    let total = runtime.heap.used().saturating_add(len as u64);
    if total > most {
        Err(OUT_OF_MEMORY)
    } else {
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMalloc(to: *mut Pointer, len: usize) -> c_int {
    call(|runtime| {
        raw::put(to, allocate(runtime, "cudaMalloc", len)? as Pointer);
        Ok(())
    })
}

/// Memory of the device; an empty allocation is a null pointer.
pub(crate) fn allocate(runtime: &mut Runtime, by: &str, len: usize) -> Result<u64, c_int> {
    fits(runtime, len)?;
    Ok(match len {
        0 => 0,
        len => runtime.heap.device(by, len),
    })
}

/// The address is settled now, also where the memory is a node of a graph.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMallocAsync(to: *mut Pointer, len: usize, stream: Stream) -> c_int {
    submit(stream, |runtime| {
        fits(runtime, len)?;
        if len == 0 {
            raw::put(to, std::ptr::null_mut());
            return Ok(Operation::Nothing);
        }
        let at = runtime.heap.reserve(len);
        raw::put(to, at as Pointer);
        Ok(Operation::Allocate {
            by: "cudaMallocAsync",
            at,
            len,
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMallocPitch(
    to: *mut Pointer,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> c_int {
    let wide = width.next_multiple_of(512);
    raw::put(pitch, wide);
    cudaMalloc(to, wide.saturating_mul(height))
}

fn shared(to: *mut Pointer, what: &str, len: usize) -> c_int {
    call(|runtime| {
        fits(runtime, len)?;
        let at = runtime.heap.shared(what, len).ok_or(OUT_OF_MEMORY)?;
        raw::put(to, at as Pointer);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMallocManaged(to: *mut Pointer, len: usize, _: c_uint) -> c_int {
    shared(to, MANAGED, len)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMallocHost(to: *mut Pointer, len: usize) -> c_int {
    shared(to, "cudaMallocHost", len)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaHostAlloc(to: *mut Pointer, len: usize, _: c_uint) -> c_int {
    shared(to, "cudaHostAlloc", len)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFree(at: Pointer) -> c_int {
    call(|runtime| {
        // It waits for the device.
        runtime.order.host_waits_for_all();
        runtime.free(at as u64)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFreeAsync(at: Pointer, stream: Stream) -> c_int {
    submit(stream, |_| Ok(Operation::Free(at as u64)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFreeHost(at: Pointer) -> c_int {
    cudaFree(at)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    call(|runtime| {
        let all = runtime.device.gpu().memory_bytes;
        raw::put(free, (all - runtime.heap.used().min(all)) as usize);
        raw::put(total, all as usize);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaHostRegister(host: Pointer, len: usize, _: c_uint) -> c_int {
    call(|runtime| {
        runtime.heap.registered(host as u64, len);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaHostUnregister(host: Pointer) -> c_int {
    call(|runtime| {
        let at = runtime.heap.of_host(host as u64).ok_or(INVALID_VALUE)?;
        runtime.order.host_waits_for_all();
        runtime.heap.free(at);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaHostGetDevicePointer(
    to: *mut Pointer,
    host: Pointer,
    _: c_uint,
) -> c_int {
    call(|runtime| {
        let at = runtime.heap.of_host(host as u64).ok_or(INVALID_VALUE)?;
        raw::put(to, at as Pointer);
        Ok(())
    })
}

/// `cudaPointerAttributes`: a kind, the device, and the two addresses.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaPointerGetAttributes(to: Pointer, at: *const c_void) -> c_int {
    const UNREGISTERED: u32 = 0;
    const HOST: u32 = 1;
    const DEVICE: u32 = 2;
    const OF_BOTH: u32 = 3;
    call(|runtime| {
        let mut bytes = [0u8; 88];
        let kind = match runtime.heap.place(at as u64) {
            None => UNREGISTERED,
            Some((_, _, None)) => DEVICE,
            Some(_) if runtime.heap.is_managed(at as u64) => OF_BOTH,
            Some(_) => HOST,
        };
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        if kind != UNREGISTERED {
            bytes[8..16].copy_from_slice(&(at as u64).to_le_bytes());
        }
        if kind != DEVICE {
            bytes[16..24].copy_from_slice(&(at as u64).to_le_bytes());
        }
        raw::fill(to, &bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemPrefetchAsync(_: *const c_void, _: usize) -> c_int {
    call(|_| Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemAdvise(_: *const c_void, _: usize) -> c_int {
    call(|_| Ok(()))
}

/// How pinned memory was made: mapped, as all is here.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaHostGetFlags(to: *mut c_uint, host: Pointer) -> c_int {
    const MAPPED: c_uint = 2;
    call(|runtime| {
        runtime.heap.of_host(host as u64).ok_or(INVALID_VALUE)?;
        raw::put(to, MAPPED);
        Ok(())
    })
}
