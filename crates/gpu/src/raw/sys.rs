//! The driver's interface, as far as it is used: types and numbers of `cuda.h`, and its functions,
//! which are looked up when the first of them is called.
//!
//! Written by hand: bindings to all of the driver take as long to compile as the parser does. A
//! number that the driver gives or takes is a plain integer here, so that none is invalid.

// As `cuda.h` has them.
#![allow(non_snake_case, clippy::too_many_arguments)]

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// What a call answers: zero, or what went wrong.
pub(crate) type CUresult = u32;
pub(crate) type CUdevice = c_int;
pub(crate) type CUdeviceptr = u64;

/// Handles: pointers that only the driver follows.
macro_rules! handles {
    ($($name:ident)*) => { $(pub(crate) type $name = *mut c_void;)* };
}
handles! { CUcontext CUevent CUfunction CUgraph CUgraphExec CUgraphNode CUmodule CUstream }

#[repr(C)]
pub(crate) struct CUlaunchConfig {
    pub(crate) gridDimX: c_uint,
    pub(crate) gridDimY: c_uint,
    pub(crate) gridDimZ: c_uint,
    pub(crate) blockDimX: c_uint,
    pub(crate) blockDimY: c_uint,
    pub(crate) blockDimZ: c_uint,
    pub(crate) sharedMemBytes: c_uint,
    pub(crate) hStream: CUstream,
    pub(crate) attrs: *mut CUlaunchAttribute,
    pub(crate) numAttrs: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUlaunchAttribute {
    pub(crate) id: c_uint,
    pub(crate) pad: [u8; 4],
    pub(crate) value: CUlaunchAttributeValue,
}

/// Of the header's union the members that are set. All but a cluster's size are the first number.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct CUlaunchAttributeValue {
    pub(crate) numbers: [i32; 16],
}

impl CUlaunchAttributeValue {
    /// With these numbers in front.
    pub(crate) fn new<const N: usize>(first: [i32; N]) -> CUlaunchAttributeValue {
        let mut numbers = [0; 16];
        numbers[..N].copy_from_slice(&first);
        CUlaunchAttributeValue { numbers }
    }
}

/// The second version of `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct KernelNodeParams {
    pub(crate) func: CUfunction,
    pub(crate) gridDimX: c_uint,
    pub(crate) gridDimY: c_uint,
    pub(crate) gridDimZ: c_uint,
    pub(crate) blockDimX: c_uint,
    pub(crate) blockDimY: c_uint,
    pub(crate) blockDimZ: c_uint,
    pub(crate) sharedMemBytes: c_uint,
    pub(crate) kernelParams: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
    pub(crate) kern: *mut c_void,
    pub(crate) ctx: CUcontext,
}

#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CUtensorMap {
    pub(crate) opaque: [u64; 16],
}

// As the compiler lays out what `cuda.h` declares.
const _: () = {
    assert!(size_of::<CUlaunchConfig>() == 56 && align_of::<CUlaunchConfig>() == 8);
    assert!(size_of::<CUlaunchAttribute>() == 72 && align_of::<CUlaunchAttribute>() == 8);
    assert!(size_of::<KernelNodeParams>() == 72 && align_of::<KernelNodeParams>() == 8);
    assert!(size_of::<CUtensorMap>() == 128);
};

pub(crate) const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
pub(crate) const CU_MEMHOSTALLOC_DEVICEMAP: c_uint = 2;
pub(crate) const CU_STREAM_NON_BLOCKING: c_uint = 1;
pub(crate) const CU_STREAM_CAPTURE_STATUS_NONE: c_uint = 0;
pub(crate) const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: c_uint = 1;
pub(crate) const CU_STREAM_CAPTURE_MODE_RELAXED: c_uint = 2;

/// What a call answers, of the numbers that matter here, by the driver's names.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: u32 = 1;
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(crate) const NOT_FOUND: u32 = 500;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: u32 = 700;
    pub(crate) const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
    pub(crate) const LAUNCH_TIMEOUT: u32 = 702;
    pub(crate) const ASSERT: u32 = 710;
    pub(crate) const HARDWARE_STACK_ERROR: u32 = 714;
    pub(crate) const ILLEGAL_INSTRUCTION: u32 = 715;
    pub(crate) const MISALIGNED_ADDRESS: u32 = 716;
    pub(crate) const INVALID_ADDRESS_SPACE: u32 = 717;
    pub(crate) const INVALID_PC: u32 = 718;
    pub(crate) const LAUNCH_FAILED: u32 = 719;
    pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
    pub(crate) const INVALID_CLUSTER_SIZE: u32 = 912;
}

