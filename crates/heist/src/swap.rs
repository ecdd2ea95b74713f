//! A kernel whose policy is exchanged while it runs.
//!
//! ```
//! use heist::kernels::synthetic::{Parameters, Synthetic, Workload};
//! use heist::run::{Device, Settings};
//! use heist::sched::{AnyPolicy, program::Loaded};
//! use heist::{swap::Turns, workload};
//! use std::time::Duration;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let size = Parameters { tiles: 600, mean: 40, ..Parameters::default() };
//! let synthetic = Synthetic::new(Workload::VideoFrames, size);
//! let device = Device::open("sim:b200".parse()?)?; // or "gpu"
//! let words = |text: &str| -> Result<_, Box<dyn std::error::Error>> {
//!     Ok(Loaded::new(&text.parse::<AnyPolicy>()?)?.words().clone())
//! };
//! let turns = Turns {
//!     policies: vec![words("never")?, words("greedy")?],
//!     every: Duration::from_micros(1),
//! };
//! // It begins with this one, which is loaded: a policy that is built in stays.
//! let schedule = "clc loaded: max-steals(8)".parse()?;
//! let settings = Settings::default();
//! let (run, swaps) =
//!     workload::run_swapping(&synthetic, &schedule, &device, &settings, true, &turns)?;
//! assert!(run.is_right(&synthetic) && swaps.loaded > 1);
//! # Ok(()) }
//! ```

use crate::tiled::{Ready, TiledError, TiledRun};
use heist_builder::KernelParams;
use heist_gpu::{DeviceMemory, Gpu, GpuError, InFlight, PtxText};
use heist_launch::{Arg, Arguments};
use heist_run::company::{self, Host, Order, Reach, Stream};
use heist_run::{Device, Execution, NotRun, Settings};
use heist_sched::program::{Busy, PolicyMemory};
use heist_sched::{Loader, PolicyWords, TiledKernel};
use std::time::{Duration, Instant};

/// Policies that take turns, and how long each stays.
#[derive(Clone, Debug)]
pub struct Turns {
    /// Loaded one after the other, in a cycle, until the kernel ends.
    pub policies: Vec<PolicyWords>,
    /// From one to the next.
    pub every: Duration,
}

/// What became of the loads.
#[derive(Clone, Debug, Default)]
pub struct Swaps {
    /// Policies that were loaded.
    pub loaded: usize,
    /// Loads that failed because blocks still used all other slots.
    pub in_use: usize,
    /// How long each took on the host, from the verifier until every block that decides
    /// sees it, in microseconds; on a simulated GPU there is nothing to measure.
    pub took_us: Vec<f64>,
}

impl Swaps {
    /// The median and the longest time of a load, where they were measured.
    pub fn times(&self) -> (Option<f64>, Option<f64>) {
        let mut sorted = self.took_us.clone();
        sorted.sort_by(f64::total_cmp);
        (
            sorted.get(sorted.len() / 2).copied(),
            sorted.last().copied(),
        )
    }
}

impl std::fmt::Display for Swaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "swaps: {} policies loaded while it ran", self.loaded)?;
        if self.in_use > 0 {
            write!(f, "; {} times all slots were still in use", self.in_use)?;
        }
        if let (Some(median), Some(longest)) = self.times() {
            write!(
                f,
                "; a load took {median:.1} us, the longest {longest:.1} us"
            )?;
        }
        Ok(())
    }
}

/// Control words on a real GPU, while a kernel runs.
pub struct OnDevice<'m>(pub &'m DeviceMemory);

impl PolicyMemory for OnDevice<'_> {
    type Error = GpuError;
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), GpuError> {
        self.0.write(offset, bytes)
    }
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.0.peek(offset, bytes)
    }
}

/// Runs a kernel whose policy is [loaded](heist_sched::Loaded), and exchanges the policy
/// until the kernel ends.
///
/// # Errors
/// The reason why it did not run, or a policy that the verifier refuses.
pub fn run<A: KernelParams>(
    device: &Device,
    kernel: &TiledKernel<A>,
    own: A::With<Arg>,
    settings: &Settings,
    turns: &Turns,
) -> Result<(TiledRun, Swaps), TiledError> {
    for policy in &turns.policies {
        policy.verify().map_err(TiledError::Policy)?;
    }
    let ready = Ready::new(device, kernel)?;
    let arguments = kernel.arguments(&ready.plan, own);
    let control = kernel.readout(&ready.plan).control();
    let mut swaps = Swaps::default();
    let execution = match device {
        Device::Sim(sim) => {
            let mut host = Simulated {
                turns,
                control,
                at: turns.every.as_nanos() as u64,
                loader: Loader::new(),
                swaps: &mut swaps,
            };
            simulate(sim, &ready, &arguments, settings, &mut host)?
        }
        Device::Gpu(gpu) => on_gpu(gpu, &ready, &arguments, settings, |flight| {
            let Some(memory) = flight.memory(control) else {
                return Ok(());
            };
            exchange(flight, memory, turns, &mut swaps)
        })?,
    };
    Ok((ready.read(device, kernel, execution)?, swaps))
}

