//! A launch as flags, for every command that makes one, and its run.

use crate::answer::{BadQuestion, not_run, question};
use clap::Args;
use heist_launch::text::{parse_named_buffer, read_file};
use heist_launch::{
    Arguments, Clock, Dim3, Fill, Interleave, L2Promotion, Launch, Swizzle, TensorElement, Wide,
    parse_arg,
};
use heist_run::{Device, DeviceName, Execution, Meter, Program, Schedules, Settings};
use std::time::Duration;

/// How arguments are written, for the help of commands that take them.
pub(crate) fn arguments_help() -> String {
    fn all<T: Copy + ToString>(values: &[T]) -> String {
        let words: Vec<String> = values.iter().map(ToString::to_string).collect();
        words.join(" ")
    }
    format!(
        "\
An argument is one of
  u32:7  f32:1.5  f64:0x3ff0000000000000      a number
  in:f32:[1,2,0..8,0*64]                      a buffer: lists take ranges and repeats
  in:f32:rand(SEED,COUNT)  in:u8:zeros(64)    the same, filled by rule
  in:f32:FILE                                 raw little-endian, or text in .txt and .csv
  out:f32:64                                  an output of 64 elements, printed afterwards
  inout:u32:[0,0]                             both
  in:u32:[7,?*63]                             a buffer with elements that nobody has written
  ptr:NAME  ptr:NAME+16  ptr:0                a pointer into a named buffer, or that of argument 0
  bytes:[1,0,255]                             a struct by value
  struct(ptr:NAME, ptr:OTHER+16, u32:7)       the same by its parts, laid out as C does
  fn:NAME                                     the address of a function of the module
  tensormap(buffer=0, type=f16, dims=[64,64], box=[64,8], swizzle=128)

A tensor map is tiled, or, with corners, one of columns of pixels (im2col); its fields are
  buffer      whose memory: an argument's number, or a --buffer's name
  type        {}
  dims        elements along each axis, the innermost first: 1 to 5 axes
  box         elements of a copy along each axis; of columns their channels and pixels
  strides     bytes from one to the next along every axis but the first [dense]
  estrides    elements from one that is copied to the next along each axis [1]
  offset      bytes from the buffer's start [0]
  swizzle     {} [none]
  interleave  {} [none]
  l2          {} [none]
  fill        {} [zero]
  lower       of columns: where their box begins along each axis of space
  upper       of columns: where it ends, from the last pixel on
  wide        of columns in one row: {}",
        all(TensorElement::ALL),
        all(Swizzle::ALL),
        all(Interleave::ALL),
        all(L2Promotion::ALL),
        all(Fill::ALL),
        all(Wide::ALL),
    )
}

/// A launch.
#[derive(Args)]
pub(crate) struct LaunchFlags {
    /// Blocks: `4`, `4,2` or `4,2,1`.
    #[arg(long, value_name = "X,Y,Z")]
    grid: Dim3,
    /// Threads of a block [default: what the kernel says, `.reqntid` or `.maxntid`].
    #[arg(long, value_name = "X,Y,Z")]
    block: Option<Dim3>,
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
    /// All blocks at once on the device (a cooperative launch).
    #[arg(long)]
    cooperative: bool,
}

/// Which kernel, where and how to run it.
#[derive(Args, Clone)]
pub(crate) struct RunFlags {
    /// The kernel, as the PTX or C++ names it; needed when the file has several.
    #[arg(long)]
    pub(super) entry: Option<String>,
    /// Where to run it [default: a simulated GPU that the file's target fits].
    #[arg(long)]
    pub(super) device: Option<DeviceName>,
    /// The simulator's schedule: the same seed gives the same run [default: 0].
    #[arg(long)]
    pub(super) seed: Option<u64>,
    /// Try this many schedules, from the seed on, until one finds something [default: a few
    /// where that is quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) explore: Option<u64>,
    /// Have the simulator refuse, delay and reorder what hardware may.
    #[arg(long)]
    pub(super) chaos: bool,
    /// Report stores of the same value by two threads as races, too.
    #[arg(long)]
    pub(super) same_value: bool,
    /// How long it may take [default: 60].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
    /// Of all runs by these flags.
    #[arg(skip)]
    pub(super) meter: Meter,
}

impl RunFlags {
    /// The settings of a run; what is not said is as in `other`.
    pub(super) fn settings(&self, other: Settings) -> Settings {
        Settings {
            seed: self.seed.unwrap_or(other.seed),
            schedules: self.explore.map_or(other.schedules, Schedules::Exactly),
            chaos: self.chaos || other.chaos,
            same_value: self.same_value || other.same_value,
            limit: self.timeout.unwrap_or(other.limit),
            meter: self.meter.clone(),
            ..other
        }
    }

    /// The device: the one that is named, or one that the program's target fits.
    pub(super) fn device(&self, program: &Program) -> DeviceName {
        self.device
            .unwrap_or_else(|| DeviceName::for_target(&program.module().target.arch))
    }
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
    pub(crate) launch: Launch,
    /// How many schedules were asked for.
    asked: Option<u64>,
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
        if schedules > 1 && self.execution.has_errors() {
            remarks.push(format!(
                "found in schedule {schedules}; `--seed {seed}` runs it again"
            ));
        } else if schedules > 1 && self.asked.is_some() {
            remarks.push(format!("{schedules} schedules ran clean"));
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
    /// The launch of a kernel.
    pub(crate) fn launch(&self, program: &Program, entry: &str) -> Result<Launch, BadQuestion> {
        let Some(block) = self.block.or_else(|| program.block(entry)) else {
            return Err(BadQuestion::Sentence(format!(
                "`{entry}` does not say how many threads a block has (`.reqntid`): say --block"
            )));
        };
        Ok(Launch {
            grid: self.grid,
            block,
            cluster: self.cluster,
            dynamic_shared: self.smem,
        })
    }

    /// The arguments, files read.
    pub(crate) fn arguments(&self) -> Result<Arguments, BadQuestion> {
        let mut read = read_file;
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
    pub(crate) fn run(
        &self,
        program: &Program,
        entry: &str,
        how: &RunFlags,
    ) -> Result<Launched, BadQuestion> {
        let arguments = self.arguments()?;
        let launch = self.launch(program, entry)?;
        let device = how.device(program);
        let settings = how.settings(Settings {
            schedules: Schedules::WhileCheap,
            cooperative: self.cooperative,
            ..Settings::default()
        });
        let execution = open(device)?
            .inspect(program, entry, &launch, &arguments, &settings)
            .map_err(not_run)?;
        Ok(Launched {
            execution,
            device,
            launch,
            asked: how.explore,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_the_whole_grammar_of_a_tensor_map() {
        let help = arguments_help();
        let fields = help.split("its fields are").nth(1).expect("the fields");
        // What the parser takes is in its answer to a field that it does not.
        let refusal = parse_arg("tensormap(no=1)", &mut |_| Err(String::new()))
            .expect_err("no such field")
            .to_string();
        let known = refusal.split("its fields are ").nth(1).expect("a list");
        for field in known.split_whitespace() {
            let line = |line: &str| line.split_whitespace().next() == Some(field);
            assert!(fields.lines().any(line), "{field}");
        }
        assert!(
            fields.contains("tf32_ftz") && fields.contains("nan"),
            "{help}"
        );
    }
}
