//! One interface to every device: the simulated GPUs and the real one.
//!
//! ```
//! use heist::device::{Device, Settings};
//! use heist::launch::{Arg, Arguments, Launch};
//! let source = heist::ptx::Source::new("add.ptx", "
//!     .version 8.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry add(.param .u64 data) {
//!         .reg .b32 %r<2>; .reg .b64 %rd<2>;
//!         ld.param.u64 %rd1, [data];
//!         ld.global.u32 %r1, [%rd1];
//!         add.u32 %r1, %r1, 1;
//!         st.global.u32 [%rd1], %r1;
//!         ret;
//!     }");
//! let module = heist::ptx::parse(&source).unwrap();
//! let device = Device::open("sim:h200".parse().unwrap()).unwrap(); // or "gpu"
//! let arguments = Arguments::new([Arg::in_out(&[41u32])]);
//! let report = device
//!     .run(&source, &module, "add", &Launch::new(1, 1), &arguments, &Settings::default())
//!     .unwrap();
//! assert_eq!(report.outcome.output(0).unwrap().to_vec::<u32>().unwrap(), [42]);
//! ```

use heist_gpu::{GpuError, KernelInfo, PtxText, RunOptions};
use heist_launch::{Arguments, Launch, Outcome, Time};
use heist_ptx::arch::{Arch, Gpu};
use heist_ptx::{Diagnostic, Module, Source};
use heist_sim::{Chaos, Options, Program};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Where to run something.
///
/// ```
/// use heist::device::DeviceName;
/// let device: DeviceName = "sim:b200".parse().unwrap();
/// assert_eq!(device.to_string(), "sim:b200");
/// assert!("sim:b20".parse::<DeviceName>().unwrap_err().contains("sim:b200"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// A simulated GPU: `sim:h200`.
    Sim(Gpu),
    /// The real GPU with this number: `gpu`, `gpu:1`.
    Gpu(u32),
}

impl DeviceName {
    /// A simulated device that runs PTX for `target`; `sim:h200` where none does,
    /// which then says why not.
    pub fn for_target(target: &str) -> DeviceName {
        let arch = Arch::parse(target);
        let fits = |gpu: &Gpu| arch.is_some_and(|arch| arch.runs_on(gpu.arch));
        let preferred = [Gpu::H200, Gpu::B200, Gpu::RTX5090, Gpu::L4, Gpu::A100];
        DeviceName::Sim(preferred.into_iter().find(fits).unwrap_or(Gpu::H200))
    }

    /// Every simulated device.
    pub fn simulated() -> impl Iterator<Item = DeviceName> {
        Gpu::ALL.iter().copied().map(DeviceName::Sim)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Sim(gpu) => write!(f, "sim:{}", gpu.id),
            DeviceName::Gpu(0) => f.write_str("gpu"),
            DeviceName::Gpu(ordinal) => write!(f, "gpu:{ordinal}"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceName, String> {
        let known = || {
            let all: Vec<_> = DeviceName::simulated().map(|d| d.to_string()).collect();
            format!(
                "`{text}` is not a device: there are {}, and `gpu` (or `gpu:1`) for a real one",
                all.join(", ")
            )
        };
        match text.split_once(':') {
            None if text == "gpu" => Ok(DeviceName::Gpu(0)),
            Some(("gpu", ordinal)) => ordinal.parse().map(DeviceName::Gpu).map_err(|_| known()),
            Some(("sim", id)) => Gpu::named(id).map(DeviceName::Sim).ok_or_else(known),
            _ => Err(known()),
        }
    }
}

/// A device that is ready.
pub enum Device {
    /// A simulated one.
    Sim(heist_sim::Device),
    /// A real one.
    Gpu(heist_gpu::Gpu),
}

/// How to run, where a device has a choice.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The simulator's schedule: the same seed gives the same run.
    pub seed: u64,
    /// Whether the simulator injects refusals, delays and reorderings.
    pub chaos: bool,
    /// Whether all blocks must be on the device at once.
    pub cooperative: bool,
    /// How long a kernel may take on a real GPU, and its simulation on the host.
    pub limit: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 0,
            chaos: false,
            cooperative: false,
            limit: Duration::from_secs(60),
        }
    }
}

