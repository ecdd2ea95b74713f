//! Numbers of the errors, which are the same in the runtime and in the driver.

use std::ffi::c_int;

pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const NOT_INITIALISED: c_int = 3;
pub(crate) const INVALID_CONFIGURATION: c_int = 9;
pub(crate) const INVALID_SYMBOL: c_int = 13;
pub(crate) const INVALID_DEVICE: c_int = 101;
pub(crate) const INVALID_FUNCTION: c_int = 98;
pub(crate) const INVALID_IMAGE: c_int = 200;
pub(crate) const INVALID_CONTEXT: c_int = 201;
pub(crate) const NO_IMAGE: c_int = 209;
pub(crate) const INVALID_PTX: c_int = 218;
pub(crate) const FILE_NOT_FOUND: c_int = 301;
pub(crate) const INVALID_HANDLE: c_int = 400;
pub(crate) const NOT_FOUND: c_int = 500;
pub(crate) const ASSERT: c_int = 710;
pub(crate) const LAUNCH_FAILURE: c_int = 719;
pub(crate) const NOT_SUPPORTED: c_int = 801;
pub(crate) const UNKNOWN: c_int = 999;
