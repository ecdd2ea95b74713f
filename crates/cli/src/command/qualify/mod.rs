//! `heist qualify`: does everything here work on this GPU?
//!
//! For owners of GPUs that we have none of. Every check is a command line of this program, run in a
//! process of its own, so that a fault or a hang costs that check alone, and anybody can repeat
//! one by hand. The report says what ran, what was skipped and why.

mod contests;
mod part;
mod plan;
mod report;
mod worker;

use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::bench::{PeerError, Peers};
use crate::file;
use crate::progress::Progress;
use clap::Args;
use heist_run::{Device, DeviceName};
use part::Part;
use plan::{Machine, Plan};
use report::Report;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Run everything that can be checked on a GPU, and write one report: the test files, random
/// schedules, every kernel against f64, the table of schedules, our kernels beside their peers.
#[derive(Args)]
#[command(after_help = "\
Run it at the root of the repository, where the test files are.

Examples:
  heist qualify --report b200.json                on your GPU; send us the file
  heist qualify --only kernels --only schedules   parts of it
  heist qualify --device sim:b200 --schedules 5   the same on a simulated GPU

Exit status: 0 nothing failed, 1 something did, 2 there is no such device.")]
pub(crate) struct Qualify {
    /// The GPU, or a simulated one.
    #[arg(long, default_value = "gpu")]
    device: DeviceName,
    /// Only this part; several times for several parts.
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<Part>,
    /// How many random schedules are tried.
    #[arg(long, value_name = "N", default_value_t = 40)]
    schedules: u32,
    /// Where the random schedules begin.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Test files, or folders of them [default: tests/ptx rules cases corpus].
    #[arg(long, value_name = "PATH")]
    files: Vec<PathBuf>,
    /// The Python that has PyTorch, for the peers. Where it has none, ours are timed alone.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// How long a check may take, in seconds. The test files are one check, and have ten times as
    /// long.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86400))]
    limit: u64,
    /// Writes the report as JSON into this file, too.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Qualify {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        if let Some(path) = &self.report {
            file::writable(path)?;
        }
        // Opened to be looked at: the checks open it again, each for itself.
        let machine = Device::open(self.device).map_err(question)?;
        let machine = Machine::of(&machine).map_err(question)?;
        let parts = match self.only.is_empty() {
            true => Part::ALL.to_vec(),
            false => self.only.clone(),
        };
        let peers = match parts.contains(&Part::Bench) && machine.driver.is_some() {
            true => Peers::start(&self.python).map(|peers| peers.versions.clone()),
            false => Err(PeerError::NotHere("they are not asked".into())),
        };
        let plan = Plan {
            device: self.device,
            machine: &machine,
            python: peers.is_ok().then_some(&self.python),
            schedules: self.schedules,
            seed: self.seed,
            files: &self.files,
        };
        let checks: Vec<_> = parts.iter().flat_map(|part| plan.checks(*part)).collect();
        let progress = Progress::new(out, "checks", checks.len());
        let began = Instant::now();
        let mut done = Vec::new();
        for check in checks {
            progress.step(&check.command());
            let limit = match check.part {
                Part::Files => self.limit.saturating_mul(10),
                _ => self.limit,
            };
            done.push(worker::done(check, Duration::from_secs(limit)).map_err(question)?);
        }
        drop(progress);
        let report = Report {
            machine,
            peers: peers.map_err(|error| error.to_string()),
            seed: self.seed,
            seconds: began.elapsed().as_secs_f64(),
            done,
        };
        let json = report.to_json();
        if let Some(path) = &self.report {
            file::write(path, format!("{json:#}\n").as_bytes())?;
        }
        match out.json {
            true => out.json(&json),
            false => println!("{report}"),
        }
        Ok(match report.is_success() {
            true => Verdict::Clean,
            false => Verdict::Found,
        })
    }
}
