//! The timeline as a page of its own.
//!
//! The page is self-contained (data, style and script): it opens from a file without a network.
//! Spans are columns of little-endian numbers in base64, sorted by row and time, so that two
//! hundred thousand tiles load at once and the script finds the visible ones by a search. What the
//! page says in words (the summary, where the time went, the critical path) is computed here, where
//! tests read it.
//!
//! ```
//! # use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
//! # let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(2));
//! # for block in 0..2 {
//! #     let (start, end) = (Time::ZERO, Time::from_ns(1000 * (1 + u64::from(block))));
//! #     trace.blocks.push(BlockSpan { block, cluster: block, sm: block, start, end });
//! # }
//! let page = heist_view::html("One run", &[heist_view::Run::new("direct", &trace)]);
//! assert!(page.starts_with("<!doctype html>") && page.contains("<title>One run</title>"));
//! ```

use crate::account::account;
use crate::lanes::{Bar, lanes};
use crate::newcomer::newcomer;
use crate::path::path;
use crate::story::{ranked, story};
use crate::{Run, colour, decision_name, escape, origin_name};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use heist_launch::{DecisionKind, TileOrigin, Time, Trace};
use serde_json::{Value, json};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// The script, one subject a file, in the order in which they need each other.
const SCRIPT: &str = concat!(
    include_str!("page/data.js"),
    include_str!("page/levels.js"),
    include_str!("page/draw.js"),
    include_str!("page/body.js"),
    include_str!("page/tell.js"),
    include_str!("page/page.js"),
);

/// How a tile came to its block, as a number in the page: the place in this list.
const ORIGINS: [TileOrigin; 4] = [
    TileOrigin::Own,
    TileOrigin::Stolen,
    TileOrigin::Ticket,
    TileOrigin::Static,
];
/// Decisions as numbers, likewise.
const DECISIONS: [DecisionKind; 5] = [
    DecisionKind::Requested,
    DecisionKind::Declined,
    DecisionKind::Granted,
    DecisionKind::Refused,
    DecisionKind::Overruled,
];