/// Loads policies until the kernel ends.
fn exchange(
    flight: &InFlight<'_>,
    memory: &DeviceMemory,
    turns: &Turns,
    swaps: &mut Swaps,
) -> Result<(), GpuError> {
    let mut loader = Loader::new();
    while !turns.policies.is_empty() && !flight.has_ended()? {
        let policy = &turns.policies[swaps.loaded % turns.policies.len()];
        let start = Instant::now();
        match loader.load(&mut OnDevice(memory), policy) {
            Ok(()) => {
                swaps.loaded += 1;
                swaps.took_us.push(start.elapsed().as_secs_f64() * 1e6);
            }
            Err(Busy::InUse) => swaps.in_use += 1,
            Err(Busy::Memory(error)) => return Err(error),
            // They were verified before.
            Err(Busy::Refused(_)) => return Ok(()),
        }
        while start.elapsed() < turns.every {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

fn on_gpu(
    gpu: &Gpu,
    ready: &Ready,
    arguments: &Arguments,
    settings: &Settings,
    meanwhile: impl FnOnce(&InFlight<'_>) -> Result<(), GpuError>,
) -> Result<Execution, TiledError> {
    let text = PtxText::new(ready.program.source().name(), ready.program.source().text());
    let options = heist_gpu::RunOptions {
        limit: settings.limit,
        ..Default::default()
    };
    let entry = ready.program.entry(None).map_or("", |entry| entry);
    let ran = gpu
        .run_while(
            &text,
            entry,
            &ready.plan.launch,
            arguments,
            &options,
            meanwhile,
        )
        .map_err(NotRun::Gpu)?;
    Ok(Execution {
        outcome: ran.outcome,
        elapsed: Some(ran.elapsed),
        seed: settings.seed,
        schedules: 1,
        ..Execution::default()
    })
}

fn simulate(
    device: &company::Device,
    ready: &Ready,
    arguments: &Arguments,
    settings: &Settings,
    host: &mut dyn Host,
) -> Result<Execution, TiledError> {
    let program = ready.program.simulated()?;
    let order = Order {
        program,
        entry: ready.program.entry(None).map_or("", |entry| entry),
        launch: &ready.plan.launch,
        arguments,
        not_before: 0,
    };
    let stream = Stream {
        priority: 0,
        orders: vec![order],
    };
    let options = company::Options {
        seed: settings.seed,
        chaos: match settings.chaos {
            true => company::Chaos::FULL,
            false => company::Chaos::NONE,
        },
        budget: company::Budget {
            wall_ms: settings.limit.as_millis() as u64,
            ..settings.budget
        },
        ..company::Options::default()
    };
    let refused = |found| NotRun::Refused(found, Box::new(ready.program.source().clone()));
    let mut ran = company::together(device, &[stream], &options, host).map_err(refused)?;
    let Some(ran) = ran.pop().and_then(|mut ran| ran.pop()) else {
        return Ok(Execution::default());
    };
    Ok(Execution {
        elapsed: ran
            .report
            .outcome
            .trace
            .as_ref()
            .map(|trace| trace.makespan()),
        outcome: ran.report.outcome,
        findings: ran.report.diagnostics,
        printed: ran.report.printed,
        seed: settings.seed,
        schedules: 1,
        ..Execution::default()
    })
}

/// A host beside the simulated GPU.
struct Simulated<'t> {
    turns: &'t Turns,
    control: usize,
    at: u64,
    loader: Loader,
    swaps: &'t mut Swaps,
}

/// Control words on the simulated GPU.
struct Through<'r>(&'r mut dyn Reach, usize);

impl PolicyMemory for Through<'_> {
    type Error = ();
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), ()> {
        let written = self.0.write(0, self.1, offset, bytes);
        written.then_some(()).ok_or(())
    }
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> Result<(), ()> {
        let read = self.0.read(0, self.1, offset, bytes);
        read.then_some(()).ok_or(())
    }
}

impl Host for Simulated<'_> {
    fn next(&self) -> Option<u64> {
        (!self.turns.policies.is_empty()).then_some(self.at)
    }
    fn act(&mut self, _: u64, reach: &mut dyn Reach) {
        self.at += (self.turns.every.as_nanos() as u64).max(1);
        let policy = &self.turns.policies[self.swaps.loaded % self.turns.policies.len()];
        match self.loader.load(&mut Through(reach, self.control), policy) {
            Ok(()) => self.swaps.loaded += 1,
            Err(Busy::InUse) => self.swaps.in_use += 1,
            // It has not begun, or has ended.
            Err(_) => {}
        }
    }
}
