//! The devices that run cases: the simulator, the GPU, or a mock in a test.

use crate::case::{OnGpu, Run};
use heist_gpu::GpuError;
use heist_ptx::{Diagnostic, Module, Source};
use heist_run::{Device, DeviceName, Execution, NotRun, OpenError, Program, Settings};
use heist_sim::Budget;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Something that runs cases.
pub trait TestDevice: Sync {
    /// What reports call it: `sim`, `gpu`.
    fn name(&self) -> &str;

    /// Whether it is real, so that a kernel that is wrong on purpose may harm it.
    fn is_real(&self) -> bool;

    /// Runs one launch. Findings about the kernel are in the result; an error means that it did not
    /// run.
    fn run(&self, request: &Request<'_>) -> Result<Execution, CaseError>;
}

/// One launch to run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'t> {
    /// The file.
    pub program: &'t Program,
    /// The case, by its name in the text.
    pub case: &'t str,
    /// The kernel.
    pub entry: &'t str,
    /// Launch, arguments, seed and the rest.
    pub run: &'t Run,
}

impl Request<'_> {
    fn inspect(&self, device: &Device, settings: &Settings) -> Result<Execution, NotRun> {
        let Run {
            launch, arguments, ..
        } = self.run;
        device.inspect(self.program, self.entry, launch, arguments, settings)
    }
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseError {
    /// The device is not one for this kernel: an architecture it does not have.
    /// The case is skipped, by name, with this reason.
    NotForThisDevice(String),
    /// It should have worked. The case fails.
    Failed(String),
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaseError::NotForThisDevice(why) | CaseError::Failed(why) => f.write_str(why),
        }
    }
}

/// The kernel that a run launches. A kernel that the file does not have is refused by the device: a
/// case may expect that.
pub(crate) fn entry_of<'p>(program: &'p Program, run: &'p Run) -> Result<&'p str, String> {
    if let Some(entry) = &run.entry {
        return Ok(entry);
    }
    let mut entries = program.module().entries().map(|entry| entry.name.as_str());
    match (entries.next(), entries.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err("the file has no kernel".to_owned()),
        _ => Err("the file has several kernels: say `entry=` on the run line".to_owned()),
    }
}

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDevice {
    /// The reason.
    pub why: String,
    /// Whether the machine has no GPU or driver.
    pub about_the_machine: bool,
}

/// A device that may be lost for good.
pub trait Losable: TestDevice {
    /// Whether it can run nothing more.
    fn is_lost(&self) -> bool;
}

/// A static checker of modules.
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

/// What a case may cost on the simulator: tests are small, and a machine may be busy.
const BUDGET: Budget = Budget {
    warp_instructions: 20_000_000,
    memory: 1 << 30,
    time_ns: 1_000_000_000,
    wall_ms: 600_000,
};

/// Simulated GPUs: the one that a case names, or the first that runs its target.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimDevice {
    /// At least so many schedules of each case, until one finds something.
    pub explore: u16,
    /// Chaos in every case: refusals, delays and reorderings that hardware may do.
    pub chaos: bool,
}

impl TestDevice for SimDevice {
    fn name(&self) -> &str {
        "sim"
    }

    fn is_real(&self) -> bool {
        false
    }

    fn run(&self, request: &Request<'_>) -> Result<Execution, CaseError> {
        let device = match &request.run.device {
            Some(name) => heist_sim::Device::named(name)
                .map(Device::Sim)
                .map_err(|error| CaseError::Failed(error.to_string()))?,
            None => Device::open(DeviceName::for_target(
                &request.program.module().target.arch,
            ))
            .map_err(|error| CaseError::Failed(error.to_string()))?,
        };
        let explore = request.run.explore.unwrap_or(1).max(self.explore.into());
        let settings = Settings {
            seed: request.run.seed.unwrap_or(0),
            schedules: heist_run::Schedules::Exactly(explore.into()),
            chaos: request.run.chaos || self.chaos,
            cooperative: request.run.cooperative,
            budget: BUDGET,
            ..Settings::default()
        };
        match request.inspect(&device, &settings) {
            Ok(execution) => Ok(execution),
            // A launch that the simulator refuses is a finding like any other.
            Err(NotRun::Refused(findings, _)) => Ok(Execution {
                findings,
                ..Execution::default()
            }),
            Err(other) => Err(CaseError::Failed(other.to_string())),
        }
    }
}

/// How long a case may run on a real GPU; tests are small.
const LIMIT: Duration = Duration::from_secs(10);

/// A real GPU. After a fault it is lost: some faults leave a process that the driver
/// answers nothing but errors, so a run over many cases keeps it in a
/// [`ChildDevice`](crate::ChildDevice).
pub struct GpuDevice {
    gpu: Device,
    /// The kernel that it was lost in, and how.
    lost: Mutex<Option<String>>,
}

impl GpuDevice {
    /// Opens the GPU with this number.
    pub fn open(ordinal: u32) -> Result<GpuDevice, NoDevice> {
        match Device::open(DeviceName::Gpu(ordinal)) {
            Ok(gpu) => Ok(GpuDevice {
                gpu,
                lost: Mutex::new(None),
            }),
            Err(error) => Err(NoDevice {
                why: error.to_string(),
                about_the_machine: match error {
                    OpenError::Gpu(error) => error.is_about_the_machine(),
                    OpenError::NoGpuFeature => false,
                },
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

impl TestDevice for GpuDevice {
    fn name(&self) -> &str {
        "gpu"
    }

    fn is_real(&self) -> bool {
        true
    }

    fn run(&self, request: &Request<'_>) -> Result<Execution, CaseError> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &*lost {
            return Err(CaseError::Failed(why.clone()));
        }
        let mut targets = vec![request.program.module().target.arch.as_str()];
        if let OnGpu::Needs(target) = &request.run.gpu {
            targets.push(target);
        }
        for target in targets {
            self.gpu
                .takes(target)
                .map_err(CaseError::NotForThisDevice)?;
        }
        let settings = Settings {
            cooperative: request.run.cooperative,
            limit: LIMIT,
            clamp_version: true,
            ..Settings::default()
        };
        let answer = request.inspect(&self.gpu, &settings);
        // What is found on a real GPU is a fault or a kernel without an end.
        let why = match &answer {
            Ok(execution) => execution.findings.first().map(ToString::to_string),
            Err(NotRun::Gpu(error)) if error.is_context_lost() => Some(error.to_string()),
            Err(_) => None,
        };
        if let Some(why) = why {
            *lost = Some(format!(
                "not run: the GPU was lost in kernel `{}` of {}: {why}",
                request.entry,
                request.program.source().name()
            ));
        }
        match answer {
            Ok(execution) => Ok(execution),
            // A launch that the driver refuses is a finding about the kernel, which a case may
            // expect.
            Err(NotRun::Gpu(error @ GpuError::Refused { .. })) => Ok(Execution {
                findings: vec![error.diagnostic()],
                ..Execution::default()
            }),
            Err(other) => Err(CaseError::Failed(other.to_string())),
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
