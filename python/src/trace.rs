//! The trace of a run.

use heist::launch::TileOrigin;
use heist::view::{Run, html, perfetto, svg};
use pyo3::prelude::*;

/// Which block ran what, and when. In a notebook it shows itself.
#[pyclass(frozen, module = "heist")]
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) trace: heist::launch::Trace,
}

#[pymethods]
impl Trace {
    /// From the first block's start to the last one's end, in nanoseconds.
    #[getter]
    fn elapsed_ns(&self) -> f64 {
        self.trace.makespan().ns()
    }

    /// The part of that time in which multiprocessors had work.
    #[getter]
    fn busy(&self) -> f64 {
        self.trace.busy_fraction()
    }

    /// How many blocks ran.
    #[getter]
    fn blocks(&self) -> usize {
        self.trace.blocks.len()
    }

    /// How many tiles were stolen.
    #[getter]
    fn stolen(&self) -> usize {
        self.trace.tiles_by(TileOrigin::Stolen) + self.trace.tiles_by(TileOrigin::Ticket)
    }

    /// The timeline as a page of its own.
    fn to_html(&self) -> String {
        html(&self.name, &[self.run()])
    }

    /// The timeline as a picture.
    fn to_svg(&self) -> String {
        svg::svg(&self.run())
    }

    /// Trace events as JSON, which Perfetto opens.
    fn to_perfetto(&self) -> String {
        perfetto(&[self.run()]).to_string()
    }

    fn _repr_html_(&self) -> String {
        // A page within the notebook's: an element of its own keeps its style to itself.
        let page = self.to_html().replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<iframe srcdoc=\"{page}\" width=\"100%\" height=\"480\" frameborder=\"0\"></iframe>"
        )
    }

    fn __repr__(&self) -> String {
        format!(
            "<Trace of {}: {} blocks, {:.1} us>",
            self.name,
            self.trace.blocks.len(),
            self.elapsed_ns() / 1e3
        )
    }
}

impl Trace {
    fn run(&self) -> Run<'_> {
        Run::new(&self.name, &self.trace)
    }
}
