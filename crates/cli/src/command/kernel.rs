//! One kernel of the catalogue with random data, run once and checked: what
//! `heist run` does with a kernel's name.

use crate::answer::{self, BadQuestion, Output, Verdict, question, tell_all};
use crate::progress::Waiting;
use crate::render;
use crate::timeline::{draw, stop, stopped};
use heist::job::{self, JobError, StepRun};
use heist::tune::memory;
use heist_kernels::catalogue::{Entry, Settings as Told};
use heist_kernels::reference::Difference;
use heist_kernels::{Job, Work};
use heist_launch::{Clock, Trace};
use heist_run::{Device, DeviceName, Settings};
use heist_sched::{Schedule, Stats, Watch};
use heist_tune::Candidate;
use heist_view::Run as Named;
use serde_json::json;
use std::path::Path;

/// What was asked for.
pub(super) struct Asked<'a> {
    pub(super) device: Device,
    pub(super) on: DeviceName,
    pub(super) told: Told,
    /// The kernel's own unless given.
    pub(super) schedule: Option<Schedule>,
    /// The tiles and the schedule, as the tuner names them.
    pub(super) candidate: Option<Candidate>,
    pub(super) settings: Settings,
    pub(super) verify: bool,
    pub(super) trace: Option<&'a Path>,
}

/// The result of a run, before its verdict.
struct Answer {
    name: String,
    work: Work,
    steps: Vec<StepRun>,
    /// The difference from the reference, and how much is right.
    checked: Option<(Difference, f64)>,
    /// What the tuner chose, where it did.
    tuned: Option<Candidate>,
}

impl Answer {
    fn findings(&self) -> usize {
        self.steps
            .iter()
            .map(|step| step.execution.findings.len())
            .sum()
    }

    fn is_right(&self) -> bool {
        let close = |(difference, bound): &(Difference, f64)| difference.norm <= *bound;
        self.findings() == 0 && self.checked.as_ref().is_none_or(close)
    }

    fn elapsed_ns(&self) -> f64 {
        let times = self.steps.iter().filter_map(|step| step.execution.elapsed);
        times.map(|time| time.ns()).sum()
    }
}

pub(super) fn run(
    entry: &dyn Entry,
    asked: &Asked<'_>,
    out: Output,
) -> Result<Verdict, BadQuestion> {
    let target = job::target(&asked.device).map_err(question)?;
    let tuned = tuned(entry, asked);
    let schedule = match (&tuned, &asked.schedule) {
        // The schedule is among its words, or the kernel's own.
        (Some(_), _) => None,
        (None, Some(schedule)) => Some(schedule.clone()),
        (None, None) => entry.schedule(&asked.told, target).map_err(question)?,
    };
    let prepare = |schedule: Option<&Schedule>| {
        let prepared = match &tuned {
            Some(candidate) => entry.tuned(&asked.told, candidate, target),
            None => entry.prepare(&asked.told, schedule, target),
        };
        prepared.map_err(question)
    };
    let inspect = |job: &mut Job| {
        let steps = job::inspect(&asked.device, job, &asked.settings);
        steps.map_err(not_run)
    };
    let waiting = Waiting::new(
        out,
        format!("running {}", entry.name()),
        asked.settings.limit,
        asked.settings.meter.clone(),
    );
    // What is timed and checked is the kernel as it ships.
    let mut prepared = prepare(schedule.as_ref())?;
    let mut answer = Answer {
        name: prepared.job.name.clone(),
        work: prepared.job.work,
        steps: inspect(&mut prepared.job)?,
        checked: None,
        tuned: tuned.clone(),
    };
    if asked.verify && answer.findings() == 0 {
        let difference = (prepared.verify)(&prepared.job).map_err(question)?;
        answer.checked = Some((difference, prepared.bound));
    }
    // Its tiles are counted in a second run: a kernel that is watched takes longer.
    if answer.findings() == 0
        && let Some(schedule) = schedule
    {
        drop(prepared);
        let mut watched = prepare(Some(&schedule.watch(Watch::Trace)))?;
        let steps = inspect(&mut watched.job)?;
        for (step, watched) in answer.steps.iter_mut().zip(steps) {
            step.scheduled = watched.scheduled;
            step.execution.outcome.trace = watched.execution.outcome.trace;
            step.execution.findings.extend(watched.execution.findings);
        }
    }
    drop(waiting);
    if let Some(path) = asked.trace {
        trace(path, &answer)?;
    }
    if out.json {
        out.json_as("kernel-run", &as_json(&answer, asked));
    } else {
        tell(&answer, asked);
    }
    Ok(if answer.is_right() {
        Verdict::Clean
    } else {
        Verdict::Found
    })
}

/// What the tuner chose: the candidate that was asked for, or the remembered answer for this
/// problem where nothing else was said. Answers that can't be read are reported and not used.
fn tuned(entry: &dyn Entry, asked: &Asked<'_>) -> Option<Candidate> {
    if asked.candidate.is_some() {
        return asked.candidate.clone();
    }
    if asked.schedule.is_some() {
        return None;
    }
    remembered(entry, &asked.told, &asked.device)
}

/// The remembered answer for a problem. Why one is not taken is told, and not taken it is.
pub(super) fn remembered(entry: &dyn Entry, told: &Told, device: &Device) -> Option<Candidate> {
    match memory::look_up(entry, told, device) {
        Ok(memory) => {
            if let Some(why) = memory.refusal() {
                eprintln!("heist: {why}");
            }
            memory.candidate().cloned()
        }
        Err(error) => {
            eprintln!("heist: {error}\nheist: going on as without tuning");
            None
        }
    }
}

fn not_run(error: JobError) -> BadQuestion {
    match error {
        JobError::NotRun(why) => answer::not_run(why),
        other => question(other),
    }
}

