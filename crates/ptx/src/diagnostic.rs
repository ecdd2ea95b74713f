//! Diagnostics: one type for all findings of Heist.
//!
//! The parser, the structural rules, the checker and the simulator all produce
//! [`Diagnostic`]s; the command renders them. A diagnostic carries the
//! [`Code`] of a rule, so that `heist explain CODE` can explain it.

use crate::span::Span;
use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Legal, but advised against, slow, or not provable either way.
    Warning,
    /// Undefined, impossible, or not PTX.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// The stable name of a rule, such as `P001` or `L003`.
///
/// The letter names the subject (P: the text and structure of PTX, M: memory,
/// R: races, B: barriers, A: asynchronous copies and mbarriers, T: tensor
/// cores, L: cluster launch control, X: execution and its limits, G: the GPU and its
/// logs); numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub &'static str);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// A place in the source, and what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// What is said about it; may be empty for the place of the error itself.
    pub text: String,
    /// The source line that it was compiled from, where that is told apart from the text.
    pub source_line: Option<SourceLine>,
}

/// A line of the source that PTX was compiled from, by `.file` and `.loc`.
///
/// ```
/// let line = heist_ptx::SourceLine { path: "sum.cu".to_owned(), line: 3, column: 7, text: None };
/// assert_eq!(line.to_string(), "sum.cu:3:7");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file as `.file` names it.
    pub path: String,
    /// Its line, from 1.
    pub line: u32,
    /// Its column, from 1; 0 where the compiler does not tell.
    pub column: u32,
    /// What the line says, where the file was read.
    pub text: Option<String>,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.path, self.line, self.column)
    }
}

/// One finding: what is wrong, where, why, and what to do.
///
/// ```
/// use heist_ptx::{Code, Diagnostic, Span};
/// let d = Diagnostic::error(Code("P007"), Span::new(3, 5), "register `%r9` is not declared")
///     .help("declare it: `.reg .b32 %r<10>;`");
/// assert_eq!(d.to_string(), "error[P007]: register `%r9` is not declared");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The rule that was broken.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence without a full stop.
    pub message: String,
    /// Where it happened; [`Span::NONE`] when it is about the whole file.
    pub span: Span,
    /// What to write under the primary place; may be empty.
    pub label: String,
    /// Other places that matter.
    pub others: Vec<Label>,
    /// The source line that the place was compiled from, where it is known.
    pub source_line: Option<SourceLine>,
    /// Facts that explain the message.
    pub notes: Vec<String>,
    /// What to do about it.
    pub helps: Vec<String>,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            message: message.into(),
            span,
            label: String::new(),
            others: Vec::new(),
            source_line: None,
            notes: Vec::new(),
            helps: Vec::new(),
        }
    }

    /// A warning at `span`.
    pub fn warning(code: Code, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(code, span, message)
        }
    }

    /// Says `text` under the primary place.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Diagnostic {
        self.label = text.into();
        self
    }

    /// Points at a second place.
    #[must_use]
    pub fn other(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.others.push(Label {
            span,
            text: text.into(),
            source_line: None,
        });
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// Adds a remedy.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.helps.push(text.into());
        self
    }

    /// The notes, with the source lines among them, as all renderings tell them.
    pub fn facts(&self) -> Vec<String> {
        let others = self.others.iter().filter_map(|other| {
            let line = other.source_line.as_ref()?;
            Some(format!("the other access is source line {line}"))
        });
        let own = self.source_line.as_ref().map(|line| match &line.text {
            Some(text) => format!("source line {line}: `{text}`"),
            None => format!("source line {line}"),
        });
        others
            .chain(self.notes.iter().cloned())
            .chain(own)
            .collect()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity, self.code, self.message)
    }
}
