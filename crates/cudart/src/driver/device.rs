//! The device: there is one, with the number 0.

use super::context::without;
use crate::api;
use crate::raw;
use crate::runtime::quietly;
use crate::status::{INVALID_DEVICE, INVALID_VALUE};
use std::ffi::{c_char, c_int, c_uint, c_void};

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDriverGetVersion(to: *mut c_int) -> c_int {
    api::cudaDriverGetVersion(to)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetCount(to: *mut c_int) -> c_int {
    without(|_| {
        raw::put(to, 1);
        Ok(())
    })
}

fn only(device: c_int) -> Result<(), c_int> {
    (device == 0).then_some(()).ok_or(INVALID_DEVICE)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGet(to: *mut c_int, number: c_int) -> c_int {
    without(|_| {
        only(number)?;
        raw::put(to, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetName(to: *mut c_char, room: c_int, device: c_int) -> c_int {
    without(|runtime| {
        only(device)?;
        let room = usize::try_from(room).ok().filter(|&room| room > 0);
        let mut name = format!("{} (simulated)", runtime.device.gpu().name).into_bytes();
        name.truncate(room.ok_or(INVALID_VALUE)? - 1);
        name.push(0);
        raw::fill(to.cast(), &name);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetUuid_v2(to: *mut c_void, device: c_int) -> c_int {
    without(|_| {
        only(device)?;
        raw::fill(to, b"heist, simulated");
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetUuid(to: *mut c_void, device: c_int) -> c_int {
    cuDeviceGetUuid_v2(to, device)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceTotalMem_v2(to: *mut usize, device: c_int) -> c_int {
    without(|runtime| {
        only(device)?;
        raw::put(to, runtime.device.gpu().memory_bytes as usize);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetAttribute(to: *mut c_int, id: c_int, device: c_int) -> c_int {
    match without(|_| only(device)) {
        0 => quietly(|| api::cudaDeviceGetAttribute(to, id, device)),
        status => status,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceComputeCapability(
    major: *mut c_int,
    minor: *mut c_int,
    device: c_int,
) -> c_int {
    without(|runtime| {
        only(device)?;
        let (first, second) = api::capability(runtime.device.gpu());
        raw::put(major, first as c_int);
        raw::put(minor, second as c_int);
        Ok(())
    })
}

/// `CUdevprop`: the limits of blocks and grids, and a few sizes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetProperties(to: *mut c_void, device: c_int) -> c_int {
    without(|runtime| {
        only(device)?;
        let gpu = runtime.device.gpu();
        let limits = gpu.arch.limits();
        let numbers = [limits.threads_per_block]
            .into_iter()
            .chain(limits.block)
            .chain(limits.grid)
            .chain([
                limits.shared_static,
                limits.constant_bytes,
                32,
                i32::MAX as u32,
                limits.registers_per_block,
                gpu.clock_mhz * 1000,
                512,
            ]);
        let bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        raw::fill(to, &bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceCanAccessPeer(to: *mut c_int, one: c_int, other: c_int) -> c_int {
    without(|_| {
        only(one).and(only(other))?;
        raw::put(to, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetExecAffinitySupport(
    to: *mut c_int,
    _: c_int,
    device: c_int,
) -> c_int {
    cuDeviceCanAccessPeer(to, device, device)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetPCIBusId(to: *mut c_char, room: c_int, device: c_int) -> c_int {
    quietly(|| api::cudaDeviceGetPCIBusId(to, room, device))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetByPCIBusId(to: *mut c_int, name: *const c_char) -> c_int {
    quietly(|| api::cudaDeviceGetByPCIBusId(to, name))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxEnablePeerAccess(_: usize, _: c_uint) -> c_int {
    without(|_| Err(INVALID_DEVICE))
}

same! {
    cuDeviceGetDefaultMemPool = crate::api::cudaDeviceGetDefaultMemPool: (to: *mut usize, device: c_int);
    cuDeviceGetMemPool = crate::api::cudaDeviceGetMemPool: (to: *mut usize, device: c_int);
    cuDeviceSetMemPool = crate::api::cudaDeviceSetMemPool: (device: c_int, pool: usize);
}
