//! What can be wrong with a request for a kernel.

use heist_builder::BuildError;
use heist_sched::PlanError;

/// Why there is no kernel, or no launch, for what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Its launch could not be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What was asked is not what the kernel does; the sentence says why and
    /// what to do.
    #[error("{0}")]
    Unfit(String),
}

impl KernelError {
    /// With a sentence that says what does not fit, and why.
    pub fn unfit(why: impl Into<String>) -> KernelError {
        KernelError::Unfit(why.into())
    }
}
