//! Tensor maps in the driver's own words.

use super::{CUdeviceptr, CUtensorMap, check, sys};
use crate::status::Status;
use heist_launch::{Fill, Interleave, L2Promotion, Swizzle, TensorElement, TensorMap, Wide};
use std::ffi::{c_uint, c_void};
use std::ptr;

/// Encodes a tensor map that [`TensorMap::validate`] has accepted.
pub(crate) fn encode_tensor_map(map: &TensorMap, base: CUdeviceptr) -> Result<CUtensorMap, Status> {
    let Numbers {
        element,
        interleave,
        swizzle,
        l2,
        fill,
    } = Numbers::of(map);
    let mut encoded = CUtensorMap { opaque: [0; 16] };
    let base = ptr::without_provenance_mut::<c_void>((base + map.offset) as usize);
    // A rank of one has no strides, and the driver still wants a pointer to some.
    let none = [0u64];
    let strides: &[u64] = if map.strides.is_empty() {
        &none
    } else {
        &map.strides
    };
    if let Some(columns) = &map.im2col {
        let [channels, pixels] = map.box_dims[..] else {
            let call = "cuTensorMapEncodeIm2col";
            return Err(Status::new(call, sys::code::INVALID_VALUE));
        };
        let Some(wide) = columns.wide else {
            call!(cuTensorMapEncodeIm2col(
                &mut encoded,
                element,
                map.rank() as u32,
                base,
                map.dims.as_ptr(),
                strides.as_ptr(),
                columns.lower.as_ptr(),
                columns.upper.as_ptr(),
                channels,
                pixels,
                map.element_strides.as_ptr(),
                interleave,
                swizzle,
                l2,
                fill
            ))?;
            return Ok(encoded);
        };
        let wide = match wide {
            Wide::W => 0,
            Wide::W128 => 1,
        };
        call!(cuTensorMapEncodeIm2colWide(
            &mut encoded,
            element,
            map.rank() as u32,
            base,
            map.dims.as_ptr(),
            strides.as_ptr(),
            columns.lower[0],
            columns.upper[0],
            channels,
            pixels,
            map.element_strides.as_ptr(),
            interleave,
            wide,
            swizzle,
            l2,
            fill
        ))?;
        return Ok(encoded);
    }
    call!(cuTensorMapEncodeTiled(
        &mut encoded,
        element,
        map.rank() as u32,
        base,
        map.dims.as_ptr(),
        strides.as_ptr(),
        map.box_dims.as_ptr(),
        map.element_strides.as_ptr(),
        interleave,
        swizzle,
        l2,
        fill
    ))?;
    Ok(encoded)
}

/// The driver's numbers for what a map is made of: `CUtensorMapDataType` and the enumerations after it.
struct Numbers {
    element: c_uint,
    interleave: c_uint,
    swizzle: c_uint,
    l2: c_uint,
    fill: c_uint,
}

impl Numbers {
    fn of(map: &TensorMap) -> Numbers {
        let element = match map.element {
            TensorElement::U8 => 0,
            TensorElement::U16 => 1,
            TensorElement::U32 => 2,
            TensorElement::S32 => 3,
            TensorElement::U64 => 4,
            TensorElement::S64 => 5,
            TensorElement::F16 => 6,
            TensorElement::F32 => 7,
            TensorElement::F64 => 8,
            TensorElement::Bf16 => 9,
            TensorElement::F32Ftz => 10,
            TensorElement::Tf32 => 11,
            TensorElement::Tf32Ftz => 12,
            TensorElement::B4 => 13,
            TensorElement::B4Padded => 14,
            TensorElement::B6Padded => 15,
        };
        let interleave = match map.interleave {
            Interleave::None => 0,
            Interleave::Bytes16 => 1,
            Interleave::Bytes32 => 2,
        };
        let swizzle = match map.swizzle {
            Swizzle::None => 0,
            Swizzle::Bytes32 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes128 => 3,
        };
        let l2 = match map.l2 {
            L2Promotion::None => 0,
            L2Promotion::Bytes64 => 1,
            L2Promotion::Bytes128 => 2,
            L2Promotion::Bytes256 => 3,
        };
        let fill = match map.fill {
            Fill::Zeros => 0,
            Fill::Nan => 1,
        };
        Numbers {
            element,
            interleave,
            swizzle,
            l2,
            fill,
        }
    }
}

/// Has an encoded tensor map begin elsewhere; a tenth of what encoding takes.
pub(crate) fn move_tensor_map(map: &mut CUtensorMap, base: CUdeviceptr) -> Result<(), Status> {
    let base = ptr::without_provenance_mut::<c_void>(base as usize);
    call!(cuTensorMapReplaceAddress(map, base))
}

/// An encoded tensor map, as a kernel takes it.
pub(crate) fn tensor_map_bytes(map: &CUtensorMap) -> [u8; 128] {
    let mut bytes = [0; 128];
    for (to, word) in bytes.chunks_exact_mut(8).zip(map.opaque) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
