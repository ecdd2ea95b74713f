//! The driver's calls, one small function each. All of this crate's `unsafe` is
//! here.
//!
//! What the functions assume, and the rest of the crate keeps:
//!
//! * A handle comes from the driver, is owned by one value, and is destroyed
//!   once, when that value is dropped. Handles are opaque: nothing dereferences
//!   them but the driver, which answers a stale one with an error.
//! * The context that a handle belongs to is current on the calling thread.
//!
//! A call that fails gives the [`Status`] it failed with.

#![allow(unsafe_code)]

/// Calls the driver and turns its answer into a `Result`.
macro_rules! call {
    ($name:ident ( $($arg:expr),* $(,)? )) => {
        // SAFETY: the module's assumptions hold, and every pointer argument is to
        // a live local or slice of the size that the call reads or writes.
        check(stringify!($name), unsafe { sys::$name($($arg),*) })
    };
}

mod function;
mod kernel_graph;
mod mailbox;
pub(crate) mod sys;
mod tensor_map;

pub(crate) use function::{
    Attributes, JitRequest, MOST_PARAMETERS, active_clusters, blocks_per_sm, function_attribute,
    function_parameters, function_set_attribute, launch, launch_packed, module_function,
    module_load, module_unload, parameter_list,
};
pub(crate) use kernel_graph::{GraphKernel, KernelGraph, stream_id, stream_is_green};
pub(crate) use mailbox::Mailbox;
pub(crate) use tensor_map::{encode_tensor_map, move_tensor_map, tensor_map_bytes};

use crate::status::Status;
use std::ffi::{CStr, c_int, c_uint};
use std::ptr;
use sys::code;

pub(crate) use sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule,
    CUstream, CUtensorMap,
};

/// A driver handle that may be used from any thread, as all of them may.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T: Copy>(pub(crate) T);

// SAFETY: handles are opaque, and the driver's calls are thread-safe.
unsafe impl<T: Copy> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Copy> Sync for Handle<T> {}

fn check(call: &'static str, result: sys::CUresult) -> Result<(), Status> {
    match result {
        0 => Ok(()),
        code => Err(Status::new(call, code)),
    }
}

/// Whether a driver library can be loaded; asked once.
pub(crate) fn present() -> bool {
    sys::is_there()
}

pub(crate) fn init() -> Result<(), Status> {
    call!(cuInit(0))
}

/// The CUDA version that the driver offers, as 1000 * major + 10 * minor.
pub(crate) fn driver_version() -> Result<u32, Status> {
    let mut version: c_int = 0;
    call!(cuDriverGetVersion(&mut version))?;
    Ok(version.max(0) as u32)
}

