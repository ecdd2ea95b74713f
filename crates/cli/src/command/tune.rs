//! `heist tune`: the fastest kernel and schedule for one problem.

use super::launch::seconds;
use crate::answer::{BadQuestion, Output, Verdict, question};
use clap::Args;
use heist::tune::{self, Tried, Tuning};
use heist_kernels::catalogue::{self, Settings as Told};
use heist_run::{Device, DeviceName, Settings};
use heist_view::table;
use serde_json::{Value, json};
use std::time::Duration;

/// Search for the fastest kernel and schedule for a problem.
#[derive(Args)]
#[command(after_help = "\
Variants first, then every source, early and late, for the fastest of them, then the order of
tiles. Each candidate's result is checked before it is timed; on a GPU samples are taken in turns,
on a cold L2 cache, more of those that are close. On a simulated GPU the times are modelled.

Examples:
  heist tune gemm m=4096 n=4096 k=4096
  heist tune attention mask=causal queries=2048 variant=persistent
  heist tune grouped-gemm rows=40,900,8,8 --policy 'max-steals(8)' --json
  heist tune gemm m=512 n=512 k=128 --device sim:h200

Exit status: 0 every candidate's result is right, 1 one's is not, 2 it could not be measured.")]
pub(crate) struct Tune {
    /// The kernel: see `heist kernels`.
    kernel: String,
    /// The problem, such as m=512.
    #[arg(value_name = "NAME=VALUE")]
    told: Vec<String>,
    /// A policy to try beside greedy.
    #[arg(long, value_name = "EXPR", default_value = "greedy")]
    policy: String,
    /// gpu, or sim:h200 and its kind.
    #[arg(long, default_value = "gpu")]
    device: DeviceName,
    /// Fixes the data and the simulated schedule.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long one simulation, or one kernel on a GPU, may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
}

impl Tune {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let entry = catalogue::entry(&self.kernel).map_err(question)?;
        let mut told = Told::from_words(&self.told).map_err(question)?;
        if told.get("seed").is_none() {
            told.set("seed", self.seed.to_string());
        }
        let settings = Settings {
            seed: self.seed,
            limit: self.timeout,
            ..Settings::default()
        };
        let policy = self.policy.parse().map_err(question)?;
        let device = Device::open(self.device).map_err(question)?;
        let found = tune::search(&device, entry, &told, &policy, &settings).map_err(question)?;
        if out.json {
            out.json(&self.as_json(&found));
        } else {
            self.tell(&found);
        }
        Ok(match found.refused.iter().any(|one| one.wrong) {
            false => Verdict::Clean,
            true => Verdict::Found,
        })
    }

    /// The command that runs a choice.
    fn command(&self, one: &Tried) -> String {
        let own = self
            .told
            .iter()
            .filter(|word| !word.starts_with("variant="));
        let words = own.cloned().chain(one.choice.arguments());
        let words: Vec<String> = words.collect();
        format!(
            "heist run {} {} --device {} --seed {}",
            self.kernel,
            words.join(" "),
            self.device,
            self.seed
        )
    }

    fn tell(&self, found: &Tuning) {
        let best = found.tried.first().map_or(1.0, |one| one.median_ns);
        let rows: Vec<Vec<String>> = found
            .tried
            .iter()
            .map(|one| {
                vec![
                    format!("{}, {}", one.choice.variant, one.choice.schedule()),
                    format!("{:.2}", one.median_ns / 1e3),
                    format!("{:.3}", one.median_ns / best),
                    format!("{:.1}", found.work.flops / one.median_ns / 1e3),
                    one.samples.to_string(),
                ]
            })
            .collect();
        let time = match self.device {
            DeviceName::Gpu(_) => "us",
            DeviceName::Sim(_) => "us, modelled",
        };
        let heads = [
            "variant and schedule",
            time,
            "over best",
            "TFLOP/s",
            "samples",
        ];
        print!("{}", table::columns(&heads, &rows));
        for one in &found.refused {
            let word = if one.wrong { "WRONG" } else { "not possible" };
            println!(
                "{word}: {}, {}: {}",
                one.choice.variant,
                one.choice.schedule(),
                one.why
            );
        }
        match found.against_reference {
            true => println!("results: the first against f64, the others against it"),
            false => {
                println!("results: against each other; the problem is too large for the reference")
            }
        }
        if let Some(best) = found.tried.first() {
            println!("best: {}", self.command(best));
        }
    }

    fn as_json(&self, found: &Tuning) -> Value {
        json!({
            "kernel": self.kernel,
            "device": self.device.to_string(),
            "flops": found.work.flops,
            "bytes": found.work.bytes,
            "against_reference": found.against_reference,
            "best": found.tried.first().map(|one| self.command(one)),
            "tried": found.tried.iter().map(|one| json!({
                "variant": one.choice.variant,
                "schedule": one.choice.schedule(),
                "median_ns": one.median_ns,
                "samples": one.samples,
            })).collect::<Vec<_>>(),
            "refused": found.refused.iter().map(|one| json!({
                "variant": one.choice.variant,
                "schedule": one.choice.schedule(),
                "why": one.why,
                "wrong": one.wrong,
            })).collect::<Vec<_>>(),
        })
    }
}
