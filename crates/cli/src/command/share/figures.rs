//! The two tables, for people and for programs.

use super::Share;
use super::peer::{Absent, PeerFigures};
use crate::answer::Output;
use heist::share::Beside;
use heist::share::modelled::Shape;
use heist_kernels::Target;
use heist_launch::Clock;
use heist_view::table;
use serde_json::{Value, json};
use std::path::Path;

/// What was found of one schedule, in microseconds.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) alone: f64,
    pub(super) beside: Vec<Beside>,
    pub(super) held: Vec<f64>,
    /// What stood in for each launch, on a simulated GPU.
    pub(super) stands_for: Vec<Shape>,
}

/// Everything that was found.
pub(super) struct Figures<'q> {
    pub(super) question: &'q Share,
    pub(super) device: String,
    pub(super) clock: Clock,
    pub(super) target: Target,
    pub(super) rows: Vec<Row>,
    /// The interactive kernels with nobody beside them.
    pub(super) idle: Vec<f64>,
    /// The peer's, or why there are none, where it was asked.
    pub(super) peer: Option<Result<PeerFigures, Absent>>,
    pub(super) timeline: Option<&'q Path>,
}

/// Microseconds in a table. What was not measured, such as a batch of which no launch ended between
/// two samples, is no number.
pub(super) fn us(value: f64) -> String {
    match value.is_nan() {
        true => "-".to_owned(),
        false => format!("{value:.1}"),
    }
}

impl Figures<'_> {
    pub(super) fn answer(&self, out: Output) {
        match out.json {
            true => out.json(&self.as_json()),
            false => self.print(),
        }
    }

    fn print(&self) {
        let told = &self.question.told;
        println!(
            "{} {} as the batch on {}, in microseconds, {}",
            self.question.kernel,
            told.join(" "),
            self.device,
            self.clock
        );
        self.say_what_stands_in();
        print!("{}", self.beside());
        println!("\none launch while multiprocessors are held, in microseconds");
        print!("{}", self.held());
        if let Some(Err(why)) = &self.peer {
            println!("peer: not measured: {why}");
        }
        if let Some(path) = self.timeline {
            println!(
                "both tenants under every schedule: {} (open it in a browser)",
                path.display()
            );
        }
    }

    fn say_what_stands_in(&self) {
        let Some(row) = self.rows.first().filter(|row| !row.stands_for.is_empty()) else {
            return;
        };
        let launches: Vec<String> = row.stands_for.iter().map(Shape::to_string).collect();
        println!(
            "stands in for it: {}, under the same schedules; tiles only take their time, by arithmetic.\n\
             Good for ranking schedules, not a promise. Every tile ran exactly once.\n",
            launches.join("; then ")
        );
    }

    /// The first table: an interactive kernel beside the batch.
    fn beside(&self) -> String {
        let interactive = &self.question.interactive;
        let mut heads = vec!["batch under".to_owned(), "alone".to_owned()];
        for (name, alone) in interactive.iter().zip(&self.idle) {
            heads.push(format!("{name} ({alone:.0} alone) p50"));
            heads.extend(["p99".to_owned(), "batch".to_owned()]);
        }
        let mut lines: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let seen = row.beside.iter();
                let seen = seen.flat_map(|b| [b.interactive.p50, b.interactive.p99, b.batch]);
                let figures = std::iter::once(row.alone).chain(seen).map(us);
                std::iter::once(row.name.clone()).chain(figures).collect()
            })
            .collect();
        if let Some(Ok(peer)) = &self.peer {
            lines.push(peer.beside());
        }
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        table::columns(&heads, &lines)
    }

    /// The second table: the batch while multiprocessors are held.
    fn held(&self) -> String {
        let held = self.question.held(self.target);
        let heads: Vec<String> = std::iter::once("batch under".to_owned())
            .chain(held.iter().map(u32::to_string))
            .collect();
        let mut lines: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let times = row.held.iter().copied().map(us);
                std::iter::once(row.name.clone()).chain(times).collect()
            })
            .collect();
        if let Some(Ok(peer)) = &self.peer {
            lines.push(peer.held());
        }
        let best = self.rows.iter().filter_map(|row| row.held.first().copied());
        let best = best.fold(f64::INFINITY, f64::min);
        let ideal = held.iter().map(|sms| {
            let all = f64::from(self.target.sms);
            us(best * all / (all - f64::from(*sms)))
        });
        if held.first() == Some(&0) {
            lines.push(std::iter::once("ideal".to_owned()).chain(ideal).collect());
        }
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        table::columns(&heads, &lines)
    }

    fn as_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let beside = row.beside.iter().map(|b| {
                    json!({ "p50_us": b.interactive.p50, "p99_us": b.interactive.p99,
                        "batch_us": b.batch })
                });
                let stands_for = row.stands_for.iter().map(|shape| {
                    json!({ "tiles": shape.tiles.count(), "tile_ns": shape.tile_ns,
                        "blocks_per_sm": shape.blocks, "cluster": shape.cluster.count() })
                });
                json!({ "schedule": row.name, "alone_us": row.alone,
                    "beside": beside.collect::<Vec<_>>(), "held_us": row.held,
                    "stands_for": stands_for.collect::<Vec<_>>() })
            })
            .collect();
        let peer = self.peer.as_ref().map(|peer| match peer {
            Ok(figures) => figures.as_json(),
            Err(why) => json!({ "absent": why }),
        });
        json!({ "kernel": self.question.kernel, "told": self.question.told,
            "device": self.device, "clock": self.clock.to_string(),
            "interactive": self.question.interactive, "interactive_alone_us": self.idle,
            "held": self.question.held(self.target), "rows": rows, "peer": peer,
            "timeline": self.timeline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_no_number() {
        assert_eq!([us(1.25), us(0.0), us(f64::NAN)], ["1.2", "0.0", "-"]);
        let seen = heist::share::Seen::default().in_short();
        assert_eq!(us(seen.batch), "-");
        assert_eq!(
            json!({ "batch_us": seen.batch }),
            json!({ "batch_us": null })
        );
    }
}
