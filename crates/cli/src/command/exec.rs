//! `heist exec`: any PTX, once, on a device of your choice.

use super::entry;
use super::launch::{LaunchFlags, Launched, RunFlags, arguments_help};
use crate::answer::{BadQuestion, Output, Verdict, not_run, tell_all};
use crate::file::{self, read_source};
use crate::progress::Waiting;
use crate::render;
use clap::Args;
use heist_launch::{Buffer, BufferRef};
use heist_ptx::Source;
use heist_run::{Program, Settings};
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  heist exec saxpy.ptx --grid 4 --block 256 --arg 'in:f32:rand(1,1000)' \\
      --arg 'inout:f32:[1*1000]' --arg f32:2 --arg u32:1000
  heist exec k.ptx --device gpu --entry main --grid 2,2 --block 16,16 --arg out:u32:1024
  heist exec k.ptx --device sim:b200 --grid 64 --block 128 --explore 100 --arg inout:u32:[0*64]

Exit status: 0 it ran clean, 1 something was found, 2 it could not be run.";

/// Run a kernel of a PTX file and print its outputs.
#[derive(Args)]
#[command(after_help = format!("{}\n\n{EXAMPLES}", arguments_help()))]
pub(crate) struct Exec {
    /// The PTX file; `-` is standard input.
    file: PathBuf,
    #[command(flatten)]
    launch: LaunchFlags,
    #[command(flatten)]
    how: RunFlags,
    /// Write an output to a file, raw: `--save 1=out.bin`, or by a buffer's name.
    #[arg(long, value_name = "BUFFER=FILE")]
    save: Vec<String>,
    /// Print outputs whole, however long.
    #[arg(long)]
    all: bool,
}

impl Exec {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let source = read_source(&self.file)?;
        let program = Program::new(source).map_err(not_run)?;
        let saves = self.saves()?;
        for (_, path) in &saves {
            file::writable(path)?;
        }
        let entry = entry::find(&program, self.how.entry.as_deref())?;
        let limit = self.how.settings(Settings::default()).limit;
        let waiting = Waiting::new(
            out,
            format!("running {entry}"),
            limit,
            self.how.meter.clone(),
        );
        let ran = self.launch.run(&program, entry, &self.how)?;
        drop(waiting);
        for (name, path) in saves {
            let Some(buffer) = ran.execution.outcome.output(name.clone()) else {
                return Err(BadQuestion::Sentence(format!(
                    "--save {name}: there is no output of that name"
                )));
            };
            file::write(&path, buffer.bytes())?;
        }
        self.tell(&ran, program.source(), out);
        Ok(if ran.execution.findings.is_empty() {
            Verdict::Clean
        } else {
            Verdict::Found
        })
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

    fn tell(&self, ran: &Launched, source: &Source, out: Output) {
        if out.json {
            let outputs: Vec<_> = ran
                .execution
                .outcome
                .outputs
                .iter()
                .map(|(name, buffer)| {
                    let written = |bits| (bits != buffer.ty().poison()).then_some(bits);
                    let spelled = buffer.iter().map(written);
                    let values: Vec<_> = spelled
                        .map(|bits| bits.map(|bits| buffer.ty().spell(bits)))
                        .collect();
                    json!({ "buffer": name.to_string(), "type": buffer.ty(), "values": values })
                })
                .collect();
            let diagnostics: Vec<_> = ran
                .execution
                .findings
                .iter()
                .map(|diagnostic| render::to_json(diagnostic, source))
                .collect();
            out.json(&json!({
                "device": ran.device.to_string(),
                "outputs": outputs,
                "diagnostics": diagnostics,
                "printed": ran.execution.printed,
                "elapsed_ns": ran.execution.elapsed.map(heist_launch::Time::ns),
                "clock": ran.clock(),
                "registers": ran.execution.resources.as_ref().map(|kernel| kernel.registers),
                "local_bytes": ran.execution.resources.as_ref().map(|kernel| kernel.local),
                "seed": ran.execution.seed,
                "remarks": ran.remarks(),
            }));
            return;
        }
        tell_all(&ran.execution.findings, source);
        for (name, buffer) in &ran.execution.outcome.outputs {
            println!("{name}: {}", spell(buffer, self.all));
        }
        print!("{}", ran.execution.printed);
        for remark in ran.remarks() {
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
