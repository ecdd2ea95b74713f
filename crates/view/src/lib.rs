//! What a run looked like, drawn.
//!
//! Everything here takes a [`Trace`](heist_launch::Trace), from the simulator or
//! from a GPU, and says on its face whether the times in it are modelled or
//! measured.
//!
//! * [`table`]: figures in columns, for a terminal.
//! * [`svg`]: the timeline as a picture.
//! * [`html`]: the timeline as a page of its own, with zoom, hover, and two or
//!   more runs below each other on one time axis. No external resources.
//! * [`perfetto`]: trace-event JSON, which Perfetto and `chrome://tracing` open.

pub mod html;
mod lanes;
pub mod perfetto;
pub mod svg;
pub mod table;

pub use html::html;
pub use perfetto::perfetto;
pub use svg::svg;

use heist_launch::{TileOrigin, Trace};

/// A run with the name it has in a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Run<'t> {
    /// What to call it: a schedule, usually.
    pub name: &'t str,
    /// What happened.
    pub trace: &'t Trace,
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
