//! Kernels: launches, and what is asked of them.

use super::context::{with, within};
use crate::api::{self, Attribute, Config, Three};
use crate::raw;
use crate::runtime::Runtime;
use crate::status::{INVALID_FUNCTION, INVALID_HANDLE, INVALID_VALUE};
use std::ffi::{c_char, c_int, c_uint, c_void};

type Handle = *mut c_void;

/// Marks of the list that a launch may have instead of one pointer for each argument.
const BUFFER: usize = 1;
const BUFFER_BYTES: usize = 2;

/// The arguments in one buffer, laid out as the kernel's parameters are.
fn packed(
    runtime: &Runtime,
    function: Handle,
    extra: *const *const c_void,
) -> Result<Vec<Vec<u8>>, c_int> {
    let pair = |mark: usize| {
        let pairs = (0..8).step_by(2);
        let mut known = pairs.map_while(|at| {
            let key = raw::element(extra, at)?.addr();
            (key != 0).then_some((key, at + 1))
        });
        let (_, at) = known.find(|(key, _)| *key == mark)?;
        raw::element(extra, at)
    };
    let (Some(buffer), Some(len)) = (pair(BUFFER), pair(BUFFER_BYTES)) else {
        return Err(INVALID_VALUE);
    };
    let len = raw::get(len.cast::<usize>()).ok_or(INVALID_VALUE)?;
    runtime.unpacked(function, &raw::bytes(buffer, len))
}

/// Launches with one pointer for each argument, or with a list of marks.
fn launch(
    config: Config,
    function: Handle,
    arguments: *const *const c_void,
    extra: *const *const c_void,
    cooperative: bool,
) -> c_int {
    let status = with(|| {
        api::launch_with(&config, function, cooperative, |runtime| {
            match arguments.is_null() && !extra.is_null() {
                true => packed(runtime, function, extra),
                false => runtime.arguments(function, arguments),
            }
        })
    });
    as_driver(status)
}

