//! One synthetic workload under one schedule on one device, verified.

use crate::device::{Device, NotRun, Settings};
use heist_build::{BuildError, KernelParams};
use heist_gpu::PtxText;
use heist_kernels::synthetic::{Mismatch, Synthetic, build};
use heist_launch::{Clock, Time, Trace};
use heist_ptx::arch::{Arch, Footprint};
use heist_ptx::{Diagnostic, Severity, Source as Text};
use heist_sched::{LaunchReport, Place, PlanError, ReportError, Schedule, TiledKernel, Watch};
use std::fmt;

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

/// Why there is no run.
#[derive(Debug)]
pub enum WorkloadError {
    /// The kernel could not be built.
    Build(BuildError),
    /// The launch could not be planned.
    Plan(PlanError),
    /// The device did not run it; the PTX is what it was given.
    NotRun(NotRun, Box<Text>),
    /// The records could not be read.
    Report(ReportError),
    /// The architecture of the GPU is not one that Heist knows.
    UnknownArch(String),
    /// There was nothing to choose from.
    NoCandidates,
    /// The device found something wrong with a candidate.
    Found(String),
    /// The device gave no time.
    NoTime,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkloadError::Build(error) => write!(f, "{}", error.problem),
            WorkloadError::Plan(error) => write!(f, "{error}"),
            WorkloadError::NotRun(NotRun::Gpu(error), _) => write!(f, "{error}"),
            WorkloadError::NotRun(NotRun::Refused(list), _) => match list.first() {
                Some(first) => write!(f, "{}", first.message),
                None => f.write_str("the device did not take the kernel"),
            },
            WorkloadError::Report(error) => write!(f, "{error}"),
            WorkloadError::NoCandidates => f.write_str("there are no schedules to choose from"),
            WorkloadError::Found(message) => f.write_str(message),
            WorkloadError::NoTime => f.write_str("the device did not say how long the kernel took"),
            WorkloadError::UnknownArch(name) => {
                write!(f, "{name} is not an architecture that Heist knows")
            }
        }
    }
}

impl std::error::Error for WorkloadError {}

/// The architecture that kernels are built for on a device.
///
/// # Errors
/// When a real GPU is newer than Heist.
pub fn arch_of(device: &Device) -> Result<Arch, WorkloadError> {
    match device {
        Device::Sim(device) => Ok(device.gpu().arch),
        Device::Gpu(gpu) => {
            let capability = gpu.info().capability;
            let name = format!("sm_{}{}", capability.major, capability.minor);
            Arch::parse(&format!("{name}a"))
                .or_else(|| Arch::parse(&name))
                .ok_or(WorkloadError::UnknownArch(name))
        }
    }
}

/// How many clusters of a kernel a device runs at a time.
pub fn resident<A: KernelParams>(device: &Device, kernel: &TiledKernel<A>) -> u32 {
    let blocks = kernel.cluster().count().max(1) as u32;
    let threads = kernel.built.launch.block.iter().product();
    match device {
        Device::Sim(device) => {
            let shared = kernel.built.launch.static_shared + kernel.built.launch.dynamic_shared;
            let footprint = Footprint {
                threads,
                registers: 32,
                shared,
            };
            device.gpu().resident_blocks(footprint) / blocks
        }
        Device::Gpu(gpu) => {
            let text = PtxText::new("workload", kernel.ptx());
            let occupancy = gpu.load(&text, &Default::default()).and_then(|program| {
                let plan = kernel.plan(1).map(|plan| plan.launch);
                let entry = program.kernel(&kernel.built.launch.entry)?;
                let launch = plan.unwrap_or(heist_launch::Launch::new(1, threads));
                entry.occupancy(&launch)
            });
            match occupancy {
                Ok(found) => found
                    .active_clusters
                    .unwrap_or(found.blocks_per_sm * gpu.info().sms / blocks),
                // A guess is safe: the count decides speed alone.
                Err(_) => gpu.info().sms,
            }
        }
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
) -> Result<Ran, WorkloadError> {
    let schedule = schedule.clone().watch(Watch::Trace);
    let arch = arch_of(device)?;
    let kernel = build(synthetic, &schedule, arch).map_err(WorkloadError::Build)?;
    let plan = kernel
        .plan(resident(device, &kernel))
        .map_err(WorkloadError::Plan)?;
    let text = Text::new(format!("{}.ptx", synthetic.workload), kernel.ptx());
    let arguments = plan.arguments(synthetic.arguments());
    let entry = &kernel.built.launch.entry;
    let module = &kernel.built.module;
    let ran = device
        .run(&text, module, entry, &plan.launch, &arguments, settings)
        .map_err(|error| WorkloadError::NotRun(error, Box::new(text.clone())))?;
    let place = match device {
        Device::Sim(device) => Place {
            device: device.to_string(),
            sms: device.gpu().sms,
            clock: Clock::Modelled,
        },
        Device::Gpu(gpu) => Place {
            device: gpu.info().name.clone(),
            sms: gpu.info().sms,
            clock: Clock::Measured,
        },
    };
    let mut report = kernel
        .report(&plan, &ran.outcome, &place)
        .map_err(WorkloadError::Report)?;
    let trace = report
        .trace
        .take()
        .ok_or(WorkloadError::Report(ReportError::Missing))?;
    let verified = verify.then(|| {
        let output = ran.outcome.output(Synthetic::OUTPUT);
        let output = output.and_then(|buffer| buffer.to_vec::<u32>());
        synthetic.verify(&output.unwrap_or_default())
    });
    Ok(Ran {
        schedule: schedule.to_string(),
        trace,
        report,
        elapsed: ran.elapsed,
        verified,
        diagnostics: ran.diagnostics,
        text,
    })
}
