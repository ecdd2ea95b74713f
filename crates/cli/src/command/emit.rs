//! `heist emit`: the PTX of a kernel.

use super::run::question;
use super::{BadQuestion, Output, Verdict, file};
use clap::Args;
use heist_kernels::catalogue::{self, Settings};
use heist_kernels::{Step, Target};
use heist_ptx::arch::{Arch, Gpu};
use serde_json::json;
use std::path::PathBuf;

/// Write the PTX of a kernel, for any architecture that it runs on.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist emit gemm --arch sm_90a > gemm.ptx
  heist emit attention mask=causal dim=128 --arch sm_80 --out .
  heist emit gemm m=300 n=200 k=100 --json         with the launch")]
pub(crate) struct Emit {
    /// The kernel: see `heist kernels`.
    kernel: String,
    /// What it is told, such as m=512.
    #[arg(value_name = "NAME=VALUE")]
    told: Vec<String>,
    /// For which architecture.
    #[arg(long, default_value = "sm_90a")]
    arch: String,
    /// A folder for the files, one for each launch, made where there is none; standard output
    /// unless given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Emit {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let entry = catalogue::entry(&self.kernel).map_err(question)?;
        let told = Settings::from_words(&self.told).map_err(question)?;
        let arch = Arch::parse(&self.arch).ok_or_else(|| {
            let known: Vec<String> = Arch::ALL.iter().map(ToString::to_string).collect();
            question(format!(
                "{} is no architecture; there are {}",
                self.arch,
                known.join(", ")
            ))
        })?;
        let sms = Gpu::ALL
            .iter()
            .find(|gpu| arch.runs_on(gpu.arch))
            .map_or(Gpu::H200.sms, |gpu| gpu.sms);
        let prepared = entry
            .prepare(&told, None, Target { arch, sms })
            .map_err(question)?;
        let launches = prepared.job.steps.len();
        if launches > 1 && self.out.is_none() && !out.json {
            return Err(question(format!(
                "{} is {launches} launches, and a file of PTX is one module: say --out DIR, or --json",
                prepared.job.name
            )));
        }
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder)
                .map_err(|error| question(format!("can't make {}: {error}", folder.display())))?;
            let path = |step: &Step| folder.join(format!("{}.ptx", step.entry));
            for step in &prepared.job.steps {
                file::writable(&path(step))?;
            }
            for step in &prepared.job.steps {
                file::write(&path(step), step.ptx())?;
                if !out.json {
                    println!("{}", path(step).display());
                }
            }
        }
        if out.json {
            let steps: Vec<_> = prepared.job.steps.iter().map(as_json).collect();
            out.json(&json!({ "name": prepared.job.name, "steps": steps }));
        } else if self.out.is_none() {
            for step in &prepared.job.steps {
                print!(
                    "// {}\n// launch: {}\n{}",
                    prepared.job.name,
                    step.launch,
                    step.ptx()
                );
            }
        }
        Ok(Verdict::Clean)
    }
}

fn as_json(step: &Step) -> serde_json::Value {
    json!({
        "entry": step.entry,
        "grid": step.launch.grid,
        "block": step.launch.block,
        "cluster": step.launch.cluster,
        "dynamic_shared": step.launch.dynamic_shared,
        "ptx": step.ptx(),
    })
}
