//! Streams, events and graphs.

use crate::context::Gpu;
use crate::error::GpuError;
use crate::fault::LaunchRecord;
use crate::raw::sys::code;
use crate::raw::{self, Handle};
use crate::status::Status;
use heist_launch::Time;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A queue of work on a GPU: what is put in runs in order.
pub struct Stream {
    gpu: Gpu,
    handle: Handle<raw::CUstream>,
    id: u64,
    slot: Option<usize>,
    launches: AtomicU32,
    /// While a graph is being captured: what was launched into it.
    capture: Mutex<Option<Vec<LaunchRecord>>>,
}

/// A stream made by another library, by the driver's handle for it. Zero is the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BorrowedStream(pub u64);

impl Gpu {
    /// A new stream. Each launch on it is tracked, so that a fault can be attributed to its launch;
    /// that costs about a microsecond a launch.
    pub fn stream(&self) -> Result<Stream, GpuError> {
        self.make_stream(true, 0)
    }

    /// A new stream whose launches are not tracked one by one, for measuring.
    /// A fault on it names the launches that may have caused it.
    pub fn untracked_stream(&self) -> Result<Stream, GpuError> {
        self.make_stream(false, 0)
    }

    /// A tracked stream with a priority; lower numbers go first.
    pub fn stream_with_priority(&self, priority: i32) -> Result<Stream, GpuError> {
        self.make_stream(true, priority)
    }

    /// An untracked stream with a priority; lower numbers go first.
    pub fn untracked_stream_with_priority(&self, priority: i32) -> Result<Stream, GpuError> {
        self.make_stream(false, priority)
    }

    fn make_stream(&self, tracked: bool, priority: i32) -> Result<Stream, GpuError> {
        self.enter()?;
        let handle = self.check(raw::stream_create(priority))?;
        let (id, slot) = self.register_stream(tracked);
        Ok(Stream {
            gpu: self.clone(),
            handle: Handle(handle),
            id,
            slot,
            launches: AtomicU32::new(0),
            capture: Mutex::new(None),
        })
    }

    /// A new event, not recorded yet.
    pub fn event(&self) -> Result<Event, GpuError> {
        self.enter()?;
        let handle = self.check(raw::event_create())?;
        Ok(Event {
            gpu: self.clone(),
            handle: Handle(handle),
        })
    }
}

impl Stream {
    /// The GPU it belongs to.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) fn raw(&self) -> raw::CUstream {
        self.handle.0
    }

    /// Its handle, for libraries that share this context. It is good as long as
    /// the stream is kept.
    pub fn borrowed(&self) -> BorrowedStream {
        BorrowedStream(self.handle.0.addr() as u64)
    }

    /// Waits until everything on it is done. A fault of any launch is reported here, with the name
    /// of the launch that caused it.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.gpu.enter()?;
        self.gpu.check(raw::stream_synchronize(self.raw()))?;
        self.gpu.settled(self.id);
        Ok(())
    }

    /// Whether everything on it is done.
    pub fn is_done(&self) -> Result<bool, GpuError> {
        self.gpu.enter()?;
        self.gpu.check(raw::stream_query(self.raw()))
    }

    /// Waits, but not longer than `limit`. A kernel that is still running then
    /// can't be stopped, so the context counts as lost.
    pub fn synchronize_within(&self, limit: Duration) -> Result<(), GpuError> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(20);
        while !self.is_done()? {
            if start.elapsed() > limit {
                let running = self.gpu.at_work(self.id);
                self.gpu
                    .abandon(Status::new("cuStreamQuery", code::LAUNCH_TIMEOUT));
                let first = running.first();
                return Err(GpuError::Timeout {
                    launch: first.map_or("the work on the stream".to_owned(), |record| {
                        format!("kernel {record}")
                    }),
                    seconds: limit.as_secs_f64(),
                    device: self.gpu.info().name.clone(),
                    next: first.map_or("heist check".to_owned(), LaunchRecord::next_command),
                });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
        self.synchronize()
    }

    /// Has it wait for an event of another stream.
    pub fn wait_for(&self, event: &Event) -> Result<(), GpuError> {
        self.gpu.enter()?;
        self.gpu
            .check(raw::stream_wait_event(self.raw(), event.handle.0))
    }

    /// Puts a launch into the stream: records it, runs `work`, and has the device signal its end.
    pub(crate) fn launch_tracked(
        &self,
        record: LaunchRecord,
        work: impl FnOnce() -> Result<(), Status>,
    ) -> Result<(), GpuError> {
        let mut capture = self.capture.lock().unwrap_or_else(|p| p.into_inner());
        if let Some(records) = capture.as_mut() {
            records.push(record);
            return self.gpu.check(work());
        }
        drop(capture);
        let number = self.launches.fetch_add(1, Ordering::Relaxed) + 1;
        self.gpu.remember(self.id, number, record);
        self.gpu.check(work())?;
        match self.slot {
            Some(slot) => {
                let marked = self.gpu.mark_end(slot, number, self.raw());
                self.gpu.check(marked)
            }
            None => Ok(()),
        }
    }

    /// Records what `work` puts into the stream as a graph, without running it.
    pub fn capture(
        &self,
        work: impl FnOnce(&Stream) -> Result<(), GpuError>,
    ) -> Result<Graph, GpuError> {
        self.gpu.enter()?;
        self.gpu.check(raw::capture_begin(self.raw()))?;
        self.set_capture(Some(Vec::new()));
        let worked = work(self);
        let records = self.set_capture(None).unwrap_or_default();
        // The capture must end whatever happened in it, or the stream is stuck.
        let ended = raw::capture_end(self.raw());
        worked?;
        let graph = self.gpu.check(ended)?;
        let nodes = raw::graph_node_count(graph);
        let exec = raw::graph_instantiate(graph);
        // The executable form has all it needs; a failure to free the other is harmless.
        let _ = raw::graph_destroy(graph);
        Ok(Graph {
            gpu: self.gpu.clone(),
            exec: Handle(self.gpu.check(exec)?),
            nodes: self.gpu.check(nodes)?,
            records,
        })
    }

    fn set_capture(&self, to: Option<Vec<LaunchRecord>>) -> Option<Vec<LaunchRecord>> {
        let mut capture = self.capture.lock().unwrap_or_else(|p| p.into_inner());
        std::mem::replace(&mut *capture, to)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.gpu.enter_to_drop() {
            // Its mailbox slot goes to another stream, so no write may be in flight.
            if let Err(status) = raw::stream_synchronize(self.raw()) {
                let _ = self.gpu.check::<()>(Err(status));
                return;
            }
            let _ = raw::stream_destroy(self.raw());
        }
        self.gpu.unregister_stream(self.id);
    }
}

