//! DLPack: arrays of any library, as a capsule of Python hands them over.
//!
//! The layout is that of version 0 (`dltensor`), which every exporter offers where
//! no newer version is asked for.

#![allow(unsafe_code)]

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use std::ffi::c_void;

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// What an array is: address, bytes, type of its elements, kind of device and its
/// number (1 is the CPU, 2 a GPU of CUDA). The capsule must be kept for as long as the
/// address is used.
#[pyfunction]
pub(crate) fn dlpack(capsule: &Bound<'_, PyCapsule>) -> PyResult<(u64, u64, String, i32, i32)> {
    let pointer = capsule
        .pointer_checked(Some(c"dltensor"))
        .map_err(|_| PyTypeError::new_err("no capsule of DLPack, or one that was used before"))?;
    // SAFETY: a capsule of this name holds a DLManagedTensor, which begins with the
    // tensor, for as long as the capsule lives.
    let tensor = unsafe { pointer.cast::<DlTensor>().as_ref() };
    let rank = usize::try_from(tensor.ndim).unwrap_or(0);
    let list = |from: *const i64| match (rank, from.is_null()) {
        (0, _) | (_, true) => &[][..],
        // SAFETY: by the protocol it has a number for each dimension.
        _ => unsafe { std::slice::from_raw_parts(from, rank) },
    };
    let (shape, strides) = (list(tensor.shape), list(tensor.strides));
    let mut expected = 1;
    for (extent, stride) in shape.iter().zip(strides).rev() {
        if *extent != 1 && *stride != expected {
            return Err(PyValueError::new_err(
                "the array is not contiguous: copy it first",
            ));
        }
        expected *= extent;
    }
    let elements: i64 = shape.iter().product();
    let ty = match (tensor.code, tensor.bits, tensor.lanes) {
        (0, bits @ (8 | 16 | 32 | 64), 1) => format!("s{bits}"),
        (1, bits @ (8 | 16 | 32 | 64), 1) => format!("u{bits}"),
        (2, bits @ (16 | 32 | 64), 1) => format!("f{bits}"),
        (4, 16, 1) => "bf16".to_owned(),
        (6, 8, 1) => "u8".to_owned(),
        (code, bits, lanes) => {
            return Err(PyTypeError::new_err(format!(
                "elements of DLPack's kind {code} with {bits} bits and {lanes} lanes: integers, floats and bfloat16 are taken"
            )));
        }
    };
    Ok((
        tensor.data.expose_provenance() as u64 + tensor.byte_offset,
        elements.unsigned_abs() * u64::from(tensor.bits) / 8,
        ty,
        tensor.device_type,
        tensor.device_id,
    ))
}
