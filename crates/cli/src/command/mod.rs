//! The subcommands, one file each.
//!
//! Every command ends in a [`Verdict`], which is its exit status: 0 clean, 1
//! something was found, 2 the question was wrong.

#[macro_use]
mod say;

mod assembler;
mod bench;
mod check;
mod demo;
mod doctor;
mod emit;
mod exec;
mod explain;
mod file;
mod fmt;
mod kernel;
mod kernels;
mod launch;
mod launch_file;
mod policies;
mod run;
mod selftest;
mod share;
#[cfg(test)]
mod shown;
mod tune;

use crate::render;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use heist_ptx::{Diagnostic, Source};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// GPU kernels whose tiles are scheduled while the kernel runs.
#[derive(Parser)]
#[command(
    name = "heist",
    version,
    max_term_width = 100,
    after_help = "\
Start with:
  heist demo                    the tour
  heist check kernel.ptx        what is wrong with a kernel, or what a log means
  heist doctor                  what this machine has

Exit status, of every command: 0 clean, 1 something was found, 2 the question was wrong.
HEIST_PTXAS names a ptxas, NO_COLOR turns colours off."
)]
pub struct Heist {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON value for machines instead of text for people.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Bench),
    Check(check::Check),
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    Emit(emit::Emit),
    Exec(exec::Exec),
    Explain(explain::Explain),
    Fmt(fmt::Fmt),
    Kernels(kernels::Kernels),
    Policies(policies::Policies),
    Run(run::Run),
    Selftest(selftest::SelftestCommand),
    Share(share::Share),
    Tune(tune::Tune),
}

/// A negative number is a wrong number, not an unknown flag.
fn with_numbers(command: clap::Command) -> clap::Command {
    let values = |arg: clap::Arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(values).mut_subcommands(with_numbers)
}

impl Heist {
    /// What the program was called with; says what is wrong with it, and ends.
    pub fn from_words() -> Heist {
        let words = with_numbers(Heist::command()).get_matches();
        Heist::from_arg_matches(&words).unwrap_or_else(|error| error.exit())
    }

    /// From other words, the program's name first. The error tells of itself, and has
    /// the exit status; help and version are errors with a status of zero.
    pub fn parse_words<W: Into<std::ffi::OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Heist, clap::Error> {
        let words = with_numbers(Heist::command()).try_get_matches_from(words)?;
        Heist::from_arg_matches(&words)
    }

    /// Does it.
    pub fn run(self) -> ExitCode {
        ExitCode::from(self.status())
    }

    /// Does it; the exit status.
    pub fn status(self) -> u8 {
        let out = Output { json: self.json };
        let verdict = match self.command {
            Command::Bench(command) => command.run(out),
            Command::Check(command) => command.run(out),
            Command::Demo(command) => command.run(out),
            Command::Doctor(command) => command.run(out),
            Command::Emit(command) => command.run(out),
            Command::Exec(command) => command.run(out),
            Command::Explain(command) => command.run(out),
            Command::Fmt(command) => command.run(out),
            Command::Kernels(command) => command.run(out),
            Command::Policies(command) => command.run(out),
            Command::Run(command) => command.run(out),
            Command::Selftest(command) => command.run(out),
            Command::Share(command) => command.run(out),
            Command::Tune(command) => command.run(out),
        };
        let status = match verdict {
            Ok(Verdict::Clean) => 0,
            Ok(Verdict::Found) => 1,
            Ok(Verdict::Partly) => 2,
            Err(question) => {
                question.tell(out);
                2
            }
        };
        say::flush();
        status
    }
}

/// What a command that could answer found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing wrong: exit status 0.
    Clean,
    /// Something was found: exit status 1.
    Found,
    /// Of several files one could not be read, which was told: exit status 2.
    Partly,
}

/// Why a command could not answer: exit status 2.
pub(crate) enum BadQuestion {
    /// One sentence, with what to do.
    Sentence(String),
    /// A file that is not what it should be.
    Diagnostics(Vec<Diagnostic>, Source),
}

impl BadQuestion {
    fn tell(&self, out: Output) {
        match self {
            question if out.json => out.json(&question.to_json()),
            BadQuestion::Sentence(sentence) => eprintln!("heist: {sentence}"),
            BadQuestion::Diagnostics(diagnostics, source) => tell_all(diagnostics, source),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            BadQuestion::Sentence(sentence) => serde_json::json!({ "error": sentence }),
            BadQuestion::Diagnostics(diagnostics, source) => {
                let list = diagnostics.iter().map(|one| render::to_json(one, source));
                serde_json::json!({ "diagnostics": list.collect::<Vec<_>>() })
            }
        }
    }
}

/// How to answer.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    fn json(self, value: &impl serde::Serialize) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("heist: {error}"),
        }
    }
}

/// Findings, for people.
fn tell_all(diagnostics: &[Diagnostic], source: &Source) {
    for diagnostic in diagnostics {
        eprintln!("{}\n", render::to_text(diagnostic, source));
    }
}

/// Reads a text file, or standard input for `-`.
pub(crate) fn read_source(path: &Path) -> Result<Source, BadQuestion> {
    let mut bytes = Vec::new();
    let (name, read) = if path.as_os_str() == "-" {
        ("<stdin>".into(), std::io::stdin().read_to_end(&mut bytes))
    } else {
        let read = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        (path.display().to_string(), read)
    };
    if let Err(error) = read {
        return Err(BadQuestion::Sentence(format!("can't read {name}: {error}")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        Err(error) => Err(BadQuestion::Sentence(format!(
            "{name} is not text: byte {} is not UTF-8. Is it a cubin or an object file? \
             `cuobjdump -ptx` extracts PTX from one",
            error.utf8_error().valid_up_to()
        ))),
    }
}
