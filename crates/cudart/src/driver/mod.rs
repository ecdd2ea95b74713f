//! The functions of the driver's library, `libcuda.so.1`, with its types and numbers.
//!
//! They work on the same state as the runtime's functions, as on a GPU: a pointer, a stream or an event of
//! one is one of the other. Many of the driver's functions are the runtime's under another name; those are
//! listed with [`same`]. The rest is generated as for the runtime: what is not here says so when it is called.

#![allow(
    non_snake_case,
    reason = "the names are those of the library that this stands for"
)]

/// Functions that the runtime has under another name, with the same arguments.
macro_rules! same {
    ($($name:ident = $target:path: ($($argument:ident: $kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> std::ffi::c_int {
            crate::driver::context::with(|| $target($($argument),*))
        }
    )*};
}

mod array;
mod context;
mod copy;
mod device;
mod errors;
mod function;
mod memory;
mod module;
mod proc_address;
mod stream;
mod tensor_map;
mod virtual_memory;

pub(crate) use proc_address::find;

use array::*;
use context::*;
use copy::*;
use device::*;
use errors::*;
use function::*;
use memory::*;
use module::*;
use proc_address::*;
use stream::*;
use tensor_map::*;
use virtual_memory::*;

include!(concat!(env!("OUT_DIR"), "/driver.rs"));
