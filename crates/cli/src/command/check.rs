//! `heist check`: why does my kernel die?

use super::launch::{LaunchFlags, RunFlags, arguments_help};
use super::reading::{self, Reading};
use super::{assembler, entry, launch_file, replay};
use crate::answer::{BadQuestion, Output, Verdict, not_run};
use crate::file::read_source;
use crate::fold::fold;
use crate::progress::Waiting;
use crate::say;
use crate::{origin, render, sarif};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgGroup, ArgMatches, Args};
use heist_check::log::{self, KernelUsage, TextKind};
use heist_check::shared_opt_in;
use heist_ptx::{Diagnostic, Module, Severity, Source, Span, rule};
use heist_record::Record;
use heist_run::{NotRun, Program, Settings};
use serde_json::json;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  heist check kernel.ptx              what is wrong with it, without running it
  heist check kernel.ptx --grid 8 --block 256 --arg 'in:f32:rand(1,2048)' --arg out:f32:2048
                                      and what a run on the simulated GPU finds
  heist check --ptxas kernel.ptx      and what its kernels take: registers, stack, spills
  heist check kernel.ptx --launches kernel.ptx
                                      the same, with the launches that its comments say
  heist check record.heist            a launch that `heist record` kept, run again
  heist check build.log               a build's or ptxas's output, explained
  compute-sanitizer ./app | heist check -
  heist check --sarif *.ptx > found.sarif

Exit status: 0 nothing found (or X011 alone, which the host's code must answer), 1 something was,
2 a file that is none of these.";

/// Flags that say how something is run. The limit of time is for reading, too.
const HOW: [&str; 5] = ["device", "seed", "explore", "chaos", "same_value"];

/// Refuses words that say how to run, and nothing to run: neither a launch nor a record. What the
/// configuration file says is for when there is something.
pub(super) fn refuse_idle(words: &ArgMatches) -> Result<(), clap::Error> {
    let said = |name: &&&str| words.value_source(name) == Some(ValueSource::CommandLine);
    let runs = ["grid", "launches"]
        .iter()
        .any(|name| words.contains_id(name));
    let mut files = words.get_many::<PathBuf>("files").into_iter().flatten();
    match HOW.iter().find(said) {
        Some(flag) if !runs && !files.any(|file| replay::is_record(file)) => Err(clap::Error::raw(
            ErrorKind::MissingRequiredArgument,
            format!(
                "`heist check --{}` is for a run: say a launch with --grid or --launches, or a file of `heist record`\n",
                flag.replace('_', "-")
            ),
        )),
        _ => Ok(()),
    }
}

/// Say what is wrong with PTX, or what a log means: where, why, and what to do.
#[derive(Args)]
#[command(after_help = format!("{}\n\n{EXAMPLES}", arguments_help()))]
// A launch is optional here, so its shape is required only once another part is given.
#[command(group = ArgGroup::new("launched").args(["grid", "launches"]).multiple(true))]
#[command(mut_args(|arg| match arg.get_id().as_str() {
    "grid" => arg.required(false),
    "files" | "sarif" | "ptxas" | "launches" | "entry" | "timeout" => arg,
    how if HOW.contains(&how) => arg,
    _ => arg.requires("grid"),
}))]
pub(crate) struct Check {
    /// PTX files, records of launches, or logs of ptxas, a build or compute-sanitizer; `-` is
    /// standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print SARIF 2.1.0, for code-review tools.
    #[arg(long)]
    sarif: bool,
    /// Also assemble PTX with ptxas, and show the registers, stack and spills of each kernel.
    #[arg(long)]
    ptxas: bool,
    /// Also run the launches that a file's `// heist:` comments say: the PTX itself, or another.
    #[arg(long, value_name = "FILE", conflicts_with = "LaunchFlags")]
    launches: Option<PathBuf>,
    #[command(flatten)]
    launch: Option<LaunchFlags>,
    #[command(flatten)]
    how: RunFlags,
}

/// What one file gave.
struct Found {
    source: Source,
    kind: TextKind,
    diagnostics: Vec<Diagnostic>,
    usage: Vec<KernelUsage>,
    /// What is to be said of its launches.
    remarks: Vec<String>,
}

