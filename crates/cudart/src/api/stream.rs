//! Streams and events as such; `capture` has what is done with them. Every call is synchronous:
//! operations run in the order of the calls, which is one of the orders that streams allow, so there
//! is nothing to wait for.

use crate::operation::{Host, Operation};
use crate::perform::submit;
use crate::raw;
use crate::runtime::{call, runtime};
use crate::status::INVALID_VALUE;
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
