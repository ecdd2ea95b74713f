//! The timeline as a picture for a paper: few rows, large letters.
//!
//! Above, how many multiprocessors work over time. Below, a row for each block slot where they
//! are few, else for the slots of a few multiprocessors, evenly chosen, and the picture says how
//! many it leaves out. The page has all of them.
//!
//! ```
//! # use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
//! # let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(2));
//! # for block in 0..2 {
//! #     let (start, end) = (Time::ZERO, Time::from_ns(1000 * (1 + u64::from(block))));
//! #     trace.blocks.push(BlockSpan { block, cluster: block, sm: block, start, end });
//! # }
//! let picture = heist_view::svg(&heist_view::Run::new("direct", &trace));
//! assert!(picture.starts_with("<svg") && picture.contains("modelled time"));
//! ```

use crate::lanes::{Bar, lanes};
use crate::{Run, colour, escape, origin_name};
use heist_launch::{TileOrigin, Time, Trace};
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 76.0;
/// The height of the curve.
const CURVE: f64 = 90.0;
/// How many rows a picture has at most.
const MOST_ROWS: usize = 16;
/// The height of the two lines that say what stopped a run.
const CAPTION: f64 = 46.0;
const BLOCK: &str = "#66ccee";
const WAITING: &str = "#999999";

/// Time to the right.
struct Scale {
    begin: Time,
    each: f64,
}

impl Scale {
    fn x(&self, time: Time) -> f64 {
        LEFT + time.since(self.begin).0 as f64 * self.each
    }
}

/// Draws the kernel of a run, without others beside it. Bars have a tooltip where the viewer shows one.
pub fn svg(run: &Run<'_>) -> String {
    let trace = run.trace;
    let lanes = lanes(&run.beside(&[]));
    let (rows, shown) = choose(&lanes.sm_of_lane);
    let row = (420.0 / rows.len().max(1) as f64).clamp(18.0, 40.0);
    let below = TOP + CURVE + 16.0;
    let caption = run.stopped.map_or(0.0, |_| CAPTION);
    let height = below + rows.len() as f64 * row + 44.0 + caption;
    let (begin, end) = trace.window().unwrap_or((Time::ZERO, Time(1)));
    let each = (WIDTH - LEFT - RIGHT) / end.since(begin).0.max(1) as f64;
    let scale = Scale { begin, each };
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"18\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"22\">{} on {}, {} ({} time){}</text>",
        escape(&trace.kernel),
        escape(&trace.device),
        trace.makespan(),
        trace.clock,
        match run.stopped {
            Some(_) => " until it was stopped",
            None => "",
        }
    );
    // Below the axis, as a caption: a line for each sentence.
    let stop = run.stop().unwrap_or_default();
    for (line, sentence) in stop.split_inclusive(". ").enumerate() {
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\" font-size=\"14\" fill=\"#aa3333\">{}</text>",
            height - CAPTION + 14.0 + 20.0 * line as f64,
            escape(sentence.trim_end())
        );
    }
    legend(&mut out, trace);
    curve(&mut out, trace, &scale);
    let sms = lanes
        .sm_of_lane
        .iter()
        .collect::<std::collections::BTreeSet<_>>();
    if shown < sms.len() {
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555555\">{shown} of {} SMs shown</text>",
            WIDTH - RIGHT,
            height - 2.0 - caption,
            sms.len()
        );
    }
    for (place, &lane) in rows.iter().enumerate() {
        let sm = lanes.sm_of_lane[lane];
        let first = place == 0 || lanes.sm_of_lane[rows[place - 1]] != sm;
        if first {
            let y = below + place as f64 * row + row.min(30.0) * 0.7;
            let _ = writeln!(out, "<text x=\"4\" y=\"{y:.1}\">SM {sm}</text>");
        }
    }
    for bar in &lanes.bars {
        if let Ok(place) = rows.binary_search(&(bar.lane as usize)) {
            let y = below + place as f64 * row;
            draw(&mut out, bar, &scale, y, row, trace.tiles.is_empty());
        }
    }
    axis(&mut out, &scale, end, height - 22.0 - caption);
    out.push_str("</svg>\n");
    out
}

/// The rows that are shown, and of how many multiprocessors.
fn choose(sm_of_lane: &[u32]) -> (Vec<usize>, usize) {
    let groups: Vec<(usize, usize)> = sm_of_lane
        .chunk_by(|a, b| a == b)
        .scan(0, |at, group| {
            let first = *at;
            *at += group.len();
            Some((first, group.len()))
        })
        .collect();
    if sm_of_lane.len() <= MOST_ROWS {
        return ((0..sm_of_lane.len()).collect(), groups.len());
    }
    let slots = groups
        .iter()
        .map(|(_, slots)| *slots)
        .max()
        .unwrap_or(1)
        .min(MOST_ROWS);
    let fit = (MOST_ROWS / slots).clamp(1, groups.len());
    let mut rows = Vec::new();
    for at in 0..fit {
        let (first, count) = groups[at * groups.len() / fit];
        rows.extend(first..first + count.min(MOST_ROWS));
    }
    (rows, fit)
}

