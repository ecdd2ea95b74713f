//! `heist tune`: the fastest kernel and schedule for one problem.

use super::launch::seconds;
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::file;
use crate::progress::{Line, note};
use clap::Args;
use heist::tune::{self, Catalogued, DeviceBench, Tuning, memory};
use heist_kernels::catalogue::{self, Settings as Told};
use heist_run::{Device, DeviceName, Settings};
use heist_tune::{
    Bench, Budget, Candidate, Failure, Journal, Narrowing, Progress, Refusals, Response, Row,
    Shard, Status, Worker, WorkerCommand, refusals,
};
use heist_view::table;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a problem is and where it is solved.
#[derive(Args, Clone)]
pub(crate) struct Question {
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
    /// Fixes the data, the simulated schedule, and which candidates the model does not favour are
    /// tried too.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long one candidate may take.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
}

/// Search for the fastest kernel and schedule for a problem.
#[derive(Args)]
#[command(after_help = "\
Tiles first, then the schedules of the two fastest. What can't fit is refused by arithmetic; the rest is \
ordered by a model, and the first of them, and some others, are built, checked and timed: slow ones \
briefly, close ones in turns beside the kernel that is taken without tuning. On a GPU they run in a \
process of their own: one that hangs or faults costs that candidate alone. Every candidate leaves a row.

The answer is kept in $HEIST_TUNED, or in heist/tuned.jsonl of the cache folder; `heist run` takes it from \
there, `heist tuned` shows it. An empty HEIST_TUNED keeps nothing.

Examples:
  heist tune gemm m=4096 n=4096 k=4096
  heist tune attention mask=causal queries=4096 heads=16 dim=128 --limit 100 --page sweep.html
  heist tune grouped-gemm rows=40,900,8,8 --policy 'max-steals(8)' --json
  heist tune gemm m=16 n=8192 k=8192 --only rows=64 --only stages=4..8
  heist tune gemm m=4096 n=4096 k=4096 --journal sweep.jsonl      goes on where it was stopped
  heist tune gemm m=512 n=512 k=128 --device sim:h200 --shard 2/8 --journal part2.jsonl
  heist tune gemm m=512 n=512 k=128 --device sim:h200 --plan      for machines that take --candidate

Exit status: 0 an answer, and no candidate that ran was wrong; 1 a candidate was wrong, crashed or hung (the \
answer stands); 2 nothing could be tried.")]
pub(crate) struct Tune {
    #[command(flatten)]
    question: Question,
    /// How many candidates are built at most, in each of the two stages.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// How long the sweep may take; candidates not tried by then are left out, and reported.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<Duration>,
    /// Keep to a part of the space: rows=64,128 or stages=3..6. May be said again.
    #[arg(long, value_name = "CHOICE=VALUES")]
    only: Vec<Narrowing>,
    /// Keep every row in a file of JSON lines; a sweep that was stopped goes on from it.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Try one part of the candidates, such as 2/8; `heist tuned rows` puts journals together.
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: Shard,
    /// Name the candidates that are to be tried next, and try none: others try them with --candidate, and
    /// write their rows into the journal.
    #[arg(long, conflicts_with_all = ["candidate", "page"])]
    plan: bool,
    /// Try this candidate and no other, as --plan names it. May be said again. No answer is kept.
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["journal", "shard", "page", "only", "limit", "time"])]
    candidate: Vec<Candidate>,
    /// Draw the sweep: a page with every row, the front, the tiles and the model.
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
}

/// The process in which candidates run: questions come on standard input.
#[derive(Args)]
pub(crate) struct TuneWorker {
    #[command(flatten)]
    question: Question,
}

