//! The driver's functions by name.

use super::FUNCTIONS;
use super::context::without;
use crate::raw;
use crate::runtime::call_driver;
use crate::status::{INVALID_VALUE, NOT_FOUND};
use std::ffi::{c_char, c_int, c_void};

/// `CUdriverProcAddressQueryResult`.
const FOUND: c_int = 0;
const NOT_FOUND_AT_ALL: c_int = 1;

/// Functions whose arguments have changed since: from which version of CUDA on it is which.
const CHANGED: [(&str, &[(c_int, &str)]); 4] = [
    (
        "cuCtxCreate",
        &[
            (12050, "cuCtxCreate_v4"),
            (11040, "cuCtxCreate_v3"),
            (0, "cuCtxCreate_v2"),
        ],
    ),
    (
        "cuMemAdvise",
        &[(12020, "cuMemAdvise_v2"), (0, "cuMemAdvise")],
    ),
    (
        "cuMemPrefetchAsync",
        &[(12020, "cuMemPrefetchAsync_v2"), (0, "cuMemPrefetchAsync")],
    ),
    (
        "cuGetProcAddress",
        &[(12000, "cuGetProcAddress_v2"), (0, "cuGetProcAddress")],
    ),
];

/// Names that stand for another one since.
const RENAMED: [(&str, &str); 1] = [("cuGraphInstantiate", "cuGraphInstantiateWithFlags")];

/// The function that a name means in a version of CUDA, if it is here.
pub(crate) fn find(name: &str, version: c_int) -> Option<*const ()> {
    let exact = |name: &str| {
        let found = FUNCTIONS.iter().find(|one| one.name == name && one.is_here);
        found.map(|one| one.function)
    };
    if let Some((_, versions)) = CHANGED.iter().find(|(known, _)| *known == name) {
        let which = versions.iter().find(|(from, _)| version >= *from);
        return which.and_then(|(_, name)| exact(name));
    }
    if let Some((_, now)) = RENAMED.iter().find(|(known, _)| *known == name) {
        return exact(now);
    }
    // The newest one: the name alone is the oldest.
    let newest = (2..=4).rev().map(|number| format!("{name}_v{number}"));
    newest
        .into_iter()
        .find_map(|name| exact(&name))
        .or_else(|| exact(name))
}

fn address(
    name: *const c_char,
    to: *mut *const (),
    version: c_int,
    found: *mut c_int,
) -> Result<(), c_int> {
    if to.is_null() || name.is_null() {
        return Err(INVALID_VALUE);
    }
    let function = find(&raw::name(name), version);
    raw::put(to, function.unwrap_or(std::ptr::null()));
    let result = if function.is_some() {
        FOUND
    } else {
        NOT_FOUND_AT_ALL
    };
    raw::put(found, result);
    function.map(|_| ()).ok_or(NOT_FOUND)
}

/// It may be called before `cuInit`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    to: *mut *const (),
    version: c_int,
    _: u64,
    found: *mut c_int,
) -> c_int {
    call_driver(|_| address(name, to, version, found))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGetProcAddress(
    name: *const c_char,
    to: *mut *const (),
    version: c_int,
    _: u64,
) -> c_int {
    call_driver(|_| address(name, to, version, std::ptr::null_mut()))
}

/// Tables of functions without names are not there.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGetExportTable(to: *mut *const c_void, _: *const c_void) -> c_int {
    without(|_| {
        raw::put(to, std::ptr::null());
        Err(NOT_FOUND)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_function_of_its_version() {
        let is = |name: &str, version, function: *const ()| {
            assert_eq!(find(name, version), Some(function), "{name} {version}");
        };
        is(
            "cuMemAlloc",
            13000,
            super::super::cuMemAlloc_v2 as *const (),
        );
        is(
            "cuCtxCreate",
            13000,
            super::super::cuCtxCreate_v4 as *const (),
        );
        is(
            "cuCtxCreate",
            12000,
            super::super::cuCtxCreate_v3 as *const (),
        );
        is(
            "cuCtxCreate",
            11000,
            super::super::cuCtxCreate_v2 as *const (),
        );
        is(
            "cuCtxCreate_v2",
            13000,
            super::super::cuCtxCreate_v2 as *const (),
        );
        is(
            "cuLaunchKernel",
            4000,
            super::super::cuLaunchKernel as *const (),
        );
        // What only says that it is not there is not found, and so are names of nothing.
        assert_eq!(find("cuMulticastCreate", 13000), None);
        assert_eq!(find("cuNoSuchFunction", 13000), None);
    }

    /// A library that is linked into the program itself, as in tests, is not redirected to itself.
    #[test]
    fn an_unknown_name_is_told_and_ends() {
        let (mut to, mut found) = (std::ptr::dangling(), FOUND);
        let name = c"cuNoSuchFunction";
        let (to, found) = (&raw mut to, &raw mut found);
        let status = cuGetProcAddress_v2(name.as_ptr(), to, 13000, 0, found);
        assert_eq!(status, NOT_FOUND);
        assert_eq!(raw::get(found.cast_const()), Some(NOT_FOUND_AT_ALL));
        assert_eq!(raw::get(to.cast_const()), Some(std::ptr::null()));
        let mut asked = FOUND;
        let status = crate::api::cudaGetDriverEntryPoint(name.as_ptr(), to, 0, &raw mut asked);
        // A caller that asks for the result is told there.
        assert_eq!((status, asked), (0, NOT_FOUND_AT_ALL));
        let nowhere = std::ptr::null_mut();
        let status = crate::api::cudaGetDriverEntryPoint(name.as_ptr(), to, 0, nowhere);
        assert_eq!(status, NOT_FOUND);
        let known = c"cuTensorMapEncodeTiled";
        let status = crate::api::cudaGetDriverEntryPoint(known.as_ptr(), to, 0, nowhere);
        assert_eq!(status, 0);
        assert_ne!(raw::get(to.cast_const()), Some(std::ptr::null()));
    }
}
