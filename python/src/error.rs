//! Errors as Python exceptions: each says the cause and what to do.

use heist::ops::OpError;
use heist::ptx::{Diagnostic, Severity, Source};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    heist,
    HeistError,
    PyRuntimeError,
    "Something that Heist was asked for could not be done."
);
pyo3::create_exception!(
    heist,
    UnsupportedError,
    HeistError,
    "No kernel does this. The message says what is supported."
);
pyo3::create_exception!(
    heist,
    FindingError,
    HeistError,
    "The simulated GPU found something wrong. `findings` has all of it."
);

/// A finding: the rule that was broken, where, and what to do.
///
/// `print(finding)` shows it with the source.
#[pyclass(frozen, module = "heist", get_all)]
#[derive(Clone)]
pub(crate) struct Finding {
    /// The rule, such as `M007`; `heist.explain` has its page.
    code: String,
    /// `error` or `warning`.
    severity: String,
    /// What is wrong, in a sentence.
    message: String,
    /// The file.
    file: String,
    /// The line, from 1; None where it is about the whole file.
    line: Option<u32>,
    /// Facts that explain it.
    notes: Vec<String>,
    /// What to do about it.
    helps: Vec<String>,
    /// The PTX at its place and at every other that it names, where those were moved to the source.
    instructions: Vec<String>,
    /// All of it with the source, as the command shows it.
    text: String,
}

/// All of a finding, in the order of its fields.
type Parts = (
    String,
    String,
    String,
    String,
    Option<u32>,
    Vec<String>,
    Vec<String>,
    Vec<String>,
    String,
);

#[pymethods]
impl Finding {
    /// What `pickle` and `copy` make of [`Finding::__getnewargs__`]: an exception with findings
    /// goes from one process to another.
    #[new]
    fn from_parts(parts: Parts) -> Finding {
        let (code, severity, message, file, line, notes, helps, instructions, text) = parts;
        Finding {
            code,
            severity,
            message,
            file,
            line,
            notes,
            helps,
            instructions,
            text,
        }
    }

    fn __getnewargs__(&self) -> (Parts,) {
        let own = self.clone();
        ((
            own.code,
            own.severity,
            own.message,
            own.file,
            own.line,
            own.notes,
            own.helps,
            own.instructions,
            own.text,
        ),)
    }

    fn __repr__(&self) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!(
            "<{}[{}] {}{line}: {}>",
            self.severity, self.code, self.file, self.message
        )
    }

    fn __str__(&self) -> String {
        self.text.clone()
    }
}

impl Finding {
    /// A finding in compiled PTX, moved to its line of the source where the PTX has line
    /// information.
    pub(crate) fn compiled(diagnostic: &Diagnostic, program: &heist::run::Program) -> Finding {
        let (module, source) = (program.module(), program.source());
        match heist_cli::origin::lifted(module, source, diagnostic) {
            Some((told, above)) => Finding {
                instructions: std::iter::once(diagnostic.span)
                    .chain(diagnostic.others.iter().map(|other| other.span))
                    .filter(|span| !span.is_none())
                    .map(|span| source.slice(span).to_owned())
                    .collect(),
                ..Finding::new(&told, &above)
            },
            None => Finding::new(diagnostic, source),
        }
    }

    pub(crate) fn new(diagnostic: &Diagnostic, source: &Source) -> Finding {
        let text = heist_cli::render::to_text(diagnostic, source);
        let place = (!diagnostic.span.is_none()).then(|| source.position(diagnostic.span));
        Finding {
            code: diagnostic.code.0.to_owned(),
            severity: match diagnostic.severity {
                Severity::Warning => "warning",
                Severity::Error => "error",
            }
            .to_owned(),
            message: diagnostic.message.clone(),
            file: source.name().to_owned(),
            line: place.map(|place| place.line),
            notes: diagnostic.facts(),
            helps: diagnostic.helps.clone(),
            instructions: Vec::new(),
            text: anstream::adapter::strip_str(&text).to_string(),
        }
    }
}

/// An exception with everything that was found.
pub(crate) fn found(py: Python<'_>, list: &[Diagnostic], source: &Source) -> PyErr {
    let findings: Vec<Finding> = list.iter().map(|d| Finding::new(d, source)).collect();
    let texts: Vec<&str> = findings.iter().map(|f| f.text.as_str()).collect();
    let error = FindingError::new_err(texts.join("\n"));
    // An exception without the list is still the right exception.
    let _ = error.value(py).setattr("findings", findings);
    error
}

/// An operation's error.
pub(crate) fn of_op(py: Python<'_>, error: OpError) -> PyErr {
    match error {
        OpError::Kernel(error) => UnsupportedError::new_err(error.to_string()),
        OpError::Memory(why) => PyValueError::new_err(why),
        OpError::Gpu(error @ heist::gpu::GpuError::OutOfMemory { .. }) => {
            PyMemoryError::new_err(error.to_string())
        }
        OpError::Gpu(error) => HeistError::new_err(error.to_string()),
        OpError::Found(list, source) => found(py, &list, &source),
        OpError::NotRun(why) => HeistError::new_err(why),
    }
}

/// A word that is none of those there are.
pub(crate) fn bad_word(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
