//! Timelines: runs drawn into a file.

use crate::answer::{BadQuestion, question};
use crate::file;
use heist_ptx::{Diagnostic, rule};
use heist_view::{Run as Named, Stopped};
use std::path::Path;

/// What ended a run early, as a timeline says it: the first finding after which nothing went on.
pub(crate) fn stop(findings: &[Diagnostic]) -> Option<String> {
    let ends = [rule::TIME_BUDGET, rule::DEADLOCK, rule::LIVELOCK];
    let found = findings.iter().find(|found| ends.contains(&found.code))?;
    Some(format!("{}, {}", found.code, found.message))
}

/// The same, with the number of tiles that there were to run.
pub(crate) fn stopped(why: &Option<String>, tiles: Option<u64>) -> Option<Stopped<'_>> {
    why.as_deref().map(|why| Stopped { why, tiles })
}

/// Draws runs into a file, by its extension.
pub(crate) fn draw(path: &Path, title: &str, runs: &[Named<'_>]) -> Result<(), BadQuestion> {
    let text = match (path.extension().and_then(|e| e.to_str()), runs) {
        (Some("html"), _) => heist_view::html(title, runs),
        (Some("svg"), [run]) => heist_view::svg(run),
        (Some("svg"), _) => {
            return Err(question(
                "an .svg shows one launch; write an .html for several",
            ));
        }
        (Some("json"), _) => heist_view::perfetto(runs).to_string(),
        _ => return Err(no_timeline(path)),
    };
    file::write(path, text)
}

fn no_timeline(path: &Path) -> BadQuestion {
    question(format!(
        "{}: a timeline is a .html, .svg or .json file",
        path.display()
    ))
}

/// Fails, before anything has run, where [`draw`] would.
pub(crate) fn drawable(path: &Path) -> Result<(), BadQuestion> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("html" | "svg" | "json") => file::writable(path),
        _ => Err(no_timeline(path)),
    }
}
