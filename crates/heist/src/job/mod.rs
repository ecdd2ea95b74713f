//! Runs a [`Job`]: once on any device, or over and over on a real GPU.
//!
//! ```
//! use heist::job;
//! use heist::kernels::catalogue::{self, Settings as Sizes};
//! use heist::run::{Device, Settings};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("sim:a100".parse()?)?; // or "gpu"
//! let sizes = Sizes::from_words(["m=64", "n=64", "k=64"])?;
//! let mut gemm = catalogue::entry("gemm")?.prepare(&sizes, None, job::target(&device)?)?;
//! let steps = job::run(&device, &mut gemm.job, &Settings::default())?;
//! assert_eq!(steps.len(), gemm.job.steps.len());
//! // The result is in the job's buffers: compare it with the reference in f64.
//! assert!((gemm.verify)(&gemm.job)?.within(gemm.bound));
//! # Ok(()) }
//! ```

#[cfg(feature = "gpu")]
mod on_gpu;

#[cfg(feature = "gpu")]
pub use on_gpu::{OnGpu, Visits};

use heist_kernels::{Job, KernelError, Target};
use heist_launch::{Buffer, ElementType};
use heist_ptx::Source;
use heist_run::{Device, Execution, Found, NotRun, Program, RunError, Settings, UnknownArch};
use heist_sched::{LaunchReport, ReportError, TraceDevice, Watch};

/// Why a job did not run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There is no such kernel, or none for this device.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The GPU could not do it.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Gpu(#[from] heist_gpu::GpuError),
    /// The device did not take a step.
    #[error(transparent)]
    NotRun(#[from] NotRun),
    /// Something was found in a step.
    #[error(transparent)]
    Found(#[from] Found),
    /// Kernels can't be built for this device.
    #[error(transparent)]
    Device(#[from] UnknownArch),
    /// The scheduler's records can't be read.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl From<RunError> for JobError {
    fn from(error: RunError) -> JobError {
        match error {
            RunError::NotRun(why) => JobError::NotRun(why),
            RunError::Found(found) => JobError::Found(found),
        }
    }
}

/// What kernels are built for on a device.
///
/// # Errors
/// When a real GPU is newer than Heist.
pub fn target(device: &Device) -> Result<Target, UnknownArch> {
    Ok(Target {
        arch: device.arch()?,
        sms: device.sms(),
    })
}

/// One step of a job, run.
#[derive(Clone, Debug)]
pub struct StepRun {
    /// The PTX that ran, for the findings.
    pub text: Source,
    /// Its outcome. Where the schedule is traced, the trace has every tile.
    pub execution: Execution,
    /// The scheduler's records, where the schedule is watched.
    pub scheduled: Option<LaunchReport>,
}

/// Runs every step of a job in order and waits; its buffers then hold the results.
///
/// # Errors
/// The reason why a step did not run, and the findings of a step.
pub fn run(device: &Device, job: &mut Job, settings: &Settings) -> Result<Vec<StepRun>, JobError> {
    let mut steps = inspect(device, job, settings)?;
    // A step with findings is the last one.
    if let Some(last) = steps.pop() {
        let execution = last.execution.clean(&last.text)?;
        steps.push(StepRun { execution, ..last });
    }
    Ok(steps)
}

/// Like [`run`], but findings are returned, not an error. The job stops after a step with findings,
/// which is then the last one here.
///
/// # Errors
/// The reason why a step did not run.
pub fn inspect(
    device: &Device,
    job: &mut Job,
    settings: &Settings,
) -> Result<Vec<StepRun>, JobError> {
    let mut steps = Vec::new();
    for index in 0..job.steps.len() {
        let arguments = job.arguments(index)?;
        let step = &job.steps[index];
        let program = Program::from_module(format!("{}.ptx", step.entry), &step.module);
        let mut execution =
            device.inspect(&program, &step.entry, &step.launch, &arguments, settings)?;
        job.absorb(&execution.outcome);
        let found = !execution.findings.is_empty();
        let scheduled = match &job.steps[index].readout {
            Some(readout) if readout.watch() != Watch::Off && !found => {
                let place = TraceDevice {
                    device: device.label(),
                    sms: device.sms(),
                    clock: device.clock(),
                };
                let mut report = readout.report(&execution.outcome, &place)?;
                if let Some(trace) = report.trace.take() {
                    execution.outcome.trace = Some(trace);
                }
                Some(report)
            }
            _ => None,
        };
        steps.push(StepRun {
            text: program.source().clone(),
            execution,
            scheduled,
        });
        if found {
            break;
        }
    }
    Ok(steps)
}

/// The buffer of a family's jobs that holds the result.
pub fn output_of(family: &str) -> &'static str {
    match family {
        "attention" => "out",
        "attention-backward" => "dq",
        _ => "d",
    }
}

/// The relative norm of the difference of two buffers; NaN where they can't be compared.
pub fn distance(reference: &Buffer, other: &Buffer) -> f64 {
    if reference.len() != other.len() {
        return f64::NAN;
    }
    // Parts of a fixed size, so that the sums are the same on every machine.
    const PART: usize = 1 << 20;
    let (a, b) = (reference.ty(), other.ty());
    let ones = reference.bytes().chunks(PART * a.bytes());
    let parts = ones.zip(other.bytes().chunks(PART * b.bytes()));
    let sums: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let parts = parts.map(|(ones, twos)| scope.spawn(move || squares((a, ones), (b, twos))));
        let running: Vec<_> = parts.collect();
        // A part that can't be summed is not close to anything.
        let sums = running
            .into_iter()
            .map(|part| part.join().unwrap_or((f64::NAN, 1.0)));
        sums.collect()
    });
    let (square, norm) = sums
        .iter()
        .fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    if norm == 0.0 {
        return square.sqrt();
    }
    (square / norm).sqrt()
}

/// The squares of the differences, and of the first, summed.
fn squares((a, ones): (ElementType, &[u8]), (b, twos): (ElementType, &[u8])) -> (f64, f64) {
    let number = |ty: ElementType, bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        ty.to_f64(u64::from_le_bytes(wide))
    };
    let pairs = ones
        .chunks_exact(a.bytes())
        .zip(twos.chunks_exact(b.bytes()));
    pairs.fold((0.0, 0.0), |(square, norm), (one, two)| {
        let (one, two) = (number(a, one), number(b, two));
        (square + (one - two) * (one - two), norm + one * one)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let one = Buffer::from_slice(&[3.0f32, 4.0]);
        assert_eq!(distance(&one, &one), 0.0);
        assert_eq!(distance(&one, &Buffer::from_slice(&[3.0f32, 3.0])), 0.2);
        assert!(distance(&one, &Buffer::from_slice(&[3.0f32])).is_nan());
    }
}
