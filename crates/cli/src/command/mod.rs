//! The subcommands, one file each.
//!
//! Every command ends in a [`Verdict`], which is its exit status: 0 clean, 1
//! something was found, 2 the question was wrong.

mod assembler;
mod bench;
mod check;
mod demo;
mod doctor;
mod emit;
mod entry;
mod exec;
mod explain;
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

use crate::answer::{Output, Verdict};
use crate::say;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
