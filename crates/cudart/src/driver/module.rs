//! Modules and libraries: device code that the program loads while it runs.

use super::context::within;
use crate::objects::Link;
use crate::raw;
use crate::runtime::Runtime;
use crate::status::{
    FILE_NOT_FOUND, INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED,
};
use heist_fatbin::Image;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

/// `CUjit_option`: room for what the compiler says, and of an error, and how much of it there is.
const INFO_LOG: c_int = 3;
const INFO_LOG_BYTES: c_int = 4;
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;

/// The options of a call: numbers, and a value for each.
#[derive(Clone, Copy)]
struct Options {
    count: c_uint,
    kinds: *const c_int,
    values: *mut *mut c_void,
}

impl Options {
    const NONE: Options = Options {
        count: 0,
        kinds: std::ptr::null(),
        values: std::ptr::null_mut(),
    };

    fn place(&self, kind: c_int) -> Option<usize> {
        let kinds = raw::elements(self.kinds, self.count as usize);
        kinds.iter().position(|one| *one == kind)
    }

    fn value(&self, kind: c_int) -> Option<*mut c_void> {
        raw::element(self.values.cast_const(), self.place(kind)?)
    }

    /// Puts a text where the program wants it, and how long it is.
    fn put(&self, log: c_int, bytes: c_int, text: &str) {
        let (Some(to), Some(room)) = (self.value(log), self.value(bytes)) else {
            return;
        };
        let room = room.addr() & 0xffff_ffff;
        let mut text = text.as_bytes().to_vec();
        text.truncate(room.saturating_sub(1));
        let len = text.len();
        text.push(0);
        if room > 0 {
            raw::fill(to, &text);
        }
        if let Some(at) = self.place(bytes) {
            raw::put_at(self.values, at, std::ptr::without_provenance_mut(len));
        }
    }

    /// Tells what is wrong, or nothing.
    fn tell(&self, why: &str) {
        self.put(INFO_LOG, INFO_LOG_BYTES, "");
        self.put(ERROR_LOG, ERROR_LOG_BYTES, why);
    }
}

/// Loads what an image has for this device.
fn load(
    runtime: &mut Runtime,
    to: *mut usize,
    image: &Image,
    options: Options,
) -> Result<(), c_int> {
    let made = runtime.load(&image.images());
    let (module, status) = match made {
        Ok(module) => {
            options.tell("");
            (module, Ok(()))
        }
        Err((status, why)) => {
            options.tell(&why);
            (0, Err(status))
        }
    };
    raw::put(to, module);
    status
}

fn load_at(to: *mut usize, at: *const c_void, options: Options) -> c_int {
    within(|runtime| {
        if at.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the program passes an image, which says itself where it ends.
        let image = unsafe { Image::at(at) }.ok_or(INVALID_IMAGE)?;
        load(runtime, to, &image, options)
    })
}

