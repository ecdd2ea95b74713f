//! Contexts.

use crate::objects::{PRIMARY, current, initialise, usable, with_stack};
use crate::raw;
use crate::runtime::{Runtime, call_driver, quietly};
use crate::status::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE};
use std::ffi::{c_int, c_uint, c_void};

type Handle = *mut c_void;

/// Does what the runtime does under another name; its errors are not the runtime's last ones.
pub(crate) fn with(act: impl FnOnce() -> c_int) -> c_int {
    match usable(true) {
        Ok(()) => quietly(act),
        Err(status) => status,
    }
}

/// Does a call that needs a context.
pub(crate) fn within(act: impl FnOnce(&mut Runtime) -> Result<(), c_int>) -> c_int {
    call_driver(|runtime| {
        usable(true)?;
        act(runtime)
    })
}

/// Does a call that needs no context.
pub(crate) fn without(act: impl FnOnce(&mut Runtime) -> Result<(), c_int>) -> c_int {
    call_driver(|runtime| {
        usable(false)?;
        act(runtime)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuInit(flags: c_uint) -> c_int {
    if flags != 0 {
        return INVALID_VALUE;
    }
    initialise();
    crate::runtime::at_end();
    0
}

fn create(to: *mut usize, device: c_int) -> c_int {
    without(|runtime| {
        if device != 0 {
            return Err(INVALID_DEVICE);
        }
        let made = runtime.handle();
        runtime.contexts.made.insert(made);
        with_stack(|stack| stack.push(made));
        raw::put(to, made);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxCreate_v2(to: *mut usize, _: c_uint, device: c_int) -> c_int {
    create(to, device)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxCreate_v3(
    to: *mut usize,
    _: Handle,
    _: c_int,
    _: c_uint,
    device: c_int,
) -> c_int {
    create(to, device)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxCreate_v4(
    to: *mut usize,
    _: Handle,
    _: c_uint,
    device: c_int,
) -> c_int {
    create(to, device)
}

/// A context of the program, or the primary one.
fn known(runtime: &Runtime, context: usize) -> Result<(), c_int> {
    let known = context == PRIMARY || runtime.contexts.made.contains(&context);
    known.then_some(()).ok_or(INVALID_CONTEXT)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxDestroy_v2(context: usize) -> c_int {
    without(|runtime| {
        if !runtime.contexts.made.remove(&context) {
            return Err(INVALID_CONTEXT);
        }
        with_stack(|stack| stack.pop_if(|top| *top == context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxPushCurrent_v2(context: usize) -> c_int {
    without(|runtime| {
        known(runtime, context)?;
        with_stack(|stack| stack.push(context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxPopCurrent_v2(to: *mut usize) -> c_int {
    without(|_| {
        let top = with_stack(Vec::pop).ok_or(INVALID_CONTEXT)?;
        raw::put(to, top);
        Ok(())
    })
}

/// Replaces the top of the stack; nothing takes it away.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    without(|runtime| {
        if context != 0 {
            known(runtime, context)?;
        }
        with_stack(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxGetCurrent(to: *mut usize) -> c_int {
    without(|_| {
        raw::put(to, current());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxGetDevice(to: *mut c_int) -> c_int {
    within(|_| {
        raw::put(to, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxGetFlags(to: *mut c_uint) -> c_int {
    within(|_| {
        raw::put(to, 0);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxGetId(context: usize, to: *mut u64) -> c_int {
    without(|_| {
        let context = if context == 0 { current() } else { context };
        raw::put(to, context as u64);
        Ok(())
    })
}

/// The interface of every context is the newest one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxGetApiVersion(_: usize, to: *mut c_uint) -> c_int {
    without(|_| {
        raw::put(to, 3020);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamGetCtx(_: Handle, to: *mut usize) -> c_int {
    cuCtxGetCurrent(to)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxRetain(to: *mut usize, device: c_int) -> c_int {
    without(|runtime| {
        if device != 0 {
            return Err(INVALID_DEVICE);
        }
        runtime.contexts.retained += 1;
        raw::put(to, PRIMARY);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> c_int {
    without(|runtime| {
        let retained = runtime.contexts.retained.checked_sub(1);
        runtime.contexts.retained = retained.ok_or(INVALID_CONTEXT)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxReset_v2(_: c_int) -> c_int {
    crate::runtime::runtime().reset();
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxSetFlags_v2(_: c_int, _: c_uint) -> c_int {
    without(|_| Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxGetState(
    _: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> c_int {
    without(|runtime| {
        raw::put(flags, 0);
        let active_now = runtime.contexts.retained > 0 || current() == PRIMARY;
        raw::put(active, c_int::from(active_now));
        Ok(())
    })
}

same! {
    cuCtxSynchronize = crate::api::cudaDeviceSynchronize: ();
    cuCtxSetLimit = crate::api::cudaDeviceSetLimit: (limit: c_int, value: usize);
    cuCtxGetLimit = crate::api::cudaDeviceGetLimit: (to: *mut usize, limit: c_int);
    cuCtxSetCacheConfig = crate::api::cudaDeviceSetCacheConfig: (config: c_int);
    cuCtxGetCacheConfig = crate::api::cudaDeviceGetCacheConfig: (to: *mut c_int);
    cuCtxSetSharedMemConfig = crate::api::cudaDeviceSetSharedMemConfig: (config: c_int);
    cuCtxGetSharedMemConfig = crate::api::cudaDeviceGetSharedMemConfig: (to: *mut c_int);
    cuCtxResetPersistingL2Cache = crate::api::cudaCtxResetPersistingL2Cache: ();
    cuCtxGetStreamPriorityRange = crate::api::cudaDeviceGetStreamPriorityRange: (least: *mut c_int, most: *mut c_int);
    cuProfilerStart = crate::api::cudaProfilerStart: ();
    cuProfilerStop = crate::api::cudaProfilerStop: ();
}
