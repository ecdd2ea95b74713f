//! Runs operations, at once or as nodes of a graph.

use crate::operation::Operation;
use crate::raw;
use crate::runtime::{Runtime, call, runtime};
use crate::status::INVALID_VALUE;
use std::ffi::{c_int, c_void};

impl Operation {
    /// Does it; the error's number.
    pub(crate) fn perform(&self) -> c_int {
        match self {
            Operation::Nothing => call(|_| Ok(())),
            Operation::Launch(wish) => call(|runtime| runtime.launch(wish)),
            Operation::Copy(copy) => call(|runtime| copy.perform(runtime)),
            Operation::Fill(fill) => call(|runtime| fill.perform(runtime)),
            Operation::Host(host) => {
                let data = std::ptr::with_exposed_provenance_mut(host.data);
                raw::call(host.function, data);
                runtime().last_error(false)
            }
            Operation::Record(event) => call(|runtime| {
                runtime.record(*event);
                Ok(())
            }),
            Operation::Allocate { by, at, len } => call(|runtime| {
                let done = runtime.heap.device_at(by, *at, *len);
                done.then_some(()).ok_or(INVALID_VALUE)
            }),
            Operation::Free(at) => call(|runtime| runtime.free(*at)),
            Operation::Graph(all) => all
                .iter()
                .map(Operation::perform)
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
        Some(operation) => operation.perform(),
        None => status,
    }
}
