//! Functions of the driver that programs ask the runtime for: those that encode tensor maps.

use crate::raw;
use crate::runtime::{Runtime, call, call_driver};
use crate::status::{INVALID_VALUE, SYMBOL_NOT_FOUND};
use heist_record::Map;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `cudaDriverEntryPointQueryResult`.
const FOUND: c_int = 0;
const NOT_FOUND: c_int = 1;

/// What there is of the driver.
const FUNCTIONS: [(&str, *const ()); 2] = [
    ("cuTensorMapEncodeTiled", encode_tiled as *const ()),
    ("cuTensorMapReplaceAddress", replace_address as *const ()),
];

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    to: *mut *const (),
    _flags: u64,
    found: *mut c_int,
) -> c_int {
    call(|runtime| entry_point(runtime, &raw::name(name), to, found))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    to: *mut *const (),
    _version: c_uint,
    _flags: u64,
    found: *mut c_int,
) -> c_int {
    call(|runtime| entry_point(runtime, &raw::name(name), to, found))
}

fn entry_point(
    runtime: &mut Runtime,
    name: &str,
    to: *mut *const (),
    found: *mut c_int,
) -> Result<(), c_int> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    let known = FUNCTIONS.iter().find(|(known, _)| *known == name);
    raw::put(
        to,
        known.map_or(std::ptr::null(), |&(_, function)| function),
    );
    raw::put(found, if known.is_some() { FOUND } else { NOT_FOUND });
    if known.is_some() {
        return Ok(());
    }
    runtime.report.remark(&format!(
        "{name} of the driver is not there: cudaGetDriverEntryPoint has not found it"
    ));
    // A caller that asks for the result is told there.
    match found.is_null() {
        true => Err(SYMBOL_NOT_FOUND),
        false => Ok(()),
    }
}

/// `cuTensorMapEncodeTiled`.
extern "C" fn encode_tiled(
    to: *mut c_void,
    element: c_int,
    rank: c_uint,
    base: *mut c_void,
    dims: *const u64,
    strides: *const u64,
    box_dims: *const c_uint,
    element_strides: *const c_uint,
    interleave: c_int,
    swizzle: c_int,
    l2: c_int,
    fill: c_int,
) -> c_int {
    call_driver(|runtime| {
        let rank = rank as usize;
        let asked = Map {
            base: base.addr() as u64,
            element: element as u32,
            dims: raw::elements(dims, rank),
            strides: raw::elements(strides, rank.saturating_sub(1)),
            box_dims: raw::elements(box_dims, rank),
            element_strides: raw::elements(element_strides, rank),
            interleave: interleave as u32,
            swizzle: swizzle as u32,
            l2: l2 as u32,
            fill: fill as u32,
        };
        let map = asked.over("", asked.base).map_err(|why| {
            runtime.report.remark(&format!(
                "cuTensorMapEncodeTiled: {why}; it returned CUDA_ERROR_INVALID_VALUE (1)"
            ));
            INVALID_VALUE
        })?;
        raw::fill(to, &runtime.maps.keep(asked.base, map));
        Ok(())
    })
}

/// `cuTensorMapReplaceAddress`.
extern "C" fn replace_address(map: *mut c_void, base: *mut c_void) -> c_int {
    call_driver(|runtime| {
        let known = runtime.maps.find(&raw::bytes(map, 128));
        let known = known.ok_or(INVALID_VALUE)?;
        raw::fill(map, &runtime.maps.keep(base.addr() as u64, known));
        Ok(())
    })
}