fn trace(path: &Path, answer: &Answer) -> Result<(), BadQuestion> {
    let stops = answer
        .steps
        .iter()
        .map(|step| stop(&step.execution.findings));
    let stops: Vec<Option<String>> = stops.collect();
    let abouts: Vec<String> = answer.steps.iter().map(watched).collect();
    let steps = answer.steps.iter().zip(&stops).zip(&abouts);
    let named = steps.filter_map(|((step, why), about)| {
        let trace = step.execution.outcome.trace.as_ref()?;
        let name = step.text.name().trim_end_matches(".ptx");
        let run = Named::new(name, trace).about(about);
        Some(run.stopped(stopped(why, None)))
    });
    let runs: Vec<Named<'_>> = named.collect();
    if runs.is_empty() {
        return Err(question(
            "a kernel leaves no timeline on a real GPU; run it on a simulated one",
        ));
    }
    draw(path, &answer.name, &runs)
}

/// Why a timeline has another time than the kernel: nothing where it is the same run.
fn watched(step: &StepRun) -> String {
    match (&step.scheduled, step.execution.elapsed) {
        (Some(_), Some(time)) => format!(
            "A second run, in which the kernel writes down when its tiles begin and end. Without that \
             it takes {time}."
        ),
        _ => String::new(),
    }
}

fn tell(answer: &Answer, asked: &Asked<'_>) {
    println!("{}", answer.name);
    if let Some(candidate) = &answer.tuned {
        let from = match asked.candidate {
            Some(_) => "as asked for",
            None => "the tuner's answer for this problem, see `heist tuned`",
        };
        println!("  {candidate} ({from})");
    }
    for step in &answer.steps {
        let StepRun {
            text, execution, ..
        } = step;
        let time = execution
            .elapsed
            .map_or("-".into(), |time| time.to_string());
        match &execution.resources {
            Some(kernel) => println!(
                "  {}: {time}, {} registers, {} bytes spilled",
                text.name(),
                kernel.registers,
                kernel.local
            ),
            None => println!("  {}: {time}, modelled", text.name()),
        }
        if let Some(tiles) = counts(step) {
            println!("  {tiles}");
        }
        tell_all(&execution.findings, text);
    }
    if matches!(asked.device, Device::Gpu(_)) && answer.elapsed_ns() > 0.0 {
        println!(
            "  {:.1} TFLOP/s, {:.0} GB/s at least, in one launch, with all that a first one costs; \
             `heist bench` measures",
            answer.work.flops / answer.elapsed_ns() / 1e3,
            answer.work.bytes / answer.elapsed_ns()
        );
    }
    match &answer.checked {
        Some((difference, bound)) if difference.norm <= *bound => {
            println!("result: right: {difference}");
        }
        Some((difference, bound)) => {
            println!("result: WRONG: {difference}; at most {bound:.1e} is right");
        }
        None => println!("result: not checked"),
    }
    if let Some(path) = asked.trace {
        let second = answer.steps.iter().any(|step| step.scheduled.is_some());
        let whose = if second {
            " (of a second run, in which tiles are watched)"
        } else {
            ""
        };
        println!("timeline: {}{whose}", path.display());
    }
}

/// How many tiles ran where, for a step that was watched.
fn counts(step: &StepRun) -> Option<String> {
    let stats = step.scheduled.as_ref()?.stats.as_ref()?;
    let ran = stats.clusters.iter().filter(|cluster| cluster.tiles > 0);
    let (blocks, total) = (ran.count(), stats.total());
    Some(format!(
        "{} tiles on {blocks} blocks or clusters, {} of them stolen or drawn; {} refusals, {} declines",
        total.tiles, total.stolen, total.refusals, total.declines
    ))
}

fn as_json(answer: &Answer, asked: &Asked<'_>) -> serde_json::Value {
    let step = |run: &StepRun| {
        let StepRun {
            text, execution, ..
        } = run;
        json!({
            "kernel": text.name(),
            "elapsed_ns": execution.elapsed.map(heist_launch::Time::ns),
            "clock": match execution.resources {
                Some(_) => Clock::Measured,
                None => Clock::Modelled,
            },
            "registers": execution.resources.as_ref().map(|kernel| kernel.registers),
            "local_bytes": execution.resources.as_ref().map(|kernel| kernel.local),
            "summary": execution.outcome.trace.as_ref().map(summary),
            "stats": run.scheduled.as_ref().and_then(|s| s.stats.as_ref()).map(Stats::total),
            "diagnostics": execution.findings.iter()
                .map(|diagnostic| render::to_json(diagnostic, text)).collect::<Vec<_>>(),
        })
    };
    json!({
        "name": answer.name,
        "device": asked.on.to_string(),
        "seed": asked.settings.seed,
        "tuned": answer.tuned,
        "flops": answer.work.flops,
        "bytes": answer.work.bytes,
        "steps": answer.steps.iter().map(step).collect::<Vec<_>>(),
        "right": answer.checked.as_ref().map(|_| answer.is_right()),
        "relative_norm": answer.checked.as_ref().map(|(difference, _)| difference.norm),
        "largest_difference": answer.checked.as_ref().map(|(difference, _)| difference.max),
        "bound": answer.checked.as_ref().map(|(_, bound)| bound),
    })
}

/// The figures of a step. A kernel that was not watched reports only its blocks: unknown figures of
/// its tiles are null, not zero.
fn summary(trace: &Trace) -> serde_json::Value {
    let mut figures = json!(trace.summary());
    if trace.tiles.is_empty() {
        for unknown in [
            "tiles",
            "stolen",
            "most_tiles_per_block",
            "declined",
            "refused",
        ] {
            figures[unknown] = serde_json::Value::Null;
        }
    }
    figures
}
