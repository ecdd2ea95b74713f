//! The device: how many there are (one), what it is like, and the last error.

use crate::raw;
use crate::runtime::{call, runtime};
use crate::status::{INVALID_DEVICE, INVALID_VALUE};
use heist_ptx::arch::Gpu;
use std::ffi::{c_char, c_int, c_uint, c_void};

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetLastError() -> c_int {
    runtime().last_error(true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaPeekAtLastError() -> c_int {
    runtime().last_error(false)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDeviceCount(to: *mut c_int) -> c_int {
    raw::put(to, 1);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDevice(to: *mut c_int) -> c_int {
    raw::put(to, 0);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    call(|_| {
        if device == 0 {
            Ok(())
        } else {
            Err(INVALID_DEVICE)
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaInitDevice(device: c_int, _: c_uint, _: c_uint) -> c_int {
    cudaSetDevice(device)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaChooseDevice(to: *mut c_int, _: *const c_void) -> c_int {
    cudaGetDevice(to)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceReset() -> c_int {
    runtime().reset();
    0
}

macro_rules! answers {
    ($($name:ident($($argument:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($(_: $argument),*) -> c_int {
            0
        }
    )*};
}

answers! {
    cudaSetDeviceFlags(c_uint);
    cudaDeviceSetCacheConfig(c_int);
    cudaDeviceSetSharedMemConfig(c_int);
    cudaCtxResetPersistingL2Cache();
    cudaSetValidDevices(*const c_int, c_int);
    cudaFuncSetSharedMemConfig(*const c_void, c_int);
}

/// Answers with zero: what was set changes nothing here.
macro_rules! zeros {
    ($($name:ident(*mut $value:ty);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(to: *mut $value) -> c_int {
            raw::put(to, 0);
            0
        }
    )*};
}

zeros! {
    cudaGetDeviceFlags(*mut c_uint);
    cudaDeviceGetCacheConfig(*mut c_int);
    cudaDeviceGetSharedMemConfig(*mut c_int);
}

/// Where the device is said to be.
const PLACE: &[u8] = b"0000:00:00.0\0";

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceGetPCIBusId(
    to: *mut c_char,
    room: c_int,
    device: c_int,
) -> c_int {
    call(|_| {
        if device != 0 {
            return Err(INVALID_DEVICE);
        }
        if usize::try_from(room).is_ok_and(|room| room < PLACE.len()) {
            return Err(INVALID_VALUE);
        }
        raw::fill(to.cast(), PLACE);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceGetByPCIBusId(to: *mut c_int, name: *const c_char) -> c_int {
    call(|_| {
        let name = raw::name(name);
        let known = PLACE.strip_suffix(b"\0") == Some(name.as_bytes());
        raw::put(to, 0);
        known.then_some(()).ok_or(INVALID_DEVICE)
    })
}

/// There is no other device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceEnablePeerAccess(_: c_int, _: c_uint) -> c_int {
    call(|_| Err(INVALID_DEVICE))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceDisablePeerAccess(_: c_int) -> c_int {
    call(|_| Err(INVALID_DEVICE))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceGetP2PAttribute(
    _: *mut c_int,
    _: c_int,
    _: c_int,
    _: c_int,
) -> c_int {
    call(|_| Err(INVALID_DEVICE))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceSetLimit(limit: c_int, value: usize) -> c_int {
    call(|runtime| {
        runtime.limits.insert(limit, value);
        Ok(())
    })
}

pub(super) const VERSION: c_int = 13000;
/// The driver is as new as the newest PTX that is taken: programs refuse one that is older than they are.
const DRIVER: c_int = 13040;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDriverGetVersion(to: *mut c_int) -> c_int {
    raw::put(to, DRIVER);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaRuntimeGetVersion(to: *mut c_int) -> c_int {
    raw::put(to, VERSION);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceGetLimit(to: *mut usize, limit: c_int) -> c_int {
    // Stack, printf's buffer, the heap of device code; the rest is small.
    const LIMITS: [usize; 3] = [1024, 1 << 20, 8 << 20];
    call(|runtime| {
        let usual = usize::try_from(limit).ok().and_then(|at| LIMITS.get(at));
        let set = runtime.limits.get(&limit).or(usual);
        raw::put(to, set.copied().unwrap_or(2));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceCanAccessPeer(to: *mut c_int, _: c_int, _: c_int) -> c_int {
    raw::put(to, 0);
    0
}

/// Major and minor number of the architecture.
pub(crate) fn capability(gpu: &Gpu) -> (u32, u32) {
    let name = gpu.arch.name();
    let digits = name.trim_matches(|c: char| !c.is_ascii_digit());
    let number = digits.parse::<u32>().unwrap_or(90);
    (number / 10, number % 10)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceGetAttribute(to: *mut c_int, id: c_int, _: c_int) -> c_int {
    call(|runtime| {
        let gpu = runtime.device.gpu();
        let limits = gpu.arch.limits();
        let (major, minor) = capability(gpu);
        let value = match id {
            1 => limits.threads_per_block,
            2..=4 => limits.block[id as usize - 2],
            5..=7 => limits.grid[id as usize - 5],
            8 => limits.shared_static,
            9 => limits.constant_bytes,
            10 => 32,
            11 => i32::MAX as u32,
            12 => limits.registers_per_block,
            13 => gpu.clock_mhz * 1000,
            14 => 512,
            15 | 31 | 40 | 41 | 83 | 89 | 90 | 19 | 78 | 79 | 80 | 95 | 99 | 102 | 115 => 1,
            16 => gpu.sms,
            // Sizes of textures: of one axis, of two, of three, in layers.
            21 | 22 => 131_072,
            23 => 65_536,
            24..=26 => 16_384,
            27 | 28 | 42 => 32_768,
            29 | 43 => 2048,
            36 => 2_000_000,
            37 => 4096,
            38 => gpu.l2_bytes as u32,
            39 => limits.threads_per_sm,
            51 => 32,
            75 => major,
            76 => minor,
            81 => limits.shared_per_sm,
            82 => limits.registers_per_sm,
            97 => limits.shared_opt_in,
            106 => limits.blocks_per_sm,
            111 => limits.shared_reserved,
            120 => u32::from(limits.cluster_max > 0),
            ..=0 => return Err(INVALID_VALUE),
            _ => 0,
        };
        raw::put(to, value as c_int);
        Ok(())
    })
}

/// `cudaDeviceProp` of CUDA 13: what programs read of it, each at its place.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDeviceProperties(to: *mut c_void, device: c_int) -> c_int {
    call(|runtime| {
        if device != 0 {
            return Err(INVALID_DEVICE);
        }
        raw::fill(to, &properties(runtime.device.gpu()));
        Ok(())
    })
}

fn properties(gpu: &Gpu) -> [u8; 1008] {
    let limits = gpu.arch.limits();
    let (major, minor) = capability(gpu);
    let mut bytes = [0u8; 1008];
    let name = format!("{} (simulated)", gpu.name);
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    let wide = [
        (288, gpu.memory_bytes),
        (296, u64::from(limits.shared_static)),
        (312, i32::MAX as u64),
        (352, u64::from(limits.constant_bytes)),
        (368, 512),
        (376, 32),
        (624, u64::from(limits.shared_per_sm)),
        (672, u64::from(limits.shared_opt_in)),
        (696, u64::from(limits.shared_reserved)),
    ];
    let narrow = [
        (304, limits.registers_per_block),
        (308, 32),
        (320, limits.threads_per_block),
        (324, limits.block[0]),
        (328, limits.block[1]),
        (332, limits.block[2]),
        (336, limits.grid[0]),
        (340, limits.grid[1]),
        (344, limits.grid[2]),
        (360, major),
        (364, minor),
        (384, gpu.sms),
        (392, 1),
        (560, 1),
        (584, 1),
        (588, 1),
        (592, 4096),
        (596, gpu.l2_bytes as u32),
        (604, limits.threads_per_sm),
        (608, 1),
        (612, 1),
        (616, 1),
        (632, limits.registers_per_sm),
        (636, 1),
        (656, 1),
        (660, 1),
        (668, 1),
        (688, limits.blocks_per_sm),
        (704, 1),
        (720, 1),
        (748, u32::from(limits.cluster_max > 0)),
    ];
    for (at, value) in wide {
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    for (at, value) in narrow {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}
