//! Images of device code that the driver has loaded.

use heist_fatbin::Image;
use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;

/// An image that the driver has loaded.
pub(crate) struct Loaded {
    pub(crate) held: Held,
    pub(crate) is_library: bool,
}

/// Device code, until it is wanted.
pub(crate) enum Held {
    /// nvcc's wrapper, which is in a program's own image and stays.
    Wrapper(usize),
    /// A copy, since the program may give the memory back.
    Copied(Image),
    File(PathBuf),
    Unreadable,
}

impl Loaded {
    pub(crate) fn at(image: *const c_void) -> Loaded {
        // SAFETY: the driver has just read an image there.
        let held = unsafe {
            match heist_fatbin::is_wrapper(image) {
                true => Held::Wrapper(image as usize),
                false => Image::at(image).map_or(Held::Unreadable, Held::Copied),
            }
        };
        Loaded {
            held,
            is_library: false,
        }
    }

    pub(crate) fn file(name: *const c_char) -> Loaded {
        // SAFETY: the driver has just opened a file of this name.
        let name = unsafe { CStr::from_ptr(name) };
        Loaded {
            held: Held::File(PathBuf::from(name.to_string_lossy().into_owned())),
            is_library: false,
        }
    }

    /// The same as one of the driver's libraries, which have kernels in place of functions.
    pub(crate) fn library(self) -> Loaded {
        Loaded {
            is_library: true,
            ..self
        }
    }
}
