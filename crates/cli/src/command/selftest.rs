//! `heist selftest`: the test files, on every device.

use crate::answer::{BadQuestion, Output, Verdict};
use crate::progress::Progress;
use clap::{Args, ValueEnum};
use heist_filetests::{ChildDevice, GpuDevice, Selftest, SimDevice, TestDevice, serve};
use heist_ptx::{Diagnostic, Module, Source};
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Run the test files on the simulated GPU, and on a real one where there is one.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist selftest                               everything here, on whatever there is
  heist selftest --device gpu tests/ptx/float  some of it, on the GPU
  heist selftest --device both --compare       on both, and compared with each other
  heist selftest --filter add_rn -v            cases whose `file::case` contains this
  heist selftest rules --explore 50 --chaos    every pair of a rule on other schedules

Exit status: 0 nothing failed, 1 something did, 2 there was nothing to run or nothing to run it on.")]
pub(crate) struct SelftestCommand {
    /// Files, or folders to look for `.ptx` files in [default: tests/ptx rules cases
    /// corpus].
    paths: Vec<PathBuf>,
    /// Where to run them.
    #[arg(long, value_enum, default_value_t = Where::Auto)]
    device: Where,
    /// Compare what both devices computed, case by case. Done by itself where `auto` finds a GPU.
    #[arg(long)]
    compare: bool,
    /// Only cases whose `file::case` contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Try at least this many schedules of each case on the simulated GPU, until one finds
    /// something.
    #[arg(long, value_name = "N", default_value_t = 1)]
    explore: u16,
    /// Have the simulator refuse, delay and reorder in every case what hardware may.
    #[arg(long)]
    chaos: bool,
    /// How many cases to run at a time where devices allow it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Name every case as it ends.
    #[arg(long, short)]
    verbose: bool,
    /// Be the process that runs cases on the GPU for another one.
    #[arg(long, hide = true)]
    serve_gpu: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Where {
    /// The simulated GPU, and the real one if there is one.
    Auto,
    /// The simulated GPU.
    Sim,
    /// The real GPU.
    Gpu,
    /// Both; it is an error if there is no real one.
    Both,
    /// Nowhere: only check the files.
    None,
}

/// What a checkout of the repository has.
const DEFAULT_PATHS: [&str; 4] = ["tests/ptx", "rules", "cases", "corpus"];

impl SelftestCommand {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        if self.serve_gpu {
            serve(|| GpuDevice::open(0), io::stdin().lock(), io::stdout())
                .map_err(|error| BadQuestion::Sentence(error.to_string()))?;
            return Ok(Verdict::Clean);
        }
        let paths = self.paths()?;
        let gpu = self.open_gpu()?;
        let simulated = matches!(self.device, Where::Auto | Where::Sim | Where::Both);
        let sim = simulated.then_some(SimDevice {
            explore: self.explore,
            chaos: self.chaos,
        });
        let mut devices: Vec<&dyn TestDevice> = Vec::new();
        devices.extend(sim.iter().map(|sim| sim as &dyn TestDevice));
        devices.extend(gpu.iter().map(|gpu| gpu as &dyn TestDevice));
        if self.compare && devices.len() < 2 {
            return Err(BadQuestion::Sentence(
                "--compare needs two devices: `--device both`, on a machine with a GPU".to_owned(),
            ));
        }
        let selftest = Selftest {
            compare: self.compare || (self.device == Where::Auto && devices.len() == 2),
            devices,
            checker: &check,
            filter: self.filter.clone(),
            threads: self.threads.map_or_else(available_threads, usize::from),
        };
        let verbose = self.verbose && !out.json;
        let progress = Progress::new(out, "cases", 0);
        let report = selftest
            .run(&paths, &|result, in_all| {
                progress.of(in_all);
                progress.step(&result.file);
                if verbose {
                    progress.meanwhile(|| println!("{result}"));
                }
            })
            .map_err(|error| BadQuestion::Sentence(error.to_string()))?;
        if report.results.is_empty() {
            return Err(BadQuestion::Sentence(match &self.filter {
                Some(filter) => format!("there is no case whose `file::case` contains `{filter}`"),
                None => "there is no `.ptx` file in there".to_owned(),
            }));
        }
        if out.json {
            out.json(&report.to_json());
        } else {
            println!("{report}");
        }
        Ok(if report.is_success() {
            Verdict::Clean
        } else {
            Verdict::Found
        })
    }

    /// The GPU, in a process of its own: a fault may cost the process.
    fn open_gpu(&self) -> Result<Option<ChildDevice>, BadQuestion> {
        if matches!(self.device, Where::Sim | Where::None) {
            return Ok(None);
        }
        let this = std::env::current_exe()
            .map_err(|error| BadQuestion::Sentence(format!("where is this program? {error}")))?;
        let child = ChildDevice::start("gpu", move || {
            let mut command = Command::new(&this);
            command.args(["selftest", "--serve-gpu"]);
            command
        });
        match child {
            Ok(gpu) => Ok(Some(gpu)),
            Err(none) if self.device == Where::Auto && none.about_the_machine => Ok(None),
            Err(none) => Err(BadQuestion::Sentence(none.why)),
        }
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

/// What is wrong with a module before it is run: its structure, and when that
/// is sound, what the rules say.
fn check(module: &Module, source: &Source) -> Vec<Diagnostic> {
    let mut found = heist_ptx::validate::validate(module, Some(source));
    if found.is_empty() {
        found = heist_check::check(module);
    }
    found
}
