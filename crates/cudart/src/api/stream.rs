//! Streams and events. Every call is synchronous: operations run in the order of the calls, which
//! is one of the orders that streams allow, so there is nothing to wait for.

use crate::raw;
use crate::runtime::{INVALID_VALUE, call, runtime};
use std::ffi::{c_int, c_uint, c_void};

type Handle = *mut c_void;

fn make(to: *mut Handle) -> c_int {
    call(|runtime| {
        raw::put(to, std::ptr::without_provenance_mut(runtime.handle()));
        Ok(())
    })
}

macro_rules! does_nothing {
    ($($name:ident($($argument:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($(_: $argument),*) -> c_int {
            call(|_| Ok(()))
        }
    )*};
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamCreate(to: *mut Handle) -> c_int {
    make(to)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamCreateWithFlags(to: *mut Handle, _: c_uint) -> c_int {
    make(to)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamCreateWithPriority(
    to: *mut Handle,
    _: c_uint,
    _: c_int,
) -> c_int {
    make(to)
}

does_nothing! {
    cudaStreamDestroy(Handle);
    cudaStreamSynchronize(Handle);
    cudaStreamQuery(Handle);
    cudaStreamWaitEvent(Handle, Handle, c_uint);
    cudaStreamAttachMemAsync(Handle, Handle, usize, c_uint);
    cudaEventSynchronize(Handle);
    cudaEventQuery(Handle);
    cudaEventDestroy(Handle);
    cudaDeviceSynchronize();
    cudaThreadSynchronize();
    cudaProfilerStart();
    cudaProfilerStop();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventCreate(to: *mut Handle) -> c_int {
    make(to)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventCreateWithFlags(to: *mut Handle, _: c_uint) -> c_int {
    make(to)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventRecord(event: Handle, _: Handle) -> c_int {
    call(|runtime| {
        // Two events never have the same time: programs divide by the difference.
        runtime.now_ns += 1.0;
        let now = runtime.now_ns;
        runtime.events.insert(event.addr(), now);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventRecordWithFlags(
    event: Handle,
    stream: Handle,
    _: c_uint,
) -> c_int {
    cudaEventRecord(event, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventElapsedTime(to: *mut f32, start: Handle, end: Handle) -> c_int {
    call(|runtime| {
        let at = |event: Handle| runtime.events.get(&event.addr()).copied();
        let (Some(start), Some(end)) = (at(start), at(end)) else {
            return Err(INVALID_VALUE);
        };
        raw::put(to, ((end - start) / 1e6) as f32);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventElapsedTime_v2(
    to: *mut f32,
    start: Handle,
    end: Handle,
) -> c_int {
    cudaEventElapsedTime(to, start, end)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaLaunchHostFunc(
    _: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> c_int {
    if let Some(function) = function {
        // SAFETY: the program passes a function and what it takes; no lock of ours is held.
        unsafe { function(data) };
    }
    runtime().last_error(false)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamAddCallback(
    stream: Handle,
    function: Option<unsafe extern "C" fn(Handle, c_int, *mut c_void)>,
    data: *mut c_void,
    _: c_uint,
) -> c_int {
    let status = runtime().last_error(false);
    if let Some(function) = function {
        // SAFETY: the program passes a function and what it takes; no lock of ours is held.
        unsafe { function(stream, status, data) };
    }
    status
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceGetStreamPriorityRange(
    least: *mut c_int,
    most: *mut c_int,
) -> c_int {
    call(|_| {
        raw::put(least, 0);
        raw::put(most, -5);
        Ok(())
    })
}