/// What the assembler in the driver is asked for.
pub(crate) mod jit {
    use std::ffi::c_uint;
    pub(crate) const MAX_REGISTERS: c_uint = 0;
    pub(crate) const INFO_LOG_BUFFER: c_uint = 3;
    pub(crate) const INFO_LOG_BUFFER_SIZE_BYTES: c_uint = 4;
    pub(crate) const ERROR_LOG_BUFFER: c_uint = 5;
    pub(crate) const ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;
    pub(crate) const OPTIMIZATION_LEVEL: c_uint = 7;
    pub(crate) const LOG_VERBOSE: c_uint = 12;
    pub(crate) const GENERATE_LINE_INFO: c_uint = 13;
}

/// What a launch is asked for besides its shape.
pub(crate) mod of_launch {
    use std::ffi::c_uint;
    pub(crate) const IGNORE: c_uint = 0;
    pub(crate) const COOPERATIVE: c_uint = 2;
    pub(crate) const CLUSTER_DIMENSION: c_uint = 4;
    pub(crate) const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;
    pub(crate) const PRIORITY: c_uint = 8;
}

/// What a device can be asked.
pub(crate) mod of_device {
    use std::ffi::c_uint;
    pub(crate) const MAX_THREADS_PER_BLOCK: c_uint = 1;
    pub(crate) const MAX_BLOCK_DIM_X: c_uint = 2;
    pub(crate) const MAX_BLOCK_DIM_Y: c_uint = 3;
    pub(crate) const MAX_BLOCK_DIM_Z: c_uint = 4;
    pub(crate) const MAX_GRID_DIM_X: c_uint = 5;
    pub(crate) const MAX_GRID_DIM_Y: c_uint = 6;
    pub(crate) const MAX_GRID_DIM_Z: c_uint = 7;
    pub(crate) const CLOCK_RATE: c_uint = 13;
    pub(crate) const MULTIPROCESSOR_COUNT: c_uint = 16;
    pub(crate) const L2_CACHE_SIZE: c_uint = 38;
    pub(crate) const MAX_THREADS_PER_MULTIPROCESSOR: c_uint = 39;
    pub(crate) const COMPUTE_CAPABILITY_MAJOR: c_uint = 75;
    pub(crate) const COMPUTE_CAPABILITY_MINOR: c_uint = 76;
    pub(crate) const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: c_uint = 81;
    pub(crate) const MAX_REGISTERS_PER_MULTIPROCESSOR: c_uint = 82;
    pub(crate) const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_uint = 97;
    pub(crate) const MAX_BLOCKS_PER_MULTIPROCESSOR: c_uint = 106;
    pub(crate) const CLUSTER_LAUNCH: c_uint = 120;
    pub(crate) const TENSOR_MAP_ACCESS_SUPPORTED: c_uint = 127;
}

/// What a kernel can be asked and told.
pub(crate) mod of_function {
    use std::ffi::c_uint;
    pub(crate) const MAX_THREADS_PER_BLOCK: c_uint = 0;
    pub(crate) const SHARED_SIZE_BYTES: c_uint = 1;
    pub(crate) const LOCAL_SIZE_BYTES: c_uint = 3;
    pub(crate) const NUM_REGS: c_uint = 4;
    pub(crate) const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_uint = 8;
    pub(crate) const REQUIRED_CLUSTER_WIDTH: c_uint = 11;
    pub(crate) const REQUIRED_CLUSTER_HEIGHT: c_uint = 12;
    pub(crate) const REQUIRED_CLUSTER_DEPTH: c_uint = 13;
    pub(crate) const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_uint = 14;
}

/// The library as the driver's installer names it, here and on Windows.
const NAMES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"];