/// The driver's name and sentence for a code.
pub(crate) fn describe(code: u32) -> Option<(String, String)> {
    let (mut name, mut text) = (ptr::null(), ptr::null());
    call!(cuGetErrorName(code, &mut name)).ok()?;
    call!(cuGetErrorString(code, &mut text)).ok()?;
    let owned = |text: *const std::ffi::c_char| {
        if text.is_null() {
            return None;
        }
        // SAFETY: the driver gave a pointer to a constant, terminated string.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    };
    Some((owned(name)?, owned(text)?))
}

pub(crate) fn device_count() -> Result<u32, Status> {
    let mut count: c_int = 0;
    call!(cuDeviceGetCount(&mut count))?;
    Ok(count.max(0) as u32)
}

pub(crate) fn device(ordinal: u32) -> Result<CUdevice, Status> {
    let mut device: CUdevice = 0;
    let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
    call!(cuDeviceGet(&mut device, ordinal))?;
    Ok(device)
}

pub(crate) fn device_name(device: CUdevice) -> Result<String, Status> {
    let mut name = [0u8; 256];
    let length = name.len() as c_int;
    call!(cuDeviceGetName(name.as_mut_ptr().cast(), length, device))?;
    Ok(CStr::from_bytes_until_nul(&name)
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default())
}

pub(crate) fn device_uuid(device: CUdevice) -> Result<[u8; 16], Status> {
    let mut uuid = [0; 16];
    call!(cuDeviceGetUuid_v2(&mut uuid, device))?;
    Ok(uuid)
}

pub(crate) fn device_attribute(device: CUdevice, attribute: c_uint) -> Result<u32, Status> {
    let mut value: c_int = 0;
    call!(cuDeviceGetAttribute(&mut value, attribute, device))?;
    Ok(value.max(0) as u32)
}

pub(crate) fn device_memory(device: CUdevice) -> Result<u64, Status> {
    let mut bytes = 0usize;
    call!(cuDeviceTotalMem_v2(&mut bytes, device))?;
    Ok(bytes as u64)
}

pub(crate) fn context_retain(device: CUdevice) -> Result<CUcontext, Status> {
    let mut context = ptr::null_mut();
    call!(cuDevicePrimaryCtxRetain(&mut context, device))?;
    Ok(context)
}

pub(crate) fn context_release(device: CUdevice) -> Result<(), Status> {
    call!(cuDevicePrimaryCtxRelease_v2(device))
}

pub(crate) fn context_reset(device: CUdevice) -> Result<(), Status> {
    call!(cuDevicePrimaryCtxReset_v2(device))
}

pub(crate) fn context_make_current(context: CUcontext) -> Result<(), Status> {
    call!(cuCtxSetCurrent(context))
}

/// The context that is current on this thread; null where none is.
pub(crate) fn context_current() -> Result<CUcontext, Status> {
    let mut context = ptr::null_mut();
    call!(cuCtxGetCurrent(&mut context))?;
    Ok(context)
}

/// A stream that another library made, from the number that it gives for it. The
/// driver answers one that is none of its own with an error.
pub(crate) fn borrowed_stream(handle: u64) -> CUstream {
    ptr::without_provenance_mut(handle as usize)
}

pub(crate) fn context_synchronize() -> Result<(), Status> {
    call!(cuCtxSynchronize())
}

/// Free and total bytes of device memory.
pub(crate) fn memory_info() -> Result<(u64, u64), Status> {
    let (mut free, mut total) = (0usize, 0usize);
    call!(cuMemGetInfo_v2(&mut free, &mut total))?;
    Ok((free as u64, total as u64))
}

pub(crate) fn memory_alloc(bytes: usize) -> Result<CUdeviceptr, Status> {
    let mut address = 0;
    call!(cuMemAlloc_v2(&mut address, bytes))?;
    Ok(address)
}

pub(crate) fn memory_free(address: CUdeviceptr) -> Result<(), Status> {
    call!(cuMemFree_v2(address))
}

/// Copies to the device and returns when the source may be reused.
pub(crate) fn copy_to_device(
    address: CUdeviceptr,
    bytes: &[u8],
    stream: CUstream,
) -> Result<(), Status> {
    if bytes.is_empty() {
        return Ok(());
    }
    // Pageable memory: the driver stages it before the call returns.
    call!(cuMemcpyHtoDAsync_v2(
        address,
        bytes.as_ptr().cast(),
        bytes.len(),
        stream
    ))
}

/// Copies from the device, after everything before it on the stream, and waits.
pub(crate) fn copy_from_device(
    bytes: &mut [u8],
    address: CUdeviceptr,
    stream: CUstream,
) -> Result<(), Status> {
    if bytes.is_empty() {
        return Ok(());
    }
    call!(cuMemcpyDtoHAsync_v2(
        bytes.as_mut_ptr().cast(),
        address,
        bytes.len(),
        stream
    ))?;
    stream_synchronize(stream)
}

pub(crate) fn copy_on_device(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), Status> {
    if bytes == 0 {
        return Ok(());
    }
    call!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream))
}

pub(crate) fn fill_bytes(
    address: CUdeviceptr,
    byte: u8,
    bytes: usize,
    stream: CUstream,
) -> Result<(), Status> {
    if bytes == 0 {
        return Ok(());
    }
    call!(cuMemsetD8Async(address, byte, bytes, stream))
}

pub(crate) fn stream_write_word(
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
) -> Result<(), Status> {
    call!(cuStreamWriteValue32_v2(stream, address, value, 0))
}

