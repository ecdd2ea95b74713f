//! Copies and fills, of a row of bytes or of a box of them.

use crate::operation::{Copy, DEVICE_TO_DEVICE, DEVICE_TO_HOST, Fill, HOST_TO_DEVICE, Place};
use crate::order::Extent;
use crate::raw;
use crate::runtime::Runtime;
use crate::status::INVALID_VALUE;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

impl Copy {
    /// Does it.
    pub(crate) fn perform(&self, runtime: &mut Runtime) -> Result<(), c_int> {
        let [width, rows, planes] = self.size;
        if width == 0 || rows == 0 || planes == 0 {
            return Ok(());
        }
        let (from_device, to_device) = (
            runtime.heap.place(self.from.at).is_some(),
            runtime.heap.place(self.to.at).is_some(),
        );
        let wrong = match self.kind {
            HOST_TO_DEVICE => !to_device,
            DEVICE_TO_HOST => !from_device,
            DEVICE_TO_DEVICE => !from_device || !to_device,
            _ => false,
        };
        if wrong {
            runtime.report.remark(
                "cudaMemcpy with an address that is none of the device: it returned \
                 cudaErrorInvalidValue (1)",
            );
            return Err(INVALID_VALUE);
        }
        for plane in 0..planes {
            for row in 0..rows {
                let bytes = read(runtime, self.from.of(row, plane), width)?;
                write(runtime, self.to.of(row, plane), &bytes)?;
            }
        }
        Ok(())
    }
}

/// The bytes of an allocation that rows from a place touch: what they are, where the place is of the device.
fn extent(
    runtime: &mut Runtime,
    place: &Place,
    size: [usize; 3],
    write: bool,
) -> Option<(u64, Extent)> {
    let (start, _, _) = runtime.heap.place(place.at)?;
    let [width, rows, planes] = size;
    let starts = (0..planes).flat_map(|plane| (0..rows).map(move |row| (row, plane)));
    let starts = starts.map(|(row, plane)| place.of(row, plane) - start);
    Some((start, Extent::rows(starts, width as u64, write)))
}

/// Tells where an operation that is neither a launch nor of the host meets another.
fn order(runtime: &mut Runtime, stream: usize, what: &str, touched: Vec<(u64, Extent)>) {
    let step = runtime.begin(stream);
    let what: Arc<str> = Arc::from(what);
    let mut told = false;
    for (at, extent) in touched {
        let clash = runtime.order.access(&step, at, extent, &what, false);
        if let Some(clash) = clash
            && !told
        {
            told = true;
            runtime.tell_clash(&what, stream, at, &clash);
        }
    }
}

impl Copy {
    /// Puts it into the order of all operations.
    pub(crate) fn order(&self, runtime: &mut Runtime, stream: usize) {
        if !runtime.tracks() {
            return;
        }
        let from = extent(runtime, &self.from, self.size, false);
        let to = extent(runtime, &self.to, self.size, true);
        // A copy into memory that is not pinned is over when the call returns.
        let waits = to.is_none();
        order(
            runtime,
            stream,
            "a copy",
            from.into_iter().chain(to).collect(),
        );
        if waits {
            runtime.host_waits(stream);
        }
    }
}

impl Fill {
    /// Puts it into the order of all operations.
    pub(crate) fn order(&self, runtime: &mut Runtime, stream: usize) {
        if !self.is_signal && runtime.tracks() {
            let to = extent(runtime, &self.to, self.size, true);
            order(runtime, stream, "a fill", to.into_iter().collect());
        }
    }
}

impl Fill {
    pub(crate) fn perform(&self, runtime: &mut Runtime) -> Result<(), c_int> {
        let [width, rows, planes] = self.size;
        let row: Vec<u8> = self.value.iter().copied().cycle().take(width).collect();
        for plane in 0..planes {
            for number in 0..rows {
                write(runtime, self.to.of(number, plane), &row)?;
            }
        }
        Ok(())
    }
}

/// Reads from the device or from the host, wherever the address is.
fn read(runtime: &mut Runtime, from: u64, len: usize) -> Result<Vec<u8>, c_int> {
    match runtime.heap.place(from) {
        None => Ok(raw::bytes(from as *const c_void, len)),
        Some(_) => match runtime.heap.read(from, len) {
            Some(bytes) => Ok(bytes),
            None => Err(outside(runtime, "reads", from, len)),
        },
    }
}

fn write(runtime: &mut Runtime, to: u64, bytes: &[u8]) -> Result<(), c_int> {
    match runtime.heap.place(to) {
        None => raw::fill(to as *mut c_void, bytes),
        Some(_) if runtime.heap.write(to, bytes) => {}
        Some(_) => return Err(outside(runtime, "writes", to, bytes.len())),
    }
    Ok(())
}

/// A copy or a fill that leaves its allocation.
fn outside(runtime: &mut Runtime, does: &str, at: u64, len: usize) -> c_int {
    if let Some((start, size, _)) = runtime.heap.place(at) {
        let text = format!(
            "the host {does} {len} bytes at byte {} of an allocation of {size} bytes: the call \
             returned cudaErrorInvalidValue (1)",
            at - start
        );
        runtime.report.remark(&text);
    }
    INVALID_VALUE
}
