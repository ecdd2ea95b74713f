//! The functions of the runtime library, with its types and numbers.
//!
//! What is not written out here is generated: names for per-thread default streams jump to
//! those without the suffix, and every other name says that it is not there.

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
