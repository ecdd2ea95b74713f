//! A sweep as a self-contained page: the candidates, the Pareto front, the fast tiles, and the
//! quality of the model.

use crate::refusals::{Refusals, refusals};
use crate::row::{Row, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff;--line:#8884;--one:#0072b2;--two:#d55e00}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e8;--paper:#161616;--one:#56b4e9;--two:#e69f00}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15rem .7rem;border-bottom:1px solid var(--line);text-align:right}
td:first-child,th:first-child,td:last-child{text-align:left}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
.dot{fill:var(--one);fill-opacity:.7}.front{fill:var(--two)}.axis{stroke:var(--line)}.path{stroke:var(--two);fill:none}.default{stroke:var(--ink);stroke-width:2}
";

/// The page of a sweep.
pub fn page(title: &str, rows: &[Row]) -> String {
    let mut timed: Vec<&Row> = rows.iter().filter(|row| row.status.is_timed()).collect();
    timed.sort_by(|one, other| us(one).total_cmp(&us(other)));
    let title = escaped(title);
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
    );
    page.push_str(&summary(rows, &timed));
    page.push_str(&scatter(
        "Time against the model",
        "microseconds by the model",
        timed.iter().filter_map(|row| Some((*row, row.model_us?))),
        false,
    ));
    page.push_str(&scatter(
        "Time against shared memory: nothing is faster with less than what lies on the line",
        "kilobytes of shared memory",
        timed.iter().filter_map(|row| {
            let shared = row.facts.as_ref()?.shared?;
            Some((*row, f64::from(shared) / 1024.0))
        }),
        true,
    ));
    page.push_str(&heat(&timed, "rows", "cols"));
    page.push_str(&table(rows, &timed));
    page.push_str(&refused(rows));
    page.push_str("</html>\n");
    page
}

fn us(row: &Row) -> f64 {
    row.median_ns().unwrap_or(f64::INFINITY) / 1e3
}

fn summary(rows: &[Row], timed: &[&Row]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.status.word()).or_default() += 1;
    }
    let counted: Vec<String> = counts
        .iter()
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    let mut text = format!("<p>{} candidates: {}.", rows.len(), counted.join(", "));
    if let Some(best) = timed.first() {
        let _ = write!(
            text,
            " Fastest: <b>{}</b>, {:.2} us",
            escaped(&best.candidate.to_string()),
            us(best)
        );
        if let Some(default) = timed.iter().find(|row| row.default) {
            let _ = write!(
                text,
                "; without tuning {:.2} us, {:.3} times as long",
                us(default),
                us(default) / us(best)
            );
        }
        text.push('.');
    }
    text + "</p>"
}

/// Times over another quantity, with the Pareto front.
fn scatter<'r>(
    title: &str,
    across: &str,
    points: impl Iterator<Item = (&'r Row, f64)>,
    front: bool,
) -> String {
    let points: Vec<(&Row, f64)> = points.collect();
    if points.len() < 2 {
        return String::new();
    }
    let (wide, high, edge) = (760.0, 360.0, 50.0);
    let span = |values: &mut dyn Iterator<Item = f64>| {
        let (low, most) = values.fold((f64::INFINITY, 0.0f64), |(low, most), value| {
            (low.min(value), most.max(value))
        });
        (low * 0.95, (most * 1.05).max(low * 0.95 + 1e-9))
    };
    let (left, right) = span(&mut points.iter().map(|(_, x)| *x));
    let (bottom, top) = span(&mut points.iter().map(|(row, _)| us(row)));
    let x = |value: f64| edge + (value - left) / (right - left) * (wide - 2.0 * edge);
    let y = |value: f64| high - edge - (value - bottom) / (top - bottom) * (high - 2.0 * edge);
    let mut svg = format!(
        "<h2>{title}</h2><svg viewBox=\"0 0 {wide} {high}\" role=img aria-label=\"{title}\">\
         <path class=axis d=\"M{edge} {edge}V{0}H{1}\" fill=none /><text x={edge} y={2}>us</text>\
         <text x={1} y={3} text-anchor=end>{across}</text>",
        high - edge,
        wide - edge,
        edge - 8.0,
        high - 12.0
    );
    for (value, anchor) in [(left, "start"), (right, "end")] {
        let _ = write!(
            svg,
            "<text x={:.1} y={:.1} text-anchor={anchor}>{value:.1}</text>",
            x(value),
            high - edge + 16.0
        );
    }
    for value in [bottom, top] {
        let _ = write!(
            svg,
            "<text x={:.1} y={:.1} text-anchor=end>{value:.1}</text>",
            edge - 4.0,
            y(value) + 4.0
        );
    }
    let on_front = |row: &Row, at: f64| {
        front
            && !points
                .iter()
                .any(|(other, x)| *x <= at && us(other) < us(row))
    };
    let mut path: Vec<(f64, f64)> = Vec::new();
    for (row, at) in &points {
        let class = if on_front(row, *at) {
            "dot front"
        } else {
            "dot"
        };
        if on_front(row, *at) {
            path.push((*at, us(row)));
        }
        let default = if row.default { " default" } else { "" };
        let _ = write!(
            svg,
            "<circle class=\"{class}{default}\" cx={:.1} cy={:.1} r=4><title>{}: {:.2} us</title></circle>",
            x(*at),
            y(us(row)),
            escaped(&row.candidate.to_string()),
            us(row)
        );
    }
    path.sort_by(|one, other| one.0.total_cmp(&other.0));
    let steps: Vec<String> = path
        .iter()
        .map(|(at, time)| format!("{:.1} {:.1}", x(*at), y(*time)))
        .collect();
    if steps.len() > 1 {
        let _ = write!(svg, "<path class=path d=\"M{}\"/>", steps.join("L"));
    }
    svg + "</svg>"
}