impl Check {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        if self.runs() && self.files.len() > 1 {
            return Err(BadQuestion::Sentence(
                "a launch is for one file; check the others without it".to_owned(),
            ));
        }
        let mut answers = Vec::new();
        for path in &self.files {
            match self.check_file(path, out) {
                // One file that can't be read does not hide what is in the others.
                Err(question) if self.files.len() > 1 => answers.push(Err((path, question))),
                answer => answers.push(Ok(answer?)),
            }
        }
        if out.json && !self.sarif {
            let files: Vec<_> = answers.iter().map(as_json).collect();
            out.json(&serde_json::json!({ "files": files }));
        }
        let mut files = Vec::new();
        let mut verdict = Verdict::Clean;
        for answer in &answers {
            match answer {
                Ok(found) => {
                    files.push((&found.source, found.diagnostics.as_slice()));
                    if found.diagnostics.iter().any(fails) && verdict == Verdict::Clean {
                        verdict = Verdict::Found;
                    }
                    if !out.json && !self.sarif {
                        tell(found);
                    }
                }
                Err((_, question)) => {
                    verdict = Verdict::Partly;
                    question.tell(Output::for_people());
                }
            }
        }
        let unrun = |found: &Found| {
            found.kind == TextKind::Ptx && found.diagnostics.is_empty() && found.remarks.is_empty()
        };
        if self.sarif {
            out.json_plain(&sarif::report(&files));
        } else if !out.json && !self.runs() && answers.iter().flatten().any(unrun) {
            println!(
                "a run finds more than reading does: --grid, --block and an --arg for each parameter, \
                 or --launches"
            );
        }
        Ok(verdict)
    }

    /// Whether something is run.
    fn runs(&self) -> bool {
        self.launch.is_some() || self.launches.is_some()
    }

    fn check_file(&self, path: &Path, out: Output) -> Result<Found, BadQuestion> {
        let name = path.display();
        match replay::read(path)? {
            Some(_) if self.runs() => Err(BadQuestion::Sentence(format!(
                "{name} is a recorded launch: leave --grid and --launches out"
            ))),
            Some(record) => {
                let source = Source::new(format!("{name} (its PTX)"), record.ptx.clone());
                self.check_ptx(source, Some(&record), out)
            }
            None => self.check(read_source(path)?, out),
        }
    }

    fn check(&self, source: Source, out: Output) -> Result<Found, BadQuestion> {
        let Some(kind) = log::recognise(source.text()) else {
            return Err(BadQuestion::Sentence(format!(
                "{} is neither PTX (no `.version` or `.target`) nor a log of ptxas, nvcc, \
                 compute-sanitizer, CUDA or the kernel (Xid) that I know",
                source.name()
            )));
        };
        if kind != TextKind::Ptx {
            if self.runs() || self.ptxas {
                return Err(BadQuestion::Sentence(format!(
                    "{} is a log: there is nothing in it to launch or to assemble",
                    source.name()
                )));
            }
            let reading = log::read(kind, &source);
            return Ok(Found {
                source,
                kind,
                diagnostics: reading.findings,
                usage: reading.usage,
                remarks: Vec::new(),
            });
        }
        self.check_ptx(source, None, out)
    }

    fn check_ptx(
        &self,
        source: Source,
        record: Option<&Record>,
        out: Output,
    ) -> Result<Found, BadQuestion> {
        let began = Instant::now();
        let limit = self.how.settings(Settings::default()).limit;
        let meter = self.how.meter.clone();
        let running = || Waiting::new(out, format!("running {}", source.name()), limit, meter);
        let _waiting = (record.is_some() || self.runs()).then(running);
        let found = |source: Source, diagnostics: Vec<Diagnostic>| Found {
            source,
            kind: TextKind::Ptx,
            diagnostics,
            usage: Vec::new(),
            remarks: Vec::new(),
        };
        match Reading::within(limit, &source) {
            None => Ok(found(source, vec![reading::too_long(limit)])),
            Some(Ok(reading)) => {
                // What reading has taken is not left for the run.
                let left = limit.saturating_sub(began.elapsed());
                let how = RunFlags {
                    timeout: self.how.timeout.map(|_| left),
                    ..self.how.clone()
                };
                self.check_program(reading, record, &how)
            }
            Some(Err(NotRun::Refused(diagnostics, source))) => Ok(found(*source, diagnostics)),
            Some(Err(other)) => Err(not_run(other)),
        }
    }

    fn check_program(
        &self,
        reading: Reading,
        record: Option<&Record>,
        how: &RunFlags,
    ) -> Result<Found, BadQuestion> {
        let program = &reading.program;
        let (source, module) = (program.source(), program.module());
        let asked = match &self.how.entry {
            Some(name) => Some(entry::find(program, Some(name))?),
            None => None,
        };
        let mut answer = Found {
            source: source.clone(),
            kind: TextKind::Ptx,
            diagnostics: reading.found,
            usage: Vec::new(),
            remarks: Vec::new(),
        };
        if reading.valid {
            self.run_launches(program, record, how, &mut answer)?;
        }
        if self.ptxas {
            let reading = assembler::read(source, module).map_err(BadQuestion::Sentence)?;
            answer.usage = reading.usage;
            merge(&mut answer.diagnostics, reading.findings);
        }
        if let Some(asked) = asked {
            let others = Bodies::of(module, |entry| entry != asked);
            answer.diagnostics.retain(|one| !others.have(one.span));
            answer.usage.retain(|usage| usage.kernel == asked);
        }
        answer
            .diagnostics
            .sort_by_key(|diagnostic| diagnostic.span.start);
        origin::add_source_lines(module, source, &mut answer.diagnostics);
        Ok(answer)
    }

    /// Runs what is to be run, and adds what that found.
    fn run_launches(
        &self,
        program: &Program,
        record: Option<&Record>,
        how: &RunFlags,
        answer: &mut Found,
    ) -> Result<(), BadQuestion> {
        let (from_runs, launched) = if let Some(record) = record {
            let replay = replay::run(record, program, how)?;
            answer.remarks = replay.remarks;
            (replay.found, vec![record.kernel.as_str()])
        } else if let Some(launch) = &self.launch {
            let entry = entry::find(program, self.how.entry.as_deref())?;
            let run = launch.run(program, entry, how)?;
            answer.remarks = run.remarks();
            let mut found = run.execution.findings;
            let dynamic = run.launch.dynamic_shared;
            found.extend(shared_opt_in(program.module(), entry, dynamic));
            (found, vec![entry])
        } else if let Some(file) = &self.launches {
            let launches = launch_file::run(file, program, how)?;
            answer.remarks.push(match launches.count {
                1 => "one launch was run".to_owned(),
                many => format!("{many} launches were run"),
            });
            if launches.expects {
                let whose = "results were not compared with what the file expects: `heist selftest` does that";
                answer.remarks.push(whose.to_owned());
            }
            (launches.found, launches.entries)
        } else {
            return Ok(());
        };
        let ended_well = !from_runs.iter().any(|one| one.severity == Severity::Error);
        if ended_well {
            let ran = Bodies::of(program.module(), |entry| launched.contains(&entry));
            answer.drop_refuted(&ran);
        }
        merge(&mut answer.diagnostics, from_runs);
        Ok(())
    }
}

