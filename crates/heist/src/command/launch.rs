//! A launch as flags, for every command that makes one, and its run.

use super::BadQuestion;
use clap::Args;
use heist::device::{Device, DeviceName, NotRun, Report, Settings};
use heist_launch::text::parse_named_buffer;
use heist_launch::{Arguments, Clock, Dim3, Launch, parse_arg};
use heist_ptx::{Module, Severity, Source};
use std::time::Duration;

/// How arguments are written, for the help of commands that take them.
pub(crate) const ARGUMENTS_HELP: &str = "\
An argument is one of
  u32:7  f32:1.5  f64:0x3ff0000000000000      a number
  in:f32:[1,2,0..8,0*64]                      a buffer: lists take ranges and repeats
  in:f32:rand(SEED,COUNT)  in:u8:zeros(64)    the same, filled by rule
  in:f32:FILE                                 raw little-endian, or text in .txt and .csv
  out:f32:64                                  an output of 64 elements, printed afterwards
  inout:u32:[0,0]                             both
  ptr:NAME  ptr:NAME+16  ptr:0                a pointer into a named buffer, or that of argument 0
  bytes:[1,0,255]                             a struct by value
  tensormap(buffer=0, type=f16, dims=[64,64], box=[64,8], swizzle=128)";

/// A launch, and where and how to run it.
#[derive(Args)]
pub(crate) struct LaunchFlags {
    /// The kernel; needed when the file has several.
    #[arg(long)]
    entry: Option<String>,
    /// Blocks: `4`, `4,2` or `4,2,1`.
    #[arg(long, value_name = "X,Y,Z")]
    grid: Dim3,
    /// Threads of a block.
    #[arg(long, value_name = "X,Y,Z")]
    block: Dim3,
    /// Blocks of a cluster.
    #[arg(long, value_name = "X,Y,Z")]
    cluster: Option<Dim3>,
    /// Bytes of dynamic shared memory for each block.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    smem: u32,
    /// One for each parameter, in order.
    #[arg(long = "arg", value_name = "ARG")]
    args: Vec<String>,
    /// A buffer that no parameter is by itself: `NAME in:f32:[1,2]`.
    #[arg(long = "buffer", value_name = "NAME CONTENTS")]
    buffers: Vec<String>,
    /// Where to run it [default: a simulated GPU that the file's target fits].
    #[arg(long)]
    device: Option<DeviceName>,
    /// The simulator's schedule: the same seed gives the same run.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Try this many schedules, from the seed on, until one finds something.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    explore: u64,
    /// Have the simulator refuse, delay and reorder what hardware may.
    #[arg(long)]
    chaos: bool,
    /// All blocks at once on the device (a cooperative launch).
    #[arg(long)]
    cooperative: bool,
    /// How long it may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
}

/// A time limit, from seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().map(Duration::try_from_secs_f64);
    match time {
        Some(Ok(time)) if !time.is_zero() => Ok(time),
        _ => Err("it is a number of seconds, above zero".to_owned()),
    }
}

/// A report, and the schedule it came from.
pub(crate) struct Ran {
    pub(crate) report: Report,
    pub(crate) device: DeviceName,
    pub(crate) seed: u64,
    launch: Launch,
    tried: u64,
    schedules: u64,
}

impl Ran {
    /// What times are.
    pub(crate) fn clock(&self) -> Clock {
        match self.device {
            DeviceName::Sim(_) => Clock::Modelled,
            DeviceName::Gpu(_) => Clock::Measured,
        }
    }

    /// What is worth a line besides outputs and findings.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.tried > 1 {
            remarks.push(if self.report.diagnostics.is_empty() {
                format!("{} schedules ran clean", self.tried)
            } else {
                format!(
                    "found in schedule {} of {}; `--seed {}` runs it again",
                    self.tried, self.schedules, self.seed
                )
            });
        }
        if let Some(time) = self.report.elapsed {
            remarks.push(format!("{time} ({}) on {}", self.clock(), self.device));
        }
        if let Some(kernel) = &self.report.kernel {
            remarks.push(format!(
                "{} registers a thread, {} bytes of shared memory, {} of local memory",
                kernel.registers,
                kernel.static_shared + self.launch.dynamic_shared,
                kernel.local
            ));
        }
        remarks
    }
}

