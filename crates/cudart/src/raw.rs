//! Pointers from callers. A C program guarantees their validity, as it does to the real library;
//! only the functions here rely on that.

use std::ffi::{CStr, c_char, c_void};

/// Writes a result, where the caller wants it.
pub(crate) fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller of the runtime passes room for a result of this type.
        unsafe { to.write_unaligned(value) }
    }
}

/// Reads a value; nothing from a null pointer.
pub(crate) fn get<T: Copy>(from: *const T) -> Option<T> {
    // SAFETY: the caller of the runtime passes a pointer to a value of this type, or null.
    (!from.is_null()).then(|| unsafe { from.read_unaligned() })
}

/// A copy of some bytes.
pub(crate) fn bytes(from: *const c_void, len: usize) -> Vec<u8> {
    if from.is_null() || len == 0 {
        return vec![0; len];
    }
    // SAFETY: the caller passes so many bytes of memory that can be read.
    unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec()
}

/// Writes bytes.
pub(crate) fn fill(to: *mut c_void, bytes: &[u8]) {
    if !to.is_null() && !bytes.is_empty() {
        // SAFETY: the caller passes so many bytes of memory that can be written, which are
        // none of ours.
        unsafe { std::ptr::copy(bytes.as_ptr(), to.cast::<u8>(), bytes.len()) }
    }
}

/// A name.
pub(crate) fn name(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the caller passes text that ends in a zero.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_string_lossy().into_owned()
}

/// Writes an element of a table.
pub(crate) fn put_at<T>(table: *mut T, at: usize, value: T) {
    if !table.is_null() {
        // SAFETY: the caller passes a table that has room for this element.
        put(unsafe { table.add(at) }, value);
    }
}

/// A table's elements.
pub(crate) fn elements<T: Copy>(table: *const T, count: usize) -> Vec<T> {
    (0..count).map_while(|at| element(table, at)).collect()
}

/// Calls a function of the program; no lock of ours may be held.
pub(crate) fn call(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) {
    // SAFETY: the program passes a function and what it takes.
    unsafe { function(data) }
}

/// The element of a table.
pub(crate) fn element<T: Copy>(table: *const T, at: usize) -> Option<T> {
    if table.is_null() {
        return None;
    }
    // SAFETY: the caller passes a table that has this element.
    get(unsafe { table.add(at) })
}
