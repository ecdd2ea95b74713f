//! The outcome of a launch, and the errors in its place.

use heist_launch::{Outcome, Placed, Time};
use heist_ptx::{Diagnostic, Severity, Source};
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

/// Findings as lines of text: place, message, and what goes with it.
fn tell(f: &mut fmt::Formatter<'_>, found: &[Diagnostic], source: &Source) -> fmt::Result {
    if found.is_empty() {
        return f.write_str("the device did not take the kernel");
    }
    for (index, one) in found.iter().enumerate() {
        if index > 0 {
            f.write_str("\n")?;
        }
        if one.span.is_none() {
            write!(f, "{one}")?;
        } else {
            let line = source.position(one.span).line;
            write!(f, "{}:{line}: {one}", source.name())?;
            write!(f, "\n  {}", source.line(line).trim())?;
        }
        for note in &one.notes {
            write!(f, "\n  note: {note}")?;
        }
        for help in &one.helps {
            write!(f, "\n  help: {help}")?;
        }
    }
    Ok(())
}
