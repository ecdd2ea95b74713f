//! Pools of memory: there is one heap, so a pool is a name, and what was set of it.

use super::memory::cudaMallocAsync;
use crate::raw;
use crate::runtime::call;
use crate::status::{INVALID_DEVICE, INVALID_VALUE};
use std::ffi::{c_int, c_void};

/// The handle of the device's own pool.
const OWN: usize = 0x80;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceGetDefaultMemPool(to: *mut usize, device: c_int) -> c_int {
    call(|_| {
        if device != 0 {
            return Err(INVALID_DEVICE);
        }
        raw::put(to, OWN);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceGetMemPool(to: *mut usize, device: c_int) -> c_int {
    cudaDeviceGetDefaultMemPool(to, device)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemPoolCreate(to: *mut usize, _: *const c_void) -> c_int {
    call(|runtime| {
        raw::put(to, runtime.handle());
        Ok(())
    })
}

macro_rules! accepted {
    ($($name:ident($($argument:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($(_: $argument),*) -> c_int {
            call(|_| Ok(()))
        }
    )*};
}

accepted! {
    cudaMemPoolDestroy(usize);
    cudaMemPoolTrimTo(usize, usize);
    cudaMemPoolSetAccess(usize, *const c_void, usize);
    cudaDeviceSetMemPool(c_int, usize);
}

/// The attributes from this one on are 64 bits wide.
const THRESHOLD: c_int = 4;
/// What is reserved and in use, now and at most.
const USE: std::ops::RangeInclusive<c_int> = 5..=8;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemPoolSetAttribute(
    pool: usize,
    attribute: c_int,
    value: *const c_void,
) -> c_int {
    call(|runtime| {
        let value = match attribute {
            1..THRESHOLD => raw::get(value.cast::<u32>()).map(u64::from),
            THRESHOLD => raw::get(value.cast::<u64>()),
            // The highest use is set back; it is told as it is now.
            attribute if USE.contains(&attribute) => return Ok(()),
            _ => None,
        };
        let value = value.ok_or(INVALID_VALUE)?;
        runtime.pools.insert((pool, attribute), value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemPoolGetAttribute(
    pool: usize,
    attribute: c_int,
    to: *mut c_void,
) -> c_int {
    call(|runtime| {
        let set = runtime.pools.get(&(pool, attribute)).copied();
        match attribute {
            // Memory is used again where streams allow it, unless that was switched off.
            1..THRESHOLD => raw::put(to.cast(), set.unwrap_or(1) as u32),
            THRESHOLD => raw::put(to.cast(), set.unwrap_or(0)),
            attribute if USE.contains(&attribute) => raw::put(to.cast(), runtime.heap.used()),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMallocFromPoolAsync(
    to: *mut *mut c_void,
    len: usize,
    _: usize,
    stream: *mut c_void,
) -> c_int {
    cudaMallocAsync(to, len, stream)
}

/// Memory of a pool is for the device to read and to write.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemPoolGetAccess(to: *mut c_int, _: usize, _: *const c_void) -> c_int {
    call(|_| {
        raw::put(to, 3);
        Ok(())
    })
}
