//! The functions of the runtime library, with its types and numbers.
//!
//! The rest is generated: names for per-thread default streams jump to those without the suffix,
//! and every other function reports that it is not supported.

#![allow(
    non_snake_case,
    reason = "the names are those of the library that this stands for"
)]

mod device;
mod errors;
mod launch;
mod memory;
mod register;
mod stream;

use device::*;
use errors::*;
use launch::*;
use memory::*;
use register::*;
use stream::*;

include!(concat!(env!("OUT_DIR"), "/rest.rs"));