/// Makes the page. The runs are ranked and share one time axis.
pub fn html(title: &str, runs: &[Run<'_>]) -> String {
    let data = json!({
        "origins": ORIGINS.map(|origin| [origin_name(origin), colour(origin)]),
        "decisions": DECISIONS.map(decision_name),
        "story": story(runs),
        "ranked": ranked(runs),
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
    });
    let is_cut = runs.iter().any(|run| run.stopped.is_some());
    // A `<` in the data can't end the script element it stands in.
    let data = data.to_string().replace('<', "\\u003c");
    PAGE.replace("{{title}}", &escape(title))
        .replace("{{story}}", &escape(&story(runs)))
        .replace(
            "{{stopped}}",
            if is_cut { " class=\"stopped\"" } else { "" },
        )
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
        .replace("{{data}}", &data)
}

/// The time of a run as whole ticks that fit 32 bits.
struct Ticks {
    begin: Time,
    picoseconds: u64,
}

impl Ticks {
    fn of(run: &Run<'_>) -> (Ticks, Time) {
        let windows = run.tenants().filter_map(|(_, trace)| trace.window());
        let join = |a: (Time, Time), b: (Time, Time)| (a.0.min(b.0), a.1.max(b.1));
        let (begin, end) = windows.reduce(join).unwrap_or_default();
        let picoseconds = end.since(begin).0.div_ceil(u64::from(u32::MAX)).max(1);
        (Ticks { begin, picoseconds }, end)
    }

    fn at(&self, time: Time) -> u32 {
        (time.since(self.begin).0 / self.picoseconds) as u32
    }
}

fn column(numbers: impl Iterator<Item = u32>) -> String {
    STANDARD.encode(numbers.flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
}

/// Bars of one kind, sorted by row and time, as columns.
fn spans(mut bars: Vec<Bar>, ticks: &Ticks, rows: usize, tile_id: impl Fn(&Bar) -> u32) -> Value {
    bars.sort_by_key(|bar| (bar.lane, bar.start, bar.end));
    let mut first = vec![0u32; rows + 1];
    for bar in &bars {
        first[bar.lane as usize + 1] += 1;
    }
    for row in 1..first.len() {
        first[row] += first[row - 1];
    }
    let kind = |bar: &Bar| {
        let origin = bar.tile.map(|(_, origin)| origin);
        let origin = origin.and_then(|origin| ORIGINS.iter().position(|o| *o == origin));
        // A block stands for its tiles where they were not measured.
        origin.unwrap_or(ORIGINS.len()) as u32 | bar.tenant << 8
    };
    json!({
        "first": column(first.into_iter()),
        "start": column(bars.iter().map(|bar| ticks.at(bar.start))),
        "end": column(bars.iter().map(|bar| ticks.at(bar.end))),
        "block": column(bars.iter().map(|bar| bar.block)),
        "kind": column(bars.iter().map(kind)),
        "tile": column(bars.iter().map(tile_id)),
    })
}

fn run(run: &Run<'_>) -> Value {
    let trace = run.trace;
    let lanes = lanes(run);
    let rows = lanes.sm_of_lane.len().max(1);
    let (ticks, end) = Ticks::of(run);
    let grid = extent(run);
    let number = |bar: &Bar| match bar.tile {
        Some(([x, y, z], _)) => x + grid[0] * (y + grid[1] * z),
        None => bar.block,
    };
    let measured: Vec<bool> = run.tenants().map(|(_, t)| !t.tiles.is_empty()).collect();
    let is_work = |bar: &Bar| bar.tile.is_some() || !measured[bar.tenant as usize];
    let work: Vec<Bar> = lanes.bars.iter().copied().filter(is_work).collect();
    let blocks: Vec<Bar> = lanes
        .bars
        .iter()
        .copied()
        .filter(|b| b.tile.is_none())
        .collect();
    let path = path(run);
    let figures = trace.summary();
    json!({
        "name": run.name,
        "about": run.about,
        "stopped": run.stop(),
        "device": trace.device,
        "kernel": trace.kernel,
        "clock": trace.clock.to_string(),
        "tick": ticks.picoseconds,
        "length": end.since(ticks.begin).0 as f64 / 1000.0,
        "figures": figures,
        "measured": !trace.tiles.is_empty(),
        "account": account(run),
        "newcomer": newcomer(trace),
        "path": { "working": path.working, "waiting": path.waiting, "launching": path.launching,
            "tiles": column(path.steps.iter().map(|&step| step_number(trace, step, grid))) },
        "tenants": run.tenants().map(|(name, _)| name).collect::<Vec<_>>(),
        "grid": grid,
        "sms": lanes.sm_of_lane,
        "sm_count": trace.sm_count,
        "tiles": spans(work, &ticks, rows, number),
        "blocks": spans(blocks, &ticks, rows, number),
        "decided": {
            "block": column(trace.decisions.iter().map(|d| d.block)),
            "at": column(trace.decisions.iter().map(|d| ticks.at(d.at))),
            "kind": column(trace.decisions.iter().map(|d| {
                DECISIONS.iter().position(|kind| *kind == d.kind).unwrap_or(0) as u32
            })),
        },
    })
}

/// One more than the largest coordinate of any tile, in each direction.
fn extent(run: &Run<'_>) -> [u32; 3] {
    let mut extent = [1u32; 3];
    for (_, trace) in run.tenants() {
        for tile in &trace.tiles {
            for (most, at) in extent.iter_mut().zip(tile.tile.to_array()) {
                *most = (*most).max(at.saturating_add(1));
            }
        }
    }
    extent
}

/// The number that the page knows a step of the critical path by.
fn step_number(trace: &Trace, step: usize, grid: [u32; 3]) -> u32 {
    if let Some(tile) = trace.tiles.get(step) {
        let [x, y, z] = tile.tile.to_array();
        return x + grid[0] * (y + grid[1] * z);
    }
    trace.blocks.get(step).map_or(0, |block| block.block)
}
