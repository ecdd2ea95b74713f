//! A kernel of your own, made of tiles, on any device.
//!
//! ```
//! use heist::builder::{Global, kernel_params};
//! use heist::run::{Device, Settings};
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
//!     .build(device.arch()?, |k, args, tiles| {
//!         tiles.each(|tile| {
//!             let i = tile.x * k.block_dim().x + k.thread().x;
//!             k.if_(i.lt(args.n), || args.data.at(i).update(|v| v * args.factor));
//!         })
//!     })?;
//! let own = Scale { data: Arg::in_out(&[1.0f32; 1000]), factor: 3.0, n: 1000 };
//! // Whatever is found in the run, a race for example, is an error here.
//! let run = tiled::run(&device, &kernel, own, &Settings::default())?;
//! assert_eq!(run.exactly_once(), Some(true));
//! assert_eq!(run.output("data").unwrap().to_vec::<f32>().unwrap(), [3.0; 1000]);
//! # Ok(()) }
//! ```

use heist_builder::{BuildError, KernelParams};
use heist_launch::{Arg, Buffer, Dim3, Launch};
use heist_ptx::Source as Text;
use heist_run::{Device, Execution, Found, NotRun, Program, Settings, UnknownArch};
use heist_sched::{LaunchReport, Plan, PlanError, ReportError, TiledKernel, TraceDevice};

/// What a launch gave.
#[derive(Clone, Debug)]
pub struct TiledRun {
    /// The device's outcome; without findings where it comes from [`run`].
    pub execution: Execution,
    /// What the scheduler reported: as much as the kernel's
    /// [`Watch`](heist_sched::Watch) asks for.
    pub report: LaunchReport,
    /// The PTX that ran, for the findings.
    pub text: Text,
    /// The kernel's own parameters.
    fields: Vec<&'static str>,
    tiles: Dim3,
}

impl TiledRun {
    /// The buffer of a field of the kernel's parameters, after the run; `None` for a
    /// field that is none, or is only read.
    pub fn output(&self, field: &str) -> Option<&Buffer> {
        let mut outputs = self.outputs();
        outputs.find_map(|(name, buffer)| (name == field).then_some(buffer))
    }

    /// The kernel's own buffers that are read back, in the order of their fields.
    pub fn outputs(&self) -> impl Iterator<Item = (&'static str, &Buffer)> {
        let outcome = &self.execution.outcome;
        let fields = self.fields.iter().enumerate();
        fields.filter_map(|(index, name)| Some((*name, outcome.output(index)?)))
    }

    /// Whether every tile ran exactly once, where the kernel was built with
    /// [`Watch::Trace`](heist_sched::Watch::Trace).
    pub fn exactly_once(&self) -> Option<bool> {
        let trace = self.report.trace.as_ref()?;
        Some(trace.miscounted_tiles(self.tiles).is_empty())
    }
}

