//! Launches written in a file, in the comments that tests are written in
//! (`docs/test-files.md`): the PTX's own, or another file's beside it.

use super::launch::open;
use crate::answer::{BadQuestion, not_run, question};
use crate::file::read_source;
use heist_check::shared_opt_in;
use heist_filetests::{Action, Run, read_directives};
use heist_ptx::Diagnostic;
use heist_run::{DeviceName, Program, Settings};
use std::path::Path;

/// Runs every launch that a file says; how many those are, and what all of them found.
pub(super) fn run(path: &Path, program: &Program) -> Result<(usize, Vec<Diagnostic>), BadQuestion> {
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
    let mut found: Vec<Diagnostic> = Vec::new();
    for run in &launches {
        for diagnostic in launch(run, program)? {
            // Several launches find one mistake once.
            let known = |other: &Diagnostic| {
                other.code == diagnostic.code && other.span.start == diagnostic.span.start
            };
            if !found.iter().any(known) {
                found.push(diagnostic);
            }
        }
    }
    Ok((launches.len(), found))
}

fn launch(run: &Run, program: &Program) -> Result<Vec<Diagnostic>, BadQuestion> {
    let entry = program.entry(run.entry.as_deref()).map_err(question)?;
    let name = match &run.device {
        Some(text) => text.parse().map_err(BadQuestion::Sentence)?,
        None => DeviceName::for_target(&program.module().target.arch),
    };
    let settings = Settings {
        seed: run.seed.unwrap_or(0),
        schedules: run.explore.unwrap_or(1).into(),
        chaos: run.chaos,
        cooperative: run.cooperative,
        ..Settings::default()
    };
    let execution = open(name)?
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