/// What a launch gave, on any device.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Buffers and trace.
    pub outcome: Outcome,
    /// Everything that was found. On a real GPU that is a fault, or nothing.
    pub diagnostics: Vec<Diagnostic>,
    /// What the kernel printed, on the simulator; a real GPU prints by itself.
    pub printed: String,
    /// How long the kernel took: modelled or measured, as the device is.
    pub elapsed: Option<Time>,
    /// What the driver's assembler made of the kernel, on a real GPU.
    pub kernel: Option<KernelInfo>,
}

/// Why there is no report.
#[derive(Clone, Debug)]
pub enum NotRun {
    /// The module or the launch is not one that the device takes.
    Refused(Vec<Diagnostic>),
    /// The GPU, or the driver's assembler, could not do it.
    Gpu(GpuError),
}

impl Device {
    /// Opens a device. Only a real one can fail to be there.
    pub fn open(name: DeviceName) -> Result<Device, GpuError> {
        match name {
            DeviceName::Sim(gpu) => Ok(Device::Sim(heist_sim::Device::of(gpu))),
            DeviceName::Gpu(ordinal) => heist_gpu::Gpu::open(ordinal).map(Device::Gpu),
        }
    }

    /// Launches a kernel once and waits for its end.
    pub fn run(
        &self,
        source: &Source,
        module: &Module,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        settings: &Settings,
    ) -> Result<Report, NotRun> {
        match self {
            Device::Sim(device) => {
                let mut options = Options {
                    seed: settings.seed,
                    cooperative: settings.cooperative,
                    ..Options::default()
                };
                if settings.chaos {
                    options.chaos = Chaos::FULL;
                }
                options.budget.wall_ms =
                    u64::try_from(settings.limit.as_millis()).unwrap_or(u64::MAX);
                let report = Program::new(module.clone())
                    .and_then(|program| program.run(device, entry, launch, arguments, &options))
                    .map_err(NotRun::Refused)?;
                Ok(Report {
                    elapsed: report
                        .outcome
                        .trace
                        .as_ref()
                        .map(heist_launch::Trace::makespan),
                    outcome: report.outcome,
                    diagnostics: report.diagnostics,
                    printed: report.printed,
                    kernel: None,
                })
            }
            Device::Gpu(gpu) => {
                let text = PtxText::new(source.name(), source.text());
                let options = RunOptions {
                    cooperative: settings.cooperative,
                    limit: settings.limit,
                    ..RunOptions::default()
                };
                match gpu.run(&text, entry, launch, arguments, &options) {
                    Ok(ran) => Ok(Report {
                        outcome: ran.outcome,
                        elapsed: Some(ran.elapsed),
                        kernel: Some(ran.kernel),
                        ..Report::default()
                    }),
                    // What the kernel did is an answer; what kept it from running is not.
                    Err(error @ (GpuError::Fault(_) | GpuError::Timeout { .. })) => Ok(Report {
                        diagnostics: vec![error.diagnostic()],
                        ..Report::default()
                    }),
                    Err(error) => Err(NotRun::Gpu(error)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_device() {
        for (target, device) in [
            ("sm_75", "sim:h200"),
            ("sm_90a", "sim:h200"),
            ("sm_100a", "sim:b200"),
            ("sm_120", "sim:rtx5090"),
            ("sm_1", "sim:h200"),
        ] {
            assert_eq!(
                DeviceName::for_target(target).to_string(),
                device,
                "{target}"
            );
        }
    }

    #[test]
    fn names_read_back() {
        for device in DeviceName::simulated().chain([DeviceName::Gpu(0), DeviceName::Gpu(3)]) {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        for wrong in ["", "sim", "sim:", "sim:gtx480", "gpu:", "gpu:x", "cpu"] {
            let error = wrong.parse::<DeviceName>().unwrap_err();
            assert!(error.contains("sim:h200"), "{error}");
        }
    }
}
