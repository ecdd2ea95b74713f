//! Several records of one process: how `pytest --heist-record` asks for one of each test.

use crate::recorder::recorder;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Asks for the record of another launch: into `file`, the one with number `launch` of the kernel
/// `kernel`, counted from now on. A null kernel is any; launch 0 is none. What is told of it goes to
/// the folder `report`.
///
/// Gives 0, or 1 where the process was not started for recording, or 2 for a path that is null.
///
/// # Safety
/// The texts are null or end with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn heist_record_next(
    report: *const c_char,
    file: *const c_char,
    kernel: *const c_char,
    launch: u64,
) -> c_int {
    let text = |from: *const c_char| {
        // SAFETY: as the caller guarantees.
        (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_bytes().to_vec())
    };
    let path = |bytes: Vec<u8>| PathBuf::from(OsStr::from_bytes(&bytes));
    let (Some(report), Some(file)) = (text(report), text(file)) else {
        return 2;
    };
    let kernel = text(kernel).map(|name| String::from_utf8_lossy(&name).into_owned());
    let Some(mut recorder) = recorder() else {
        return 1;
    };
    recorder.ask_again(&path(report), path(file), (kernel, launch));
    0
}
