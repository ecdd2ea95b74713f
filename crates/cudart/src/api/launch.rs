//! Launches, and what is asked of kernels.

use crate::operation::{Operation, Wish};
use crate::perform::submit;
use crate::raw;
use crate::runtime::{Runtime, call};
use crate::status::INVALID_VALUE;
use heist_launch::Dim3;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

/// `dim3`, by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Three {
    x: u32,
    y: u32,
    z: u32,
}

impl Three {
    pub(crate) fn new(x: u32, y: u32, z: u32) -> Three {
        Three { x, y, z }
    }
}

impl From<Three> for Dim3 {
    fn from(three: Three) -> Dim3 {
        Dim3::new(three.x, three.y, three.z)
    }
}

#[derive(Clone, Copy)]
struct Configuration {
    grid: Three,
    block: Three,
    shared: usize,
    stream: *mut c_void,
}

thread_local! {
    /// The configuration of `<<<>>>`, until the kernel's stub takes it.
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaPushCallConfiguration(
    grid: Three,
    block: Three,
    shared: usize,
    stream: *mut c_void,
) -> c_uint {
    let pushed = Configuration {
        grid,
        block,
        shared,
        stream,
    };
    CONFIGURATIONS.with_borrow_mut(|stack| stack.push(pushed));
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Three,
    block: *mut Three,
    shared: *mut usize,
    stream: *mut *mut c_void,
) -> c_int {
    let Some(popped) = CONFIGURATIONS.with_borrow_mut(Vec::pop) else {
        return INVALID_VALUE;
    };
    raw::put(grid, popped.grid);
    raw::put(block, popped.block);
    raw::put(shared, popped.shared);
    raw::put(stream, popped.stream);
    0
}

/// A kernel's handle is its host function.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaGetKernel(to: *mut *const c_void, host: *const c_void) -> c_int {
    raw::put(to, host);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetKernel(to: *mut *const c_void, host: *const c_void) -> c_int {
    __cudaGetKernel(to, host)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetFuncBySymbol(to: *mut *const c_void, host: *const c_void) -> c_int {
    __cudaGetKernel(to, host)
}

/// Launches, or adds a node to the graph that the stream is captured into.
fn launch(
    config: &Config,
    function: *const c_void,
    arguments: *const *const c_void,
    cooperative: bool,
) -> c_int {
    launch_with(config, function, cooperative, |runtime| {
        runtime.arguments(function, arguments)
    })
}

/// The same with arguments from elsewhere.
pub(crate) fn launch_with(
    config: &Config,
    function: *const c_void,
    cooperative: bool,
    arguments: impl FnOnce(&Runtime) -> Result<Vec<Vec<u8>>, c_int>,
) -> c_int {
    submit(config.stream, |runtime| {
        Ok(Operation::Launch(Wish {
            function: function.addr(),
            grid: config.grid.into(),
            block: config.block.into(),
            cluster: config.cluster(),
            shared: config.shared,
            cooperative: cooperative || config.of(COOPERATIVE).is_some_and(|value| value[0] != 0),
            early: config.of(EARLY).is_some_and(|value| value[0] != 0),
            arguments: arguments(runtime)?,
        }))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaLaunchKernel(
    function: *const c_void,
    grid: Three,
    block: Three,
    arguments: *const *const c_void,
    shared: usize,
    stream: *mut c_void,
) -> c_int {
    cudaLaunchKernel(function, grid, block, arguments, shared, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaLaunchKernel(
    function: *const c_void,
    grid: Three,
    block: Three,
    arguments: *const *const c_void,
    shared: usize,
    stream: *mut c_void,
) -> c_int {
    let config = Config::plain(grid, block, shared, stream);
    launch(&config, function, arguments, false)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaLaunchCooperativeKernel(
    function: *const c_void,
    grid: Three,
    block: Three,
    arguments: *const *const c_void,
    shared: usize,
    stream: *mut c_void,
) -> c_int {
    let config = Config::plain(grid, block, shared, stream);
    launch(&config, function, arguments, true)
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Config {
    grid: Three,
    block: Three,
    shared: usize,
    stream: *mut c_void,
    attributes: *const Attribute,
    count: c_uint,
}

impl Config {
    pub(crate) fn plain(grid: Three, block: Three, shared: usize, stream: *mut c_void) -> Config {
        Config {
            grid,
            block,
            shared,
            stream,
            attributes: std::ptr::null(),
            count: 0,
        }
    }

    pub(crate) fn with_attributes(self, attributes: *const Attribute, count: c_uint) -> Config {
        Config {
            attributes,
            count,
            ..self
        }
    }

    /// The value of an attribute, where it is said.
    fn of(&self, id: c_uint) -> Option<[u32; 16]> {
        let all = (0..self.count as usize).filter_map(|at| raw::element(self.attributes, at));
        all.into_iter()
            .find(|one| one.id == id)
            .map(|one| one.value)
    }

    fn cluster(&self) -> Option<Dim3> {
        let value = self.of(CLUSTER)?;
        Some(Dim3::new(value[0], value[1], value[2]))
    }
}

/// `cudaLaunchAttribute`: an id, and 64 bytes whose meaning depends on it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Attribute {
    id: c_uint,
    pad: u32,
    value: [u32; 16],
}

const COOPERATIVE: c_uint = 2;
const CLUSTER: c_uint = 4;
/// Programmatic stream serialization.
const EARLY: c_uint = 6;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaLaunchKernelExC(
    config: *const Config,
    function: *const c_void,
    arguments: *const *const c_void,
) -> c_int {
    let Some(config) = raw::get(config) else {
        return INVALID_VALUE;
    };
    launch(&config, function, arguments, false)
}

const MAX_DYNAMIC_SHARED: c_int = 8;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFuncSetAttribute(
    function: *const c_void,
    id: c_int,
    value: c_int,
) -> c_int {
    call(|runtime| match id {
        MAX_DYNAMIC_SHARED => {
            let bytes = u32::try_from(value).map_err(|_| INVALID_VALUE)?;
            runtime.allow_dynamic(function, bytes)
        }
        // The other attributes are about caches and clusters, and change nothing here.
        _ => Ok(()),
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFuncSetCacheConfig(_: *const c_void, _: c_int) -> c_int {
    0
}

/// The start of `cudaFuncAttributes`; the rest is zero.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFuncGetAttributes(to: *mut c_void, function: *const c_void) -> c_int {
    call(|runtime| {
        let (needs, allowed) = runtime.needs(function, 1, 0)?;
        let limits = runtime.device.gpu().arch.limits();
        let (major, minor) = super::device::capability(runtime.device.gpu());
        let version = 10 * major + minor;
        let usual = limits.shared_static.saturating_sub(needs.static_shared);
        let mut bytes = [0u8; 144];
        for (at, value) in [(0, needs.static_shared), (16, needs.local)] {
            bytes[at..at + 8].copy_from_slice(&u64::from(value).to_le_bytes());
        }
        for (at, value) in [
            (24, needs.most_threads.unwrap_or(limits.threads_per_block)),
            (28, needs.block.registers),
            (32, version),
            (36, version),
            (44, usual.max(allowed)),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        raw::fill(to, &bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    to: *mut c_int,
    function: *const c_void,
    threads: c_int,
    shared: usize,
) -> c_int {
    call(|runtime| {
        let threads = u32::try_from(threads).map_err(|_| INVALID_VALUE)?;
        let shared = u32::try_from(shared).map_err(|_| INVALID_VALUE)?;
        let (needs, _) = runtime.needs(function, threads, shared)?;
        raw::put(to, needs.resident as c_int);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    to: *mut c_int,
    function: *const c_void,
    threads: c_int,
    shared: usize,
    _: c_uint,
) -> c_int {
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(to, function, threads, shared)
}

/// How many clusters of this shape the device runs at a time.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaOccupancyMaxActiveClusters(
    to: *mut c_int,
    function: *const c_void,
    config: *const Config,
) -> c_int {
    call(|runtime| {
        let config = raw::get(config).ok_or(INVALID_VALUE)?;
        let threads = Dim3::from(config.block).count();
        let threads = u32::try_from(threads).map_err(|_| INVALID_VALUE)?;
        let shared = u32::try_from(config.shared).map_err(|_| INVALID_VALUE)?;
        let blocks = config.cluster().map_or(1, |cluster| cluster.count());
        if blocks == 0 {
            return Err(INVALID_VALUE);
        }
        let (needs, _) = runtime.needs(function, threads, shared)?;
        let sms = runtime.device.gpu().sms;
        raw::put(to, (u64::from(needs.resident * sms) / blocks) as c_int);
        Ok(())
    })
}

/// The most dynamic shared memory with which so many blocks of a kernel run on a multiprocessor.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaOccupancyAvailableDynamicSMemPerBlock(
    to: *mut usize,
    function: *const c_void,
    blocks: c_int,
    threads: c_int,
) -> c_int {
    call(|runtime| {
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks > 0);
        let blocks = blocks.ok_or(INVALID_VALUE)?;
        let threads = u32::try_from(threads).map_err(|_| INVALID_VALUE)?;
        let (needs, _) = runtime.needs(function, threads, 0)?;
        let limits = runtime.device.gpu().arch.limits();
        let each = (limits.shared_per_sm / blocks).saturating_sub(limits.shared_reserved);
        let each = each.min(limits.shared_opt_in) & !127;
        let left = match needs.resident >= blocks {
            true => each.saturating_sub(needs.static_shared),
            false => 0,
        };
        raw::put(to, left as usize);
        Ok(())
    })
}

/// The name stays for as long as the program does: a program asks for few.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFuncGetName(to: *mut *const c_char, function: *const c_void) -> c_int {
    call(|runtime| {
        let name = CString::new(runtime.name_of(function)?).map_err(|_| INVALID_VALUE)?;
        raw::put(to, name.into_raw().cast_const());
        Ok(())
    })
}

/// Where an argument is in the buffer of all, and its bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFuncGetParamInfo(
    function: *const c_void,
    number: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> c_int {
    call(|runtime| {
        let all = runtime.parameters(function)?;
        let &(at, len) = all.get(number).ok_or(INVALID_VALUE)?;
        raw::put(offset, at);
        raw::put(bytes, len);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaFuncGetParamCount(function: *const c_void, to: *mut usize) -> c_int {
    call(|runtime| {
        raw::put(to, runtime.parameters(function)?.len());
        Ok(())
    })
}