/// Whether a finding fails the check. X011 does not: the opt-in to more than 48 KiB of shared
/// memory is in the host's code, which is not checked.
fn fails(found: &Diagnostic) -> bool {
    found.code != rule::SHARED_OPT_IN
}

/// Whether a finding is only possible, and a run would have reported it if it happened.
fn only_possible(found: &Diagnostic) -> bool {
    let says_may = || found.message.split(' ').any(|word| word == "may");
    let told_by_runs = !matches!(found.code, rule::UNREACHABLE | rule::SETMAXNREG_IGNORED);
    told_by_runs && (found.severity == Severity::Warning || says_may())
}

impl Found {
    /// Drops possible findings in kernels that were launched: the runs have refuted them.
    fn drop_refuted(&mut self, launched: &Bodies) {
        let refuted = |one: &Diagnostic| only_possible(one) && launched.have(one.span);
        let (dropped, kept): (Vec<_>, Vec<_>) =
            self.diagnostics.drain(..).partition(|one| refuted(one));
        self.diagnostics = kept;
        if !dropped.is_empty() {
            let places = dropped.iter().map(|one| {
                let line = self.source.position(one.span).line;
                format!("{} (line {line})", one.code)
            });
            self.remarks.push(format!(
                "only possible, and not so in what was run: {}",
                places.collect::<Vec<_>>().join(", ")
            ));
        }
    }
}

