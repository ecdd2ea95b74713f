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

use capture::*;
use copy::*;
use device::*;
use entry_point::*;
use errors::*;
use graph::*;
use image::*;
use launch::*;
use memory::*;
use pool::*;
use register::*;
use stream::*;

include!(concat!(env!("OUT_DIR"), "/rest.rs"));