impl LaunchFlags {
    /// The launch.
    pub(crate) fn launch(&self) -> Launch {
        Launch {
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_shared: self.smem,
        }
    }

    /// The kernel that is meant.
    pub(crate) fn entry(&self, source: &Source, module: &Module) -> Result<String, BadQuestion> {
        only_entry(self.entry.as_deref(), source, module)
    }

    /// The arguments, files read.
    pub(crate) fn arguments(&self) -> Result<Arguments, BadQuestion> {
        let mut read = |path: &str| std::fs::read(path).map_err(|error| error.to_string());
        let mut arguments = Arguments::default();
        for (index, text) in self.args.iter().enumerate() {
            let arg = parse_arg(text, &mut read)
                .map_err(|error| BadQuestion::Sentence(format!("--arg number {index}: {error}")))?;
            arguments.params.push(arg);
        }
        for text in &self.buffers {
            let buffer = parse_named_buffer(text, &mut read)
                .map_err(|error| BadQuestion::Sentence(format!("--buffer: {error}")))?;
            arguments.buffers.push(buffer);
        }
        Ok(arguments)
    }

    /// Runs it, on the simulator in as many schedules as asked for: the first in
    /// which an error was found, or the last.
    pub(crate) fn run(&self, source: &Source, module: &Module) -> Result<Ran, BadQuestion> {
        let entry = self.entry(source, module)?;
        let arguments = self.arguments()?;
        let launch = self.launch();
        let name = self
            .device
            .unwrap_or_else(|| DeviceName::for_target(&module.target.arch));
        let device =
            Device::open(name).map_err(|error| BadQuestion::Sentence(error.to_string()))?;
        let schedules = match name {
            DeviceName::Sim(_) => self.explore,
            DeviceName::Gpu(_) => 1,
        };
        let mut seed = self.seed;
        loop {
            let settings = Settings {
                seed,
                chaos: self.chaos,
                cooperative: self.cooperative,
                limit: self.timeout,
            };
            let report = match device.run(source, module, &entry, &launch, &arguments, &settings) {
                Ok(report) => report,
                Err(NotRun::Gpu(error)) => {
                    return Err(BadQuestion::Sentence(error.to_string()));
                }
                Err(NotRun::Refused(diagnostics)) => {
                    return Err(BadQuestion::Diagnostics(diagnostics, source.clone()));
                }
            };
            let tried = seed.wrapping_sub(self.seed).saturating_add(1);
            let found = report
                .diagnostics
                .iter()
                .any(|diagnostic| diagnostic.severity == Severity::Error);
            if found || tried >= schedules {
                return Ok(Ran {
                    report,
                    device: name,
                    seed,
                    launch,
                    tried,
                    schedules,
                });
            }
            seed = seed.wrapping_add(1);
        }
    }
}

/// The kernel of that name, or a module's only one.
pub(crate) fn only_entry(
    asked: Option<&str>,
    source: &Source,
    module: &Module,
) -> Result<String, BadQuestion> {
    let names: Vec<String> = module.entries().map(|f| f.name.to_string()).collect();
    let wrong = |what: String| {
        let list = match names.as_slice() {
            [] => "it has no kernel (`.entry`)".to_owned(),
            names => format!("{what}; it has {}", names.join(", ")),
        };
        BadQuestion::Sentence(format!("{}: {list}", source.name()))
    };
    match asked {
        Some(name) if names.iter().any(|known| known == name) => Ok(name.to_owned()),
        Some(name) => Err(wrong(format!("there is no kernel `{name}`"))),
        None => match names.as_slice() {
            [only] => Ok(only.clone()),
            _ => Err(wrong("which kernel? say --entry".to_owned())),
        },
    }
}
