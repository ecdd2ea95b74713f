//! Trace-event JSON: an SM is a process, a row of blocks a thread.
//!
//! ```
//! # use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
//! # let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(2));
//! # for block in 0..2 {
//! #     let (start, end) = (Time::ZERO, Time::from_ns(1000 * (1 + u64::from(block))));
//! #     trace.blocks.push(BlockSpan { block, cluster: block, sm: block, start, end });
//! # }
//! let events = heist_view::perfetto(&[heist_view::Run::new("direct", &trace)]);
//! let spans = events["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
//! assert_eq!(spans.count(), 2); // the blocks
//! ```

use crate::Run;
use crate::lanes::lanes;
use crate::{decision_name, origin_name};
use heist_launch::Time;
use serde_json::{Value, json};

/// The runs as one document that Perfetto and `chrome://tracing` open. Times in
/// it are microseconds, as the format wants them.
pub fn perfetto(runs: &[Run<'_>]) -> Value {
    let mut events = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let base = index as u64 * 100_000;
        let lanes = lanes(run);
        let kernels: Vec<&str> = run.tenants().map(|(name, _)| name).collect();
        let mut named = None;
        let mut lane_of_block = std::collections::BTreeMap::new();
        for bar in &lanes.bars {
            let process = base + u64::from(bar.sm);
            if bar.tile.is_none() {
                if bar.tenant == 0 {
                    lane_of_block.insert(bar.block, (process, bar.lane));
                }
                if named != Some(process) {
                    named = Some(process);
                    let name = format!("{} SM {}", run.name, bar.sm);
                    events.push(json!({ "ph": "M", "name": "process_name", "pid": process,
                        "args": { "name": name } }));
                }
            }
            let (name, category) = match bar.tile {
                None => (format!("block {}", bar.block), "block"),
                Some(([x, y, z], origin)) => (format!("tile {x},{y},{z}"), origin_name(origin)),
            };
            events.push(json!({
                "ph": "X", "name": name, "cat": category,
                "ts": bar.start.ns() / 1e3, "dur": bar.end.since(bar.start).ns() / 1e3,
                "pid": process, "tid": bar.lane,
                "args": { "block": bar.block, "sm": bar.sm, "kernel": kernels[bar.tenant as usize],
                    "clock": run.trace.clock.to_string() },
            }));
        }
        if let Some(stop) = run.stop() {
            let end = run.trace.window().map_or(Time::ZERO, |(_, end)| end);
            events.push(json!({
                "ph": "i", "s": "g", "name": format!("{} was stopped", run.name),
                "ts": end.ns() / 1e3, "pid": base, "tid": 0, "args": { "why": stop },
            }));
        }
        for decision in &run.trace.decisions {
            let (process, lane) = lane_of_block
                .get(&decision.block)
                .copied()
                .unwrap_or((base, 0));
            events.push(json!({
                "ph": "i", "s": "t", "name": decision_name(decision.kind),
                "ts": decision.at.ns() / 1e3, "pid": process, "tid": lane,
                "args": { "block": decision.block },
            }));
        }
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}
