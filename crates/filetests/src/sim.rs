//! The simulated GPU as a device for cases.

use crate::device::{Device, Ran, Request, RunError};
use heist_ptx::arch::{Arch, Gpu};
use heist_sim::{Budget, Chaos, Options, Program};

/// What a case may cost; tests are small.
const BUDGET: Budget = Budget {
    warp_instructions: 20_000_000,
    memory: 1 << 30,
    time_ns: 1_000_000_000,
    wall_ms: 60_000,
};

/// Simulated GPUs: the one that a case names, or the first that runs its target.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimDevice;

/// The device for a case that names none.
fn default_device(target: &str) -> heist_sim::Device {
    let arch = Arch::parse(target);
    let gpu = [Gpu::H200, Gpu::B200, Gpu::RTX5090, Gpu::L4, Gpu::A100]
        .into_iter()
        .find(|gpu| arch.is_some_and(|arch| arch.runs_on(gpu.arch)))
        .unwrap_or(Gpu::H200);
    heist_sim::Device::of(gpu)
}

impl Device for SimDevice {
    fn name(&self) -> &str {
        "sim"
    }

    fn is_real(&self) -> bool {
        false
    }

    fn run(&self, request: &Request<'_>) -> Result<Ran, RunError> {
        let case = request.run;
        let device = match &case.device {
            Some(name) => heist_sim::Device::named(name)
                .map_err(|error| RunError::Failed(error.to_string()))?,
            None => default_device(&request.module.target.arch),
        };
        let program = match Program::new(request.module.clone()) {
            Ok(program) => program,
            Err(diagnostics) => {
                return Ok(Ran {
                    diagnostics,
                    ..Ran::default()
                });
            }
        };
        let first = case.seed.unwrap_or(0);
        let mut ran = Ran::default();
        let more = u64::from(case.explore.unwrap_or(1).saturating_sub(1));
        for seed in first..=first.saturating_add(more) {
            let options = Options {
                seed,
                chaos: if case.chaos { Chaos::FULL } else { Chaos::NONE },
                budget: BUDGET,
                cooperative: case.cooperative,
                ..Options::default()
            };
            match program.run(
                &device,
                request.entry,
                &case.launch,
                &case.arguments,
                &options,
            ) {
                Ok(report) => {
                    let found = report.has_errors();
                    ran.outcome = report.outcome;
                    ran.diagnostics = report.diagnostics;
                    if found {
                        break;
                    }
                }
                // A launch that the simulator refuses is a finding like any other.
                Err(diagnostics) => {
                    ran.diagnostics = diagnostics;
                    break;
                }
            }
        }
        Ok(ran)
    }
}
