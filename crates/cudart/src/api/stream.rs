//! Streams and events as such; `capture` has what is done with them. Every call is synchronous:
//! operations run in the order of the calls, which is one of the orders that streams allow, so there
//! is nothing to wait for.

use crate::operation::{Host, Operation};
use crate::perform::submit;
use crate::raw;
use crate::runtime::{MadeStream, Runtime, call, calls_host, runtime};
use crate::status::{INVALID_HANDLE, INVALID_VALUE};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

type Handle = *mut c_void;

/// The number of the highest priority; the lowest is zero.
const MOST: c_int = -5;

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
    cudaStreamCreateWithPriority(to, 0, 0)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamCreateWithFlags(to: *mut Handle, flags: c_uint) -> c_int {
    cudaStreamCreateWithPriority(to, flags, 0)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamCreateWithPriority(
    to: *mut Handle,
    flags: c_uint,
    priority: c_int,
) -> c_int {
    call(|runtime| {
        let made = runtime.handle();
        runtime.stream_count += 1;
        let stream = MadeStream {
            flags,
            priority: priority.clamp(MOST, 0),
            number: runtime.stream_count,
        };
        runtime.streams.insert(made, stream);
        raw::put(to, std::ptr::without_provenance_mut(made));
        Ok(())
    })
}

/// Flags and priority of a stream; those that the program has not made have none.
fn known(runtime: &Runtime, stream: Handle) -> Result<(u32, c_int), c_int> {
    match stream.addr() {
        0..=2 => Ok((0, 0)),
        made => {
            let one = runtime.streams.get(&made).ok_or(INVALID_HANDLE)?;
            Ok((one.flags, one.priority))
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamGetFlags(stream: Handle, to: *mut c_uint) -> c_int {
    call(|runtime| {
        raw::put(to, known(runtime, stream)?.0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamGetPriority(stream: Handle, to: *mut c_int) -> c_int {
    call(|runtime| {
        raw::put(to, known(runtime, stream)?.1);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamGetId(stream: Handle, to: *mut c_ulonglong) -> c_int {
    call(|runtime| {
        known(runtime, stream)?;
        raw::put(to, stream.addr() as c_ulonglong);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamGetDevice(stream: Handle, to: *mut c_int) -> c_int {
    call(|runtime| {
        known(runtime, stream)?;
        raw::put(to, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamDestroy(stream: Handle) -> c_int {
    call(|runtime| {
        let known = runtime.streams.remove(&stream.addr());
        known.map(|_| ()).ok_or(INVALID_HANDLE)
    })
}

does_nothing! {
    cudaStreamSetAttribute(Handle, c_uint, *const c_void);
    cudaStreamCopyAttributes(Handle, Handle);
    cudaStreamAttachMemAsync(Handle, Handle, usize, c_uint);
    cudaEventDestroy(Handle);
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
pub(crate) extern "C" fn cudaLaunchHostFunc(
    stream: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> c_int {
    submit(stream, |_| {
        let function = function.ok_or(INVALID_VALUE)?;
        let data = data.expose_provenance();
        Ok(Operation::Host(Host { function, data }))
    })
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
        calls_host(stream.addr(), || unsafe { function(stream, status, data) });
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
        raw::put(most, MOST);
        Ok(())
    })
}
