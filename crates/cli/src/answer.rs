//! The answer of a command and its exit status: 0 clean, 1 something was found, 2 the question was
//! wrong.

use crate::render;
use heist_ptx::{Diagnostic, Source};
use heist_run::NotRun;

/// The verdict of a command that could answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing wrong: exit status 0.
    Clean,
    /// Something was found: exit status 1.
    Found,
    /// What a program that was run ended with.
    Status(u8),
    /// One of several files could not be read, which was reported: exit status 2.
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
            question if out.json => out.json_as("error", &question.to_json()),
            BadQuestion::Sentence(sentence) => eprintln!("heist: {sentence}"),
            BadQuestion::Diagnostics(diagnostics, source) => tell_all(diagnostics, source),
        }
    }

    /// One shape for every error: a sentence, and the findings that are behind it.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            BadQuestion::Sentence(sentence) => {
                serde_json::json!({ "error": sentence, "diagnostics": [] })
            }
            BadQuestion::Diagnostics(diagnostics, source) => {
                let list = diagnostics.iter().map(|one| render::to_json(one, source));
                let first = diagnostics.first().map(|one| one.message.as_str());
                serde_json::json!({
                    "error": first.unwrap_or("it could not be read"),
                    "diagnostics": list.collect::<Vec<_>>(),
                })
            }
        }
    }
}

/// How to answer.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    /// One JSON value for machines instead of text for people.
    pub(crate) json: bool,
    /// The command, which names the schema of its answer.
    pub(crate) command: &'static str,
}

impl Output {
    /// Text, from no command in particular.
    pub(crate) fn for_people() -> Output {
        Output {
            json: false,
            command: "",
        }
    }

    /// Prints the answer: an object with the name and version of its schema, which
    /// `docs/schemas` has. The version goes up when a field goes or changes its meaning.
    pub(crate) fn json(self, answer: &impl serde::Serialize) {
        self.json_as(self.command, answer);
    }

    /// The same, for an answer that another schema describes.
    pub(crate) fn json_as(self, schema: &str, answer: &impl serde::Serialize) {
        let answer = serde_json::to_value(answer).map(|mut answer| {
            if let Some(fields) = answer.as_object_mut() {
                fields.insert("schema".to_owned(), format!("heist-{schema}/1").into());
            }
            answer
        });
        self.json_plain(&answer.unwrap_or_default());
    }

    /// Prints JSON in an external format.
    pub(crate) fn json_plain(self, value: &serde_json::Value) {
        println!("{value:#}");
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

/// The reason why a launch did not run.
pub(crate) fn not_run(why: NotRun) -> BadQuestion {
    match why {
        NotRun::Refused(list, text) => BadQuestion::Diagnostics(list, *text),
        other => question(other),
    }
}
