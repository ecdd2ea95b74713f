//! A kernel of your own, made of tiles, on any device.
//!
//! ```
//! use heist::builder::{Global, kernel_params};
//! use heist::device::{Device, Settings};
//! use heist::launch::Arg;
//! use heist::sched::{FirstHalf, MaxSteals, Tiled, Watch};
//! use heist::tiled;
//!
//! kernel_params! {
//!     pub struct Scale { data: Global<f32>, factor: f32, n: u32 }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("sim:b200".parse()?)?; // or "gpu"
//! let kernel = Tiled::<Scale>::new("scale", 4)
//!     .policy(MaxSteals { limit: 8 } & FirstHalf)
//!     .block(256)
//!     .watch(Watch::Trace) // to see which block ran which tile
//!     .build(tiled::arch_of(&device)?, |k, args, tiles| {
//!         tiles.each(|tile| {
//!             let i = tile.x * k.block_dim().x + k.thread().x;
//!             k.if_(i.lt(args.n), || args.data.at(i).update(|v| v * args.factor));
//!         })
//!     })?;
//! // One argument for each parameter, in order.
//! let own = [Arg::in_out(&[1.0f32; 1000]), Arg::scalar(3.0f32), Arg::scalar(1000u32)];
//! let ran = tiled::run(&device, &kernel, own, &Settings::default())?;
//! assert_eq!(ran.diagnostics, []);
//! assert_eq!(ran.exactly_once(), Some(true));
//! assert_eq!(ran.outcome.output(0).unwrap().to_vec::<f32>().unwrap(), [3.0; 1000]);
//! # Ok(()) }
//! ```

use crate::device::{Device, NotRun, Settings};
use heist_builder::{BuildError, KernelParams};
use heist_gpu::PtxText;
use heist_launch::{Arg, Clock, Dim3, Outcome, Time};
use heist_ptx::arch::{Arch, Footprint};
use heist_ptx::{Diagnostic, Module, Source as Text, rule};
use heist_sched::{LaunchReport, Place, Plan, PlanError, ReportError, TiledKernel};
use std::fmt;

/// What a launch gave.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The buffers.
    pub outcome: Outcome,
    /// What the scheduler reported: as much as the kernel's
    /// [`Watch`](heist_sched::Watch) asks for.
    pub report: LaunchReport,
    /// How long the kernel took: modelled, or measured by events.
    pub elapsed: Option<Time>,
    /// What the device found.
    pub diagnostics: Vec<Diagnostic>,
    /// The PTX that ran, for the diagnostics.
    pub text: Text,
    tiles: Dim3,
}

impl Ran {
    /// Whether every tile ran exactly once, where the kernel was built with
    /// [`Watch::Trace`](heist_sched::Watch::Trace).
    pub fn exactly_once(&self) -> Option<bool> {
        let trace = self.report.trace.as_ref()?;
        Some(trace.miscounted_tiles(self.tiles).is_empty())
    }
}

/// Why there is no run.
#[derive(Debug)]
pub enum RunError {
    /// The kernel could not be built.
    Build(BuildError),
    /// The launch could not be planned.
    Plan(PlanError),
    /// Other arguments than the kernel has parameters.
    Arguments {
        /// The parameters.
        parameters: Vec<&'static str>,
        /// How many arguments there were.
        given: usize,
    },
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

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Build(error) => write!(f, "{}", error.problem),
            RunError::Plan(error) => write!(f, "{error}"),
            RunError::Arguments { parameters, given } => write!(
                f,
                "the kernel takes {} arguments ({}); given: {given}",
                parameters.len(),
                parameters.join(", ")
            ),
            RunError::NotRun(NotRun::Gpu(error), _) => write!(f, "{error}"),
            RunError::NotRun(NotRun::Refused(list), _) => match list.first() {
                Some(first) => write!(f, "{}", first.message),
                None => f.write_str("the device did not take the kernel"),
            },
            RunError::Report(error) => write!(f, "{error}"),
            RunError::NoCandidates => f.write_str("there are no schedules to choose from"),
            RunError::Found(message) => f.write_str(message),
            RunError::NoTime => f.write_str("the device did not say how long the kernel took"),
            RunError::UnknownArch(name) => {
                write!(f, "{name} is not an architecture that Heist knows")
            }
        }
    }
}