/// Why there is no run, or why its results are not valid.
#[derive(Debug, thiserror::Error)]
pub enum TiledError {
    /// The kernel could not be built.
    #[error("{}", .0.problem)]
    Build(BuildError),
    /// The launch could not be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device did not run it.
    #[error(transparent)]
    NotRun(#[from] NotRun),
    /// It ran, and something was found.
    #[error(transparent)]
    Found(#[from] Found),
    /// The records could not be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The architecture of the GPU is not one that Heist knows.
    #[error(transparent)]
    UnknownArch(#[from] UnknownArch),
    /// The verifier refuses the policy.
    #[error("the policy is refused: {0}")]
    Policy(heist_sched::program::Refusal),
    /// There was nothing to choose from.
    #[error("there are no schedules to choose from")]
    NoCandidates,
    /// The device gave no time.
    #[error("the device did not say how long the kernel took")]
    NoTime,
}

/// How many clusters of a kernel a device runs at a time.
pub fn resident<A: KernelParams>(device: &Device, kernel: &TiledKernel<A>) -> u32 {
    resident_of(device, kernel, &program_of(kernel))
}

fn resident_of<A: KernelParams>(
    device: &Device,
    kernel: &TiledKernel<A>,
    program: &Program,
) -> u32 {
    let info = &kernel.built.launch;
    // Any grid will do.
    let launch = kernel.plan(1).map_or_else(
        |_| Launch::new(1, info.block).dynamic_shared(info.dynamic_shared),
        |plan| plan.launch,
    );
    device.resident_clusters(program, &info.entry, &launch, info.static_shared)
}

fn program_of<A: KernelParams>(kernel: &TiledKernel<A>) -> Program {
    let name = format!("{}.ptx", kernel.built.launch.entry);
    Program::from_module(name, &kernel.built.module)
}

/// Where a launch on this device happens, for its trace.
fn place(device: &Device) -> TraceDevice {
    TraceDevice {
        device: device.label(),
        sms: device.sms(),
        clock: device.clock(),
    }
}

/// Runs a kernel once over the tiles that it was built for. `own` are its own parameters, with an
/// [`Arg`] in place of every address; the scheduler's parameters are added.
///
/// # Errors
/// The reason why it did not run, and the findings of the run; [`inspect`] returns them instead.
pub fn run<A: KernelParams>(
    device: &Device,
    kernel: &TiledKernel<A>,
    own: A::With<Arg>,
    settings: &Settings,
) -> Result<TiledRun, TiledError> {
    Ready::new(device, kernel)?.run(device, kernel, own, settings)
}

/// The same, but findings are returned in the result.
///
/// # Errors
/// The reason why it did not run.
pub fn inspect<A: KernelParams>(
    device: &Device,
    kernel: &TiledKernel<A>,
    own: A::With<Arg>,
    settings: &Settings,
) -> Result<TiledRun, TiledError> {
    Ready::new(device, kernel)?.inspect(device, kernel, own, settings)
}

/// What a kernel's launches on a device have in common.
pub(crate) struct Ready {
    pub(crate) plan: Plan,
    pub(crate) program: Program,
}

impl Ready {
    pub(crate) fn new<A: KernelParams>(
        device: &Device,
        kernel: &TiledKernel<A>,
    ) -> Result<Ready, TiledError> {
        let program = program_of(kernel);
        let plan = kernel.plan(resident_of(device, kernel, &program))?;
        Ok(Ready { plan, program })
    }

    /// One launch; findings are an error.
    pub(crate) fn run<A: KernelParams>(
        &self,
        device: &Device,
        kernel: &TiledKernel<A>,
        own: A::With<Arg>,
        settings: &Settings,
    ) -> Result<TiledRun, TiledError> {
        let run = self.inspect(device, kernel, own, settings)?;
        let execution = run.execution.clean(&run.text)?;
        Ok(TiledRun { execution, ..run })
    }

    /// One launch, with its findings.
    pub(crate) fn inspect<A: KernelParams>(
        &self,
        device: &Device,
        kernel: &TiledKernel<A>,
        own: A::With<Arg>,
        settings: &Settings,
    ) -> Result<TiledRun, TiledError> {
        let entry = &kernel.built.launch.entry;
        let arguments = kernel.arguments(&self.plan, own);
        let execution = device.inspect(
            &self.program,
            entry,
            &self.plan.launch,
            &arguments,
            settings,
        )?;
        self.read(device, kernel, execution)
    }

    /// The outcome of a launch, with the scheduler's report.
    pub(crate) fn read<A: KernelParams>(
        &self,
        device: &Device,
        kernel: &TiledKernel<A>,
        execution: Execution,
    ) -> Result<TiledRun, TiledError> {
        let report = match kernel.report(&self.plan, &execution.outcome, &place(device)) {
            Ok(report) => report,
            // After a fault there are no records, only the finding.
            Err(_) if !execution.findings.is_empty() => LaunchReport::default(),
            Err(error) => return Err(error.into()),
        };
        Ok(TiledRun {
            execution,
            report,
            text: self.program.source().clone(),
            fields: A::layout().iter().map(|param| param.name).collect(),
            tiles: kernel.tiles(),
        })
    }
}