impl Question {
    fn problem(&self) -> Result<Catalogued<'static>, BadQuestion> {
        let mut told = Told::from_words(&self.told).map_err(question)?;
        if told.get("seed").is_none() {
            told.set("seed", self.seed.to_string());
        }
        Ok(Catalogued {
            entry: catalogue::entry(&self.kernel).map_err(question)?,
            told,
            policy: self.policy.parse().map_err(question)?,
        })
    }

    fn settings(&self) -> Settings {
        Settings {
            seed: self.seed,
            limit: self.timeout,
            ..Settings::default()
        }
    }

    /// What builds and times candidates: a process of its own on a GPU. A simulation keeps to its
    /// time by itself and does not fault.
    fn bench<'d>(
        &self,
        device: &'d Device,
        problem: &'d Catalogued<'d>,
    ) -> Result<Box<dyn Bench + 'd>, BadQuestion> {
        Ok(match device {
            Device::Sim(_) => {
                Box::new(DeviceBench::new(device, problem, self.settings()).map_err(question)?)
            }
            Device::Gpu(_) => Box::new(
                Worker::start(self.worker()?).map_err(|failure| question(Status::from(failure)))?,
            ),
        })
    }

    /// The process that answers for this one.
    fn worker(&self) -> Result<WorkerCommand, BadQuestion> {
        let program = std::env::current_exe().map_err(question)?;
        let python = program
            .file_stem()
            .is_some_and(|stem| stem.to_string_lossy().starts_with("python"));
        let own: &[&str] = if python { &["-m", "heist"] } else { &[] };
        let mut arguments: Vec<OsString> = own.iter().map(OsString::from).collect();
        arguments.extend(["tune-worker".into(), OsString::from(&self.kernel)]);
        arguments.extend(self.told.iter().map(OsString::from));
        for (flag, value) in [
            ("--policy", self.policy.clone()),
            ("--device", self.device.to_string()),
            ("--seed", self.seed.to_string()),
            ("--timeout", self.timeout.as_secs_f64().to_string()),
        ] {
            arguments.extend([OsString::from(flag), value.into()]);
        }
        Ok(WorkerCommand {
            program: program.into(),
            arguments,
            limit: self.timeout,
        })
    }
}

impl TuneWorker {
    pub(crate) fn run(self) -> Result<Verdict, BadQuestion> {
        let problem = self.question.problem()?;
        let device = Device::open(self.question.device).map_err(question)?;
        let mut output = std::io::stdout().lock();
        match DeviceBench::new(&device, &problem, self.question.settings()) {
            Ok(mut bench) => heist_tune::serve(&mut bench, std::io::stdin().lock(), output),
            Err(error) => {
                let failure = Failure::Refused {
                    why: error.to_string(),
                };
                let line = serde_json::to_string(&Response::Failed(failure)).unwrap_or_default();
                writeln!(output, "{line}")
            }
        }
        .map_err(question)?;
        Ok(Verdict::Clean)
    }
}

