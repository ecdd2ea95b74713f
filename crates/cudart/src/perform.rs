//! Runs operations, at once or as nodes of a graph.

use crate::operation::Operation;
use crate::raw;
use crate::runtime::{Runtime, call, calls_host, runtime};
use crate::status::INVALID_VALUE;
use std::ffi::{c_int, c_void};

impl Operation {
    /// Does it, in a stream; the error's number.
    pub(crate) fn perform(&self, stream: usize) -> c_int {
        match self {
            Operation::Nothing => call(|_| Ok(())),
            Operation::Launch(wish) => call(|runtime| runtime.launch(wish, stream)),
            Operation::Copy(copy) => call(|runtime| {
                copy.perform(runtime)?;
                copy.order(runtime, stream);
                Ok(())
            }),
            Operation::Fill(fill) => call(|runtime| {
                fill.perform(runtime)?;
                fill.order(runtime, stream);
                Ok(())
            }),
            Operation::Host(host) => {
                let data = std::ptr::with_exposed_provenance_mut(host.data);
                calls_host(stream, || raw::call(host.function, data));
                runtime().last_error(false)
            }
            Operation::Record(event) => call(|runtime| {
                runtime.record(*event, stream);
                Ok(())
            }),
            Operation::Allocate { by, at, len } => call(|runtime| {
                let done = runtime.heap.device_at(by, *at, *len);
                runtime.touch_all(stream, *at, by);
                done.then_some(()).ok_or(INVALID_VALUE)
            }),
            Operation::Free(at) => call(|runtime| {
                runtime.touch_all(stream, *at, "cudaFreeAsync");
                runtime.free(*at)
            }),
            Operation::Graph(all) => all
                .iter()
                .map(|one| one.perform(stream))
                .find(|&status| status != 0)
                .unwrap_or(0),
        }
    }
}

/// Does an operation of a stream, now or as a node of the graph that the stream is captured into.
pub(crate) fn submit(
    stream: *mut c_void,
    make: impl FnOnce(&mut Runtime) -> Result<Operation, c_int>,
) -> c_int {
    let mut now = None;
    let status = call(|runtime| {
        let operation = make(runtime)?;
        now = runtime.graphs.capture(stream.addr(), operation)?;
        Ok(())
    });
    match now {
        Some(operation) => operation.perform(stream.addr()),
        None => status,
    }
}
