//! The driver's functions that are seen, by their own names. Each does what the driver's does.

#![allow(non_snake_case, reason = "the names are the driver's")]

use crate::driver::{self, Handle, OK};
use crate::image::Loaded;
use crate::launch::{Config, Wish};
use crate::recorder::{self, around, recorder};
use crate::symbols::replace;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A function that is seen.
pub(crate) struct Hook {
    /// Its name.
    pub(crate) name: &'static CStr,
    /// Ours in its place.
    pub(crate) ours: usize,
}

macro_rules! hooks {
    ($($name:ident)*) => {
        /// All of them; those for threads' own default streams come last.
        pub(crate) fn all() -> &'static [Hook] {
            static ALL: std::sync::OnceLock<Vec<Hook>> = std::sync::OnceLock::new();
            ALL.get_or_init(|| vec![$(Hook {
                name: CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).unwrap_or(c""),
                ours: $name as *const () as usize,
            },)*])
        }
    };
}

hooks! {
    cuGetProcAddress cuGetProcAddress_v2
    cuLaunchKernel cuLaunchCooperativeKernel cuLaunchKernelEx cuGraphLaunch
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary
    cuLibraryLoadData cuLibraryLoadFromFile cuTensorMapEncodeTiled cuTensorMapReplaceAddress
    cuLaunchKernel_ptsz cuLaunchCooperativeKernel_ptsz cuLaunchKernelEx_ptsz cuGraphLaunch_ptsz
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    let status = driver::cuGetProcAddress(symbol, to, version, flags);
    if status == OK {
        replace(symbol, to, flags);
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    found: *mut c_int,
) -> c_int {
    let status = driver::cuGetProcAddress_v2(symbol, to, version, flags, found);
    if status == OK {
        replace(symbol, to, flags);
    }
    status
}

macro_rules! plain_launches {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            f: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
            shared: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void,
        ) -> c_int {
            let wish = Wish::plain(f, (gx, gy, gz), (bx, by, bz), shared, stream, params, extra);
            around(&wish, || driver::$name(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra))
        }
    )* };
}

plain_launches! { cuLaunchKernel cuLaunchKernel_ptsz }

macro_rules! cooperative_launches {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            f: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
            shared: c_uint, stream: Handle, params: *mut *mut c_void,
        ) -> c_int {
            let none = std::ptr::null_mut();
            let wish = Wish::plain(f, (gx, gy, gz), (bx, by, bz), shared, stream, params, none);
            around(&wish.cooperative(), || driver::$name(f, gx, gy, gz, bx, by, bz, shared, stream, params))
        }
    )* };
}

cooperative_launches! { cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz }

macro_rules! described_launches {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            config: *const Config, f: Handle, params: *mut *mut c_void, extra: *mut *mut c_void,
        ) -> c_int {
            let launch = || driver::$name(config.cast(), f, params, extra);
            // SAFETY: the program passes a description of the launch, or null, which the driver refuses.
            match unsafe { Wish::described(config, f, params, extra) } {
                Some(wish) => around(&wish, launch),
                None => launch(),
            }
        }
    )* };
}

described_launches! { cuLaunchKernelEx cuLaunchKernelEx_ptsz }

macro_rules! graph_launches {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(graph: Handle, stream: Handle) -> c_int {
            recorder::saw_graph();
            driver::$name(graph, stream)
        }
    )* };
}

graph_launches! { cuGraphLaunch cuGraphLaunch_ptsz }

/// Notes an image that the driver has loaded.
fn loaded(status: c_int, to: *mut Handle, image: impl FnOnce() -> Loaded) -> c_int {
    if status == OK
        && !to.is_null()
        && let Some(mut recorder) = recorder()
    {
        // SAFETY: the driver has just written there.
        let handle = unsafe { *to };
        recorder.images.insert(handle as usize, image());
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoad(module: *mut Handle, file: *const c_char) -> c_int {
    loaded(driver::cuModuleLoad(module, file), module, || {
        Loaded::file(file)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> c_int {
    loaded(driver::cuModuleLoadData(module, image), module, || {
        Loaded::at(image)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
) -> c_int {
    let status = driver::cuModuleLoadDataEx(module, image, count, options, values);
    loaded(status, module, || Loaded::at(image))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadFatBinary(module: *mut Handle, image: *const c_void) -> c_int {
    loaded(driver::cuModuleLoadFatBinary(module, image), module, || {
        Loaded::at(image)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryLoadData(
    library: *mut Handle,
    image: *const c_void,
    jit: *mut c_int,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: c_uint,
) -> c_int {
    let status = driver::cuLibraryLoadData(
        library, image, jit, jit_values, jit_count, options, values, count,
    );
    loaded(status, library, || Loaded::at(image).library())
}

#[unsafe(no_mangle)]
extern "C" fn cuLibraryLoadFromFile(
    library: *mut Handle,
    file: *const c_char,
    jit: *mut c_int,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_int,
    values: *mut *mut c_void,
    count: c_uint,
) -> c_int {
    let status = driver::cuLibraryLoadFromFile(
        library, file, jit, jit_values, jit_count, options, values, count,
    );
    loaded(status, library, || Loaded::file(file).library())
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapEncodeTiled(
    map: *mut c_void,
    element: c_int,
    rank: c_uint,
    base: *mut c_void,
    dims: *const u64,
    strides: *const u64,
    copied: *const c_uint,
    steps: *const c_uint,
    interleave: c_int,
    swizzle: c_int,
    l2: c_int,
    fill: c_int,
) -> c_int {
    let status = driver::cuTensorMapEncodeTiled(
        map, element, rank, base, dims, strides, copied, steps, interleave, swizzle, l2, fill,
    );
    if status == OK
        && let Some(mut recorder) = recorder()
    {
        let rank = rank as usize;
        // SAFETY: the driver has taken the same tables, of `rank` elements, and written the map.
        let (bytes, asked) = unsafe {
            let list =
                |from: *const u64, len: usize| std::slice::from_raw_parts(from, len).to_vec();
            let short = |from: *const c_uint| std::slice::from_raw_parts(from, rank).to_vec();
            let asked = heist_record::Map {
                base: base as u64,
                element: element as u32,
                dims: list(dims, rank),
                strides: match rank {
                    0 | 1 => Vec::new(),
                    _ => list(strides, rank - 1),
                },
                box_dims: short(copied),
                element_strides: short(steps),
                interleave: interleave as u32,
                swizzle: swizzle as u32,
                l2: l2 as u32,
                fill: fill as u32,
            };
            (map.cast::<[u8; 128]>().read_unaligned(), asked)
        };
        recorder.maps.insert(bytes, asked);
    }
    status
}

#[unsafe(no_mangle)]
extern "C" fn cuTensorMapReplaceAddress(map: *mut c_void, base: *mut c_void) -> c_int {
    // SAFETY: the program passes a map of 128 bytes, or null, which the driver refuses.
    let bytes = || unsafe { map.cast::<[u8; 128]>().read_unaligned() };
    let before = (!map.is_null()).then(bytes);
    let status = driver::cuTensorMapReplaceAddress(map, base);
    if status == OK
        && let Some(mut recorder) = recorder()
        && let Some(known) = before.and_then(|before| recorder.maps.get(&before).cloned())
    {
        let base = base as u64;
        recorder
            .maps
            .insert(bytes(), heist_record::Map { base, ..known });
    }
    status
}
