//! A stand-in for the CUDA runtime library, `libcudart`.
//!
//! A program that nvcc has made registers its device code when it starts, and calls the
//! runtime for everything else. Here device code is PTX for the simulator, memory is
//! simulated, and a launch runs at once and is checked. `heist cuda ./program` puts this
//! library in front of the real one.
//!
//! - `fatbin`: PTX in a program's image.
//! - `heap`: memory that outlives launches; `host` is the part that the host can touch.
//! - `runtime`: the state of it all: modules, kernels, variables, errors, and the launch.
//! - `report`: what is told to whoever started the program.
//! - `api`: the functions, with the types and numbers of the real library.
//! - `statically`: programs that hold a runtime of their own get these functions instead.

#![allow(
    unsafe_code,
    reason = "the interface is C's: pointers that the caller vouches for"
)]

mod api;
mod fatbin;
mod heap;
mod raw;
mod report;
mod runtime;
mod statically;
