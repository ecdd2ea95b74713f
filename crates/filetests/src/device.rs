//! Where cases run: the interface that the simulator and the GPU stand behind.

use crate::case::Run;
use heist_launch::Outcome;
use heist_ptx::{Diagnostic, Module, Source};
use std::fmt;

/// Something that runs PTX.
pub trait Device: Sync {
    /// What reports call it: `sim`, `gpu`.
    fn name(&self) -> &str;

    /// Whether it is real, so that a kernel that is wrong on purpose may harm it.
    fn is_real(&self) -> bool;

    /// Runs one launch. What the device has to say about the kernel is in the
    /// diagnostics; an error is for what kept it from running.
    fn run(&self, request: &Request<'_>) -> Result<Ran, RunError>;
}

/// One launch to run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'t> {
    /// The text.
    pub source: &'t Source,
    /// The same, parsed.
    pub module: &'t Module,
    /// The case, by its name in the text.
    pub case: &'t str,
    /// The kernel.
    pub entry: &'t str,
    /// Launch, arguments, seed and the rest.
    pub run: &'t Run,
}

/// What a run gave.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Buffers and trace.
    pub outcome: Outcome,
    /// What was found on the way.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The device is not one for this kernel: an architecture it does not have.
    /// The case is skipped, by name, with this reason.
    NotForThisDevice(String),
    /// It should have worked. The case fails.
    Failed(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NotForThisDevice(why) | RunError::Failed(why) => f.write_str(why),
        }
    }
}

/// Something that finds fault with a module without running it.
pub trait Checker: Sync {
    /// Everything it finds.
    fn check(&self, module: &Module, source: &Source) -> Vec<Diagnostic>;
}

impl<F> Checker for F
where
    F: Fn(&Module, &Source) -> Vec<Diagnostic> + Sync,
{
    fn check(&self, module: &Module, source: &Source) -> Vec<Diagnostic> {
        self(module, source)
    }
}
