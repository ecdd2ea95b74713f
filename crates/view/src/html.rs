//! The timeline as a page of its own.
//!
//! The page has its data, its style and its script inside. It opens from a file,
//! asks nothing of the network, and draws on a canvas, so that a hundred
//! thousand tiles stay smooth. Opened with `#selftest` behind its address it
//! zooms and hovers by itself and writes what happened into the document: that
//! is what the browser test reads.

use crate::lanes::lanes;
use crate::perfetto::decision_name;
use crate::{Run, colour, escape, origin_name};
use heist_launch::{TileOrigin, Trace};
use serde_json::{Value, json};

const PAGE: &str = include_str!("timeline.html");
const SCRIPT: &str = include_str!("timeline.js");
const STYLE: &str = include_str!("timeline.css");

/// Makes the page. The runs are drawn below each other on one time axis.
pub fn html(title: &str, runs: &[Run<'_>]) -> String {
    let origins = [
        TileOrigin::Own,
        TileOrigin::Stolen,
        TileOrigin::Ticket,
        TileOrigin::Static,
    ];
    let data = json!({
        "origins": origins.map(|origin| json!([origin_name(origin), colour(origin)])),
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
    });
    // A `<` in the data can't end the script element it stands in.
    let data = data.to_string().replace('<', "\\u003c");
    PAGE.replace("{{title}}", &escape(title))
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
        .replace("{{data}}", &data)
}

fn run(run: &Run<'_>) -> Value {
    let trace = run.trace;
    let lanes = lanes(trace);
    let begin = trace.window().map_or(0.0, |(begin, _)| begin.ns());
    let mut tiles = Vec::new();
    let mut blocks = Vec::new();
    for bar in &lanes.bars {
        let (start, end) = (bar.start.ns() - begin, bar.end.ns() - begin);
        match bar.tile {
            Some(([x, y, z], origin)) => tiles.push(json!([
                bar.lane,
                start,
                end,
                origin as u32,
                bar.block,
                x,
                y,
                z
            ])),
            None => blocks.push(json!([bar.lane, start, end, bar.block])),
        }
    }
    let decisions: Vec<Value> = trace
        .decisions
        .iter()
        .map(|decision| {
            let kind = decision_name(decision.kind);
            json!([decision.block, decision.at.ns() - begin, kind])
        })
        .collect();
    let figures = trace.summary();
    json!({
        "name": run.name,
        "device": trace.device,
        "kernel": trace.kernel,
        "clock": trace.clock.to_string(),
        "length": trace.makespan().ns(),
        "figures": format!(
            "{} ({}), tail {}, {:.0}% busy, {}",
            figures.makespan, trace.clock, figures.tail, figures.busy_fraction * 100.0,
            tiles_of(trace)
        ),
        "sms": lanes.sm_of_lane,
        "tiles": tiles,
        "blocks": blocks,
        "decisions": decisions,
    })
}

/// What is known of the tiles. A kernel that was not watched tells of its blocks alone,
/// which is no reason to say that no tile ran.
fn tiles_of(trace: &Trace) -> String {
    if trace.tiles.is_empty() {
        return "tiles not measured".to_owned();
    }
    let figures = trace.summary();
    format!(
        "{} tiles, {} stolen, {} refused, {} declined",
        figures.tiles, figures.stolen, figures.refused, figures.declined
    )
}
