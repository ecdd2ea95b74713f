//! Streams, events, graphs: the runtime's under other names, and values that streams write and wait for.

use super::context::{with, within};
use crate::operation::{Fill, Operation, Place};
use crate::perform::submit;
use crate::runtime::quietly;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

type Handle = *mut c_void;

fn write(stream: Handle, at: Handle, value: &[u8]) -> c_int {
    with(|| {
        submit(stream, |_| {
            Ok(Operation::Fill(Fill {
                to: Place::row(at),
                value: value.to_vec(),
                size: [value.len(), 1, 1],
                is_signal: true,
            }))
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWriteValue32_v2(
    stream: Handle,
    at: Handle,
    value: u32,
    _: c_uint,
) -> c_int {
    write(stream, at, &value.to_le_bytes())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWriteValue64_v2(
    stream: Handle,
    at: Handle,
    value: u64,
    _: c_uint,
) -> c_int {
    write(stream, at, &value.to_le_bytes())
}

/// Operations run in the order of the calls: what is waited for is there, or never comes.
fn wait(at: u64, bytes: usize, value: u64, flags: c_uint) -> c_int {
    within(|runtime| {
        let mut wide = [0; 8];
        let now = runtime.heap.read(at, bytes).ok_or(INVALID_VALUE)?;
        wide[..bytes].copy_from_slice(&now);
        let now = u64::from_le_bytes(wide);
        let met = match flags & 3 {
            // The difference as a signed number: it may go round.
            0 => now.wrapping_sub(value) << (64 - 8 * bytes) >> 63 == 0,
            1 => now == value,
            2 => now & value != 0,
            _ => !(now | value) << (64 - 8 * bytes) != 0,
        };
        if met {
            return Ok(());
        }
        runtime.report.remark(
            "cuStreamWaitValue: the value comes from a call that the program makes later, and here \
             operations run in the order of the calls: it returned CUDA_ERROR_NOT_SUPPORTED (801)",
        );
        Err(NOT_SUPPORTED)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWaitValue32_v2(
    _: Handle,
    at: u64,
    value: u32,
    flags: c_uint,
) -> c_int {
    wait(at, 4, u64::from(value), flags)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWaitValue64_v2(
    _: Handle,
    at: u64,
    value: u64,
    flags: c_uint,
) -> c_int {
    wait(at, 8, value, flags)
}

/// The runtime's `cudaGraphExecUpdateResultInfo` and the driver's are the same.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphExecUpdate_v2(
    ready: usize,
    graph: usize,
    result: *mut c_int,
) -> c_int {
    quietly(|| crate::api::cudaGraphExecUpdate(ready, graph, result))
}

same! {
    cuStreamCreate = crate::api::cudaStreamCreateWithFlags: (to: *mut Handle, flags: c_uint);
    cuStreamCreateWithPriority = crate::api::cudaStreamCreateWithPriority: (to: *mut Handle, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2 = crate::api::cudaStreamDestroy: (stream: Handle);
    cuStreamQuery = crate::api::cudaStreamQuery: (stream: Handle);
    cuStreamSynchronize = crate::api::cudaStreamSynchronize: (stream: Handle);
    cuStreamWaitEvent = crate::api::cudaStreamWaitEvent: (stream: Handle, event: Handle, flags: c_uint);
    cuStreamGetFlags = crate::api::cudaStreamGetFlags: (stream: Handle, to: *mut c_uint);
    cuStreamGetPriority = crate::api::cudaStreamGetPriority: (stream: Handle, to: *mut c_int);
    cuStreamGetId = crate::api::cudaStreamGetId: (stream: Handle, to: *mut c_ulonglong);
    cuStreamGetDevice = crate::api::cudaStreamGetDevice: (stream: Handle, to: *mut c_int);
    cuStreamAttachMemAsync = crate::api::cudaStreamAttachMemAsync: (stream: Handle, at: Handle, len: usize, flags: c_uint);
    cuStreamAddCallback = crate::api::cudaStreamAddCallback: (stream: Handle, function: Option<unsafe extern "C" fn(Handle, c_int, *mut c_void)>, data: *mut c_void, flags: c_uint);
    cuLaunchHostFunc = crate::api::cudaLaunchHostFunc: (stream: Handle, function: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void);
    cuEventCreate = crate::api::cudaEventCreateWithFlags: (to: *mut Handle, flags: c_uint);
    cuEventDestroy_v2 = crate::api::cudaEventDestroy: (event: Handle);
    cuEventRecord = crate::api::cudaEventRecord: (event: Handle, stream: Handle);
    cuEventRecordWithFlags = crate::api::cudaEventRecordWithFlags: (event: Handle, stream: Handle, flags: c_uint);
    cuEventSynchronize = crate::api::cudaEventSynchronize: (event: Handle);
    cuEventQuery = crate::api::cudaEventQuery: (event: Handle);
    cuEventElapsedTime = crate::api::cudaEventElapsedTime: (to: *mut f32, start: Handle, end: Handle);
    cuEventElapsedTime_v2 = crate::api::cudaEventElapsedTime: (to: *mut f32, start: Handle, end: Handle);
    cuStreamBeginCapture_v2 = crate::api::cudaStreamBeginCapture: (stream: Handle, mode: c_int);
    cuStreamEndCapture = crate::api::cudaStreamEndCapture: (stream: Handle, to: *mut usize);
    cuStreamIsCapturing = crate::api::cudaStreamIsCapturing: (stream: Handle, to: *mut c_int);
    cuThreadExchangeStreamCaptureMode = crate::api::cudaThreadExchangeStreamCaptureMode: (mode: *mut c_int);
    cuGraphCreate = crate::api::cudaGraphCreate: (to: *mut usize, flags: c_uint);
    cuGraphDestroy = crate::api::cudaGraphDestroy: (graph: usize);
    cuGraphClone = crate::api::cudaGraphClone: (to: *mut usize, graph: usize);
    cuGraphGetNodes = crate::api::cudaGraphGetNodes: (graph: usize, to: *mut usize, count: *mut usize);
    cuGraphGetRootNodes = crate::api::cudaGraphGetRootNodes: (graph: usize, to: *mut usize, count: *mut usize);
    cuGraphNodeGetType = crate::api::cudaGraphNodeGetType: (node: usize, to: *mut c_int);
    cuGraphAddEmptyNode = crate::api::cudaGraphAddEmptyNode: (to: *mut usize, graph: usize, needs: *const usize, count: usize);
    cuGraphInstantiateWithFlags = crate::api::cudaGraphInstantiate: (to: *mut usize, graph: usize, flags: c_ulonglong);
    cuGraphExecDestroy = crate::api::cudaGraphExecDestroy: (ready: usize);
    cuGraphUpload = crate::api::cudaGraphUpload: (ready: usize, stream: Handle);
    cuGraphLaunch = crate::api::cudaGraphLaunch: (ready: usize, stream: Handle);
}