/// Where in the text some kernels are.
struct Bodies(Vec<Range<u32>>);

impl Bodies {
    /// The kernels of those names.
    fn of(module: &Module, wanted: impl Fn(&str) -> bool) -> Bodies {
        // A function reaches from its name to the name of the next one.
        let mut starts: Vec<u32> = module.functions().map(|f| f.span.start).collect();
        starts.sort_unstable();
        let end = |start: u32| starts.iter().copied().find(|&next| next > start);
        let kernels = module.entries().filter(|f| wanted(f.name.as_str()));
        Bodies(
            kernels
                .map(|f| f.span.start..end(f.span.start).unwrap_or(u32::MAX))
                .collect(),
        )
    }

    fn have(&self, span: Span) -> bool {
        !span.is_none() && self.0.iter().any(|body| body.contains(&span.start))
    }
}

/// Merges the findings of a run into the static ones. Where both report the same rule at the same
/// place, the run's finding is kept: it names the thread and the address.
fn merge(found: &mut Vec<Diagnostic>, from_run: Vec<Diagnostic>) {
    let same = |a: &Diagnostic, b: &Diagnostic| {
        a.code == b.code && a.span.start == b.span.start && !a.span.is_none()
    };
    found.retain(|known| !from_run.iter().any(|run| same(known, run)));
    found.extend(from_run);
}

fn as_json(answer: &Result<Found, (&PathBuf, BadQuestion)>) -> serde_json::Value {
    let found = match answer {
        Ok(found) => found,
        Err((path, question)) => {
            let mut told = question.to_json();
            told["file"] = json!(path.display().to_string());
            return told;
        }
    };
    let diagnostics: Vec<_> = found
        .diagnostics
        .iter()
        .map(|diagnostic| render::to_json(diagnostic, &found.source))
        .collect();
    let usage: Vec<_> = found
        .usage
        .iter()
        .map(|kernel| {
            json!({
                "kernel": kernel.kernel,
                "arch": kernel.arch,
                "registers": kernel.registers,
                "shared": kernel.shared,
                "stack": kernel.stack,
                "spill_stores": kernel.spill_stores,
                "spill_loads": kernel.spill_loads,
            })
        })
        .collect();
    json!({ "file": found.source.name(), "diagnostics": diagnostics, "usage": usage,
        "remarks": found.remarks })
}

fn tell(found: &Found) {
    let told = fold(&found.diagnostics, &found.source);
    for diagnostic in &told {
        say::painted(&(render::to_text(diagnostic, &found.source) + "\n\n"));
    }
    if !found.usage.is_empty() {
        println!(
            "{:<40} {:>8} {:>9} {:>8} {:>8} {:>7}",
            "kernel", "arch", "registers", "shared", "stack", "spills"
        );
        for kernel in &found.usage {
            println!(
                "{:<40} {:>8} {:>9} {:>8} {:>8} {:>7}",
                kernel.kernel,
                kernel.arch,
                kernel.registers,
                kernel.shared,
                kernel.stack,
                kernel.spill_stores + kernel.spill_loads
            );
        }
    }
    for remark in &found.remarks {
        println!("{remark}");
    }
    let errors = count(&told, Severity::Error);
    let warnings = count(&told, Severity::Warning);
    if errors + warnings == 0 {
        println!("{}: nothing found", found.source.name());
        return;
    }
    let worst = |diagnostic: &&Diagnostic| diagnostic.severity == Severity::Error;
    let first = told.iter().find(worst);
    let explain = first.or(told.first()).map_or(String::new(), |first| {
        format!("; `heist explain {}` says more", first.code)
    });
    println!(
        "{}: {errors} error{}, {warnings} warning{}{explain}",
        found.source.name(),
        if errors == 1 { "" } else { "s" },
        if warnings == 1 { "" } else { "s" },
    );
}

fn count(told: &[Diagnostic], severity: Severity) -> usize {
    told.iter()
        .filter(|diagnostic| diagnostic.severity == severity)
        .count()
}
