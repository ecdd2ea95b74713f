//! What is wrong with PTX, what a rule means, and what a policy says.

use crate::error::{Finding, bad_word};
use heist::check::log::{self, TextKind};
use heist::ptx::{Source, parse, validate};
use heist::sched::{AnyPolicy, Catalogue, Policy};
use heist_cli::command::Heist;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Checks PTX, or a log of ptxas, a build or compute-sanitizer.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, text: &str, name: &str) -> PyResult<Vec<Finding>> {
    let source = Source::new(name, text);
    py.detach(|| {
        let found = match log::recognise(source.text()) {
            None => {
                return Err(PyValueError::new_err(format!(
                    "{name} is neither PTX (no `.version` or `.target`) nor a log of ptxas, \
                     compute-sanitizer or CUDA; give the text of one, or a path"
                )));
            }
            Some(TextKind::Ptx) => match parse(&source) {
                Err(errors) => errors,
                Ok(module) => {
                    let mut found = validate::validate(&module, Some(&source));
                    found.extend(heist::check::check(&module));
                    found
                }
            },
            Some(kind) => log::read(kind, &source).findings,
        };
        Ok(found.iter().map(|d| Finding::new(d, &source)).collect())
    })
}

/// The page about a rule.
#[pyfunction]
pub(crate) fn explain(code: &str) -> PyResult<String> {
    heist::check::explain(code)
        .map(|page| page.markdown())
        .ok_or_else(|| {
            PyValueError::new_err(format!(
                "there is no rule `{code}`: codes are a letter and three digits, such as M007, and \
                 `heist.check` names those of what it finds"
            ))
        })
}

/// The command with these words, the program's name first; its exit status.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, words: Vec<String>) -> u8 {
    py.detach(|| match Heist::parse_words(words) {
        Ok(command) => command.status(),
        Err(error) => {
            // Help and version are errors here too, with a status of zero.
            let _ = error.print();
            u8::try_from(error.exit_code()).unwrap_or(2)
        }
    })
}

/// A policy as it is written in full.
#[pyfunction]
pub(crate) fn policy(text: &str) -> PyResult<String> {
    let policy: AnyPolicy = text.parse().map_err(bad_word)?;
    Ok(policy.name())
}

/// Every policy, with a line about each.
#[pyfunction]
pub(crate) fn policies() -> Vec<(String, String)> {
    let catalogue = Catalogue::standard();
    let entries = catalogue.entries().iter();
    entries
        .map(|entry| (entry.example.to_owned(), entry.summary.to_owned()))
        .collect()
}