impl Tune {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        if let Some(path) = &self.page {
            file::writable(path)?;
        }
        let problem = self.question.problem()?;
        let device = Device::open(self.question.device).map_err(question)?;
        let target = tune::target(&device).map_err(question)?;
        let key = memory::key(problem.entry, &problem.told, &device);
        let mut journal = match &self.journal {
            Some(path) => Journal::open(path, &json!(key)).map_err(question)?,
            None => Journal::in_memory(),
        };
        let budget = Budget {
            limit: self.limit as usize,
            time: self.time,
            seed: self.question.seed,
            shard: self.shard,
            narrowed: self.only.clone(),
            plan: self.plan,
        };
        let mut teller = Teller::new(out);
        let mut said = |progress: &Progress<'_>| teller.hear(progress);
        let found = {
            let mut bench = self.question.bench(&device, &problem)?;
            match self.candidate.as_slice() {
                [] => tune::search(
                    &problem,
                    target,
                    &mut *bench,
                    &mut journal,
                    &budget,
                    &mut said,
                ),
                named => tune::attempt(&problem, target, &mut *bench, named),
            }
        };
        drop(teller);
        let found = found.map_err(question)?;
        if !found.planned.is_empty() || !self.candidate.is_empty() || self.plan {
            self.tell_part(&found, out);
            return Ok(verdict(&found.rows));
        }
        if found.best.is_none() {
            return Err(nothing(&found));
        }
        let kept = match &found.best {
            Some(best) if self.shard == Shard::WHOLE => {
                let kept = memory::keep(key, best, found.default.as_ref(), found.rows.len());
                // The sweep took its time: its answer is told, also where it can't be kept.
                kept.unwrap_or_else(|error| {
                    eprintln!("heist: {error}\nheist: this answer is not kept");
                    None
                })
            }
            _ => None,
        };
        if let Some(path) = &self.page {
            let title = format!("{} {}", self.question.kernel, self.question.told.join(" "));
            let page = heist_tune::page(&title, &found.rows);
            std::fs::write(path, page)
                .map_err(|error| question(format!("{}: {error}", path.display())))?;
        }
        if out.json {
            out.json(&self.as_json(&found));
        } else {
            self.tell(&found, kept.as_ref());
        }
        Ok(verdict(&found.rows))
    }

    /// What a part of a sweep has to say: the candidates of a plan, or the rows of some.
    fn tell_part(&self, found: &Tuning, out: Output) {
        let planned: Vec<String> = found.planned.iter().map(in_words).collect();
        match (out.json, self.plan) {
            (true, true) => out.json_as("tune-plan", &json!({ "planned": planned })),
            (true, false) => out.json_as("tune-rows", &json!({ "rows": found.rows })),
            (false, true) => {
                for candidate in planned {
                    println!("{candidate}");
                }
            }
            (false, false) => {
                let modelled = matches!(self.question.device, DeviceName::Sim(_));
                print!("{}", rows_as_table(&found.rows, modelled));
            }
        }
    }

    /// The command that runs a candidate.
    fn command(&self, row: &Row) -> String {
        let Question {
            kernel,
            told,
            device,
            seed,
            ..
        } = &self.question;
        format!(
            "heist run {kernel} {} --candidate '{}' --device {device} --seed {seed}",
            told.join(" "),
            words(row)
        )
    }

    fn tell(&self, found: &Tuning, kept: Option<&PathBuf>) {
        let modelled = matches!(self.question.device, DeviceName::Sim(_));
        print!("{}", rows_as_table(&found.rows, modelled));
        if found.left_out > 0 {
            println!(
                "not tried, since the time was over: {} candidates",
                found.left_out
            );
        }
        let Some(best) = &found.best else { return };
        if let (Some(default), Some(fastest)) = (&found.default, best.median_ns())
            && let Some(time) = default.median_ns()
        {
            println!(
                "without tuning: {:.2} us, {:.3} times as long as the best",
                time / 1e3,
                time / fastest
            );
        }
        println!("best: {}", self.command(best));
        if let Some(path) = kept {
            println!(
                "kept in {}: `heist run` takes it for this problem",
                path.display()
            );
        }
        if let Some(path) = &self.page {
            println!("page: {}", path.display());
        }
    }

    fn as_json(&self, found: &Tuning) -> Value {
        json!({
            "kernel": self.question.kernel,
            "device": self.question.device.to_string(),
            "best": found.best,
            "default": found.default,
            "command": found.best.as_ref().map(|row| self.command(row)),
            "left_out": found.left_out,
            "rows": found.rows,
        })
    }
}

fn words(row: &Row) -> String {
    in_words(&row.candidate)
}

/// A candidate as the command line takes it; what is taken without tuning has no words.
fn in_words(candidate: &Candidate) -> String {
    let words = candidate
        .words()
        .map(|(name, value)| format!("{name}={value}"));
    words.collect::<Vec<_>>().join(" ")
}

fn verdict(rows: &[Row]) -> Verdict {
    let broken = |row: &Row| {
        matches!(
            row.status,
            Status::Wrong { .. } | Status::Crashed { .. } | Status::Hung { .. }
        )
    };
    match rows.iter().any(broken) {
        false => Verdict::Clean,
        true => Verdict::Found,
    }
}

/// No candidate has a time: the failure of the default kernel says most.
fn nothing(found: &Tuning) -> BadQuestion {
    let telling = found.default.as_ref().or(found.rows.first());
    question(match telling {
        Some(row) => format!(
            "no candidate of {} could be timed; {}: {}",
            found.rows.len(),
            row.candidate,
            row.status
        ),
        None => "there is no candidate to try".to_owned(),
    })
}

