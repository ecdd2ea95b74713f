//! `heist bench`: our kernels beside what people use today.

use super::kernel::remembered;
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::bench::spec::{Ours, Spec};
use crate::bench::suite;
use crate::bench::{
    BenchError, Contest, Effort, HEADS, Outcome, Peers, Sampling, evidence, pack, profile,
};
use crate::file;
use crate::progress::Progress;
use clap::Args;
use heist::job;
use heist_gpu::Gpu;
use heist_kernels::catalogue;
use heist_run::{Device, DeviceName};
use heist_view::table;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// How long a sample of calls back to back takes.
const SUSTAINED: Duration = Duration::from_millis(200);

/// Time our kernels and their peers on a GPU, in turns, in one run.
#[derive(Args)]
#[command(after_help = "\
The peers are cuBLAS, PyTorch's attention backends and grouped product, and Triton, through a
Python that has PyTorch. Results are compared before anything is timed. Each round takes one
sample of every kernel, on a cold L2 cache; a ratio is of two samples of the same round. With
--sustained a sample is calls back to back, at the clock that the power limit leaves. What
`heist tune` found for a problem is one of ours.

Examples:
  heist bench                                  every family at its shapes
  heist bench attention --json > attention.json
  heist bench gemm m=4096 n=4096 k=512         one problem of your own
  heist bench gemm --sustained                 back to back, at full power
  heist bench gemm m=4096 --through-torch      and what `heist.torch.mm` takes the GPU
  heist bench gemm --evidence pack             with PTX, counts and sanitizer logs; see `heist evidence`

Exit status: 0 all results agree, 1 one does not, 2 it could not be measured.")]
pub(crate) struct Bench {
    /// The kernel family; all unless given.
    family: Option<String>,
    /// A problem of your own, such as m=512, instead of the family's shapes.
    #[arg(value_name = "NAME=VALUE")]
    told: Vec<String>,
    /// Only contests whose name has this in it.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The GPU.
    #[arg(long, default_value = "gpu")]
    device: DeviceName,
    /// The Python that has PyTorch.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Only ours.
    #[arg(long)]
    no_peers: bool,
    /// Also our own operation as PyTorch calls it, in the same rounds: the package `heist` for that Python.
    #[arg(long, conflicts_with = "no_peers")]
    through_torch: bool,
    /// Calls back to back instead of one at a time on a cold L2 cache: a sample takes 200 ms.
    #[arg(long)]
    sustained: bool,
    /// Samples of each kernel: 30 unless given, or 8 with --sustained.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Milliseconds to run before measuring a contest.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    warm_up: u64,
    /// Also write the JSON here.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// A folder for the evidence: PTX with hashes, registers, counts, sanitizer logs, errors.
    #[arg(long, value_name = "DIR")]
    evidence: Option<PathBuf>,
}

