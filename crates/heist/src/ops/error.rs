//! Why an operation was not done.

use crate::job::JobError;
use heist_gpu::GpuError;
use heist_kernels::KernelError;
use heist_ptx::{Diagnostic, Source};
use heist_run::NotRun;

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// No kernel does this, on this device.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The memory that was given does not fit.
    #[error("{0}")]
    Memory(String),
    /// The GPU, or the assembler in the driver, could not do it.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The simulated GPU found something wrong while it ran.
    #[error("the simulated GPU found: {}", .0.first().map_or("nothing", |d| d.message.as_str()))]
    Found(Vec<Diagnostic>, Box<Source>),
    /// The device did not take a launch.
    #[error("{0}")]
    NotRun(String),
}

impl From<JobError> for OpError {
    fn from(error: JobError) -> OpError {
        match error {
            JobError::Kernel(error) => OpError::Kernel(error),
            JobError::Gpu(error) => OpError::Gpu(error),
            JobError::NotRun(NotRun::Refused(list, text)) => OpError::Found(list, text),
            JobError::NotRun(NotRun::Gpu(error)) => OpError::Gpu(error),
            JobError::Found(found) => OpError::Found(found.execution.findings, found.source),
            JobError::Device(why) => OpError::NotRun(why.to_string()),
            JobError::Report(why) => OpError::NotRun(why.to_string()),
        }
    }
}
