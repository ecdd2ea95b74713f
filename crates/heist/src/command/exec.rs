//! `heist exec`: any PTX, once, on a device of your choice.

use super::{BadQuestion, Output, Verdict, read_source};
use clap::Args;
use heist::device::{Device, DeviceName, NotRun, Report, Settings};
use heist_launch::text::parse_named_buffer;
use heist_launch::{Arguments, Buffer, BufferRef, Clock, Dim3, Launch, parse_arg};
use heist_ptx::{Module, Severity, Source};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Run a kernel of a PTX file and print its outputs.
#[derive(Args)]
#[command(after_help = "\
An argument is one of
  u32:7  f32:1.5  f64:0x3ff0000000000000      a number
  in:f32:[1,2,0..8,0*64]                      a buffer: lists take ranges and repeats
  in:f32:rand(SEED,COUNT)  in:u8:zeros(64)    the same, filled by rule
  in:f32:FILE                                 raw little-endian, or text in .txt and .csv
  out:f32:64                                  an output of 64 elements, printed afterwards
  inout:u32:[0,0]                             both
  ptr:NAME  ptr:NAME+16  ptr:0                a pointer into a named buffer, or that of argument 0
  bytes:[1,0,255]                             a struct by value
  tensormap(buffer=0, type=f16, dims=[64,64], box=[64,8], swizzle=128)

Examples:
  heist exec saxpy.ptx --grid 4 --block 256 --arg u32:1000 --arg f32:2 \\
      --arg 'in:f32:rand(1,1000)' --arg 'inout:f32:[1*1000]'
  heist exec k.ptx --device gpu --entry main --grid 2,2 --block 16,16 --arg out:u32:1024
  heist exec k.ptx --device sim:b200 --grid 64 --block 128 --explore 100 --arg inout:u32:[0*64]

Exit status: 0 it ran clean, 1 something was found, 2 it could not be run.")]
pub(crate) struct Exec {
    /// The PTX file; `-` is standard input.
    file: PathBuf,
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
    /// Where to run it.
    #[arg(long, default_value = "sim:h200")]
    device: DeviceName,
    /// The simulator's schedule: the same seed gives the same run.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Try this many schedules, from the seed on, until one finds something.
    #[arg(long, value_name = "N", default_value_t = 1)]
    explore: u64,
    /// Have the simulator refuse, delay and reorder what hardware may.
    #[arg(long)]
    chaos: bool,
    /// All blocks at once on the device (a cooperative launch).
    #[arg(long)]
    cooperative: bool,
    /// Write an output to a file, raw: `--save 1=out.bin`, or by a buffer's name.
    #[arg(long, value_name = "BUFFER=FILE")]
    save: Vec<String>,
    /// Print outputs whole, however long.
    #[arg(long)]
    all: bool,
    /// How many seconds it may take.
    #[arg(long, default_value_t = 60.0)]
    timeout: f64,
}

/// A report, and the schedule it came from.
struct Ran {
    report: Report,
    seed: u64,
    tried: u64,
}

impl Ran {
    /// What is worth a line besides outputs and findings.
    fn remarks(&self, exec: &Exec) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.tried > 1 {
            remarks.push(if self.report.diagnostics.is_empty() {
                format!("{} schedules ran clean", self.tried)
            } else {
                format!(
                    "found in schedule {} of {}; `--seed {}` runs it again",
                    self.tried, exec.explore, self.seed
                )
            });
        }
        if let Some(time) = self.report.elapsed {
            let clock = match exec.device {
                DeviceName::Sim(_) => Clock::Modelled,
                DeviceName::Gpu(_) => Clock::Measured,
            };
            remarks.push(format!("{time} ({clock}) on {}", exec.device));
        }
        if let Some(kernel) = &self.report.kernel {
            remarks.push(format!(
                "{} registers a thread, {} bytes of shared memory, {} of local memory",
                kernel.registers,
                kernel.static_shared + exec.smem,
                kernel.local
            ));
        }
        remarks
    }
}

