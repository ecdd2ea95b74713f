//! Launches into a program that has its own streams and memory.
//!
//! A framework such as PyTorch makes streams, keeps memory and decides which
//! context is current. Here a launch is checked once ([`Kernel::ready`]) and then
//! put into the caller's stream: nothing is allocated, nothing waits, no event
//! is asked for, so it can be captured in a graph. The context that was current
//! on the thread is current again afterwards.

use crate::context::Gpu;
use crate::error::GpuError;
use crate::kernel::Kernel;
use crate::raw::{self, Attributes, GraphKernel, Handle, MOST_PARAMETERS};
use crate::relaunch::Relaunch;
use crate::stream::BorrowedStream;
use heist_launch::{Launch, TensorMap};
use std::sync::Arc;

/// Bytes of a tensor map, as a kernel takes it.
pub const TENSOR_MAP_BYTES: usize = 128;

/// Where an [`EncodedTensorMap`] begins until it is told: any address that all maps may have.
const NOWHERE: u64 = 4096;

/// A tensor map that the driver has encoded, and that needs its address alone.
#[derive(Clone, Copy)]
pub struct EncodedTensorMap {
    map: raw::CUtensorMap,
    /// Where it begins in its memory.
    offset: u64,
}

impl EncodedTensorMap {
    /// Its bytes, over memory of the caller's that begins at `address`.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn at(&self, gpu: &Gpu, address: u64) -> Result<[u8; TENSOR_MAP_BYTES], GpuError> {
        let mut map = self.map;
        gpu.check(raw::move_tensor_map(&mut map, address + self.offset))?;
        Ok(raw::tensor_map_bytes(&map))
    }
}

/// A launch that was checked and needs its parameters alone.
pub struct ReadyLaunch {
    kernel: Arc<Kernel>,
    launch: Launch,
    programmatic: bool,
    /// Where each parameter begins in the bytes that a launch is given.
    offsets: Vec<usize>,
    bytes: usize,
    again: Relaunch,
}

impl Kernel {
    /// Checks a launch once, and asks the driver for what it needs.
    ///
    /// # Errors
    /// Why there is no such launch.
    pub fn ready(self: &Arc<Kernel>, launch: &Launch) -> Result<ReadyLaunch, GpuError> {
        let launch = self.without_required_cluster(self.prepare(launch)?);
        let mut offsets = Vec::with_capacity(self.info().parameters.len());
        let mut bytes = 0;
        for size in &self.info().parameters {
            // Eight bytes suit every parameter: the driver copies them from here.
            offsets.push(bytes);
            bytes += size.next_multiple_of(8);
        }
        if offsets.len() > MOST_PARAMETERS {
            return Err(GpuError::Arguments {
                kernel: self.info().name.clone(),
                why: format!(
                    "it takes {} parameters, and at most {MOST_PARAMETERS} are passed",
                    offsets.len()
                ),
            });
        }
        Ok(ReadyLaunch {
            kernel: self.clone(),
            launch,
            programmatic: false,
            offsets,
            bytes,
            again: Relaunch::default(),
        })
    }
}

impl ReadyLaunch {
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The same, allowed to start before the kernel before it has ended, in a graph that is captured above
    /// all: where a launch is a graph of one kernel, it begins when the kernel before has ended.
    #[must_use]
    pub fn programmatic(mut self) -> ReadyLaunch {
        self.programmatic = true;
        self
    }

    /// Where each parameter begins in the bytes that [`ReadyLaunch::launch`] takes.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// How many bytes those are.
    pub fn parameter_bytes(&self) -> usize {
        self.bytes
    }

    /// How many streams have a graph for it: one that launches it again and again does.
    pub fn graphs(&self) -> usize {
        self.again.graphs()
    }

    /// Puts it into a stream of the caller. The parameters are copied before this returns.
    ///
    /// # Errors
    /// An error of the driver; a fault of an earlier launch may be reported here.
    pub fn launch(&self, stream: BorrowedStream, parameters: &[u8]) -> Result<(), GpuError> {
        if parameters.len() != self.bytes {
            return Err(GpuError::Arguments {
                kernel: self.kernel.info().name.clone(),
                why: format!(
                    "its parameters take {} bytes and {} were given",
                    self.bytes,
                    parameters.len()
                ),
            });
        }
        let gpu = self.kernel.program().gpu();
        let attributes = Attributes {
            programmatic: self.programmatic,
            ..Attributes::default()
        };
        let function = self.kernel.function();
        let (launch, offsets) = (&self.launch, &self.offsets[..]);
        let kernel = GraphKernel {
            function,
            launch,
            parameters,
            offsets,
        };
        let launched = gpu.visit(|| {
            self.again.launch(kernel, stream).unwrap_or_else(|| {
                let stream = raw::borrowed_stream(stream.0);
                raw::launch_packed(function, launch, attributes, parameters, offsets, stream)
            })
        })?;
        match launched {
            Err(status) if !status.is_fault() => Err(GpuError::Refused {
                launch: format!("`{}` ({})", self.kernel.info().name, self.launch),
                status,
                note: None,
            }),
            other => gpu.check(other),
        }
    }
}

impl Drop for ReadyLaunch {
    fn drop(&mut self) {
        let graphs = self.again.take();
        if graphs.is_empty() {
            return;
        }
        // Those of a lost context are gone with it.
        let _ = (self.kernel.program().gpu())
            .visit(|| graphs.into_iter().for_each(raw::KernelGraph::destroy));
    }
}

impl Gpu {
    /// Encodes a tensor map over memory that is told later. The map must be one
    /// that [`TensorMap::validate`] accepts.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn encode_tensor_map(&self, map: &TensorMap) -> Result<EncodedTensorMap, GpuError> {
        // The encoder works on the host alone and needs no context.
        let encoded = self.check(raw::encode_tensor_map(map, NOWHERE))?;
        Ok(EncodedTensorMap {
            map: encoded,
            offset: map.offset,
        })
    }

    /// Sets bytes of the caller's memory, in the order of its stream.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn fill_borrowed(
        &self,
        address: u64,
        byte: u8,
        bytes: usize,
        stream: BorrowedStream,
    ) -> Result<(), GpuError> {
        let filled =
            self.visit(|| raw::fill_bytes(address, byte, bytes, raw::borrowed_stream(stream.0)))?;
        self.check(filled)
    }

    /// Whether a graph is being captured from the caller's stream. Where the driver
    /// can't say, as of the default stream beside a capture, it is.
    pub fn is_capturing(&self, stream: BorrowedStream) -> bool {
        let asked = self.visit(|| raw::stream_is_capturing(raw::borrowed_stream(stream.0)));
        !matches!(asked, Ok(Ok(false)))
    }

    /// Does something in this context and leaves the thread as it was.
    fn visit<T>(&self, work: impl FnOnce() -> T) -> Result<T, GpuError> {
        let before = Handle(raw::context_current().map_err(GpuError::call)?);
        if before.0 == self.context() {
            self.alive()?;
            return Ok(work());
        }
        self.enter()?;
        let done = work();
        if !before.0.is_null() {
            // The work is done; the caller could not act on a failure here.
            let _ = raw::context_make_current(before.0);
        }
        Ok(done)
    }
}