fn load_file(to: *mut usize, file: *const c_char) -> c_int {
    within(|runtime| {
        let name = raw::name(file);
        let bytes = std::fs::read(&name).map_err(|error| {
            let text =
                format!("{name}: {error}: the call returned CUDA_ERROR_FILE_NOT_FOUND (301)");
            runtime.report.remark(&text);
            FILE_NOT_FOUND
        })?;
        load(runtime, to, &Image::of(&bytes), Options::NONE)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleLoad(to: *mut usize, file: *const c_char) -> c_int {
    load_file(to, file)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleLoadData(to: *mut usize, image: *const c_void) -> c_int {
    load_at(to, image, Options::NONE)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleLoadFatBinary(to: *mut usize, image: *const c_void) -> c_int {
    load_at(to, image, Options::NONE)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleLoadDataEx(
    to: *mut usize,
    image: *const c_void,
    count: c_uint,
    kinds: *const c_int,
    values: *mut *mut c_void,
) -> c_int {
    let options = Options {
        count,
        kinds,
        values,
    };
    load_at(to, image, options)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleUnload(module: usize) -> c_int {
    within(|runtime| runtime.unload(module))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleGetFunction(
    to: *mut usize,
    module: usize,
    name: *const c_char,
) -> c_int {
    within(|runtime| {
        raw::put(to, runtime.function_of(module, &raw::name(name))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleGetFunctionCount(to: *mut c_uint, module: usize) -> c_int {
    within(|runtime| {
        raw::put(to, runtime.kernels_of(module)?.len() as c_uint);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleEnumerateFunctions(
    to: *mut usize,
    room: c_uint,
    module: usize,
) -> c_int {
    within(|runtime| {
        let names = runtime.kernels_of(module)?;
        for (at, name) in names.iter().enumerate().take(room as usize) {
            raw::put_at(to, at, runtime.function_of(module, name)?);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleGetGlobal_v2(
    to: *mut u64,
    bytes: *mut usize,
    module: usize,
    name: *const c_char,
) -> c_int {
    within(|runtime| {
        let (at, size) = runtime
            .variable_of(module, &raw::name(name))?
            .ok_or(NOT_FOUND)?;
        raw::put(to, at);
        raw::put(bytes, size as usize);
        Ok(())
    })
}

/// `CU_MODULE_EAGER_LOADING`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleGetLoadingMode(to: *mut c_int) -> c_int {
    raw::put(to, 1);
    0
}

/// A library is a module, and a kernel of it a function.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLibraryLoadData(
    to: *mut usize,
    image: *const c_void,
    kinds: *const c_int,
    values: *mut *mut c_void,
    count: c_uint,
    _: *const c_int,
    _: *const *mut c_void,
    _: c_uint,
) -> c_int {
    cuModuleLoadDataEx(to, image, count, kinds, values)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLibraryLoadFromFile(
    to: *mut usize,
    file: *const c_char,
    _: *const c_int,
    _: *mut *mut c_void,
    _: c_uint,
    _: *const c_int,
    _: *const *mut c_void,
    _: c_uint,
) -> c_int {
    load_file(to, file)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLibraryUnload(library: usize) -> c_int {
    cuModuleUnload(library)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLibraryGetKernel(
    to: *mut usize,
    library: usize,
    name: *const c_char,
) -> c_int {
    cuModuleGetFunction(to, library, name)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLibraryGetKernelCount(to: *mut c_uint, library: usize) -> c_int {
    cuModuleGetFunctionCount(to, library)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLibraryEnumerateKernels(
    to: *mut usize,
    room: c_uint,
    library: usize,
) -> c_int {
    cuModuleEnumerateFunctions(to, room, library)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLibraryGetModule(to: *mut usize, library: usize) -> c_int {
    within(|runtime| {
        runtime.kernels_of(library)?;
        raw::put(to, library);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLibraryGetGlobal(
    to: *mut u64,
    bytes: *mut usize,
    library: usize,
    name: *const c_char,
) -> c_int {
    cuModuleGetGlobal_v2(to, bytes, library, name)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuKernelGetFunction(to: *mut usize, kernel: usize) -> c_int {
    within(|_| {
        raw::put(to, kernel);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLinkCreate_v2(
    _: c_uint,
    _: *const c_int,
    _: *mut *mut c_void,
    to: *mut usize,
) -> c_int {
    within(|runtime| {
        let made = runtime.handle();
        runtime.links.insert(made, Link::default());
        raw::put(to, made);
        Ok(())
    })
}

/// `CU_JIT_INPUT_PTX`.
const PTX: c_int = 1;
/// `CU_JIT_INPUT_LIBRARY`: what PTX without calls to it does not need.
const LIBRARY: c_int = 4;

fn add(runtime: &mut Runtime, link: usize, kind: c_int, bytes: &[u8]) -> Result<(), c_int> {
    let link = runtime.links.get_mut(&link).ok_or(INVALID_HANDLE)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
    match (kind, &link.text) {
        (PTX, None) => {
            link.text = CString::new(text).ok();
            Ok(())
        }
        (LIBRARY, _) => Ok(()),
        _ => {
            runtime.report.remark(
                "cuLinkAddData: device code is not linked here, so one input of PTX is taken: \
                 it returned CUDA_ERROR_NOT_SUPPORTED (801)",
            );
            Err(NOT_SUPPORTED)
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLinkAddData_v2(
    link: usize,
    kind: c_int,
    data: *const c_void,
    len: usize,
    _: *const c_char,
    _: c_uint,
    _: *const c_int,
    _: *mut *mut c_void,
) -> c_int {
    within(|runtime| add(runtime, link, kind, &raw::bytes(data, len)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLinkAddFile_v2(
    link: usize,
    kind: c_int,
    file: *const c_char,
    _: c_uint,
    _: *const c_int,
    _: *mut *mut c_void,
) -> c_int {
    within(|runtime| {
        let bytes = std::fs::read(raw::name(file)).map_err(|_| FILE_NOT_FOUND)?;
        add(runtime, link, kind, &bytes)
    })
}

/// What is linked stays until the link is destroyed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLinkComplete(
    link: usize,
    to: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    within(|runtime| {
        let link = runtime.links.get(&link).ok_or(INVALID_HANDLE)?;
        let text = link.text.as_ref().ok_or(INVALID_IMAGE)?;
        raw::put(to, text.as_ptr().cast());
        raw::put(len, text.as_bytes_with_nul().len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLinkDestroy(link: usize) -> c_int {
    within(|runtime| {
        let known = runtime.links.remove(&link);
        known.map(|_| ()).ok_or(INVALID_HANDLE)
    })
}