fn legend(out: &mut String, trace: &Trace) {
    let origins = [
        TileOrigin::Own,
        TileOrigin::Stolen,
        TileOrigin::Ticket,
        TileOrigin::Static,
    ];
    let mut entries: Vec<(String, &str)> = origins
        .into_iter()
        .map(|origin| (origin, trace.tiles_by(origin)))
        .filter(|(_, count)| *count > 0)
        .map(|(origin, count)| (format!("{count} {}", origin_name(origin)), colour(origin)))
        .collect();
    if trace.tiles.is_empty() {
        entries.push((format!("{} blocks", trace.blocks.len()), BLOCK));
    } else {
        entries.push(("block without a tile at work".to_owned(), WAITING));
    }
    let mut at = LEFT;
    for (text, colour) in entries {
        let _ = writeln!(
            out,
            "<rect x=\"{at}\" y=\"44\" width=\"16\" height=\"16\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"58\">{text}</text>",
            at + 22.0
        );
        at += 48.0 + 10.0 * text.len() as f64;
    }
}

/// How many multiprocessors have work, as an area.
fn curve(out: &mut String, trace: &Trace, scale: &Scale) {
    let mut steps: Vec<(Time, i32)> = Vec::new();
    let mut spans: Vec<(u32, Time, Time)> = match trace.tiles.is_empty() {
        true => trace
            .blocks
            .iter()
            .map(|b| (b.sm, b.start, b.end))
            .collect(),
        false => trace.tiles.iter().map(|t| (t.sm, t.start, t.end)).collect(),
    };
    spans.sort_unstable();
    for group in spans.chunk_by(|a, b| a.0 == b.0) {
        let mut until: Option<Time> = None;
        for &(_, start, end) in group {
            match until {
                Some(busy) if start <= busy => until = Some(busy.max(end)),
                _ => {
                    steps.extend(until.map(|at| (at, -1)));
                    steps.push((start, 1));
                    until = Some(end);
                }
            }
        }
        steps.extend(until.map(|at| (at, -1)));
    }
    steps.sort_unstable();
    let most = f64::from(trace.sm_count.max(1));
    let mut path = format!("M{LEFT} {:.1}", TOP + CURVE);
    let mut working = 0;
    // Steps closer than a quarter of a unit are one: a picture has no more than that.
    let mut last = f64::NEG_INFINITY;
    for (index, (at, change)) in steps.iter().enumerate() {
        working += change;
        let x = scale.x(*at);
        if x - last < 0.25 && index + 1 < steps.len() {
            continue;
        }
        last = x;
        let y = TOP + CURVE * (1.0 - f64::from(working).min(most) / most);
        let _ = write!(path, "H{x:.1}V{y:.1}");
    }
    let _ = writeln!(
        out,
        "<path d=\"{path}V{:.1}Z\" fill=\"#4477aa\" fill-opacity=\"0.45\"/>\
         <text x=\"4\" y=\"{:.1}\">SMs</text><text x=\"4\" y=\"{:.1}\">at work</text>\
         <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"14\">{}</text>",
        TOP + CURVE,
        TOP + CURVE / 2.0,
        TOP + CURVE / 2.0 + 20.0,
        LEFT - 6.0,
        TOP + 12.0,
        trace.sm_count
    );
}

fn draw(out: &mut String, bar: &Bar, scale: &Scale, y: f64, row: f64, is_work: bool) {
    let (from, to) = (scale.x(bar.start), scale.x(bar.end));
    let width = (to - from).max(0.2);
    let tall = row - 3.0;
    let (fill, title) = match bar.tile {
        None if is_work => (BLOCK, format!("block {}", bar.block)),
        None => (WAITING, format!("block {}", bar.block)),
        Some(([x, y, z], origin)) => (
            colour(origin),
            format!(
                "tile {x},{y},{z} ({}) in block {}",
                origin_name(origin),
                bar.block
            ),
        ),
    };
    let title = match bar.tile.is_some() || is_work {
        true => format!(
            "<title>{title} on SM {}: {}</title>",
            bar.sm,
            bar.end.since(bar.start)
        ),
        false => String::new(),
    };
    let _ = writeln!(
        out,
        "<rect x=\"{from:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{tall:.2}\" fill=\"{fill}\" \
         stroke=\"#ffffff\" stroke-width=\"0.4\">{title}</rect>"
    );
}

/// Round numbers below the rows.
fn axis(out: &mut String, scale: &Scale, end: Time, y: f64) {
    let length = end.since(scale.begin);
    let rough = length.0 as f64 / 6.0;
    let power = 10f64.powf(rough.max(1.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
    let step = steps
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    for count in 0..=(length.0 as f64 / step) as u64 {
        let at = Time((count as f64 * step) as u64);
        let x = scale.x(Time(scale.begin.0 + at.0));
        let anchor = match count {
            0 => "start",
            _ if x > WIDTH - RIGHT - 50.0 => "end",
            _ => "middle",
        };
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"1\" height=\"6\" fill=\"#333333\"/>\
             <text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{at}</text>",
            y - 22.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_gpu_is_a_few_of_its_multiprocessors() {
        let one_each: Vec<u32> = (0..132).collect();
        let (rows, sms) = choose(&one_each);
        assert_eq!((rows.len(), sms), (16, 16));
        assert!(rows.is_sorted());
        let eight_each: Vec<u32> = (0..132).flat_map(|sm| [sm; 8]).collect();
        assert_eq!(choose(&eight_each).1, 2);
        let many_slots = vec![0; 32];
        assert_eq!(choose(&many_slots), ((0..16).collect(), 1));
        assert_eq!(choose(&[0, 0, 1]), (vec![0, 1, 2], 2));
        assert_eq!(choose(&[]), (vec![], 0));
    }
}