/// The best time for each pair of two choices.
fn heat(timed: &[&Row], down: &str, across: &str) -> String {
    let mut best: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    for row in timed {
        let number = |name| row.candidate.get(name)?.parse::<u64>().ok();
        if let (Some(one), Some(two)) = (number(down), number(across)) {
            let cell = best.entry((one, two)).or_insert(f64::INFINITY);
            *cell = cell.min(us(row));
        }
    }
    if best.len() < 2 {
        return String::new();
    }
    let fastest = best.values().copied().fold(f64::INFINITY, f64::min);
    let downs: BTreeSet<u64> = best.keys().map(|(one, _)| *one).collect();
    let acrosses: BTreeSet<u64> = best.keys().map(|(_, two)| *two).collect();
    let mut text = format!("<h2>Best time by {down} and {across}, us</h2><table><tr><th>{down}");
    for two in &acrosses {
        let _ = write!(text, "<th>{two}");
    }
    for one in &downs {
        let _ = write!(text, "<tr><th>{one}");
        for two in &acrosses {
            match best.get(&(*one, *two)) {
                // The closer to the best the fuller the colour.
                Some(time) => {
                    let fill = (100.0 * (2.0 - time / fastest)).clamp(0.0, 100.0);
                    let _ = write!(
                        text,
                        "<td style=\"background:color-mix(in srgb,var(--one) {:.0}%,transparent)\">{time:.1}",
                        fill * 0.6
                    );
                }
                None => text.push_str("<td>not tried"),
            }
        }
    }
    text + "</table>"
}

fn table(rows: &[Row], timed: &[&Row]) -> String {
    let mut text = String::from(
        "<h2>Every candidate that was tried</h2><table><tr><th>candidate<th>us<th>over best<th>from<th>to<th>samples\
         <th>model, us<th>registers<th>shared<th>local<th>waves<th>error<th>status",
    );
    let best = timed.first().map_or(1.0, |row| us(row));
    let rest = rows
        .iter()
        .filter(|row| !row.status.is_timed() && !matches!(row.status, Status::Refused { .. }));
    for row in timed.iter().copied().chain(rest) {
        let facts = row.facts.clone().unwrap_or_default();
        let number = |value: Option<u32>| value.map_or("-".to_owned(), |value| value.to_string());
        let timing = row.timing.as_ref().map(|timing| timing.estimate);
        let name = escaped(&row.candidate.to_string());
        let mark = if row.default { " (without tuning)" } else { "" };
        let _ = write!(text, "<tr><td>{name}{mark}");
        match timing {
            Some(time) => {
                let _ = write!(
                    text,
                    "<td>{:.2}<td>{:.3}<td>{:.2}<td>{:.2}<td>{}",
                    time.median_ns / 1e3,
                    time.median_ns / 1e3 / best,
                    time.low_ns / 1e3,
                    time.high_ns / 1e3,
                    time.samples
                );
            }
            None => text.push_str("<td>-<td>-<td>-<td>-<td>-"),
        }
        let _ = write!(
            text,
            "<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            row.model_us.map_or("-".to_owned(), |us| format!("{us:.1}")),
            number(facts.registers),
            number(facts.shared),
            number(facts.local),
            facts
                .waves
                .map_or("-".to_owned(), |waves| format!("{waves:.2}")),
            facts
                .error
                .map_or("-".to_owned(), |error| format!("{error:.1e}")),
            escaped(&row.status.to_string())
        );
    }
    text + "</table>"
}

/// What was refused, by its reason: the journal has a row for each.
fn refused(rows: &[Row]) -> String {
    let refusals = refusals(rows);
    if refusals.is_empty() {
        return String::new();
    }
    let mut text = String::from("<h2>Refused</h2><table><tr><th>candidates<th>one of them");
    for Refusals { count, reason } in &refusals {
        let _ = write!(text, "<tr><td>{count}<td>{}", escaped(reason));
    }
    text + "</table>"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
