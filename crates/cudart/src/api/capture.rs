//! Streams that are captured into graphs.

use crate::raw;
use crate::runtime::call;
use crate::status::INVALID_VALUE;
use std::ffi::{c_int, c_uint, c_void};

type Handle = *mut c_void;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamBeginCapture(stream: Handle, _: c_int) -> c_int {
    call(|runtime| {
        let graph = runtime.graphs.create();
        runtime.graphs.begin(stream.addr(), graph, Vec::new())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamBeginCaptureToGraph(
    stream: Handle,
    graph: Handle,
    needs: *const usize,
    _: *const c_void,
    count: usize,
    _: c_int,
) -> c_int {
    call(|runtime| {
        runtime.graphs.graph(graph.addr())?;
        let needs = raw::elements(needs, count);
        runtime.graphs.begin(stream.addr(), graph.addr(), needs)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamEndCapture(stream: Handle, to: *mut usize) -> c_int {
    call(|runtime| {
        raw::put(to, 0);
        let graph = runtime.graphs.end(stream.addr())?;
        raw::put(to, graph);
        Ok(())
    })
}

/// `cudaStreamCaptureStatus`: none, active, spoilt.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamIsCapturing(stream: Handle, to: *mut c_int) -> c_int {
    call(|runtime| {
        let status = match runtime.graphs.capturing(stream.addr()) {
            None => 0,
            Some((_, true)) => 1,
            Some((_, false)) => 2,
        };
        raw::put(to, status);
        Ok(())
    })
}

/// Every mode is the same here: no call of another thread spoils a capture.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaThreadExchangeStreamCaptureMode(_: *mut c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamWaitEvent(stream: Handle, event: Handle, _: c_uint) -> c_int {
    call(|runtime| {
        runtime.graphs.wait(stream.addr(), event.addr())?;
        runtime.order.wait(stream.addr(), event.addr());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamSynchronize(stream: Handle) -> c_int {
    call(|runtime| {
        runtime.graphs.wait_by_host(Some(stream.addr()))?;
        runtime.host_waits(stream.addr());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamQuery(stream: Handle) -> c_int {
    cudaStreamSynchronize(stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceSynchronize() -> c_int {
    call(|runtime| {
        runtime.graphs.wait_by_host(None)?;
        runtime.order.host_waits_for_all();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaThreadSynchronize() -> c_int {
    cudaDeviceSynchronize()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventSynchronize(event: Handle) -> c_int {
    call(|runtime| {
        runtime.graphs.outside(event.addr())?;
        runtime.order.host_waits_for_event(event.addr());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventQuery(event: Handle) -> c_int {
    cudaEventSynchronize(event)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventRecord(event: Handle, stream: Handle) -> c_int {
    call(|runtime| {
        if !runtime.graphs.mark(event.addr(), stream.addr()) {
            runtime.record(event.addr(), stream.addr());
        }
        Ok(())
    })
}

const EXTERNAL: c_uint = 1;

/// An external event of a captured stream is a node that notes the time when the graph runs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventRecordWithFlags(
    event: Handle,
    stream: Handle,
    flags: c_uint,
) -> c_int {
    match flags {
        EXTERNAL => crate::perform::submit(stream, |_| {
            Ok(crate::operation::Operation::Record(event.addr()))
        }),
        _ => cudaEventRecord(event, stream),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventElapsedTime(to: *mut f32, start: Handle, end: Handle) -> c_int {
    call(|runtime| {
        for event in [start, end] {
            runtime.graphs.outside(event.addr())?;
        }
        let at = |event: Handle| runtime.events.get(&event.addr()).copied();
        let (Some(start), Some(end)) = (at(start), at(end)) else {
            return Err(INVALID_VALUE);
        };
        raw::put(to, ((end - start) / 1e6) as f32);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaEventElapsedTime_v2(
    to: *mut f32,
    start: Handle,
    end: Handle,
) -> c_int {
    cudaEventElapsedTime(to, start, end)
}
