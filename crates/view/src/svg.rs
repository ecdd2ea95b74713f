//! The timeline as a picture.

use crate::lanes::lanes;
use crate::{colour, escape, origin_name};
use heist_launch::{TileOrigin, Time, Trace};
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 46.0;

/// Draws a run: a row for each SM (or several, where it ran several blocks at a
/// time), a bar for each tile, a thin line for each block. Bars have a tooltip.
pub fn svg(trace: &Trace) -> String {
    let lanes = lanes(trace);
    let rows = lanes.sm_of_lane.len().max(1) as f64;
    let row = (640.0 / rows).clamp(2.0, 16.0);
    let height = TOP + rows * row + 30.0;
    let (begin, end) = trace.window().unwrap_or((Time::ZERO, Time(1)));
    let scale = (WIDTH - LEFT - 10.0) / end.since(begin).0.max(1) as f64;
    let x = |time: Time| LEFT + time.since(begin).0 as f64 * scale;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"16\" font-size=\"14\">{} on {}, {} ({} time)</text>",
        escape(&trace.kernel),
        escape(&trace.device),
        trace.makespan(),
        trace.clock
    );
    let origins = [
        TileOrigin::Own,
        TileOrigin::Stolen,
        TileOrigin::Ticket,
        TileOrigin::Static,
    ];
    let mut at = LEFT;
    for origin in origins {
        let count = trace.tiles_by(origin);
        if count > 0 {
            let _ = writeln!(
                out,
                "<rect x=\"{at}\" y=\"24\" width=\"10\" height=\"10\" fill=\"{}\"/>\
                 <text x=\"{}\" y=\"33\">{count} {}</text>",
                colour(origin),
                at + 14.0,
                origin_name(origin)
            );
            at += 110.0;
        }
    }
    for (lane, sm) in lanes.sm_of_lane.iter().enumerate() {
        let first = lane == 0 || lanes.sm_of_lane[lane - 1] != *sm;
        if first && (row >= 9.0 || sm.is_multiple_of(10)) {
            let y = TOP + lane as f64 * row + row.min(10.0);
            let _ = writeln!(
                out,
                "<text x=\"6\" y=\"{y:.1}\" font-size=\"9\">SM {sm}</text>"
            );
        }
    }
    for bar in &lanes.bars {
        let y = TOP + f64::from(bar.lane) * row;
        let (from, to) = (x(bar.start), x(bar.end));
        let width = (to - from).max(0.2);
        match bar.tile {
            None => {
                let _ = writeln!(
                    out,
                    "<rect x=\"{from:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"1\" fill=\"#bbbbbb\"/>",
                    y + row / 2.0
                );
            }
            Some((tile, origin)) => {
                let _ = writeln!(
                    out,
                    "<rect x=\"{from:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{:.2}\" fill=\"{}\">\
                     <title>tile {},{},{} ({}) in block {} on SM {}: {}</title></rect>",
                    (row - 0.5).max(1.0),
                    colour(origin),
                    tile[0],
                    tile[1],
                    tile[2],
                    origin_name(origin),
                    bar.block,
                    bar.sm,
                    bar.end.since(bar.start)
                );
            }
        }
    }
    let y = TOP + rows * row + 14.0;
    for step in 0..=5u64 {
        let time = Time(end.since(begin).0 / 5 * step);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"#555555\">{time}</text>",
            LEFT + time.0 as f64 * scale
        );
    }
    out.push_str("</svg>\n");
    out
}
