//! Which kernels spill: products, groups, layers of experts and attention as they are chosen, the widest tiles of each kind that
//! a schedule lets be built, and others drawn at random, each assembled by ptxas under the schedules that take registers.
//!
//! ```text
//! cargo run -p heist-bench --bin spills -- --minutes 8 --threads 14
//! ```
//! `--seed 7` draws other shapes, `--part 2/4` takes the second of every four cases, and `--only pausing` those whose words
//! contain this, and `--again FILE` those that an earlier run, whose output that is, has told. ptxas is found as in the tests (`HEIST_PTXAS`). What each family takes for itself comes first, so that a run that ends early leaves out what matters
//! least; it says how many cases it did not reach. Each text is assembled once. The exit status is 1 if anything spills, has a
//! stack frame, or is complained about or refused by ptxas, and 2 where there is no ptxas.

mod cases;

use cases::{Case, Stage, all};
use heist_kernels::Job;
use heist_oracle::{Ptxas, parallel_on};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What is asked for.
struct Asked {
    threads: usize,
    minutes: f64,
    seed: u64,
    part: (usize, usize),
    only: String,
    again: Option<Vec<String>>,
}

impl Asked {
    /// Whether a case is asked for.
    fn has(&self, case: &Case) -> bool {
        let words = case.to_string();
        let told = |lines: &Vec<String>| {
            let begins = format!("{words}: ");
            lines.iter().any(|line| line.starts_with(&begins))
        };
        words.contains(&self.only) && self.again.as_ref().is_none_or(told)
    }

    fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut asked = Asked {
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            minutes: f64::INFINITY,
            seed: 1,
            part: (1, 1),
            only: String::new(),
            again: None,
        };
        while let Some(flag) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{flag} needs a value"))?;
            let number = || {
                let number = value.parse::<u64>();
                number.map_err(|_| format!("{flag} {value}: that is no number"))
            };
            match flag.as_str() {
                "--threads" => asked.threads = number()?.max(1) as usize,
                "--minutes" => {
                    let minutes = value.parse();
                    asked.minutes = minutes.map_err(|_| format!("{value} minutes is no time"))?;
                }
                "--seed" => asked.seed = number()?,
                "--part" => {
                    let part = value.split_once('/').and_then(|(part, of)| {
                        let part: (usize, usize) = (part.parse().ok()?, of.parse().ok()?);
                        (1..=part.1).contains(&part.0).then_some(part)
                    });
                    asked.part = part.ok_or_else(|| format!("{value} is no part such as 2/4"))?;
                }
                "--only" => asked.only = value,
                "--again" => {
                    let text = std::fs::read_to_string(&value);
                    let text = text.map_err(|error| format!("{value}: {error}"))?;
                    asked.again = Some(text.lines().map(str::to_owned).collect());
                }
                _ => {
                    return Err(format!(
                        "{flag}: there are --threads, --minutes, --seed, --part, --only and --again"
                    ));
                }
            }
        }
        Ok(asked)
    }
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// There was no time for it.
    NotReached,
    /// Heist has no such kernel, and says why.
    Refused(String),
    /// So many new texts, and what ptxas found in them.
    Assembled(usize, Vec<String>),
}

/// The texts that were assembled before, by their hashes.
type Seen = Mutex<HashSet<u64>>;

/// Has ptxas assemble what is new in the launches of a case.
fn assembled(ptxas: &Ptxas, arch: &str, job: &Job, seen: &Seen) -> Outcome {
    let (mut new, mut found) = (0, Vec::new());
    for step in &job.steps {
        let ptx = step.ptx();
        let mut hasher = DefaultHasher::new();
        ptx.hash(&mut hasher);
        let first = seen.lock().map(|mut seen| seen.insert(hasher.finish()));
        if !first.unwrap_or(true) {
            continue;
        }
        new += 1;
        let cubin = match ptxas.assemble(&ptx, arch) {
            Ok(cubin) => cubin,
            Err(rejected) => {
                found.push(format!("{} is refused: {rejected}", step.entry));
                continue;
            }
        };
        for (name, usage) in cubin.usage() {
            if usage.spill_stores + usage.spill_loads + usage.stack > 0 {
                found.push(format!(
                    "{name} spills {} bytes and reads {}, in a frame of {}, beside {} registers",
                    usage.spill_stores, usage.spill_loads, usage.stack, usage.registers
                ));
            }
        }
        let complaints = cubin.complaints().into_iter().map(str::to_owned);
        found.extend(complaints);
    }
    Outcome::Assembled(new, found)
}

/// The figures of a stage.
#[derive(Debug, Default)]
struct Figures {
    cases: usize,
    not_reached: usize,
    refused: usize,
    texts: usize,
    spill: usize,
}

fn run() -> Result<bool, String> {
    let asked = Asked::read(std::env::args().skip(1))?;
    let ptxas = Ptxas::find().ok_or("there is no ptxas: HEIST_PTXAS names one")?;
    let begun = Instant::now();
    let (part, parts) = asked.part;
    let cases: Vec<Case> = all(asked.seed)
        .into_iter()
        .filter(|case| asked.has(case))
        .skip(part - 1)
        .step_by(parts)
        .collect();
    println!(
        "{} cases, seed {}, part {part}/{parts}, {} threads, {}",
        cases.len(),
        asked.seed,
        asked.threads,
        ptxas.version().trim()
    );
    let seen = Seen::default();
    // Kernels take seconds: none is begun in the last ones.
    let limit = Duration::try_from_secs_f64(asked.minutes * 60.0).unwrap_or(Duration::MAX);
    let outcomes = parallel_on(asked.threads, &cases, |case| {
        if begun.elapsed() >= limit {
            return Outcome::NotReached;
        }
        let job = match case.job() {
            Ok(job) => job,
            Err(why) => return Outcome::Refused(why),
        };
        let outcome = assembled(&ptxas, case.arch, &job, &seen);
        if let Outcome::Assembled(_, found) = &outcome {
            for line in found {
                println!("{case}: {}: {line}", job.name);
            }
        }
        outcome
    });
    let mut stages: BTreeMap<Stage, Figures> = BTreeMap::new();
    let mut reasons: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (case, outcome) in cases.iter().zip(&outcomes) {
        let figures = stages.entry(case.stage).or_default();
        figures.cases += 1;
        match outcome {
            Outcome::NotReached => figures.not_reached += 1,
            Outcome::Refused(why) => {
                figures.refused += 1;
                // Whoever leaves the choice to us should get a kernel.
                if case.stage == Stage::Chosen {
                    let reason = why.rsplit(": ").next().unwrap_or(why).to_owned();
                    let (count, _) = reasons.entry(reason).or_insert((0, case.to_string()));
                    *count += 1;
                }
            }
            Outcome::Assembled(new, found) => {
                figures.texts += new;
                figures.spill += usize::from(!found.is_empty());
            }
        }
    }
    for (reason, (count, first)) in &reasons {
        println!("left to us and refused, {count}, such as {first}: {reason}");
    }
    for (stage, figures) in &stages {
        println!("{stage:?}: {figures:?}");
    }
    let sum = |of: fn(&Figures) -> usize| stages.values().map(of).sum::<usize>();
    println!(
        "{} kernels assembled in {:.0} s, {} of {} cases spill, {} were not reached",
        sum(|one| one.texts),
        begun.elapsed().as_secs_f64(),
        sum(|one| one.spill),
        cases.len(),
        sum(|one| one.not_reached),
    );
    Ok(sum(|one| one.spill) == 0)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}
