//! Records a launch of a program on a GPU.
//!
//! `heist record ./program` starts the program with this library in front of the driver
//! (`LD_PRELOAD`). Every way to a driver's function leads through here: a symbol, `dlsym`, and the
//! driver's own `cuGetProcAddress`, which the runtime uses. Calls go on to the driver as they are;
//! around the launch that was asked for, the memory that the kernel can reach is copied.
//!
//! - `hooks`: the driver's functions that are seen, by their own names.
//! - `symbols`: how programs come to them.
//! - `launch`: a launch as the driver is asked for it.
//! - `recorder`: the state: which launch is asked for, and what was seen.
//! - `again`: another record of the same process.
//! - `capture`: the record of one launch.
//! - `kernel`: what a kernel is: its name, its image, its PTX.
//! - `image`: images that the driver has loaded.
//! - `memory`: memory that a kernel can reach.
//! - `report`: what `heist record` is told.
//! - `driver`: the driver's functions themselves; `loader` finds them.

#![allow(
    unsafe_code,
    reason = "the interface is C's: pointers that the caller vouches for"
)]

mod again;
mod capture;
mod driver;
mod hooks;
mod image;
mod kernel;
mod launch;
mod loader;
mod memory;
mod recorder;
mod report;
mod symbols;
