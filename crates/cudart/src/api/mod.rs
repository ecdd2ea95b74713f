//! The functions of the runtime library, with its types and numbers.
//!
//! The rest is generated: names for per-thread default streams jump to those without the suffix,
//! and every other function reports that it is not supported.

#![allow(
    non_snake_case,
    reason = "the names are those of the library that this stands for"
)]

mod capture;
mod copy;
mod device;
mod entry_point;
mod errors;
mod graph;
mod image;
mod launch;
mod memory;
mod pool;
mod register;
mod stream;

pub(crate) use capture::*;
pub(crate) use copy::*;
pub(crate) use device::*;
pub(crate) use entry_point::*;
pub(crate) use errors::*;
pub(crate) use graph::*;
pub(crate) use image::*;
pub(crate) use launch::*;
pub(crate) use memory::*;
pub(crate) use pool::*;
pub(crate) use register::*;
pub(crate) use stream::*;

include!(concat!(env!("OUT_DIR"), "/rest.rs"));

/// A function of one of the libraries.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) function: *const (),
    /// Whether it does more than say that it is not there.
    pub(crate) is_here: bool,
}