impl Bench {
    fn specs(&self) -> Result<Vec<Spec>, BadQuestion> {
        let mut specs = match &self.family {
            Some(family) if !self.told.is_empty() => {
                vec![Spec::new(family, &self.told).map_err(question)?]
            }
            Some(family) => {
                catalogue::entry(family).map_err(question)?;
                suite::suite(family)
            }
            None => suite::FAMILIES
                .iter()
                .flat_map(|f| suite::suite(f))
                .collect(),
        };
        if let Some(text) = &self.only {
            specs.retain(|spec| spec.name.contains(text.as_str()));
        }
        if specs.is_empty() {
            return Err(question(
                "no contest has that in its name; without --only all of them run",
            ));
        }
        Ok(specs)
    }

    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let mut specs = self.specs()?;
        if let Some(path) = &self.save {
            file::writable(path)?;
        }
        const REAL: &str = "a simulated GPU's time is a model; `heist bench` needs a real one, and \
                            `heist run` and `heist tune` take a simulated one (`--device sim:h200`)";
        let device = match self.device {
            DeviceName::Gpu(_) => Device::open(self.device),
            DeviceName::Sim(_) => return Err(question(REAL)),
        };
        let device = device.map_err(|error| {
            let why = error.to_string();
            let why = why.lines().next().unwrap_or_default();
            question(format!("{why}\n  help: {REAL}"))
        })?;
        let Device::Gpu(gpu) = &device else {
            return Err(question(REAL));
        };
        let target = job::target(&device).map_err(question)?;
        for spec in &mut specs {
            let entry = catalogue::entry(spec.family).map_err(question)?;
            let found = remembered(entry, &spec.told, &device);
            spec.ours.extend(found.map(Ours::tuned));
        }
        let mut peers = match self.no_peers {
            true => None,
            false => Some(Peers::start(&self.python).map_err(question)?),
        };
        let machine = evidence::machine(gpu, peers.as_ref().map(|peers| &peers.versions));
        let mut outcomes = Vec::new();
        let progress = Progress::new(out, "contests", specs.len());
        for spec in &specs {
            let mut contest = spec.contest(gpu, target).map_err(question)?;
            if self.through_torch {
                contest.peers.push("heist.torch");
            }
            let outcome = self
                .measure(gpu, &contest, peers.as_mut())
                .map_err(question)?;
            if !out.json {
                progress.meanwhile(|| print(&outcome));
            }
            if let Some(folder) = &self.evidence {
                let entry = catalogue::entry(spec.family).map_err(question)?;
                let counted = profile::profile(entry, &spec.told);
                let written = evidence::write(folder, &contest, &outcome, &machine, &counted);
                written.map_err(|error| question(format!("{}: {error}", folder.display())))?;
            }
            outcomes.push(outcome);
            progress.step(&spec.name);
        }
        drop(progress);
        let sanitizers = self.sanitizers(&specs)?;
        if let Some(folder) = &self.evidence {
            let command: Vec<String> = std::env::args().collect();
            pack::seal(folder, &machine, &sanitizers, &command)
                .map_err(|error| question(format!("{}: {error}", folder.display())))?;
        }
        let wrong = outcomes.iter().filter_map(|outcome| outcome.wrong.as_ref());
        let wrong: Vec<&String> = wrong.collect();
        let report = json!({
            "machine": machine,
            "right": wrong.is_empty(),
            "sampling": if self.sustained { "sustained" } else { "cold" },
            "contests": outcomes.iter().map(Outcome::to_json).collect::<Vec<_>>(),
            "sanitizers": sanitizers,
        });
        if let Some(path) = &self.save {
            file::write(path, format!("{report:#}"))?;
        }
        if out.json {
            out.json(&report);
        }
        for why in &wrong {
            eprintln!("heist: WRONG: {why}");
        }
        Ok(if wrong.is_empty() {
            Verdict::Clean
        } else {
            Verdict::Found
        })
    }

    fn measure(
        &self,
        gpu: &Gpu,
        contest: &Contest<'_>,
        peers: Option<&mut Peers>,
    ) -> Result<Outcome, BenchError> {
        let (sampling, rounds) = match self.sustained {
            false => (Sampling::Cold, 30),
            true => (Sampling::Sustained(SUSTAINED), 8),
        };
        let effort = Effort {
            warm_up: Duration::from_millis(self.warm_up),
            rounds: self.rounds.unwrap_or(rounds),
            sampling,
        };
        contest.run(gpu, peers, effort)
    }

    /// The sanitizers' verdicts on a small problem of each family, for the evidence.
    fn sanitizers(&self, specs: &[Spec]) -> Result<Value, BadQuestion> {
        let Some(folder) = &self.evidence else {
            return Ok(Value::Null);
        };
        let mut families: Vec<&str> = specs.iter().map(|spec| spec.family).collect();
        families.dedup();
        let mut verdicts = serde_json::Map::new();
        for family in families {
            let verdict = evidence::sanitize(folder, family, suite::small(family))
                .map_err(|error| question(format!("{}: {error}", folder.display())))?;
            verdicts.insert(family.to_owned(), verdict);
        }
        Ok(Value::Object(verdicts))
    }
}

fn print(outcome: &Outcome) {
    println!("{}", outcome.name);
    print!("{}", table::columns(&HEADS, &outcome.rows()));
    for (peer, why) in &outcome.absent {
        println!("{peer}: not measured: {why}");
    }
    println!();
}
