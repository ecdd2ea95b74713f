//! The GPU as a device for cases.

use crate::device::{Device, Ran, Request, RunError};
use heist_gpu::{Gpu, GpuError, JitOptions, PtxText, RunOptions};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// How long a case may run; tests are small.
const LIMIT: Duration = Duration::from_secs(10);

/// A real GPU. A case that faults costs the context, and the next one gets a new
/// one.
pub struct GpuDevice {
    state: Mutex<State>,
}

enum State {
    Open(Gpu),
    /// Lost for good, and why.
    Gone(String),
}

impl GpuDevice {
    /// Opens the GPU with this number.
    pub fn open(ordinal: u32) -> Result<GpuDevice, GpuError> {
        Ok(GpuDevice {
            state: Mutex::new(State::Open(Gpu::open(ordinal)?)),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A case that panicked left a GPU behind that is as usable as before.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
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
        let mut state = self.state();
        let gpu = match &*state {
            State::Open(gpu) => gpu.clone(),
            State::Gone(why) => return Err(RunError::Failed(why.clone())),
        };
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
            let after = |why: String| {
                State::Gone(format!(
                    "not run: the GPU was lost in kernel `{}` of {}: {why}",
                    request.entry,
                    request.source.name()
                ))
            };
            *state = match &error {
                // A kernel that still runs holds up whoever waits for its context.
                GpuError::Timeout { .. } => after(error.to_string()),
                _ => match gpu.reopen() {
                    Ok(fresh) => State::Open(fresh),
                    Err(why) => after(why.to_string()),
                },
            };
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
            Ok(device) => assert!(device.is_real()),
            Err(error) => assert!(error.is_about_the_machine(), "{error}"),
        }
    }
}
