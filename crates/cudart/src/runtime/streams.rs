//! What orders the operations of a program: streams, events, and the waits of the host.

use super::{Runtime, fault, is_blocking};
use crate::dependence::Dependence;
use crate::heap::Heap;
use crate::order::{Clash, Extent, Step};
use heist_ptx::{Diagnostic, rule};
use heist_sim::Touched;
use std::sync::Arc;

impl Runtime {
    /// Notes the time in an event, and how far its stream is.
    pub(crate) fn record(&mut self, event: usize, stream: usize) {
        let streams = &self.streams;
        self.order
            .record(event, stream, |one| is_blocking(streams, one));
        // Two events never have the same time: programs divide by the difference.
        self.now_ns += 1.0;
        self.events.insert(event, self.now_ns);
    }

    /// Closes to the host what the device may still use.
    pub(super) fn close(&mut self) {
        self.guard.close(&self.order, &mut self.heap, fault);
    }

    /// The host touches an address that may be closed; whether it was.
    pub(super) fn host_touches(&mut self, address: u64, write: bool) -> bool {
        let Some(at) = self.guard.open_at(address) else {
            return false;
        };
        if let Some(clash) = self.order.disturbed(at, address - at, write) {
            self.tell_host(at, write, &clash);
        }
        true
    }

    /// Whether it is noted what operations touch: a program with one stream and device memory orders everything.
    pub(crate) fn tracks(&self) -> bool {
        self.stream_count > 0 || self.heap.has_shared()
    }

    /// An operation of a stream begins.
    pub(crate) fn begin(&mut self, stream: usize) -> Step {
        let streams = &self.streams;
        self.order.begin(stream, |one| is_blocking(streams, one))
    }

    /// A launch begins in a stream.
    pub(super) fn begin_launch(&mut self, stream: usize, depends: Dependence) -> Step {
        let streams = &self.streams;
        self.order
            .begin_launch(stream, depends, |one| is_blocking(streams, one))
    }

    /// The host waits for a stream.
    pub(crate) fn host_waits(&mut self, stream: usize) {
        let streams = &self.streams;
        self.order
            .host_waits(stream, |one| is_blocking(streams, one));
    }

    /// An operation of a stream is over a whole allocation.
    pub(crate) fn touch_all(&mut self, stream: usize, at: u64, what: &str) {
        let Some((start, len, _)) = self.heap.place(at) else {
            return;
        };
        if !self.tracks() {
            return;
        }
        let step = self.begin(stream);
        let bytes = 0..len;
        let extent = Extent::Range { bytes, write: true };
        let what: Arc<str> = Arc::from(what);
        if let Some(clash) = self.order.access(&step, start, extent, &what, false) {
            self.tell_clash(&what, stream, start, &clash);
        }
    }

    /// A stream in words.
    fn stream_name(&self, stream: usize) -> String {
        match self.streams.get(&stream) {
            Some(one) => format!("stream {}", one.number),
            None if stream <= 2 => "the default stream".to_owned(),
            None => "a stream that is gone".to_owned(),
        }
    }

    /// A finding about two operations that nothing orders; nothing where it was told.
    fn clash(&mut self, what: &str, stream: usize, at: u64, clash: &Clash) -> Option<Diagnostic> {
        if !self.told.insert(format!("{what} {} {at}", clash.what)) {
            return None;
        }
        if clash.early {
            let text = format!(
                "{what} may begin before {} has ended (programmatic dependent launch) and never waits for it; both \
                 touch byte {} of `{}`, and one of them writes it",
                clash.what,
                clash.byte,
                self.heap.name(at),
            );
            let found = Diagnostic::error(rule::STREAM_RACE, heist_ptx::Span::NONE, text);
            return Some(found.help(
                "call `cudaGridDependencySynchronize()` (`griddepcontrol.wait`) before the first access to what the \
                 kernel in front touches",
            ));
        }
        let (ours, theirs) = (self.stream_name(stream), self.stream_name(clash.stream));
        let text = format!(
            "{what} in {ours} and {} in {theirs} touch byte {} of `{}`, one of them writes it, and nothing orders the two",
            clash.what,
            clash.byte,
            self.heap.name(at),
        );
        let found = Diagnostic::error(rule::STREAM_RACE, heist_ptx::Span::NONE, text);
        Some(found.help(
            "let the second stream wait for the first (`cudaEventRecord` there, `cudaStreamWaitEvent` here), use \
             one stream for both, or let the host wait in between",
        ))
    }

    /// Tells of an operation that is no launch.
    pub(crate) fn tell_clash(&mut self, what: &str, stream: usize, at: u64, clash: &Clash) {
        if let Some(found) = self.clash(what, stream, at, clash) {
            self.report.operation(what, &found);
        }
    }

    /// Tells of the host.
    pub(crate) fn tell_host(&mut self, at: u64, write: bool, clash: &Clash) {
        if !self
            .told
            .insert(format!("the host {write} {} {at}", clash.what))
        {
            return;
        }
        let text = format!(
            "the host {} byte {} of `{}`, and {} in {} may not be over",
            if write { "writes" } else { "reads" },
            clash.byte,
            self.heap.name(at),
            clash.what,
            self.stream_name(clash.stream),
        );
        let found = Diagnostic::error(rule::HOST_RACE, heist_ptx::Span::NONE, text);
        let found = found.help(
            "wait first: `cudaDeviceSynchronize`, `cudaStreamSynchronize` or `cudaEventSynchronize`",
        );
        self.report.operation("the host", &found);
    }

    /// Puts a launch into the order of all operations; what it meets there.
    pub(super) fn order_launch(
        &mut self,
        step: &Step,
        what: &str,
        touched: Option<&[Touched]>,
    ) -> Option<Diagnostic> {
        let touched = touched?;
        let what: Arc<str> = Arc::from(what);
        // Strong writes that the host sees: it may wait for them, and then the rest is there, too.
        let strong = |one: &Touched| one.lines.iter().any(|(_, bytes)| bytes[3] != 0);
        let signals = touched
            .iter()
            .any(|one| Heap::is_shared(one.at) && strong(one));
        let mut found = None;
        for one in touched {
            let extent = Extent::of(one);
            let clash = self.order.access(step, one.at, extent, &what, signals);
            if let Some(clash) = clash
                && found.is_none()
            {
                found = self.clash(&what, step.stream, one.at, &clash);
            }
        }
        found
    }
}