/// Declares the functions: a table of where they are, and a Rust function for each.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        /// Where the functions are. An older driver may lack some.
        struct Driver {
            $($name: Option<unsafe extern "system" fn($($type),*) -> CUresult>,)*
            /// The pointers above are into it.
            _library: Library,
        }

        impl Driver {
            fn load() -> Option<Driver> {
                // SAFETY: the initialisers that run are the driver's own.
                let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
                Some(Driver {
                    // SAFETY: `cuda.h` declares the function of this name with this type.
                    $($name: unsafe { library.get(stringify!($name)) }.ok().map(|found| *found),)*
                    _library: library,
                })
            }
        }

        $(
            /// Calls the driver's function of this name.
            ///
            /// # Safety
            /// What NVIDIA's manual asks of the arguments.
            pub(crate) unsafe fn $name($($argument: $type),*) -> CUresult {
                match driver().and_then(|driver| driver.$name) {
                    // SAFETY: the caller's promise.
                    Some(function) => unsafe { function($($argument),*) },
                    None => code::NOT_FOUND,
                }
            }
        )*
    };
}

fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    DRIVER.get_or_init(Driver::load).as_ref()
}

/// Whether there is a driver to call.
pub(crate) fn is_there() -> bool {
    driver().is_some()
}

functions! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuGetErrorName(error: CUresult, name: *mut *const c_char);
    fn cuGetErrorString(error: CUresult, text: *mut *const c_char);

    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: CUdevice);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice);
    fn cuCtxGetCurrent(context: *mut CUcontext);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxSynchronize();

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    fn cuMemFree_v2(address: CUdeviceptr);
    fn cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemFreeHost(memory: *mut c_void);
    fn cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, memory: *mut c_void, flags: c_uint);
    fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemsetD8Async(to: CUdeviceptr, byte: u8, bytes: usize, stream: CUstream);

    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamQuery(stream: CUstream);
    fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
    fn cuStreamGetId(stream: CUstream, id: *mut u64);
    fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    fn cuStreamGetGreenCtx(stream: CUstream, context: *mut *mut c_void);
    fn cuStreamIsCapturing(stream: CUstream, status: *mut c_uint);
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint);
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);

    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventQuery(event: CUevent);
    fn cuEventSynchronize(event: CUevent);
    fn cuEventElapsedTime_v2(milliseconds: *mut f32, from: CUevent, to: CUevent);

    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void
    );
    fn cuModuleUnload(module: CUmodule);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction);
    fn cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int);
    fn cuFuncGetParamInfo(
        function: CUfunction,
        index: usize,
        offset: *mut usize,
        size: *mut usize
    );
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        threads: c_int,
        dynamic_shared: usize
    );
    fn cuOccupancyMaxActiveClusters(
        clusters: *mut c_int,
        function: CUfunction,
        config: *const CUlaunchConfig
    );
    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void
    );

    fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    fn cuGraphDestroy(graph: CUgraph);
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    fn cuGraphExecDestroy(exec: CUgraphExec);
    fn cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        kernel: *const KernelNodeParams
    );
    fn cuGraphKernelNodeSetAttribute(
        node: CUgraphNode,
        attribute: c_uint,
        value: *const CUlaunchAttributeValue
    );
    fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        kernel: *const KernelNodeParams
    );

    fn cuTensorMapEncodeTiled(
        map: *mut CUtensorMap,
        element: c_uint,
        rank: u32,
        address: *mut c_void,
        dims: *const u64,
        strides: *const u64,
        box_dims: *const u32,
        element_strides: *const u32,
        interleave: c_uint,
        swizzle: c_uint,
        l2: c_uint,
        fill: c_uint
    );
    fn cuTensorMapEncodeIm2col(
        map: *mut CUtensorMap,
        element: c_uint,
        rank: u32,
        address: *mut c_void,
        dims: *const u64,
        strides: *const u64,
        lower: *const c_int,
        upper: *const c_int,
        channels: u32,
        pixels: u32,
        element_strides: *const u32,
        interleave: c_uint,
        swizzle: c_uint,
        l2: c_uint,
        fill: c_uint
    );
    fn cuTensorMapEncodeIm2colWide(
        map: *mut CUtensorMap,
        element: c_uint,
        rank: u32,
        address: *mut c_void,
        dims: *const u64,
        strides: *const u64,
        lower: c_int,
        upper: c_int,
        channels: u32,
        pixels: u32,
        element_strides: *const u32,
        interleave: c_uint,
        mode: c_uint,
        swizzle: c_uint,
        l2: c_uint,
        fill: c_uint
    );
    fn cuTensorMapReplaceAddress(map: *mut CUtensorMap, address: *mut c_void);
}
