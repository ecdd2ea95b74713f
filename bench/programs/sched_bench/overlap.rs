//! Launches of one ticket kernel that overlap on different streams.
//!
//! Each stream has control words of its own, lent by [`Counters`] from memory
//! that was zeroed once; its launches follow each other with nothing in between.

use super::Failure;
use super::once::{Made, arguments};
use heist_gpu::Gpu;
use heist_launch::Dim3;
use heist_sched::Counters;
use serde::Serialize;
use std::time::Duration;

const STREAMS: u32 = 6;
const LAUNCHES: usize = 3;

/// What was seen of all kernels together.
#[derive(Debug, Default, Serialize)]
pub(super) struct Overlap {
    pub(super) kernels: u32,
    pub(super) launches: u32,
    /// Launches of one kernel on different streams that ran at the same time.
    pub(super) overlapping_pairs: u32,
}

/// Launches a kernel on several streams; what is wrong, or nothing.
pub(super) fn run(gpu: &Gpu, made: &Made, seen: &mut Overlap) -> Result<Option<String>, Failure> {
    let tiles = made.fixed().unwrap_or(Dim3::new(509, 1, 1));
    let plan = made.tiled.plan_for(tiles, 8)?;
    let counters = Counters::new(STREAMS);
    let control = gpu.zeros::<u64>(counters.bytes() as usize / 8)?;
    let table = gpu.upload(&plan.table)?;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let lease = counters.lease().ok_or("no control words left")?;
        let mut spans = Vec::new();
        for _ in 0..LAUNCHES {
            spans.push((gpu.upload(&[u64::MAX, 0])?, gpu.upload(&plan.watch)?));
        }
        let runs = gpu.zeros::<u32>(tiles.count() as usize)?;
        streams.push((gpu.stream()?, lease, runs, spans));
    }
    for round in 0..LAUNCHES {
        for (stream, lease, runs, spans) in &streams {
            let (span, watch) = &spans[round];
            let control = control.address() + lease.offset();
            let all = arguments(&plan, runs, span, 100, control, watch, &table);
            made.kernel.launch(stream, &plan.launch, &all)?;
        }
    }
    for (stream, ..) in &streams {
        stream.synchronize_within(Duration::from_secs(30))?;
    }
    seen.kernels += 1;
    seen.launches += STREAMS * LAUNCHES as u32;
    let mut times = Vec::new();
    for (number, (_, _, runs, spans)) in streams.iter().enumerate() {
        let counted = runs.read()?;
        let bad = counted.iter().filter(|n| **n != LAUNCHES as u32).count();
        if bad > 0 {
            return Ok(Some(format!(
                "{}: {bad} tiles miscounted on stream {number} of {STREAMS} that overlap",
                made.name()
            )));
        }
        for (span, _) in spans {
            let span = span.read()?;
            times.push((number, span[0], span[1]));
        }
    }
    for (at, a) in times.iter().enumerate() {
        for b in &times[..at] {
            seen.overlapping_pairs += u32::from(a.0 != b.0 && a.1 < b.2 && b.1 < a.2);
        }
    }
    if control.read()?.chunks(4).any(|words| words[0] != 0) {
        return Ok(Some(format!(
            "{}: a counter is not back at zero after launches that overlap",
            made.name()
        )));
    }
    Ok(None)
}
