//! Functions of the driver that programs ask the runtime for.

use super::device::VERSION;
use crate::driver;
use crate::raw;
use crate::runtime::{Runtime, call};
use crate::status::{INVALID_VALUE, NOT_FOUND};
use std::ffi::{c_char, c_int, c_uint};

/// `cudaDriverEntryPointQueryResult`.
const FOUND: c_int = 0;
const ABSENT: c_int = 1;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    to: *mut *const (),
    _flags: u64,
    found: *mut c_int,
) -> c_int {
    call(|runtime| entry_point(runtime, &raw::name(name), VERSION, to, found))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    to: *mut *const (),
    version: c_uint,
    _flags: u64,
    found: *mut c_int,
) -> c_int {
    call(|runtime| entry_point(runtime, &raw::name(name), version as c_int, to, found))
}

fn entry_point(
    runtime: &mut Runtime,
    name: &str,
    version: c_int,
    to: *mut *const (),
    found: *mut c_int,
) -> Result<(), c_int> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    let known = driver::find(name, version);
    raw::put(to, known.unwrap_or(std::ptr::null()));
    raw::put(found, if known.is_some() { FOUND } else { ABSENT });
    if known.is_some() {
        return Ok(());
    }
    runtime.report.remark(&format!(
        "{name} of the driver is not there: cudaGetDriverEntryPoint has not found it"
    ));
    // A caller that asks for the result is told there.
    match found.is_null() {
        true => Err(NOT_FOUND),
        false => Ok(()),
    }
}
