//! Launches written in a file, in the comments that tests are written in
//! (`docs/test-files.md`): the PTX's own, or another file's beside it.

use super::entry;
use super::launch::{RunFlags, open};
use crate::answer::{BadQuestion, not_run, question};
use crate::file::read_source;
use heist_check::shared_opt_in;
use heist_filetests::{Action, Run, read_directives};
use heist_ptx::Diagnostic;
use heist_run::{Program, Settings};
use std::path::Path;
use std::time::Instant;

/// What the launches of a file gave.
pub(super) struct Launches<'p> {
    /// How many there were.
    pub(super) count: usize,
    /// Whether one says what must come out of it, which is not looked at here.
    pub(super) expects: bool,
    /// What all of them found.
    pub(super) found: Vec<Diagnostic>,
    /// The kernels that were launched.
    pub(super) entries: Vec<&'p str>,
}

/// Runs every launch of a file, or only those of one kernel. Flags of the command line have
/// precedence over the file.
pub(super) fn run<'p>(
    path: &Path,
    program: &'p Program,
    how: &RunFlags,
) -> Result<Launches<'p>, BadQuestion> {
    let says = read_source(path)?;
    let name = says.name().to_owned();
    let file = read_directives(says).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        BadQuestion::Sentence(lines.join("\n"))
    })?;
    let launches: Vec<&Run> = file
        .cases
        .iter()
        .filter_map(|case| match &case.action {
            Action::Run(run) => Some(run.as_ref()),
            Action::Check => None,
        })
        .collect();
    if launches.is_empty() {
        return Err(BadQuestion::Sentence(format!(
            "{name} says no launch: a line such as `// heist: run first grid=8 block=256`, and one \
             `// heist: arg` for each parameter"
        )));
    }
    let asked = match &how.entry {
        Some(asked) => Some(entry::find(program, Some(asked))?),
        None => None,
    };
    let mut all = Launches {
        count: 0,
        expects: false,
        found: Vec::new(),
        entries: Vec::new(),
    };
    let started = Instant::now();
    for run in launches {
        let entry = entry::find(program, run.entry.as_deref())?;
        if asked.is_some_and(|asked| asked != entry) {
            continue;
        }
        all.count += 1;
        all.expects |= !run.expects.is_empty();
        all.entries.push(entry);
        for diagnostic in launch(run, entry, program, how, started)? {
            // A mistake that several launches find is reported once.
            let known = |other: &Diagnostic| {
                other.code == diagnostic.code && other.span.start == diagnostic.span.start
            };
            if !all.found.iter().any(known) {
                all.found.push(diagnostic);
            }
        }
    }
    match (all.count, asked) {
        (0, Some(asked)) => Err(question(format!("{name} says no launch of `{asked}`"))),
        _ => Ok(all),
    }
}

fn launch(
    run: &Run,
    entry: &str,
    program: &Program,
    how: &RunFlags,
    started: Instant,
) -> Result<Vec<Diagnostic>, BadQuestion> {
    let device = match (how.device, &run.device) {
        (None, Some(text)) => text.parse().map_err(BadQuestion::Sentence)?,
        _ => how.device(program),
    };
    let mut settings = how.settings(Settings {
        seed: run.seed.unwrap_or(0),
        schedules: heist_run::Schedules::Exactly(run.explore.unwrap_or(1).into()),
        chaos: run.chaos,
        cooperative: run.cooperative,
        ..Settings::default()
    });
    // One limit for all of the launches.
    settings.limit = settings.limit.saturating_sub(started.elapsed());
    let execution = open(device)?
        .inspect(program, entry, &run.launch, &run.arguments, &settings)
        .map_err(not_run)?;
    let mut found = execution.findings;
    found.extend(shared_opt_in(
        program.module(),
        entry,
        run.launch.dynamic_shared,
    ));
    Ok(found)
}