pub(crate) fn stream_create(priority: i32) -> Result<CUstream, Status> {
    let mut stream = ptr::null_mut();
    let flags = sys::CU_STREAM_NON_BLOCKING;
    call!(cuStreamCreateWithPriority(&mut stream, flags, priority))?;
    Ok(stream)
}

pub(crate) fn stream_destroy(stream: CUstream) -> Result<(), Status> {
    call!(cuStreamDestroy_v2(stream))
}

pub(crate) fn stream_synchronize(stream: CUstream) -> Result<(), Status> {
    call!(cuStreamSynchronize(stream))
}

/// Whether everything on the stream is done.
pub(crate) fn stream_query(stream: CUstream) -> Result<bool, Status> {
    match call!(cuStreamQuery(stream)) {
        Ok(()) => Ok(true),
        Err(status) if status.is(code::NOT_READY) => Ok(false),
        Err(status) => Err(status),
    }
}

/// Whether a graph is being captured from the stream.
pub(crate) fn stream_is_capturing(stream: CUstream) -> Result<bool, Status> {
    let mut status = sys::CU_STREAM_CAPTURE_STATUS_NONE;
    call!(cuStreamIsCapturing(stream, &mut status))?;
    Ok(status != sys::CU_STREAM_CAPTURE_STATUS_NONE)
}

pub(crate) fn event_query(event: CUevent) -> Result<bool, Status> {
    match call!(cuEventQuery(event)) {
        Ok(()) => Ok(true),
        Err(status) if status.is(code::NOT_READY) => Ok(false),
        Err(status) => Err(status),
    }
}

pub(crate) fn stream_wait_event(stream: CUstream, event: CUevent) -> Result<(), Status> {
    call!(cuStreamWaitEvent(stream, event, 0))
}

pub(crate) fn event_create() -> Result<CUevent, Status> {
    let mut event = ptr::null_mut();
    call!(cuEventCreate(&mut event, 0))?;
    Ok(event)
}

pub(crate) fn event_destroy(event: CUevent) -> Result<(), Status> {
    call!(cuEventDestroy_v2(event))
}

pub(crate) fn event_record(event: CUevent, stream: CUstream) -> Result<(), Status> {
    call!(cuEventRecord(event, stream))
}

pub(crate) fn event_synchronize(event: CUevent) -> Result<(), Status> {
    call!(cuEventSynchronize(event))
}

/// Milliseconds between two events that have happened.
pub(crate) fn event_elapsed(from: CUevent, to: CUevent) -> Result<f32, Status> {
    let mut milliseconds = 0f32;
    call!(cuEventElapsedTime_v2(&mut milliseconds, from, to))?;
    Ok(milliseconds)
}

pub(crate) fn capture_begin(stream: CUstream) -> Result<(), Status> {
    let mode = sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    call!(cuStreamBeginCapture_v2(stream, mode))
}

pub(crate) fn capture_end(stream: CUstream) -> Result<CUgraph, Status> {
    let mut graph = ptr::null_mut();
    call!(cuStreamEndCapture(stream, &mut graph))?;
    Ok(graph)
}

pub(crate) fn graph_instantiate(graph: CUgraph) -> Result<CUgraphExec, Status> {
    let mut exec = ptr::null_mut();
    call!(cuGraphInstantiateWithFlags(&mut exec, graph, 0))?;
    Ok(exec)
}

pub(crate) fn graph_node_count(graph: CUgraph) -> Result<usize, Status> {
    let mut count = 0usize;
    call!(cuGraphGetNodes(graph, ptr::null_mut(), &mut count))?;
    Ok(count)
}

pub(crate) fn graph_launch(exec: CUgraphExec, stream: CUstream) -> Result<(), Status> {
    call!(cuGraphLaunch(exec, stream))
}

pub(crate) fn graph_destroy(graph: CUgraph) -> Result<(), Status> {
    call!(cuGraphDestroy(graph))
}

pub(crate) fn graph_exec_destroy(exec: CUgraphExec) -> Result<(), Status> {
    call!(cuGraphExecDestroy(exec))
}
