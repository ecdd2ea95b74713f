//! Asynchronous copies: `cp.async`, bulk and tensor copies, and the tensor maps that
//! kernels make.

pub(crate) mod bulk;
mod columns;
pub(crate) mod cp_async;
pub(crate) mod map_edit;
pub(crate) mod tensor_map;
