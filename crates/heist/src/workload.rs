//! One synthetic workload under one schedule on one device, verified.
//!
//! ```
//! use heist::kernels::synthetic::{Parameters, Synthetic, Workload};
//! use heist::run::{Device, Settings};
//! use heist::workload;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let size = Parameters { tiles: 300, mean: 20, ..Parameters::default() };
//! let synthetic = Synthetic::new(Workload::ClusteredHeavy, size);
//! let device = Device::open("sim:h200".parse()?)?; // or "gpu"
//! let run =
//!     workload::run(&synthetic, &"ticket".parse()?, &device, &Settings::default(), true)?;
//! assert!(run.is_right(&synthetic));
//! assert_eq!(run.trace.tiles.len(), 300);
//! # Ok(()) }
//! ```

#[cfg(feature = "gpu")]
use crate::swap;
use crate::tiled::{self, TiledError, TiledRun};
use heist_kernels::synthetic::{Mismatch, Synthetic, build};
use heist_launch::{Time, Trace};
use heist_ptx::{Diagnostic, Severity, Source as Text};
use heist_run::{Device, NotRun, Settings};
use heist_sched::{LaunchReport, ReportError, Schedule, Watch};

/// What a run gave.
#[derive(Clone, Debug)]
pub struct WorkloadRun {
    /// The schedule, as it was.
    pub schedule: String,
    /// Every block, tile and decision.
    pub trace: Trace,
    /// What the scheduler reported besides.
    pub report: LaunchReport,
    /// How long the kernel took: modelled, or measured by events.
    pub elapsed: Option<Time>,
    /// Elements checked, or the first that is wrong; `None` when not verified.
    pub verified: Option<Result<usize, Mismatch>>,
    /// What the device found.
    pub findings: Vec<Diagnostic>,
    /// The PTX that ran, for the diagnostics.
    pub text: Text,
}

impl WorkloadRun {
    /// Whether every tile ran exactly once.
    pub fn exactly_once(&self, synthetic: &Synthetic) -> bool {
        self.trace.miscounted_tiles(synthetic.tiles()).is_empty()
    }

    /// Whether everything is as it should be.
    pub fn is_right(&self, synthetic: &Synthetic) -> bool {
        self.exactly_once(synthetic)
            && self.report.counter_is_zero
            && self
                .findings
                .iter()
                .all(|found| found.severity != Severity::Error)
            && !matches!(self.verified, Some(Err(_)))
    }
}

/// Runs a workload. The schedule is always traced.
///
/// # Errors
/// The reason why it did not run.
pub fn run(
    synthetic: &Synthetic,
    schedule: &Schedule,
    device: &Device,
    settings: &Settings,
    verify: bool,
) -> Result<WorkloadRun, TiledError> {
    let schedule = schedule.clone().watch(Watch::Trace);
    let kernel = build(synthetic, &schedule, device.arch()?).map_err(TiledError::Build)?;
    let run = tiled::inspect(device, &kernel, synthetic.arguments(), settings)?;
    checked(synthetic, &schedule, run, verify)
}

/// The same, while its policy, which is [loaded](heist_sched::Loaded), is exchanged for
/// others.
///
/// # Errors
/// The reason why it did not run.
#[cfg(feature = "gpu")]
pub fn run_swapping(
    synthetic: &Synthetic,
    schedule: &Schedule,
    device: &Device,
    settings: &Settings,
    verify: bool,
    turns: &swap::Turns,
) -> Result<(WorkloadRun, swap::Swaps), TiledError> {
    let schedule = schedule.clone().watch(Watch::Trace);
    let kernel = build(synthetic, &schedule, device.arch()?).map_err(TiledError::Build)?;
    let (run, swaps) = swap::run(device, &kernel, synthetic.arguments(), settings, turns)?;
    Ok((checked(synthetic, &schedule, run, verify)?, swaps))
}

fn checked(
    synthetic: &Synthetic,
    schedule: &Schedule,
    mut run: TiledRun,
    verify: bool,
) -> Result<WorkloadRun, TiledError> {
    let Some(trace) = run.report.trace.take() else {
        return Err(match run.execution.findings.is_empty() {
            true => TiledError::Report(ReportError::Missing),
            false => NotRun::Refused(run.execution.findings, Box::new(run.text)).into(),
        });
    };
    let verified = verify.then(|| {
        let output = run.output(Synthetic::OUTPUT);
        let output = output.and_then(|buffer| buffer.to_vec::<u32>());
        synthetic.verify(&output.unwrap_or_default())
    });
    Ok(WorkloadRun {
        schedule: schedule.to_string(),
        trace,
        report: run.report,
        elapsed: run.execution.elapsed,
        verified,
        findings: run.execution.findings,
        text: run.text,
    })
}
