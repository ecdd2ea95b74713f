//! A stand-in for the CUDA runtime library, `libcudart`, and for the driver's, `libcuda`.
//!
//! A program compiled by nvcc registers its device code when it starts, and calls the runtime for
//! everything else. Here device code is PTX for the simulator, memory is simulated, and a launch
//! runs at once and is checked. `heist cuda ./program` puts this library in front of the real one.
//!
//! - `heap`: memory that outlives launches; `host` is the part that the host can touch.
//! - `runtime`: the state of the GPU: modules, kernels, variables, errors, and the launch.
//! - `operation`: what a stream does; `perform` does it, at once or as a node of a `graph`.
//!   `transfer` has copies and fills, `image` arrays and textures.
//! - `order`: which operations no stream, event or wait orders; `guard`: memory that the host touches too early.
//! - `objects`: what the driver's interface keeps.
//! - `maps`: tensor maps that the program has encoded.
//! - `repeat`: launches that repeat an earlier one, over the same memory.
//! - `report`: the report to `heist cuda`.
//! - `api`: the runtime's functions, with the types and numbers of the real library; `driver`: the driver's.
//! - `loaded`: says where a program has loaded the real driver.
//! - `statically`: redirects the functions of a statically linked runtime.

#![allow(
    unsafe_code,
    reason = "the interface is C's: pointers that the caller vouches for"
)]

mod api;
mod dependence;
mod driver;
mod graph;
mod guard;
mod heap;
mod image;
mod loaded;
mod maps;
mod objects;
mod operation;
mod order;
mod perform;
mod raw;
mod repeat;
mod report;
mod runtime;
mod statically;
mod status;
mod transfer;
