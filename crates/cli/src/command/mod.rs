//! The subcommands, one file each.
//!
//! Every command ends in a [`Verdict`], which is its exit status: 0 clean, 1
//! something was found, 2 the question was wrong.

mod assembler;
mod bench;
mod check;
mod completions;
mod cuda;
mod demo;
mod determined;
mod doctor;
mod emit;
mod entry;
mod evidence;
mod exec;
mod explain;
mod fmt;
mod injected;
mod kernel;
mod kernels;
mod launch;
mod launch_file;
mod man;
mod new;
mod numbers;
mod policies;
mod qualify;
mod reading;
mod record;
mod replay;
mod run;
mod schedule;
mod selftest;
mod share;
#[cfg(test)]
mod shown;
mod tools;
mod tune;
mod tuned;

use crate::answer::{Output, Verdict, question};
use crate::{config, say};
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `--version` says; `-V` is the number alone.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit    ",
    env!("HEIST_BUILT_FROM"),
    "\nfeatures  gpu kernels",
    "\nneeds     rustc ",
    env!("CARGO_PKG_RUST_VERSION"),
    " or later to build"
);

/// GPU kernels whose tiles are scheduled while the kernel runs.
#[derive(Parser)]
#[command(
    name = "heist",
    version,
    long_version = LONG_VERSION,
    max_term_width = 100,
    after_help = "\
Start with:
  heist demo                    the tour
  heist check kernel.ptx        what is wrong with a kernel, or what a log means
  heist doctor                  what this machine has

Exit status, of every command: 0 clean, 1 something was found, 2 the question was wrong, 130
interrupted.
HEIST_PTXAS names a ptxas, NO_COLOR turns colours off. A file heist.toml, here or in a folder above,
says flags that are always given."
)]
pub struct Heist {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON value for machines instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    /// Colours: on a terminal that wants them, always, or never.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Colour::Auto)]
    color: Colour,
    /// The file of flags that are always given [default: heist.toml, here or in the nearest folder
    /// above that has one]; `none` for none.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Into pipes and files, too.
    Always,
    /// Never.
    Never,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Bench),
    Check(check::Check),
    Completions(completions::Completions),
    Cuda(cuda::Cuda),
    Demo(demo::Demo),
    Doctor(doctor::Doctor),
    Emit(emit::Emit),
    Evidence(evidence::Evidence),
    Exec(exec::Exec),
    Explain(explain::Explain),
    Fmt(fmt::Fmt),
    Kernels(kernels::Kernels),
    Man(man::Man),
    New(new::New),
    Policies(policies::Policies),
    Qualify(qualify::Qualify),
    Record(record::RecordCommand),
    Run(run::Run),
    Selftest(selftest::SelftestCommand),
    Share(share::Share),
    Tune(tune::Tune),
    #[command(hide = true)]
    TuneWorker(tune::TuneWorker),
    Tuned(tuned::Tuned),
}

impl Command {
    /// What it is called, also in the schema of its answer.
    fn name(&self) -> &'static str {
        match self {
            Command::Bench(_) => "bench",
            Command::Check(_) => "check",
            Command::Completions(_) => "completions",
            Command::Cuda(_) => "cuda",
            Command::Demo(_) => "demo",
            Command::Doctor(_) => "doctor",
            Command::Emit(_) => "emit",
            Command::Evidence(_) => "evidence",
            Command::Exec(_) => "exec",
            Command::Explain(_) => "explain",
            Command::Fmt(_) => "fmt",
            Command::Kernels(_) => "kernels",
            Command::Man(_) => "man",
            Command::New(_) => "new",
            Command::Policies(_) => "policies",
            Command::Qualify(_) => "qualify",
            Command::Record(_) => "record",
            Command::Run(_) => "run",
            Command::Selftest(_) => "selftest",
            Command::Share(_) => "share",
            Command::Tune(_) => "tune",
            Command::TuneWorker(_) => "tune-worker",
            Command::Tuned(_) => "tuned",
        }
    }
}

/// The whole command, as completions and manual pages are made from it.
fn whole() -> clap::Command {
    with_numbers(Heist::command())
}

/// The configuration file that holds here.
fn config_file(named: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    config::find(named, &std::env::current_dir().unwrap_or_default())
}

/// What is wrong, of an error of the words: its first lines, up to the usage. They also name what is
/// missing, or what there is.
fn cause(whole: &str) -> String {
    let lines = whole.lines().take_while(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.map(str::trim).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
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
        let json = std::env::args_os().any(|word| word == "--json");
        let parsed = Heist::parse_words(std::env::args_os());
        parsed.unwrap_or_else(|error| {
            if json && error.exit_code() != 0 {
                // Errors have one shape, also those of the words themselves.
                let out = Output {
                    json,
                    command: "error",
                };
                let whole = error.render().to_string();
                question(cause(&whole)).tell(out);
                std::process::exit(error.exit_code());
            }
            error.exit()
        })
    }

    /// From other words, the program's name first. The error tells of itself, and has
    /// the exit status; help and version are errors with a status of zero.
    pub fn parse_words<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Heist, clap::Error> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let file = config_file(config::named(&words).as_deref());
        let configured = match &file {
            Some(file) => config::configured(whole(), file),
            None => Ok(whole()),
        };
        let parsed = match configured {
            Ok(command) => numbers::matches(command, &words)?,
            Err(wrong) => {
                // Help is there also where the file is wrong.
                numbers::matches(whole(), &words)?;
                return Err(clap::Error::raw(ErrorKind::ValueValidation, wrong + "\n"));
            }
        };
        if let Some(("check", words)) = parsed.subcommand() {
            check::refuse_idle(words)?;
        }
        Heist::from_arg_matches(&parsed)
    }

    /// Does it.
    pub fn run(self) -> ExitCode {
        ExitCode::from(self.status())
    }

    /// Does it; the exit status.
    pub fn status(self) -> u8 {
        match self.color {
            Colour::Auto => {}
            Colour::Always => anstream::ColorChoice::Always.write_global(),
            Colour::Never => anstream::ColorChoice::Never.write_global(),
        }
        let out = Output {
            json: self.json,
            command: self.command.name(),
        };
        let verdict = match self.command {
            Command::Bench(command) => command.run(out),
            Command::Check(command) => command.run(out),
            Command::Completions(command) => command.run(whole(), out),
            Command::Cuda(command) => command.run(out),
            Command::Demo(command) => command.run(out),
            Command::Doctor(command) => {
                let named = self.config.as_deref().map(Path::as_os_str);
                command.run(config_file(named), out)
            }
            Command::Emit(command) => command.run(out),
            Command::Evidence(command) => command.run(out),
            Command::Exec(command) => command.run(out),
            Command::Explain(command) => command.run(out),
            Command::Fmt(command) => command.run(out),
            Command::Kernels(command) => command.run(out),
            Command::Man(command) => command.run(whole(), out),
            Command::New(command) => command.run(out),
            Command::Policies(command) => command.run(out),
            Command::Qualify(command) => command.run(out),
            Command::Record(command) => command.run(out),
            Command::Run(command) => command.run(out),
            Command::Selftest(command) => command.run(out),
            Command::Share(command) => command.run(out),
            Command::Tune(command) => command.run(out),
            Command::TuneWorker(command) => command.run(),
            Command::Tuned(command) => command.run(out),
        };
        let status = match verdict {
            Ok(Verdict::Clean) => 0,
            Ok(Verdict::Found) => 1,
            Ok(Verdict::Partly) => 2,
            Ok(Verdict::Status(status)) => status,
            Err(question) => {
                question.tell(out);
                2
            }
        };
        say::flush();
        status
    }
}
