//! Launches written in a file, in the comments that tests are written in
//! (`docs/test-files.md`): the PTX's own, or another file's beside it.

use super::launch::only_entry;
use super::{BadQuestion, read_source};
use heist::device::{Device, DeviceName, NotRun, Settings};
use heist_check::shared_opt_in;
use heist_filetests::{Action, Run, read_directives};
use heist_ptx::{Diagnostic, Module, Severity, Source};
use std::path::Path;

/// Runs every launch that a file says; how many those are, and what all of them found.
pub(super) fn run(
    path: &Path,
    source: &Source,
    module: &Module,
) -> Result<(usize, Vec<Diagnostic>), BadQuestion> {
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
        for diagnostic in launch(run, source, module)? {
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

fn launch(run: &Run, source: &Source, module: &Module) -> Result<Vec<Diagnostic>, BadQuestion> {
    let entry = only_entry(run.entry.as_deref(), source, module)?;
    let name = match &run.device {
        Some(text) => text.parse().map_err(BadQuestion::Sentence)?,
        None => DeviceName::for_target(&module.target.arch),
    };
    let device = Device::open(name).map_err(|error| BadQuestion::Sentence(error.to_string()))?;
    let opt_in = shared_opt_in(module, &entry, run.launch.dynamic_shared);
    let first = run.seed.unwrap_or(0);
    let schedules = match name {
        DeviceName::Sim(_) => run.explore.unwrap_or(1).max(1),
        DeviceName::Gpu(_) => 1,
    };
    let mut found = Vec::new();
    for more in 0..schedules {
        let settings = Settings {
            seed: first.wrapping_add(more.into()),
            chaos: run.chaos,
            cooperative: run.cooperative,
            ..Settings::default()
        };
        let ran = device.run(
            source,
            module,
            &entry,
            &run.launch,
            &run.arguments,
            &settings,
        );
        found = match ran {
            Ok(report) => report.diagnostics,
            Err(NotRun::Gpu(error)) => return Err(BadQuestion::Sentence(error.to_string())),
            Err(NotRun::Refused(list)) => {
                return Err(BadQuestion::Diagnostics(list, source.clone()));
            }
        };
        if found.iter().any(|one| one.severity == Severity::Error) {
            break;
        }
    }
    found.extend(opt_in);
    Ok(found)
}