impl Exec {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let source = read_source(&self.file)?;
        let module = match heist_ptx::parse(&source) {
            Ok(module) => module,
            Err(errors) => return Err(BadQuestion::Diagnostics(errors, source)),
        };
        let entry = self.entry(&module)?;
        let arguments = self.arguments()?;
        let saves = self.saves()?;
        let launch = Launch {
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            dynamic_shared: self.smem,
        };
        let device =
            Device::open(self.device).map_err(|error| BadQuestion::Sentence(error.to_string()))?;
        let ran = self.explored(&device, &source, &module, &entry, &launch, &arguments)?;
        for (name, path) in saves {
            let Some(buffer) = ran.report.outcome.output(name.clone()) else {
                return Err(BadQuestion::Sentence(format!(
                    "--save {name}: there is no output of that name"
                )));
            };
            std::fs::write(&path, buffer.bytes()).map_err(|error| {
                BadQuestion::Sentence(format!("can't write {}: {error}", path.display()))
            })?;
        }
        self.tell(&ran, &source, out);
        Ok(if ran.report.diagnostics.is_empty() {
            Verdict::Clean
        } else {
            Verdict::Found
        })
    }

    fn entry(&self, module: &Module) -> Result<String, BadQuestion> {
        let names: Vec<String> = module.entries().map(|f| f.name.to_string()).collect();
        let wrong = |what: String| {
            let list = match names.as_slice() {
                [] => "it has no kernel".to_owned(),
                names => format!("it has {}", names.join(", ")),
            };
            BadQuestion::Sentence(format!("{}: {what}: {list}", self.file.display()))
        };
        match &self.entry {
            Some(name) if names.contains(name) => Ok(name.clone()),
            Some(name) => Err(wrong(format!("there is no kernel `{name}`"))),
            None => match names.as_slice() {
                [only] => Ok(only.clone()),
                _ => Err(wrong("which kernel? say --entry".to_owned())),
            },
        }
    }

    fn arguments(&self) -> Result<Arguments, BadQuestion> {
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

    fn saves(&self) -> Result<Vec<(BufferRef, PathBuf)>, BadQuestion> {
        self.save
            .iter()
            .map(|text| {
                let (name, path) = text.split_once('=').ok_or_else(|| {
                    BadQuestion::Sentence(format!(
                        "--save {text}: write BUFFER=FILE, such as 1=out.bin"
                    ))
                })?;
                let name = name
                    .parse()
                    .map_or_else(|_| BufferRef::Named(name.to_owned()), BufferRef::Argument);
                Ok((name, PathBuf::from(path)))
            })
            .collect()
    }

    /// The first run in which something was found, or the last.
    fn explored(
        &self,
        device: &Device,
        source: &Source,
        module: &Module,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
    ) -> Result<Ran, BadQuestion> {
        let limit = Duration::try_from_secs_f64(self.timeout).map_err(|_| {
            BadQuestion::Sentence(format!("--timeout {}: not a time", self.timeout))
        })?;
        let schedules = match self.device {
            DeviceName::Sim(_) => self.explore.max(1),
            DeviceName::Gpu(_) => 1,
        };
        let mut seed = self.seed;
        loop {
            let settings = Settings {
                seed,
                chaos: self.chaos,
                cooperative: self.cooperative,
                limit,
            };
            let report = match device.run(source, module, entry, launch, arguments, &settings) {
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
                    seed,
                    tried,
                });
            }
            seed = seed.wrapping_add(1);
        }
    }

    fn tell(&self, ran: &Ran, source: &Source, out: Output) {
        if out.json {
            let outputs: Vec<_> = ran
                .report
                .outcome
                .outputs
                .iter()
                .map(|(name, buffer)| {
                    let values: Vec<_> = buffer.iter().map(|b| buffer.ty().spell(b)).collect();
                    json!({ "buffer": name.to_string(), "type": buffer.ty(), "values": values })
                })
                .collect();
            let diagnostics: Vec<_> = ran
                .report
                .diagnostics
                .iter()
                .map(|diagnostic| heist::render::to_json(diagnostic, source))
                .collect();
            out.json(&json!({
                "device": self.device.to_string(),
                "outputs": outputs,
                "diagnostics": diagnostics,
                "printed": ran.report.printed,
                "seed": ran.seed,
                "remarks": ran.remarks(self),
            }));
            return;
        }
        out.diagnostics(&ran.report.diagnostics, source);
        for (name, buffer) in &ran.report.outcome.outputs {
            println!("{name}: {}", spell(buffer, self.all));
        }
        print!("{}", ran.report.printed);
        for remark in ran.remarks(self) {
            eprintln!("{remark}");
        }
    }
}

/// A buffer as the textual form of arguments spells it, cut where it gets long.
fn spell(buffer: &Buffer, all: bool) -> String {
    const SHOWN: usize = 64;
    let ty = buffer.ty();
    let shown = if all { buffer.len() } else { SHOWN };
    let values: Vec<_> = buffer
        .iter()
        .take(shown)
        .map(|bits| {
            if bits == ty.poison() {
                "(unwritten)".to_owned()
            } else {
                ty.spell(bits)
            }
        })
        .collect();
    let rest = match buffer.len().saturating_sub(shown) {
        0 => String::new(),
        rest => format!(", … and {rest} more"),
    };
    format!("{ty}:[{}{rest}]", values.join(", "))
}
