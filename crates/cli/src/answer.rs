//! What a command answers, and how it says so: its exit status is 0 clean, 1 something
//! was found, 2 the question was wrong.

use crate::render;
use heist_ptx::{Diagnostic, Source};
use heist_run::NotRun;

/// What a command that could answer found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing wrong: exit status 0.
    Clean,
    /// Something was found: exit status 1.
    Found,
    /// Of several files one could not be read, which was told: exit status 2.
    Partly,
}

/// Why a command could not answer: exit status 2.
pub(crate) enum BadQuestion {
    /// One sentence, with what to do.
    Sentence(String),
    /// A file that is not what it should be.
    Diagnostics(Vec<Diagnostic>, Source),
}

impl BadQuestion {
    pub(crate) fn tell(&self, out: Output) {
        match self {
            question if out.json => out.json(&question.to_json()),
            BadQuestion::Sentence(sentence) => eprintln!("heist: {sentence}"),
            BadQuestion::Diagnostics(diagnostics, source) => tell_all(diagnostics, source),
        }
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            BadQuestion::Sentence(sentence) => serde_json::json!({ "error": sentence }),
            BadQuestion::Diagnostics(diagnostics, source) => {
                let list = diagnostics.iter().map(|one| render::to_json(one, source));
                serde_json::json!({ "diagnostics": list.collect::<Vec<_>>() })
            }
        }
    }
}

/// How to answer.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// One JSON value for machines instead of text for people.
    pub(crate) json: bool,
}

impl Output {
    pub(crate) fn json(self, value: &impl serde::Serialize) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("heist: {error}"),
        }
    }
}

/// Findings, for people.
pub(crate) fn tell_all(diagnostics: &[Diagnostic], source: &Source) {
    for diagnostic in diagnostics {
        eprintln!("{}\n", render::to_text(diagnostic, source));
    }
}

/// A question that was wrong, in a sentence.
pub(crate) fn question(error: impl std::fmt::Display) -> BadQuestion {
    BadQuestion::Sentence(error.to_string())
}

/// What kept a launch from running.
pub(crate) fn not_run(why: NotRun) -> BadQuestion {
    match why {
        NotRun::Refused(list, text) => BadQuestion::Diagnostics(list, *text),
        other => question(other),
    }
}
