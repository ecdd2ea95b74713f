//! A launch as flags, for every command that makes one, and its run.

use crate::answer::{BadQuestion, not_run, question};
use clap::Args;
use heist_launch::text::parse_named_buffer;
use heist_launch::{Arguments, Clock, Dim3, Launch, parse_arg};
use heist_run::{Device, DeviceName, Execution, Program, Settings};
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

/// What a launch gave, and where.
pub(crate) struct Launched {
    pub(crate) execution: Execution,
    pub(crate) device: DeviceName,
    launch: Launch,
    schedules: u64,
}

impl Launched {
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
        let Execution {
            schedules, seed, ..
        } = self.execution;
        if schedules > 1 {
            remarks.push(if self.execution.findings.is_empty() {
                format!("{schedules} schedules ran clean")
            } else {
                format!(
                    "found in schedule {schedules} of {}; `--seed {seed}` runs it again",
                    self.schedules
                )
            });
        }
        if let Some(time) = self.execution.elapsed {
            remarks.push(format!("{time} ({}) on {}", self.clock(), self.device));
        }
        if let Some(kernel) = &self.execution.resources {
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

/// Opens a device.
pub(super) fn open(name: DeviceName) -> Result<Device, BadQuestion> {
    Device::open(name).map_err(question)
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
    pub(crate) fn entry<'p>(&self, program: &'p Program) -> Result<&'p str, BadQuestion> {
        program.entry(self.entry.as_deref()).map_err(question)
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
    pub(crate) fn run(&self, program: &Program) -> Result<Launched, BadQuestion> {
        let entry = self.entry(program)?;
        let arguments = self.arguments()?;
        let launch = self.launch();
        let device = self
            .device
            .unwrap_or_else(|| DeviceName::for_target(&program.module().target.arch));
        let settings = Settings {
            seed: self.seed,
            schedules: self.explore,
            chaos: self.chaos,
            cooperative: self.cooperative,
            limit: self.timeout,
            ..Settings::default()
        };
        let execution = open(device)?
            .inspect(program, entry, &launch, &arguments, &settings)
            .map_err(not_run)?;
        Ok(Launched {
            execution,
            device,
            launch,
            schedules: self.explore,
        })
    }
}
