//! One synthetic workload under one schedule on one device, verified.

use crate::device::{Device, NotRun, Settings};
use crate::tiled::{self, RunError, arch_of};
use heist_kernels::synthetic::{Mismatch, Synthetic, build};
use heist_launch::{Time, Trace};
use heist_ptx::{Diagnostic, Severity, Source as Text};
use heist_sched::{LaunchReport, ReportError, Schedule, Watch};

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Ran {
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
    pub diagnostics: Vec<Diagnostic>,
    /// The PTX that ran, for the diagnostics.
    pub text: Text,
}

impl Ran {
    /// Whether every tile ran exactly once.
    pub fn exactly_once(&self, synthetic: &Synthetic) -> bool {
        self.trace.miscounted_tiles(synthetic.tiles()).is_empty()
    }

    /// Whether everything is as it should be.
    pub fn is_right(&self, synthetic: &Synthetic) -> bool {
        self.exactly_once(synthetic)
            && self.report.counter_is_zero
            && self
                .diagnostics
                .iter()
                .all(|found| found.severity != Severity::Error)
            && !matches!(self.verified, Some(Err(_)))
    }
}

/// Runs a workload. The schedule is traced, whatever it says.
///
/// # Errors
/// What kept it from running.
pub fn run(
    synthetic: &Synthetic,
    schedule: &Schedule,
    device: &Device,
    settings: &Settings,
    verify: bool,
) -> Result<Ran, RunError> {
    let schedule = schedule.clone().watch(Watch::Trace);
    let kernel = build(synthetic, &schedule, arch_of(device)?).map_err(RunError::Build)?;
    let mut ran = tiled::run(device, &kernel, synthetic.arguments(), settings)?;
    let Some(trace) = ran.report.trace.take() else {
        return Err(match ran.diagnostics.is_empty() {
            true => RunError::Report(ReportError::Missing),
            false => RunError::NotRun(NotRun::Refused(ran.diagnostics), Box::new(ran.text)),
        });
    };
    let verified = verify.then(|| {
        let output = ran.outcome.output(Synthetic::OUTPUT);
        let output = output.and_then(|buffer| buffer.to_vec::<u32>());
        synthetic.verify(&output.unwrap_or_default())
    });
    Ok(Ran {
        schedule: schedule.to_string(),
        trace,
        report: ran.report,
        elapsed: ran.elapsed,
        verified,
        diagnostics: ran.diagnostics,
        text: ran.text,
    })
}
