//! The loader's own `dlsym`, behind ours.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The loader's own `dlsym`, once it was looked for.
pub(crate) static REAL: AtomicUsize = AtomicUsize::new(0);

/// The address of the loader's own function.
pub(crate) extern "C" fn loader() -> usize {
    let known = REAL.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // It moved from a library of its own into the C library.
    let versions = [c"GLIBC_2.34", c"GLIBC_2.2.5"];
    let found = versions.iter().map(|version| {
        // SAFETY: names that end in a zero.
        unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) as usize }
    });
    let found = { found }.find(|at| *at != 0).unwrap_or(0);
    REAL.store(found, Ordering::Relaxed);
    found
}

/// What a library really has under a name.
pub(crate) fn real(library: *mut c_void, name: &CStr) -> *mut c_void {
    match loader() {
        0 => std::ptr::null_mut(),
        // SAFETY: the loader's function, with a name that ends in a zero.
        at => unsafe {
            let real: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
                std::mem::transmute(at);
            real(library, name.as_ptr())
        },
    }
}