/// A point in a stream, with its time.
pub struct Event {
    gpu: Gpu,
    handle: Handle<raw::CUevent>,
}

impl Event {
    /// Puts it at the end of what is in the stream now.
    pub fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        self.gpu.enter()?;
        self.gpu
            .check(raw::event_record(self.handle.0, stream.raw()))
    }

    /// Waits until it has happened.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.gpu.enter()?;
        self.gpu.check(raw::event_synchronize(self.handle.0))
    }

    /// Whether it has happened.
    pub fn has_happened(&self) -> Result<bool, GpuError> {
        self.gpu.enter()?;
        self.gpu.check(raw::event_query(self.handle.0))
    }

    /// The time from an earlier event to this one; both must have happened.
    pub fn since(&self, earlier: &Event) -> Result<Time, GpuError> {
        self.gpu.enter()?;
        let elapsed = raw::event_elapsed(earlier.handle.0, self.handle.0);
        let milliseconds = self.gpu.check(elapsed)?;
        Ok(Time::from_ns_f64(f64::from(milliseconds) * 1e6))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.gpu.enter_to_drop() {
            // Nothing to be done about a failure, and nothing depends on it.
            let _ = raw::event_destroy(self.handle.0);
        }
    }
}

/// Work recorded once and replayed with one call. The memory and programs that
/// it uses must be kept until it is done.
pub struct Graph {
    gpu: Gpu,
    exec: Handle<raw::CUgraphExec>,
    nodes: usize,
    records: Vec<LaunchRecord>,
}

impl Graph {
    /// How many operations it has.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The launches in it, in order.
    pub fn launches(&self) -> &[LaunchRecord] {
        &self.records
    }

    /// Puts the whole of it into a stream. A fault in it is attributed to the graph's first launch,
    /// with a name that says how many there are.
    pub fn launch(&self, stream: &Stream) -> Result<(), GpuError> {
        self.gpu.enter()?;
        let record = match self.records.as_slice() {
            [only] => only.clone(),
            [first, ..] => LaunchRecord {
                kernel: format!(
                    "{} (one of {} launches in a graph)",
                    first.kernel,
                    self.records.len()
                ),
                ..first.clone()
            },
            [] => return self.gpu.check(raw::graph_launch(self.exec.0, stream.raw())),
        };
        stream.launch_tracked(record, || raw::graph_launch(self.exec.0, stream.raw()))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.gpu.enter_to_drop() {
            // Nothing to be done about a failure, and nothing depends on it.
            let _ = raw::graph_exec_destroy(self.exec.0);
        }
    }
}
