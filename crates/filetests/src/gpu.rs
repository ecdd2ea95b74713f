//! The GPU as a device for cases.

use crate::child::{Losable, NoDevice};
use crate::device::{Device, Ran, Request, RunError};
use heist_gpu::{Gpu, GpuError, JitOptions, PtxText, RunOptions};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a case may run; tests are small.
const LIMIT: Duration = Duration::from_secs(10);

/// A real GPU. After a fault it is lost: some faults leave a process that the driver
/// answers nothing but errors, so a run over many cases keeps it in a
/// [`ChildDevice`](crate::ChildDevice).
pub struct GpuDevice {
    gpu: Gpu,
    /// The kernel that it was lost in, and how.
    lost: Mutex<Option<String>>,
}

impl GpuDevice {
    /// Opens the GPU with this number.
    pub fn open(ordinal: u32) -> Result<GpuDevice, NoDevice> {
        match Gpu::open(ordinal) {
            Ok(gpu) => Ok(GpuDevice {
                gpu,
                lost: Mutex::new(None),
            }),
            Err(error) => Err(NoDevice {
                why: error.to_string(),
                about_the_machine: error.is_about_the_machine(),
            }),
        }
    }
}

impl Losable for GpuDevice {
    fn is_lost(&self) -> bool {
        self.lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }
}

impl Device for GpuDevice {
    fn name(&self) -> &str {
        "gpu"
    }

    fn is_real(&self) -> bool {
        true
    }

    fn run(&self, request: &Request<'_>) -> Result<Ran, RunError> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &*lost {
            return Err(RunError::Failed(why.clone()));
        }
        let gpu = &self.gpu;
        gpu.info()
            .capability
            .runs(&request.module.target.arch)
            .map_err(RunError::NotForThisDevice)?;
        let text = PtxText::new(request.source.name(), request.source.text());
        let options = RunOptions {
            jit: JitOptions {
                clamp_version: true,
                ..JitOptions::default()
            },
            cooperative: request.run.cooperative,
            limit: LIMIT,
        };
        let case = request.run;
        let result = gpu.run(
            &text,
            request.entry,
            &case.launch,
            &case.arguments,
            &options,
        );
        let error = match result {
            Ok(ran) => {
                return Ok(Ran {
                    outcome: ran.outcome,
                    diagnostics: Vec::new(),
                });
            }
            Err(error) => error,
        };
        if error.is_context_lost() {
            *lost = Some(format!(
                "not run: the GPU was lost in kernel `{}` of {}: {error}",
                request.entry,
                request.source.name()
            ));
        }
        match error {
            // What a kernel did is a finding about it, which a case may expect.
            GpuError::Fault(_) | GpuError::Timeout { .. } | GpuError::Refused { .. } => Ok(Ran {
                diagnostics: vec![error.diagnostic()],
                ..Ran::default()
            }),
            other => Err(RunError::Failed(other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_opening_explains_itself() {
        match GpuDevice::open(0) {
            Ok(device) => assert!(device.is_real() && !device.is_lost()),
            Err(none) => assert!(none.about_the_machine, "{}", none.why),
        }
    }
}
