//! The driver's own functions, by their names. One that the driver lacks answers
//! [`MISSING`].

#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and parameters are the driver's"
)]

use crate::loader;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The status of a call that went well.
pub(crate) const OK: c_int = 0;
/// The status of a symbol that is not there.
pub(crate) const MISSING: c_int = 500;

/// The address of a function in the driver; 0 without.
pub(crate) fn find(name: &CStr) -> usize {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    // SAFETY: a name that ends in a zero. The library stays loaded.
    let load = || unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) as usize };
    match *LIBRARY.get_or_init(load) {
        0 => 0,
        library => loader::real(library as *mut c_void, name) as usize,
    }
}

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $ty:ty),*);)*) => { $(
        pub(crate) fn $name($($arg: $ty),*) -> c_int {
            static REAL: OnceLock<usize> = OnceLock::new();
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            };
            let at = *REAL.get_or_init(|| find(NAME));
            if at == 0 {
                return MISSING;
            }
            // SAFETY: the driver's function of this name has these parameters, and the arguments
            // are the program's own, or places for results.
            unsafe {
                let real: unsafe extern "C" fn($($ty),*) -> c_int = std::mem::transmute(at);
                real($($arg),*)
            }
        }
    )* };
}

/// A handle of the driver.
pub(crate) type Handle = *mut c_void;

functions! {
    fn cuGetProcAddress(symbol: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64);
    fn cuGetProcAddress_v2(symbol: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int);
    fn cuLaunchKernel(f: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuLaunchKernel_ptsz(f: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuLaunchCooperativeKernel(f: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void);
    fn cuLaunchCooperativeKernel_ptsz(f: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: Handle, params: *mut *mut c_void);
    fn cuLaunchKernelEx(config: *const c_void, f: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuLaunchKernelEx_ptsz(config: *const c_void, f: Handle, params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuGraphLaunch(graph: Handle, stream: Handle);
    fn cuGraphLaunch_ptsz(graph: Handle, stream: Handle);
    fn cuModuleLoad(module: *mut Handle, file: *const c_char);
    fn cuModuleLoadData(module: *mut Handle, image: *const c_void);
    fn cuModuleLoadDataEx(module: *mut Handle, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void);
    fn cuModuleLoadFatBinary(module: *mut Handle, image: *const c_void);
    fn cuLibraryLoadData(library: *mut Handle, image: *const c_void, a: *mut c_int, b: *mut *mut c_void, c: c_uint, d: *mut c_int, e: *mut *mut c_void, f: c_uint);
    fn cuLibraryLoadFromFile(library: *mut Handle, file: *const c_char, a: *mut c_int, b: *mut *mut c_void, c: c_uint, d: *mut c_int, e: *mut *mut c_void, f: c_uint);
    fn cuLibraryGetModule(module: *mut Handle, library: Handle);
    fn cuTensorMapEncodeTiled(map: *mut c_void, element: c_int, rank: c_uint, base: *mut c_void, dims: *const u64, strides: *const u64, copied: *const c_uint, steps: *const c_uint, interleave: c_int, swizzle: c_int, l2: c_int, fill: c_int);
    fn cuTensorMapReplaceAddress(map: *mut c_void, base: *mut c_void);

    fn cuFuncGetName(name: *mut *const c_char, f: Handle);
    fn cuFuncGetModule(module: *mut Handle, f: Handle);
    fn cuKernelGetName(name: *mut *const c_char, kernel: Handle);
    fn cuKernelGetLibrary(library: *mut Handle, kernel: Handle);
    fn cuModuleGetGlobal_v2(at: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char);
    fn cuLibraryGetGlobal(at: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
    fn cuPointerGetAttribute(to: *mut c_void, attribute: c_int, at: u64);
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    fn cuCtxSynchronize();
    fn cuCtxGetDevice(device: *mut c_int);
    fn cuDeviceGetName(to: *mut c_char, len: c_int, device: c_int);
    fn cuDeviceGetAttribute(to: *mut c_int, attribute: c_int, device: c_int);
    fn cuDriverGetVersion(to: *mut c_int);
    fn cuStreamIsCapturing(stream: Handle, to: *mut c_int);
}
