//! Tensor maps in the driver's own words.

use super::{CUdeviceptr, CUtensorMap, check};
use crate::status::Status;
use cudarc::driver::sys;
use heist_launch::{Fill, Interleave, L2Promotion, Swizzle, TensorElement, TensorMap};
use std::ffi::c_void;
use std::ptr;

/// Encodes a tensor map that [`TensorMap::validate`] has accepted.
pub(crate) fn encode_tensor_map(map: &TensorMap, base: CUdeviceptr) -> Result<CUtensorMap, Status> {
    use sys::CUtensorMapDataType::*;
    use sys::CUtensorMapFloatOOBfill::*;
    use sys::CUtensorMapInterleave::*;
    use sys::CUtensorMapL2promotion::*;
    use sys::CUtensorMapSwizzle::*;
    let element = match map.element {
        TensorElement::U8 => CU_TENSOR_MAP_DATA_TYPE_UINT8,
        TensorElement::U16 => CU_TENSOR_MAP_DATA_TYPE_UINT16,
        TensorElement::U32 => CU_TENSOR_MAP_DATA_TYPE_UINT32,
        TensorElement::S32 => CU_TENSOR_MAP_DATA_TYPE_INT32,
        TensorElement::U64 => CU_TENSOR_MAP_DATA_TYPE_UINT64,
        TensorElement::S64 => CU_TENSOR_MAP_DATA_TYPE_INT64,
        TensorElement::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        TensorElement::F32 => CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        TensorElement::F64 => CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        TensorElement::Bf16 => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        TensorElement::F32Ftz => CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
        TensorElement::Tf32 => CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        TensorElement::Tf32Ftz => CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
        TensorElement::B4Padded => CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B,
    };
    let interleave = match map.interleave {
        Interleave::None => CU_TENSOR_MAP_INTERLEAVE_NONE,
        Interleave::Bytes16 => CU_TENSOR_MAP_INTERLEAVE_16B,
        Interleave::Bytes32 => CU_TENSOR_MAP_INTERLEAVE_32B,
    };
    let swizzle = match map.swizzle {
        Swizzle::None => CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::Bytes32 => CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::Bytes64 => CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::Bytes128 => CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let l2 = match map.l2 {
        L2Promotion::None => CU_TENSOR_MAP_L2_PROMOTION_NONE,
        L2Promotion::Bytes64 => CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        L2Promotion::Bytes128 => CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        L2Promotion::Bytes256 => CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    };
    let fill = match map.fill {
        Fill::Zeros => CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        Fill::Nan => CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    };
    let mut encoded = CUtensorMap { opaque: [0; 16] };
    let base = ptr::without_provenance_mut::<c_void>((base + map.offset) as usize);
    // A rank of one has no strides, and the driver still wants a pointer to some.
    let none = [0u64];
    let strides: &[u64] = if map.strides.is_empty() {
        &none
    } else {
        &map.strides
    };
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
