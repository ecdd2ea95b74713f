//! Memory: allocations, copies and fills.

use crate::raw;
use crate::runtime::{INVALID_VALUE, OUT_OF_MEMORY, Runtime, call};
use std::ffi::{c_int, c_uint, c_void};

type Pointer = *mut c_void;
type Stream = *mut c_void;

/// Bytes of memory that the device has left for `len` more.
fn fits(runtime: &Runtime, len: usize) -> Result<(), c_int> {
    let most = runtime.device.gpu().memory_bytes;
    let total = runtime.heap.used().saturating_add(len as u64);
    if total > most {
        Err(OUT_OF_MEMORY)
    } else {
        Ok(())
    }
}

/// Reads from the device or from the host, wherever the address is.
fn read(runtime: &mut Runtime, from: *const c_void, len: usize) -> Result<Vec<u8>, c_int> {
    match runtime.heap.place(from as u64) {
        None => Ok(raw::bytes(from, len)),
        Some(_) => match runtime.heap.read(from as u64, len) {
            Some(bytes) => Ok(bytes),
            None => Err(outside(runtime, "reads", from as u64, len)),
        },
    }
}

fn write(runtime: &mut Runtime, to: Pointer, bytes: &[u8]) -> Result<(), c_int> {
    match runtime.heap.place(to as u64) {
        None => raw::fill(to, bytes),
        Some(_) if runtime.heap.write(to as u64, bytes) => {}
        Some(_) => return Err(outside(runtime, "writes", to as u64, bytes.len())),
    }
    Ok(())
}

/// A copy or a fill that leaves its allocation.
fn outside(runtime: &mut Runtime, does: &str, at: u64, len: usize) -> c_int {
    if let Some((start, size, _)) = runtime.heap.place(at) {
        let text = format!(
            "the host {does} {len} bytes at byte {} of an allocation of {size} bytes: the call \
             returned cudaErrorInvalidValue (1)",
            at - start
        );
        runtime.report.remark(&text);
    }
    INVALID_VALUE
}

const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;

fn copy(to: Pointer, from: *const c_void, len: usize, kind: c_int) -> c_int {
    call(|runtime| {
        if len == 0 {
            return Ok(());
        }
        let (from_device, to_device) = (
            runtime.heap.place(from as u64).is_some(),
            runtime.heap.place(to as u64).is_some(),
        );
        let wrong = match kind {
            HOST_TO_DEVICE => !to_device,
            DEVICE_TO_HOST => !from_device,
            DEVICE_TO_DEVICE => !from_device || !to_device,
            _ => false,
        };
        if wrong {
            runtime.report.remark(
                "cudaMemcpy with an address that is none of the device: it returned \
                 cudaErrorInvalidValue (1)",
            );
            return Err(INVALID_VALUE);
        }
        let bytes = read(runtime, from, len)?;
        write(runtime, to, &bytes)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMalloc(to: *mut Pointer, len: usize) -> c_int {
    call(|runtime| {
        fits(runtime, len)?;
        // An empty allocation is a null pointer.
        let at = if len == 0 {
            0
        } else {
            runtime.heap.device(len)
        };
        raw::put(to, at as Pointer);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMallocAsync(to: *mut Pointer, len: usize, _: Stream) -> c_int {
    cudaMalloc(to, len)
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
    shared(to, "cudaMallocManaged", len)
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
        if at.is_null() || runtime.heap.free(at as u64) {
            return Ok(());
        }
        runtime.report.remark(&format!(
            "cudaFree of {at:p}, where no allocation begins (given back already?): it returned \
             cudaErrorInvalidValue (1)"
        ));
        Err(INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFreeAsync(at: Pointer, _: Stream) -> c_int {
    cudaFree(at)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFreeHost(at: Pointer) -> c_int {
    cudaFree(at)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy(
    to: Pointer,
    from: *const c_void,
    len: usize,
    kind: c_int,
) -> c_int {
    copy(to, from, len, kind)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyAsync(
    to: Pointer,
    from: *const c_void,
    len: usize,
    kind: c_int,
    _: Stream,
) -> c_int {
    copy(to, from, len, kind)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyPeer(
    to: Pointer,
    _: c_int,
    from: *const c_void,
    _: c_int,
    len: usize,
) -> c_int {
    copy(to, from, len, DEVICE_TO_DEVICE)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2D(
    to: Pointer,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    for row in 0..height {
        let (to, from) = (
            to.wrapping_byte_add(row * to_pitch),
            from.wrapping_byte_add(row * from_pitch),
        );
        let status = copy(to, from, width, kind);
        if status != 0 {
            return status;
        }
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2DAsync(
    to: Pointer,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    _: Stream,
) -> c_int {
    cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemset(to: Pointer, value: c_int, len: usize) -> c_int {
    call(|runtime| write(runtime, to, &vec![value as u8; len]))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemsetAsync(
    to: Pointer,
    value: c_int,
    len: usize,
    _: Stream,
) -> c_int {
    cudaMemset(to, value, len)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemset2D(
    to: Pointer,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
) -> c_int {
    for row in 0..height {
        let status = cudaMemset(to.wrapping_byte_add(row * pitch), value, width);
        if status != 0 {
            return status;
        }
    }
    0
}

/// The address of a part of a variable.
fn within(runtime: &Runtime, symbol: *const c_void, offset: usize) -> Result<Pointer, c_int> {
    let (at, size) = runtime.symbol(symbol)?;
    if offset as u64 > size {
        return Err(INVALID_VALUE);
    }
    Ok((at + offset as u64) as Pointer)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyToSymbol(
    symbol: *const c_void,
    from: *const c_void,
    len: usize,
    offset: usize,
    _: c_int,
) -> c_int {
    call(|runtime| {
        let to = within(runtime, symbol, offset)?;
        let bytes = read(runtime, from, len)?;
        write(runtime, to, &bytes)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyToSymbolAsync(
    symbol: *const c_void,
    from: *const c_void,
    len: usize,
    offset: usize,
    kind: c_int,
    _: Stream,
) -> c_int {
    cudaMemcpyToSymbol(symbol, from, len, offset, kind)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyFromSymbol(
    to: Pointer,
    symbol: *const c_void,
    len: usize,
    offset: usize,
    _: c_int,
) -> c_int {
    call(|runtime| {
        let from = within(runtime, symbol, offset)?;
        let bytes = read(runtime, from, len)?;
        write(runtime, to, &bytes)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyFromSymbolAsync(
    to: Pointer,
    symbol: *const c_void,
    len: usize,
    offset: usize,
    kind: c_int,
    _: Stream,
) -> c_int {
    cudaMemcpyFromSymbol(to, symbol, len, offset, kind)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetSymbolAddress(to: *mut Pointer, symbol: *const c_void) -> c_int {
    call(|runtime| {
        let (at, _) = runtime.symbol(symbol)?;
        raw::put(to, at as Pointer);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetSymbolSize(to: *mut usize, symbol: *const c_void) -> c_int {
    call(|runtime| {
        let (_, size) = runtime.symbol(symbol)?;
        raw::put(to, size as usize);
        Ok(())
    })
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
    const MANAGED: u32 = 3;
    call(|runtime| {
        let mut bytes = [0u8; 88];
        let kind = match runtime.heap.place(at as u64) {
            None => UNREGISTERED,
            Some((_, _, None)) => DEVICE,
            Some((start, _, Some(host))) if start == host => MANAGED,
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