/// The driver knows a function by its handle.
fn as_driver(status: c_int) -> c_int {
    match status {
        INVALID_FUNCTION => INVALID_HANDLE,
        status => status,
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: Handle,
    arguments: *const *const c_void,
    extra: *const *const c_void,
) -> c_int {
    let (grid, block) = (
        Three::new(grid_x, grid_y, grid_z),
        Three::new(block_x, block_y, block_z),
    );
    let config = Config::plain(grid, block, shared as usize, stream);
    launch(config, function, arguments, extra, false)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLaunchCooperativeKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: Handle,
    arguments: *const *const c_void,
) -> c_int {
    let (grid, block) = (
        Three::new(grid_x, grid_y, grid_z),
        Three::new(block_x, block_y, block_z),
    );
    let config = Config::plain(grid, block, shared as usize, stream);
    launch(config, function, arguments, std::ptr::null(), true)
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    grid: Three,
    block: Three,
    shared: c_uint,
    stream: Handle,
    attributes: *const Attribute,
    count: c_uint,
}

impl LaunchConfig {
    fn config(&self) -> Config {
        let plain = Config::plain(self.grid, self.block, self.shared as usize, self.stream);
        plain.with_attributes(self.attributes, self.count)
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    function: Handle,
    arguments: *const *const c_void,
    extra: *const *const c_void,
) -> c_int {
    let Some(config) = raw::get(config) else {
        return INVALID_VALUE;
    };
    launch(config.config(), function, arguments, extra, false)
}

/// `CUfunction_attribute`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuFuncGetAttribute(
    to: *mut c_int,
    attribute: c_int,
    function: Handle,
) -> c_int {
    let status = within(|runtime| {
        let (needs, allowed) = runtime.needs(function, 1, 0)?;
        let limits = runtime.device.gpu().arch.limits();
        let (major, minor) = api::capability(runtime.device.gpu());
        let value = match attribute {
            0 => needs.most_threads.unwrap_or(limits.threads_per_block),
            1 => needs.static_shared,
            3 => needs.local,
            4 => needs.block.registers,
            5 | 6 => 10 * major + minor,
            8 => limits
                .shared_static
                .saturating_sub(needs.static_shared)
                .max(allowed),
            2 | 7 | 9..=15 => 0,
            _ => return Err(INVALID_VALUE),
        };
        raw::put(to, value as c_int);
        Ok(())
    });
    as_driver(status)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuFuncSetAttribute(
    function: Handle,
    attribute: c_int,
    value: c_int,
) -> c_int {
    as_driver(with(|| {
        api::cudaFuncSetAttribute(function, attribute, value)
    }))
}

/// The attributes of a kernel of a library are those of its function.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuKernelGetAttribute(
    to: *mut c_int,
    attribute: c_int,
    kernel: Handle,
    _: c_int,
) -> c_int {
    cuFuncGetAttribute(to, attribute, kernel)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuKernelSetAttribute(
    attribute: c_int,
    value: c_int,
    kernel: Handle,
    _: c_int,
) -> c_int {
    cuFuncSetAttribute(kernel, attribute, value)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuFuncGetModule(to: *mut usize, function: usize) -> c_int {
    within(|runtime| {
        raw::put(to, runtime.module_of(function)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuFuncLoad(_: Handle) -> c_int {
    within(|_| Ok(()))
}

/// The block with the most threads at a time on a multiprocessor, and how many fill the device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut c_int,
    block: *mut c_int,
    function: Handle,
    shared_of: Option<unsafe extern "C" fn(c_int) -> usize>,
    shared: usize,
    limit: c_int,
) -> c_int {
    let mut most = 0;
    let status = cuFuncGetAttribute(&raw mut most, 0, function);
    if status != 0 {
        return status;
    }
    let most = match limit {
        1.. => limit.min(most),
        _ => most,
    };
    let mut best = (0, 0, 0);
    for threads in (1..=(most + 31) / 32)
        .rev()
        .map(|warps| (32 * warps).min(most))
    {
        // SAFETY: the program passes a function of a number of threads; no lock of ours is held.
        let shared = shared_of.map_or(shared, |function| unsafe { function(threads) });
        let mut blocks = 0;
        let to = &raw mut blocks;
        let status = as_driver(with(|| {
            api::cudaOccupancyMaxActiveBlocksPerMultiprocessor(to, function, threads, shared)
        }));
        if status != 0 {
            return status;
        }
        best = best.max((threads * blocks, threads, blocks));
    }
    within(|runtime| {
        raw::put(block, best.1);
        raw::put(grid, best.2 * runtime.device.gpu().sms as c_int);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: *mut c_int,
    block: *mut c_int,
    function: Handle,
    shared_of: Option<unsafe extern "C" fn(c_int) -> usize>,
    shared: usize,
    limit: c_int,
    _: c_uint,
) -> c_int {
    cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of, shared, limit)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuOccupancyMaxActiveClusters(
    to: *mut c_int,
    function: Handle,
    config: *const LaunchConfig,
) -> c_int {
    let Some(config) = raw::get(config) else {
        return INVALID_VALUE;
    };
    let config = config.config();
    as_driver(with(|| {
        api::cudaOccupancyMaxActiveClusters(to, function, &raw const config)
    }))
}

same! {
    cuFuncSetCacheConfig = crate::api::cudaFuncSetCacheConfig: (function: *const c_void, config: c_int);
    cuFuncSetSharedMemConfig = crate::api::cudaFuncSetSharedMemConfig: (function: *const c_void, config: c_int);
    cuFuncGetName = crate::api::cudaFuncGetName: (to: *mut *const c_char, function: *const c_void);
    cuKernelGetName = crate::api::cudaFuncGetName: (to: *mut *const c_char, kernel: *const c_void);
    cuFuncGetParamInfo = crate::api::cudaFuncGetParamInfo: (function: *const c_void, at: usize, offset: *mut usize, bytes: *mut usize);
    cuKernelGetParamInfo = crate::api::cudaFuncGetParamInfo: (kernel: *const c_void, at: usize, offset: *mut usize, bytes: *mut usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessor = crate::api::cudaOccupancyMaxActiveBlocksPerMultiprocessor: (to: *mut c_int, function: *const c_void, threads: c_int, shared: usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags = crate::api::cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags: (to: *mut c_int, function: *const c_void, threads: c_int, shared: usize, flags: c_uint);
    cuOccupancyAvailableDynamicSMemPerBlock = crate::api::cudaOccupancyAvailableDynamicSMemPerBlock: (to: *mut usize, function: *const c_void, blocks: c_int, threads: c_int);
}
