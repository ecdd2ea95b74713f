//! The outcome of a launch, and the errors in its place.

use heist_launch::{Outcome, Placed, Time};
use heist_ptx::{Diagnostic, Severity, Source, SourceLine};
use std::fmt;

/// What a launch gave, on any device.
#[derive(Clone, Debug, Default)]
pub struct Execution {
    /// Buffers and trace.
    pub outcome: Outcome,
    /// Everything that was found. On a real GPU that is a fault, or nothing.
    pub findings: Vec<Diagnostic>,
    /// What the kernel printed, on the simulator; a real GPU prints by itself.
    pub printed: String,
    /// How long the kernel took: modelled or measured, as the device is.
    pub elapsed: Option<Time>,
    /// What the driver's assembler made of the kernel, on a real GPU.
    pub resources: Option<Resources>,
    /// The memory that had an address before the launch, as the kernel left it.
    pub placed: Vec<Placed>,
    /// The schedule that this is of, on the simulator.
    pub seed: u64,
    /// How many schedules were tried until this one, itself included.
    pub schedules: u64,
}

impl Execution {
    /// Whether an error was found; warnings are none.
    pub fn has_errors(&self) -> bool {
        let is_error = |found: &Diagnostic| found.severity == Severity::Error;
        self.findings.iter().any(is_error)
    }

    /// The execution where nothing was found in it.
    ///
    /// # Errors
    /// When anything was, a warning included. `source` is the program's text, which
    /// the message takes lines from.
    pub fn clean(self, source: &Source) -> Result<Execution, Found> {
        if self.findings.is_empty() {
            return Ok(self);
        }
        Err(Found {
            execution: Box::new(self),
            source: Box::new(source.clone()),
        })
    }
}

/// What an assembled kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Registers of one thread.
    pub registers: u32,
    /// Bytes of shared memory that the kernel declares itself.
    pub static_shared: u32,
    /// Bytes of local memory of one thread: spills and stack.
    pub local: u32,
}

/// A run with findings.
#[derive(Clone, Debug)]
pub struct Found {
    /// The run; its findings are not empty.
    pub execution: Box<Execution>,
    /// The text that the findings are about.
    pub source: Box<Source>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tell(f, &self.execution.findings, &self.source)
    }
}

impl std::error::Error for Found {}

/// Why there is no execution.
#[derive(Clone, Debug)]
pub enum NotRun {
    /// The device does not accept the program, the launch or the arguments; with the program's
    /// text.
    Refused(Vec<Diagnostic>, Box<Source>),
    /// The GPU, or the driver's assembler, could not do it.
    #[cfg(feature = "gpu")]
    Gpu(heist_gpu::GpuError),
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRun::Refused(found, source) => tell(f, found, source),
            #[cfg(feature = "gpu")]
            NotRun::Gpu(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotRun {}

#[cfg(feature = "gpu")]
impl From<heist_gpu::GpuError> for NotRun {
    fn from(error: heist_gpu::GpuError) -> NotRun {
        NotRun::Gpu(error)
    }
}

/// Why the results of a run are not valid.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// It did not take place.
    #[error(transparent)]
    NotRun(#[from] NotRun),
    /// It did, and there were findings.
    #[error(transparent)]
    Found(#[from] Found),
}

/// What a source line says, where the file can be read.
fn text_of(line: &SourceLine) -> Option<String> {
    let text = std::fs::read_to_string(&line.path).ok()?;
    let at = (line.line as usize).checked_sub(1)?;
    Some(text.lines().nth(at)?.trim().to_owned())
}

/// Findings as lines of text: place, message, and what goes with it.
fn tell(f: &mut fmt::Formatter<'_>, found: &[Diagnostic], source: &Source) -> fmt::Result {
    if found.is_empty() {
        return f.write_str("the device did not take the kernel");
    }
    for (index, one) in found.iter().enumerate() {
        if index > 0 {
            f.write_str("\n")?;
        }
        let line = source.position(one.span).line;
        let text = source.line(line).trim();
        let mut told = one.clone();
        match &one.source_line {
            _ if one.span.is_none() => write!(f, "{one}")?,
            // The line that the kernel was built from; its PTX is in no file.
            Some(place) => {
                write!(f, "{place}: {one}")?;
                told.source_line = None;
                if let Some(text) = text_of(place) {
                    write!(f, "\n  {text}")?;
                }
                write!(f, "\n  note: in PTX, line {line}: `{text}`")?;
            }
            None => write!(f, "{}:{line}: {one}\n  {text}", source.name())?,
        }
        for note in told.facts() {
            write!(f, "\n  note: {note}")?;
        }
        for help in &one.helps {
            write!(f, "\n  help: {help}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::{Span, rule};

    #[test]
    fn the_line_that_a_kernel_was_built_from_comes_first() {
        let source = Source::new("scan.ptx", "ret;\n  st.global.u32 [a], v;\n");
        let span = Span { start: 7, end: 10 };
        let mut one = Diagnostic::error(rule::GLOBAL_OUT_OF_BOUNDS, span, "writes too far");
        let plain = NotRun::Refused(vec![one.clone()], Box::new(source.clone())).to_string();
        assert!(
            plain.starts_with("scan.ptx:2: error[M001]: writes too far\n  st.global"),
            "{plain}"
        );
        let here = format!("{}/src/execution.rs:1:1", env!("CARGO_MANIFEST_DIR"));
        one.notes = vec!["by thread 0".to_owned()];
        one.source_line = Some(SourceLine {
            path: format!("{}/src/execution.rs", env!("CARGO_MANIFEST_DIR")),
            line: 1,
            column: 1,
            text: None,
        });
        let lifted = NotRun::Refused(vec![one], Box::new(source)).to_string();
        let lines: Vec<&str> = lifted.lines().collect();
        assert_eq!(lines[0], format!("{here}: error[M001]: writes too far"));
        assert!(lines[1].starts_with("  //! "), "{lifted}");
        assert_eq!(
            lines[2..],
            [
                "  note: in PTX, line 2: `st.global.u32 [a], v;`",
                "  note: by thread 0"
            ]
        );
    }
}