/// The rows as a table, the fastest first; what was refused is counted by its reason.
pub(super) fn rows_as_table(rows: &[Row], modelled: bool) -> String {
    let mut timed: Vec<&Row> = rows
        .iter()
        .filter(|row| row.median_ns().is_some())
        .collect();
    let time = |row: &Row| row.median_ns().unwrap_or(f64::INFINITY);
    timed.sort_by(|one, other| time(one).total_cmp(&time(other)));
    let best = timed.first().map_or(1.0, |row| time(row));
    let number = |value: Option<u32>| value.map_or("-".to_owned(), |value| value.to_string());
    let lines: Vec<Vec<String>> = timed
        .iter()
        .map(|row| {
            let facts = row.facts.clone().unwrap_or_default();
            let estimate = row.timing.as_ref().map(|timing| timing.estimate);
            let spread = estimate.map_or(0.0, |time| (time.high_ns - time.low_ns) / 2.0);
            let mark = if row.default { " (without tuning)" } else { "" };
            let default = if words(row).is_empty() {
                "the default"
            } else {
                ""
            };
            vec![
                format!("{}{default}{mark}", words(row)),
                format!("{:.2}", time(row) / 1e3),
                format!("{:.2}", spread / 1e3),
                format!("{:.3}", time(row) / best),
                estimate.map_or("-".to_owned(), |time| time.samples.to_string()),
                row.model_us.map_or("-".to_owned(), |us| format!("{us:.1}")),
                number(facts.registers),
                number(facts.shared),
                number(facts.local),
                facts
                    .error
                    .map_or("-".to_owned(), |error| format!("{error:.0e}")),
                row.status.word().to_owned(),
            ]
        })
        .collect();
    let us = if modelled { "us, modelled" } else { "us" };
    let heads = [
        "candidate",
        us,
        "+-",
        "over best",
        "samples",
        "model, us",
        "registers",
        "shared",
        "local",
        "error",
        "status",
    ];
    let mut text = table::columns(&heads, &lines);
    for row in rows.iter().filter(|row| row.median_ns().is_none()) {
        if !matches!(row.status, Status::Refused { .. }) {
            text.push_str(&format!("{}: {}\n", row.candidate, row.status));
        }
    }
    let refused = refusals(rows);
    for Refusals { count, reason } in refused.iter().take(6) {
        text.push_str(&format!("{count} {reason}\n"));
    }
    let rest: usize = refused.iter().skip(6).map(|one| one.count).sum();
    if rest > 0 {
        text.push_str(&format!(
            "{rest} refused for other reasons: they are in the journal and the page\n"
        ));
    }
    text
}

/// Says how far a sweep is: a line that is written over on a terminal, now and then a line elsewhere.
struct Teller {
    quiet: bool,
    terminal: bool,
    begun: Instant,
    line: Line,
}

impl Teller {
    fn new(out: Output) -> Teller {
        Teller {
            quiet: out.json,
            terminal: std::io::stderr().is_terminal(),
            begun: Instant::now(),
            line: Line::new(out),
        }
    }

    fn hear(&mut self, progress: &Progress<'_>) {
        let Progress {
            stage,
            done,
            of,
            best,
        } = progress;
        note(Some(match best.and_then(Row::median_ns) {
            Some(best) => format!(
                "{done} of {of} {stage} were tried, the best takes {:.2} us",
                best / 1e3
            ),
            None => format!("{done} of {of} {stage} were tried"),
        }));
        if self.quiet || (!self.terminal && done % 16 != 0) {
            return;
        }
        if *done == 0 {
            self.begun = Instant::now();
        }
        let best = best.and_then(|row| {
            Some(format!(
                ", best {:.2} us ({})",
                row.median_ns()? / 1e3,
                row.candidate
            ))
        });
        let left = (*done > 0).then(|| {
            let each = self.begun.elapsed().as_secs_f64() / *done as f64;
            format!(", {:.0} s left", each * (*of - *done) as f64)
        });
        let line = format!(
            "{stage} {done}/{of}{}{}",
            left.unwrap_or_default(),
            best.unwrap_or_default()
        );
        match self.terminal {
            true => self.line.say(line),
            false => eprintln!("{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_that_breaks_in_any_way_is_a_finding() {
        let row = |status: &str| -> Row { serde_json::from_str(status).expect("a row") };
        let with = |status: &str| verdict(&[row(&format!("{{\"candidate\":{{}},{status}}}"))]);
        for status in [
            "\"status\":\"hung\",\"seconds\":2.0",
            "\"status\":\"wrong\",\"why\":\"off\"",
            "\"status\":\"crashed\",\"why\":\"signal\"",
        ] {
            assert!(with(status) == Verdict::Found, "{status}");
        }
        assert!(verdict(&[]) == Verdict::Clean);
    }
}
