//! The registration functions that a program's constructors call: device code, kernels and
//! variables.

use crate::raw;
use crate::runtime::runtime;
use std::ffi::{c_char, c_int, c_void};

/// Handles are pointers that are never dereferenced: the number of the registration, from one on.
fn handle(number: usize) -> *mut *mut c_void {
    std::ptr::without_provenance_mut(number + 1)
}

fn number(handle: *mut *mut c_void) -> usize {
    handle.addr().wrapping_sub(1)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFatBinary(wrapper: *const c_void) -> *mut *mut c_void {
    crate::runtime::at_end();
    handle(runtime().register(wrapper))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFatBinaryEnd(_: *mut *mut c_void) {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaUnregisterFatBinary(_: *mut *mut c_void) {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaInitModule(_: *mut *mut c_void) -> c_char {
    1
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    host: *const c_void,
    _: *mut c_char,
    name: *const c_char,
) {
    runtime().add_function(number(handle), host, raw::name(name));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterVar(
    handle: *mut *mut c_void,
    host: *const c_void,
    _: *mut c_char,
    name: *const c_char,
) {
    runtime().add_variable(number(handle), host, &raw::name(name));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterManagedVar(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    _: *mut c_char,
    name: *const c_char,
) {
    let mut runtime = runtime();
    let name = raw::name(name);
    let Some((at, size)) = runtime.add_variable(number(handle), host.cast(), &name) else {
        return;
    };
    // The device's copy moves into memory that the host can touch, at the same address if that is
    // free there; the kernel knows it by that address only.
    if let Some(place) = runtime.heap.map_variable(at, size as usize) {
        raw::put(host, place as *mut c_void);
    } else {
        runtime.report.remark(&format!(
            "the managed variable `{name}` can't be reached by the host: its memory is taken"
        ));
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cudaRegisterHostVar(
    _: *mut *mut c_void,
    _: *const c_char,
    _: *mut c_char,
    _: usize,
) -> c_int {
    0
}
