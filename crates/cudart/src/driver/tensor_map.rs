//! Tensor maps.

use crate::raw;
use crate::runtime::call_driver;
use crate::status::INVALID_VALUE;
use heist_record::Map;
use std::ffi::{c_int, c_uint, c_void};

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuTensorMapEncodeTiled(
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

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuTensorMapReplaceAddress(map: *mut c_void, base: *mut c_void) -> c_int {
    call_driver(|runtime| {
        let known = runtime.maps.find(&raw::bytes(map, 128));
        let known = known.ok_or(INVALID_VALUE)?;
        raw::fill(map, &runtime.maps.keep(base.addr() as u64, known));
        Ok(())
    })
}
