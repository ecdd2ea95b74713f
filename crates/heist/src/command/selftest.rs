//! `heist selftest`: the test files, on every device.

use super::{BadQuestion, Output, Verdict};
use clap::{Args, ValueEnum};
use heist_filetests::{Device, GpuDevice, Selftest};
use heist_ptx::{Diagnostic, Module, Source};
use std::path::PathBuf;

/// Run the test files on the GPU and report like a test runner.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist selftest                               tests/ptx, rules and corpus, from the repository's root
  heist selftest --device gpu tests/ptx/float  some of them, on the GPU
  heist selftest --filter add_rn               cases whose `file::case` contains this

Exit status: 0 nothing failed, 1 something did, 2 there was nothing to run or nothing to run it on.")]
pub(crate) struct SelftestCommand {
    /// Files, or folders to look for `.ptx` files in.
    paths: Vec<PathBuf>,
    /// Where to run them.
    #[arg(long, value_enum, default_value_t = Where::Gpu)]
    device: Where,
    /// Only cases whose `file::case` contains this.
    #[arg(long)]
    filter: Option<String>,
    /// How many cases to run at a time where devices allow it.
    #[arg(long)]
    threads: Option<usize>,
    /// Name every case as it ends.
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Where {
    /// Nowhere: only check the files.
    None,
    /// The real GPU.
    Gpu,
}

/// What a checkout of the repository has.
const DEFAULT_PATHS: [&str; 3] = ["tests/ptx", "rules", "corpus"];

impl SelftestCommand {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let paths = self.paths()?;
        let gpu = match self.device {
            Where::None => None,
            Where::Gpu => {
                Some(GpuDevice::open(0).map_err(|error| BadQuestion::Sentence(error.to_string()))?)
            }
        };
        let devices = gpu.iter().map(|gpu| gpu as &dyn Device).collect();
        let selftest = Selftest {
            devices,
            checker: &check,
            filter: self.filter,
            compare: false,
            threads: self.threads.unwrap_or_else(available_threads),
        };
        let verbose = self.verbose && !out.json;
        let report = selftest
            .run(&paths, &|result| {
                if verbose {
                    println!("{result}");
                }
            })
            .map_err(|error| BadQuestion::Sentence(error.to_string()))?;
        if out.json {
            out.json(&report.to_json());
        } else {
            println!("{report}");
        }
        if report.results.is_empty() {
            return Err(BadQuestion::Sentence(
                "no case was run: is the filter right?".to_owned(),
            ));
        }
        Ok(if report.is_success() {
            Verdict::Clean
        } else {
            Verdict::Found
        })
    }

    fn paths(&self) -> Result<Vec<PathBuf>, BadQuestion> {
        if !self.paths.is_empty() {
            return Ok(self.paths.clone());
        }
        let there: Vec<PathBuf> = DEFAULT_PATHS
            .iter()
            .map(PathBuf::from)
            .filter(|path| path.exists())
            .collect();
        if there.is_empty() {
            return Err(BadQuestion::Sentence(format!(
                "there are no test files here: run it at the root of the repository, where {} are, or name files",
                DEFAULT_PATHS.join(", ")
            )));
        }
        Ok(there)
    }
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn check(module: &Module, _: &Source) -> Vec<Diagnostic> {
    heist_check::check(module)
}
