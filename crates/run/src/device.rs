//! Devices: the simulated GPUs and the real one.

use crate::execution::{Execution, NotRun, RunError};
use crate::name::DeviceName;
use crate::program::Program;
use crate::settings::Settings;
use heist_launch::{Arguments, Clock, Launch, Trace};
use heist_ptx::arch::{Arch, Footprint};
use heist_ptx::rule;
use heist_sim::{Chaos, Checks, Options};
use std::time::Instant;

/// A device that is ready.
pub enum Device {
    /// A simulated one.
    Sim(heist_sim::Device),
    /// A real one.
    #[cfg(feature = "gpu")]
    Gpu(heist_gpu::Gpu),
}

/// Why a device could not be opened. Only a real one can fail to be there.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The GPU or its driver is not there.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Gpu(#[from] heist_gpu::GpuError),
    /// The program was built without it.
    #[error(
        "this program was built without real GPUs: turn the feature `gpu` of Heist on, or use \
             a simulated one, such as `sim:h200`"
    )]
    NoGpuFeature,
}

/// A GPU that is newer than Heist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not an architecture that Heist knows")]
pub struct UnknownArch(pub String);

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// When a real one is not there.
    pub fn open(name: DeviceName) -> Result<Device, OpenError> {
        match name {
            DeviceName::Sim(gpu) => Ok(Device::Sim(heist_sim::Device::of(gpu))),
            #[cfg(feature = "gpu")]
            DeviceName::Gpu(ordinal) => Ok(Device::Gpu(heist_gpu::Gpu::open(ordinal)?)),
            #[cfg(not(feature = "gpu"))]
            DeviceName::Gpu(_) => Err(OpenError::NoGpuFeature),
        }
    }

    /// What tables and traces call it.
    pub fn label(&self) -> String {
        match self {
            Device::Sim(device) => device.to_string(),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => gpu.info().name.clone(),
        }
    }

    /// Whether it is a real one.
    pub fn is_real(&self) -> bool {
        self.clock() == Clock::Measured
    }

    /// What its times are.
    pub fn clock(&self) -> Clock {
        match self {
            Device::Sim(_) => Clock::Modelled,
            #[cfg(feature = "gpu")]
            Device::Gpu(_) => Clock::Measured,
        }
    }

    /// How many multiprocessors it has.
    pub fn sms(&self) -> u32 {
        match self {
            Device::Sim(device) => device.gpu().sms,
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => gpu.info().sms,
        }
    }

    /// The architecture that kernels are built for on it.
    ///
    /// # Errors
    /// When a real GPU is newer than Heist.
    pub fn arch(&self) -> Result<Arch, UnknownArch> {
        match self {
            Device::Sim(device) => Ok(device.gpu().arch),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                let capability = gpu.info().capability;
                let name = format!("sm_{}{}", capability.major, capability.minor);
                Arch::parse(&format!("{name}a"))
                    .or_else(|| Arch::parse(&name))
                    .ok_or(UnknownArch(name))
            }
        }
    }

    /// Whether it runs PTX for a target such as `sm_90a`.
    ///
    /// # Errors
    /// Why not.
    pub fn takes(&self, target: &str) -> Result<(), String> {
        match self {
            Device::Sim(device) => {
                let here = device.gpu().arch;
                match Arch::parse(target) {
                    Some(arch) if arch.runs_on(here) => Ok(()),
                    Some(_) => Err(format!("{target} does not run on {here}")),
                    None => Err(format!("`{target}` is not an architecture")),
                }
            }
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => gpu.info().capability.runs(target),
        }
    }

    /// Runs a kernel once and waits for its end.
    ///
    /// # Errors
    /// The reason why it did not run, and the findings of the run; [`Device::inspect`] returns them
    /// instead.
    pub fn run(
        &self,
        program: &Program,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        settings: &Settings,
    ) -> Result<Execution, RunError> {
        let execution = self.inspect(program, entry, launch, arguments, settings)?;
        Ok(execution.clean(program.source())?)
    }

    /// Runs a kernel once, on the simulator in as many schedules as the settings ask
    /// for, and gives what was found together with the rest: of several schedules the
    /// first with an error, or the last.
    ///
    /// # Errors
    /// The reason why it did not run.
    pub fn inspect(
        &self,
        program: &Program,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        settings: &Settings,
    ) -> Result<Execution, NotRun> {
        match self {
            Device::Sim(device) => simulate(device, program, entry, launch, arguments, settings),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => on_gpu(gpu, program, entry, launch, arguments, settings),
        }
    }

    /// How many clusters of a launch are on the device at a time. `static_shared` are
    /// the bytes of shared memory that the kernel declares itself. It affects speed only: where a
    /// real device does not report it, it is an estimate.
    #[cfg_attr(
        not(feature = "gpu"),
        allow(unused_variables, reason = "the simulator goes by the launch alone")
    )]
    pub fn resident_clusters(
        &self,
        program: &Program,
        entry: &str,
        launch: &Launch,
        static_shared: u32,
    ) -> u32 {
        let blocks = launch.cluster_shape().count().max(1) as u32;
        match self {
            Device::Sim(device) => {
                let footprint = Footprint {
                    threads: launch.block.count() as u32,
                    registers: 32,
                    shared: static_shared + launch.dynamic_shared,
                };
                device.gpu().resident_blocks(footprint) / blocks
            }
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                let occupancy = gpu
                    .load(&text(program), &Default::default())
                    .and_then(|program| program.kernel(entry)?.occupancy(launch));
                match occupancy {
                    Ok(found) => found
                        .active_clusters
                        .unwrap_or(found.blocks_per_sm * gpu.info().sms / blocks),
                    Err(_) => gpu.info().sms,
                }
            }
        }
    }
}