impl std::error::Error for RunError {}

/// The architecture that kernels are built for on a device.
///
/// # Errors
/// When a real GPU is newer than Heist.
pub fn arch_of(device: &Device) -> Result<Arch, RunError> {
    match device {
        Device::Sim(device) => Ok(device.gpu().arch),
        Device::Gpu(gpu) => {
            let capability = gpu.info().capability;
            let name = format!("sm_{}{}", capability.major, capability.minor);
            Arch::parse(&format!("{name}a"))
                .or_else(|| Arch::parse(&name))
                .ok_or(RunError::UnknownArch(name))
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

/// Where a launch on this device happens, for its trace.
fn place(device: &Device) -> Place {
    match device {
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
    }
}

/// Runs a kernel once over the tiles that it was built for. `own` are its own
/// arguments, in order; what the scheduler needs besides is added.
///
/// # Errors
/// What kept it from running. What was found in a run is no error.
pub fn run<A: KernelParams>(
    device: &Device,
    kernel: &TiledKernel<A>,
    own: impl IntoIterator<Item = Arg>,
    settings: &Settings,
) -> Result<Ran, RunError> {
    Ready::new(device, kernel)?.run(device, kernel, own, settings)
}

/// What a kernel's launches on a device have in common.
pub(crate) struct Ready {
    plan: Plan,
    text: Text,
    /// The text's, so that what is found has its line.
    module: Module,
}

impl Ready {
    pub(crate) fn new<A: KernelParams>(
        device: &Device,
        kernel: &TiledKernel<A>,
    ) -> Result<Ready, RunError> {
        let plan = kernel.plan(resident(device, kernel));
        let text = Text::new(format!("{}.ptx", kernel.built.launch.entry), kernel.ptx());
        Ok(Ready {
            plan: plan.map_err(RunError::Plan)?,
            module: with_lines(&text, &kernel.built.module),
            text,
        })
    }

    /// One launch.
    pub(crate) fn run<A: KernelParams>(
        &self,
        device: &Device,
        kernel: &TiledKernel<A>,
        own: impl IntoIterator<Item = Arg>,
        settings: &Settings,
    ) -> Result<Ran, RunError> {
        let own: Vec<Arg> = own.into_iter().collect();
        let parameters: Vec<_> = A::shapes().into_iter().map(|(name, _)| name).collect();
        if own.len() != parameters.len() {
            return Err(RunError::Arguments {
                parameters,
                given: own.len(),
            });
        }
        let ran = device
            .run(
                &self.text,
                &self.module,
                &kernel.built.launch.entry,
                &self.plan.launch,
                &self.plan.arguments(own),
                settings,
            )
            .map_err(|error| RunError::NotRun(error, Box::new(self.text.clone())))?;
        let diagnostics = unexpected(ran.diagnostics);
        let report = match kernel.report(&self.plan, &ran.outcome, &place(device)) {
            Ok(report) => report,
            // After a fault there are no records; the fault is what there is to say.
            Err(_) if !diagnostics.is_empty() => LaunchReport::default(),
            Err(error) => return Err(RunError::Report(error)),
        };
        Ok(Ran {
            report,
            outcome: ran.outcome,
            elapsed: ran.elapsed,
            diagnostics,
            text: self.text.clone(),
            tiles: kernel.tiles(),
        })
    }
}

/// A module as its text has it: what is found then has a line there.
pub(crate) fn with_lines(text: &Text, module: &Module) -> Module {
    heist_ptx::parse(text).unwrap_or_else(|_| module.clone())
}

/// What was found in a kernel of ours, less what the tile loop does knowingly: in a
/// cluster it hands the answer of launch control on by itself, with the policy's
/// decision, which is the other way out that the warning names.
pub(crate) fn unexpected(found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let knowingly = |found: &Diagnostic| found.code == rule::CLC_PLAIN_IN_CLUSTER;
    found.into_iter().filter(|one| !knowingly(one)).collect()
}
