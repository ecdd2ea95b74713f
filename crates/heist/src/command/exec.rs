//! `heist exec`: any PTX, once, on a device of your choice.

use super::{BadQuestion, Output, Verdict, read_source};
use clap::Args;
use heist::device::DeviceName;
use heist_gpu::{Gpu, GpuError, PtxText, RunOptions};
use heist_launch::text::parse_named_buffer;
use heist_launch::{Arguments, Buffer, BufferRef, Dim3, Launch, Outcome, parse_arg};
use heist_ptx::{Diagnostic, Module, Source};
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
  heist exec k.ptx --device gpu --entry main --grid 2,2 --block 16,16 --arg out:u32:1024")]
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
    #[arg(long, default_value = "gpu")]
    device: DeviceName,
    /// Write an output to a file, raw: `--save 1=out.bin`, or by a buffer's name.
    #[arg(long, value_name = "BUFFER=FILE")]
    save: Vec<String>,
    /// Print outputs whole, however long.
    #[arg(long)]
    all: bool,
    /// How many seconds the kernel may take on a real GPU.
    #[arg(long, default_value_t = 60.0)]
    timeout: f64,
}

/// What a device gave for a launch.
struct Ran {
    outcome: Outcome,
    diagnostics: Vec<Diagnostic>,
    /// What is worth a line besides.
    remarks: Vec<String>,
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
        let ran = match self.device {
            DeviceName::Gpu(ordinal) => {
                self.on_gpu(ordinal, &source, &entry, &launch, &arguments)?
            }
            DeviceName::Sim(_) => {
                return Err(BadQuestion::Sentence(format!(
                    "{} does not run here yet: use --device gpu",
                    self.device
                )));
            }
        };
        for (name, path) in saves {
            let Some(buffer) = ran.outcome.output(name.clone()) else {
                return Err(BadQuestion::Sentence(format!(
                    "--save {name}: there is no output of that name"
                )));
            };
            std::fs::write(&path, buffer.bytes()).map_err(|error| {
                BadQuestion::Sentence(format!("can't write {}: {error}", path.display()))
            })?;
        }
        self.tell(&ran, &source, out);
        Ok(if ran.diagnostics.is_empty() {
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

    fn on_gpu(
        &self,
        ordinal: u32,
        source: &Source,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
    ) -> Result<Ran, BadQuestion> {
        let limit = Duration::try_from_secs_f64(self.timeout).map_err(|_| {
            BadQuestion::Sentence(format!("--timeout {}: not a time", self.timeout))
        })?;
        let options = RunOptions {
            limit,
            ..RunOptions::default()
        };
        let text = PtxText::new(source.name(), source.text());
        let result =
            Gpu::open(ordinal).and_then(|gpu| gpu.run(&text, entry, launch, arguments, &options));
        match result {
            Ok(ran) => Ok(Ran {
                outcome: ran.outcome,
                diagnostics: Vec::new(),
                remarks: vec![format!(
                    "{}: {} measured; {} registers a thread, {} bytes of shared memory, {} of local memory",
                    entry,
                    ran.elapsed,
                    ran.kernel.registers,
                    ran.kernel.static_shared + launch.dynamic_shared,
                    ran.kernel.local
                )],
            }),
            // What the kernel did is an answer; what kept it from running is not.
            Err(error @ (GpuError::Fault(_) | GpuError::Timeout { .. })) => Ok(Ran {
                outcome: Outcome::default(),
                diagnostics: vec![error.diagnostic()],
                remarks: Vec::new(),
            }),
            Err(error) => Err(BadQuestion::Sentence(error.to_string())),
        }
    }

    fn tell(&self, ran: &Ran, source: &Source, out: Output) {
        if out.json {
            let outputs: Vec<_> = ran
                .outcome
                .outputs
                .iter()
                .map(|(name, buffer)| {
                    let values: Vec<_> = buffer.iter().map(|b| buffer.ty().spell(b)).collect();
                    json!({ "buffer": name.to_string(), "type": buffer.ty(), "values": values })
                })
                .collect();
            let diagnostics: Vec<_> = ran
                .diagnostics
                .iter()
                .map(|diagnostic| heist::render::to_json(diagnostic, source))
                .collect();
            out.json(&json!({
                "device": self.device.to_string(),
                "outputs": outputs,
                "diagnostics": diagnostics,
                "remarks": ran.remarks,
            }));
            return;
        }
        out.diagnostics(&ran.diagnostics, source);
        for (name, buffer) in &ran.outcome.outputs {
            println!("{name}: {}", spell(buffer, self.all));
        }
        for remark in &ran.remarks {
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
