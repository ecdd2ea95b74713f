//! The real GPU, through the NVIDIA driver and nothing else.
//!
//! ```text
//! devices() -> Gpu::open -> load (PTX) -> Program -> Kernel -> launch into a Stream
//!                        -> Array, DeviceMemory, tensor maps, Event, Graph
//! ```
//!
//! The driver is found while running, so a program with this crate in it starts
//! anywhere. Without a driver, without a GPU, or with a driver that is too old,
//! every way in answers with a [`GpuError`] that says what to do.
//!
//! A kernel that faults ends its context, and the driver reports it from whatever call comes next.
//! Here the error names the launch that caused it ([`Fault`]), later calls repeat it
//! ([`GpuError::Lost`]), and [`Gpu::reopen`] starts anew.
//!
//! Launching is safe in Rust's sense: a kernel reaches the memory of its own
//! context on the GPU and one page of host memory that holds counters and nothing
//! else. A mistake of the kernel affects only that memory.

mod borrowed;
mod cache;
mod capability;
mod context;
mod device;
mod error;
mod fault;
mod kernel;
mod measure;
mod memory;
mod program;
mod ptx;
mod raw;
mod relaunch;
mod run;
mod status;
mod stream;

pub use borrowed::{EncodedTensorMap, ReadyLaunch, TENSOR_MAP_BYTES};
pub use cache::JitOptions;
pub use capability::{Capability, CudaVersion};
pub use context::Gpu;
pub use device::{DeviceInfo, devices, driver};
pub use error::GpuError;
pub use fault::{Fault, LaunchRecord, Suspects, argument_flags};
pub use kernel::{Kernel, KernelArg, KernelInfo, LaunchOptions, Occupancy};
pub use measure::{Arm, Figures, Protocol, Sampler, Spread};
pub use memory::{Array, DeviceMemory};
pub use program::Program;
pub use ptx::PtxText;
pub use run::{GpuRun, InFlight, RunOptions};
pub use status::Status;
pub use stream::{BorrowedStream, Event, Graph, Stream};