fn simulate(
    device: &heist_sim::Device,
    program: &Program,
    entry: &str,
    launch: &Launch,
    arguments: &Arguments,
    settings: &Settings,
) -> Result<Execution, NotRun> {
    let simulated = program.simulated()?;
    let mut options = Options {
        chaos: if settings.chaos {
            Chaos::FULL
        } else {
            Chaos::NONE
        },
        cooperative: settings.cooperative,
        budget: settings.budget,
        meter: settings.meter.clone(),
        checks: Checks {
            same_value: settings.same_value,
            ..Options::default().checks
        },
        ..Options::default()
    };
    let started = Instant::now();
    let mut first: Option<Execution> = None;
    let mut schedules = 0;
    loop {
        options.seed = settings.seed.wrapping_add(schedules);
        // One limit for all of them.
        let left = settings.limit.saturating_sub(started.elapsed());
        options.budget.wall_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        schedules += 1;
        let report = simulated
            .run(device, entry, launch, arguments, &options)
            .map_err(|found| NotRun::Refused(found, Box::new(program.source().clone())))?;
        let count = settings.schedules.count(&report.stats);
        let execution = Execution {
            elapsed: report.outcome.trace.as_ref().map(Trace::makespan),
            outcome: report.outcome,
            findings: report.diagnostics,
            printed: report.printed,
            resources: None,
            placed: report.placed,
            seed: options.seed,
            schedules,
        };
        let late = execution
            .findings
            .iter()
            .any(|found| found.code == rule::TIME_BUDGET);
        // A run may be over before it looks at the clock.
        let spent = started.elapsed() >= settings.limit;
        // If all are clean, the first schedule is reported, which has the requested seed. A later
        // one that runs out of time does not count.
        match first.take() {
            Some(clean) if late => return Ok(clean),
            None if execution.has_errors() || count <= 1 || spent => return Ok(execution),
            None => first = Some(execution),
            Some(_) if execution.has_errors() => return Ok(execution),
            Some(mut clean) => {
                clean.schedules = schedules;
                if schedules >= count || spent {
                    return Ok(clean);
                }
                first = Some(clean);
            }
        }
    }
}

#[cfg(feature = "gpu")]
fn text(program: &Program) -> heist_gpu::PtxText {
    heist_gpu::PtxText::new(program.source().name(), program.source().text())
}

#[cfg(feature = "gpu")]
fn on_gpu(
    gpu: &heist_gpu::Gpu,
    program: &Program,
    entry: &str,
    launch: &Launch,
    arguments: &Arguments,
    settings: &Settings,
) -> Result<Execution, NotRun> {
    use heist_gpu::{GpuError, JitOptions, RunOptions};
    let options = RunOptions {
        jit: JitOptions {
            clamp_version: settings.clamp_version,
            ..JitOptions::default()
        },
        cooperative: settings.cooperative,
        limit: settings.limit,
    };
    let once = Execution {
        seed: settings.seed,
        schedules: 1,
        ..Execution::default()
    };
    match gpu.run(&text(program), entry, launch, arguments, &options) {
        Ok(run) => Ok(Execution {
            outcome: run.outcome,
            elapsed: Some(run.elapsed),
            resources: Some(crate::Resources {
                registers: run.kernel.registers,
                static_shared: run.kernel.static_shared,
                local: run.kernel.local,
            }),
            ..once
        }),
        // A fault or a timeout is a result of the kernel; other errors mean that it did not run.
        Err(error @ (GpuError::Fault(_) | GpuError::Timeout { .. })) => Ok(Execution {
            findings: vec![error.diagnostic()],
            ..once
        }),
        Err(error) => Err(NotRun::Gpu(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::Dim3;

    fn program() -> Program {
        let text =
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry none() { ret; }\n";
        Program::new(heist_ptx::Source::new("none.ptx", text)).unwrap()
    }

    #[test]
    fn no_schedule_begins_after_the_limit_however_short_a_run_is() {
        let settings = Settings {
            schedules: crate::Schedules::Exactly(u64::MAX),
            limit: std::time::Duration::ZERO,
            ..Settings::default()
        };
        let device = heist_sim::Device::named("sim:h200").unwrap();
        let (launch, none) = (Launch::new(1, 1), Arguments::new([]));
        let ran = simulate(&device, &program(), "none", &launch, &none, &settings).unwrap();
        assert_eq!(ran.schedules, 1);
    }

    #[test]
    fn as_many_schedules_run_as_are_asked_for() {
        let device = Device::open("sim:h200".parse().unwrap()).unwrap();
        assert!(!device.is_real(), "its times are modelled");
        for count in [1, 3] {
            let settings = Settings {
                schedules: crate::Schedules::Exactly(count),
                ..Settings::default()
            };
            let (launch, none) = (Launch::new(1, 1), Arguments::new([]));
            let ran = device.inspect(&program(), "none", &launch, &none, &settings);
            assert_eq!(ran.unwrap().schedules, count);
        }
    }

    #[test]
    fn shared_memory_and_clusters_bound_what_is_resident() {
        let device = Device::open("sim:h200".parse().unwrap()).unwrap();
        let resident = |dynamic, cluster, fixed| {
            let mut launch = Launch::new(1024, 128);
            launch.dynamic_shared = dynamic;
            launch.cluster = Some(Dim3::new(cluster, 1, 1));
            device.resident_clusters(&program(), "none", &launch, fixed)
        };
        // 227 KiB of shared memory an SM, of which each block takes 1 KiB more than it asks for.
        assert_eq!(resident(100_000, 1, 0), 2 * 132);
        assert_eq!(resident(50_000, 1, 50_000), 2 * 132);
        assert_eq!(resident(100_000, 2, 0), 132);
        assert_eq!(resident(0, 1, 0), 16 * 132);
    }
}
