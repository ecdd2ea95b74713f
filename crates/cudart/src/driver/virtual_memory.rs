//! Addresses that are reserved, and memory that is mapped there later.

use super::context::within;
use crate::api::fits;
use crate::objects::Physical;
use crate::raw;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED};
use std::ffi::{c_int, c_ulonglong, c_void};

/// Memory is mapped in pieces of so many bytes.
const GRANULE: usize = 2 << 20;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemGetAllocationGranularity(
    to: *mut usize,
    _: *const c_void,
    _: c_int,
) -> c_int {
    within(|_| {
        raw::put(to, GRANULE);
        Ok(())
    })
}

/// Whole pieces are asked for.
fn whole(bytes: usize) -> Result<(), c_int> {
    let fits = bytes > 0 && bytes.is_multiple_of(GRANULE);
    fits.then_some(()).ok_or(INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAddressReserve(
    to: *mut u64,
    bytes: usize,
    _: usize,
    _: u64,
    _: c_ulonglong,
) -> c_int {
    within(|runtime| {
        whole(bytes)?;
        raw::put(to, runtime.heap.reserve(bytes));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAddressFree(at: u64, bytes: usize) -> c_int {
    within(
        |runtime| match runtime.heap.starts_in(at, bytes).is_empty() {
            true => Ok(()),
            false => Err(INVALID_VALUE),
        },
    )
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemCreate(
    to: *mut usize,
    bytes: usize,
    _: *const c_void,
    _: c_ulonglong,
) -> c_int {
    within(|runtime| {
        whole(bytes)?;
        fits(runtime, bytes)?;
        let made = runtime.handle();
        let mapped = None;
        runtime.physical.insert(made, Physical { bytes, mapped });
        raw::put(to, made);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemMap(
    at: u64,
    bytes: usize,
    offset: usize,
    handle: usize,
    _: c_ulonglong,
) -> c_int {
    within(|runtime| {
        whole(bytes)?;
        let memory = runtime.physical.get_mut(&handle).ok_or(INVALID_VALUE)?;
        if offset != 0 || bytes != memory.bytes {
            return Err(INVALID_VALUE);
        }
        if memory.mapped.is_some() {
            runtime.report.remark(
                "cuMemMap: memory that is mapped at two places is not there: it returned \
                 CUDA_ERROR_NOT_SUPPORTED (801)",
            );
            return Err(NOT_SUPPORTED);
        }
        memory.mapped = Some(at);
        let done = runtime.heap.device_at("cuMemMap", at, bytes);
        done.then_some(()).ok_or(INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemUnmap(at: u64, bytes: usize) -> c_int {
    within(|runtime| {
        let starts = runtime.heap.starts_in(at, bytes);
        if starts.is_empty() {
            return Err(INVALID_VALUE);
        }
        for start in starts {
            runtime.heap.free(start);
            let all = runtime.physical.values_mut();
            all.filter(|one| one.mapped == Some(start))
                .for_each(|one| one.mapped = None);
        }
        Ok(())
    })
}

/// What was mapped is for the one device there is.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemSetAccess(
    at: u64,
    bytes: usize,
    _: *const c_void,
    _: usize,
) -> c_int {
    within(
        |runtime| match runtime.heap.starts_in(at, bytes).is_empty() {
            true => Err(INVALID_VALUE),
            false => Ok(()),
        },
    )
}

/// Memory stays while it is mapped.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemRelease(handle: usize) -> c_int {
    within(|runtime| {
        let known = runtime.physical.remove(&handle);
        known.map(|_| ()).ok_or(INVALID_VALUE)
    })
}
