//! The parts of a qualification.

use clap::ValueEnum;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// The test files that this GPU can run.
    Files,
    /// Every tile exactly once, under random schedules.
    Schedules,
    /// Every variant of every kernel, against f64.
    Kernels,
    /// One uneven workload under every source and several policies, with times.
    Table,
    /// Our kernels beside cuBLAS, PyTorch and Triton, where these are installed.
    Bench,
}

impl Part {
    pub(super) const ALL: [Part; 5] = [
        Part::Files,
        Part::Schedules,
        Part::Kernels,
        Part::Table,
        Part::Bench,
    ];
}
