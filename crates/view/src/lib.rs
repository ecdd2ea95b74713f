//! Drawings of a run: tables, timelines, pages.
//!
//! Everything here takes a [`Trace`](heist_launch::Trace), from the simulator or
//! from a GPU, and shows whether its times are modelled or measured.
//!
//! * [`table`]: figures in columns, for a terminal.
//! * [`svg`]: the timeline as a picture.
//! * [`html()`]: the timeline as a page of its own: a ranked summary, the runs on one time
//!   axis, zoom, search, two runs compared, the critical path. No external resources.
//! * [`account()`] and [`path()`]: where the time of the multiprocessors went, and what the
//!   end of the run waited for; [`newcomer()`]: how long another kernel would wait for room;
//!   [`story()`] is the conclusion in a sentence.
//! * [`perfetto`]: trace-event JSON, which Perfetto and `chrome://tracing` open.
//!
//! ```
//! # use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
//! # let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(2));
//! # for block in 0..2 {
//! #     let (start, end) = (Time::ZERO, Time::from_ns(1000 * (1 + u64::from(block))));
//! #     trace.blocks.push(BlockSpan { block, cluster: block, sm: block, start, end });
//! # }
//! use heist_view::{Run, html, story, table};
//! let runs = [Run::new("direct", &trace)];
//! print!("{}", table::runs(&runs, Dim3::linear_x(2)));
//! assert!(story(&runs).starts_with("direct takes 2.00 us on sim:b200"));
//! let page = html("One run", &runs); // write it to a file, and open that in a browser
//! assert!(page.contains("<!doctype html>"));
//! ```

pub mod account;
pub mod html;
mod lanes;
pub mod newcomer;
pub mod path;
pub mod perfetto;
pub mod story;
pub mod svg;
pub mod table;

pub use account::account;
pub use html::html;
pub use newcomer::newcomer;
pub use path::path;
pub use perfetto::perfetto;
pub use story::story;
pub use svg::svg;

use heist_launch::{DecisionKind, TileOrigin, Trace};

/// A run with the name it has in a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Run<'t> {
    /// What to call it: a schedule, usually.
    pub name: &'t str,
    /// What happened.
    pub trace: &'t Trace,
    /// A sentence on what is special about it; may be empty.
    pub about: &'t str,
    /// Other kernels that ran on the same GPU at the same time, in the same clock, by name.
    pub beside: &'t [(&'t str, &'t Trace)],
    /// What ended it early, if something did.
    pub stopped: Option<Stopped<'t>>,
}

/// A run that did not come to its end, such as one that ran past its limit of time.
#[derive(Clone, Copy, Debug)]
pub struct Stopped<'t> {
    /// What stopped it: a code and a sentence without a full stop.
    pub why: &'t str,
    /// How many tiles there were to run, where that is known.
    pub tiles: Option<u64>,
}

impl<'t> Run<'t> {
    /// A kernel that had the GPU for itself.
    pub fn new(name: &'t str, trace: &'t Trace) -> Run<'t> {
        Run {
            name,
            trace,
            about: "",
            beside: &[],
            stopped: None,
        }
    }

    /// With a sentence about it.
    #[must_use]
    pub fn about(self, about: &'t str) -> Run<'t> {
        Run { about, ..self }
    }

    /// With the kernels that shared the GPU with it.
    #[must_use]
    pub fn beside(self, beside: &'t [(&'t str, &'t Trace)]) -> Run<'t> {
        Run { beside, ..self }
    }

    /// Ended early by something.
    #[must_use]
    pub fn stopped(self, stopped: Option<Stopped<'t>>) -> Run<'t> {
        Run { stopped, ..self }
    }

    /// What stopped it and how far it came, in a sentence or two.
    pub(crate) fn stop(&self) -> Option<String> {
        let Stopped { why, tiles } = self.stopped?;
        let came = match (self.trace.tiles.len(), tiles) {
            (ended, Some(all)) => format!("{ended} of {all} tiles"),
            (0, None) => format!(
                "{} of {} blocks",
                self.trace.blocks.len(),
                self.trace.grid.count()
            ),
            (ended, None) => format!("{ended} tiles"),
        };
        Some(format!(
            "{} was stopped before its end: {why}. {came} had ended by then, and all figures are of \
             these alone.",
            self.name
        ))
    }

    /// All kernels that were on the GPU, this one first.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = (&'t str, &'t Trace)> {
        let own = (self.trace.kernel.as_str(), self.trace);
        std::iter::once(own).chain(self.beside.iter().copied())
    }
}

/// The colour of a tile, by how it came to its block.
pub(crate) fn colour(origin: TileOrigin) -> &'static str {
    match origin {
        TileOrigin::Own => "#4477aa",
        TileOrigin::Stolen => "#ee6677",
        TileOrigin::Ticket => "#ccbb44",
        TileOrigin::Static => "#228833",
    }
}

pub(crate) fn origin_name(origin: TileOrigin) -> &'static str {
    match origin {
        TileOrigin::Own => "own",
        TileOrigin::Stolen => "stolen",
        TileOrigin::Ticket => "ticket",
        TileOrigin::Static => "static",
    }
}

pub(crate) fn decision_name(kind: DecisionKind) -> &'static str {
    match kind {
        DecisionKind::Requested => "requested",
        DecisionKind::Declined => "declined",
        DecisionKind::Granted => "granted",
        DecisionKind::Refused => "refused",
        DecisionKind::Overruled => "overruled",
    }
}

/// Text in a document.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}
