//! Candidates built, checked and timed on a device.

use super::Tunable;
#[cfg(feature = "gpu")]
use crate::job::OnGpu;
use crate::job::{self, JobError, distance};
use heist_kernels::catalogue::Prepared;
use heist_kernels::{KernelError, Target};
use heist_launch::{Buffer, Launch};
use heist_ptx::arch::Footprint;
use heist_ptx::rule;
use heist_run::{Device, NotRun, Settings};
use heist_tune::{Bench, Candidate, Facts, Failure};
use std::collections::BTreeMap;
use std::time::Duration;

/// The result of a larger problem is compared with the default kernel's: the reference would take
/// minutes.
const MOST_FLOPS: f64 = 2e10;
/// So many candidates stay loaded, for races.
const LOADED: usize = 12;

/// A candidate that has solved the problem.
enum Ready {
    /// Its modelled time, which does not change.
    Simulated(f64),
    /// To be sampled.
    #[cfg(feature = "gpu")]
    Gpu(Box<OnGpu>),
}

/// Candidates of one problem on one device.
pub struct DeviceBench<'d> {
    device: &'d Device,
    problem: &'d dyn Tunable,
    settings: Settings,
    target: Target,
    /// The first right result, and the largest difference from it that is right.
    first: Option<(Buffer, f64)>,
    ready: BTreeMap<Candidate, Ready>,
    #[cfg(feature = "gpu")]
    sampler: Option<heist_gpu::Sampler>,
}

impl<'d> DeviceBench<'d> {
    /// A bench on a device.
    ///
    /// # Errors
    /// When the device is newer than Heist, or can't take times.
    pub fn new(
        device: &'d Device,
        problem: &'d dyn Tunable,
        settings: Settings,
    ) -> Result<DeviceBench<'d>, JobError> {
        Ok(DeviceBench {
            device,
            problem,
            settings,
            target: job::target(device)?,
            first: None,
            ready: BTreeMap::new(),
            #[cfg(feature = "gpu")]
            sampler: match device {
                Device::Sim(_) => None,
                Device::Gpu(gpu) => Some(gpu.sampler()?),
            },
        })
    }

    fn build(&self, candidate: &Candidate) -> Result<Prepared, Failure> {
        self.problem
            .prepare(candidate, self.target)
            .map_err(refused)
    }

    /// Runs it once; the job holds its results then.
    fn run(&self, prepared: &mut Prepared, facts: &mut Facts) -> Result<Ready, Failure> {
        match self.device {
            Device::Sim(_) => {
                let steps = job::run(self.device, &mut prepared.job, &self.settings)
                    .map_err(|error| self.failed(error))?;
                let times = steps.iter().filter_map(|step| step.execution.elapsed);
                Ok(Ready::Simulated(times.map(|time| time.ns()).sum()))
            }
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                let loaded = OnGpu::new(gpu, &prepared.job).map_err(|error| self.failed(error))?;
                let told = |error| self.failed(JobError::Gpu(error));
                for kernel in loaded.kernels() {
                    let most = |field: &mut Option<u32>, value: u32| {
                        *field = Some(field.map_or(value, |before| before.max(value)));
                    };
                    most(&mut facts.registers, kernel.registers);
                    most(&mut facts.local, kernel.local);
                    most(&mut facts.shared, kernel.static_shared);
                }
                let stream = gpu.stream().map_err(told)?;
                loaded.launch(&stream).map_err(told)?;
                stream.synchronize().map_err(told)?;
                loaded.read_back(&mut prepared.job).map_err(told)?;
                Ok(Ready::Gpu(Box::new(loaded)))
            }
        }
    }

    fn failed(&self, error: JobError) -> Failure {
        failure(error, self.settings.limit)
    }

    /// Compares a result with the reference, or with the first right result.
    fn check(&mut self, prepared: &Prepared, facts: &mut Facts) -> Result<(), Failure> {
        let name = self.problem.output();
        let result = prepared.job.data(name).ok_or_else(|| Failure::Refused {
            why: format!("the job has no buffer {name}"),
        })?;
        if let Some((first, bound)) = &self.first {
            let off = distance(first, result);
            facts.against = "first".to_owned();
            facts.error = Some(off);
            // NaN is not right either.
            if off <= *bound {
                return Ok(());
            }
            return Err(Failure::Wrong {
                why: format!(
                    "differs from the first result by {off:.2e} of its norm, and {bound:.1e} is right"
                ),
            });
        }
        if prepared.job.work.flops <= MOST_FLOPS {
            let difference = (prepared.verify)(&prepared.job).map_err(refused)?;
            facts.against = "f64".to_owned();
            facts.error = Some(difference.norm);
            if !difference.within(prepared.bound) {
                return Err(Failure::Wrong {
                    why: format!("{difference}; at most {:.1e} is right", prepared.bound),
                });
            }
        } else {
            facts.against = "nothing: it is the first, and too large for the reference".to_owned();
        }
        // Two right results may lie on either side of the reference.
        self.first = Some((result.clone(), 2.0 * prepared.bound));
        Ok(())
    }
}

impl Bench for DeviceBench<'_> {
    fn solve(&mut self, candidate: &Candidate) -> Result<Facts, Failure> {
        if self.first.is_none() && *candidate != Candidate::default() {
            // A new process: the others are compared with the default kernel's result.
            self.solve(&Candidate::default())?;
        }
        if *candidate == Candidate::default() {
            // It is held against the reference whenever it is asked for: the same row every time.
            self.first = None;
        }
        let mut prepared = self.build(candidate)?;
        let mut facts = Facts::default();
        let shape = prepared.job.steps.first().map(|step| step.launch);
        let ready = self.run(&mut prepared, &mut facts)?;
        self.check(&prepared, &mut facts)?;
        if let Some(launch) = shape {
            describe(&mut facts, &launch, self.target);
        }
        if self.ready.len() >= LOADED {
            self.ready.pop_first();
        }
        self.ready.insert(candidate.clone(), ready);
        Ok(facts)
    }

    fn sample(&mut self, candidate: &Candidate, count: u32) -> Result<Vec<f64>, Failure> {
        if !self.ready.contains_key(candidate) {
            self.solve(candidate)?;
        }
        match self.ready.get(candidate) {
            Some(Ready::Simulated(ns)) => Ok(vec![*ns]),
            #[cfg(feature = "gpu")]
            Some(Ready::Gpu(loaded)) => {
                let sampler = self.sampler.as_ref().ok_or_else(|| Failure::Refused {
                    why: "there is nothing to take times with".to_owned(),
                })?;
                let times = (0..count).map(|_| sampler.sample(1, |stream| loaded.launch(stream)));
                times
                    .map(|time| time.map(|time| time.ns()))
                    .collect::<Result<_, _>>()
                    .map_err(|error| self.failed(JobError::Gpu(error)))
            }
            None => Err(Failure::Refused {
                why: "it was built, and is gone".to_owned(),
            }),
        }
    }

    fn is_exact(&self) -> bool {
        matches!(self.device, Device::Sim(_))
    }
}

/// What its launch says of a candidate.
fn describe(facts: &mut Facts, launch: &Launch, target: Target) {
    let threads = launch.block.count() as u32;
    let shared = facts.shared.unwrap_or(0) + launch.dynamic_shared;
    facts.threads = Some(threads);
    facts.shared = Some(shared);
    if let Some(registers) = facts.registers {
        let residency = target.arch.limits().residency(Footprint {
            threads,
            registers,
            shared,
        });
        facts.resident = Some(residency.blocks);
        let slots = f64::from(residency.blocks * target.sms).max(1.0);
        facts.waves = Some(launch.grid.count() as f64 / slots);
    }
}

fn refused(error: KernelError) -> Failure {
    Failure::Refused {
        why: error.to_string(),
    }
}

/// Which kind of failure an error is, after so much time at most.
fn failure(error: JobError, limit: Duration) -> Failure {
    let why = |error: &dyn std::fmt::Display| error.to_string();
    match &error {
        JobError::Found(found) => {
            let first = found.execution.findings.first();
            let why = first.map_or_else(
                || why(found),
                |one| format!("{}: {}", one.code, one.message),
            );
            match first.map(|one| one.code) {
                // What a GPU does without end, and what it faults on.
                Some(rule::TIME_BUDGET | rule::DEADLOCK | rule::LIVELOCK) => Failure::Hung {
                    seconds: limit.as_secs_f64(),
                },
                Some(rule::GLOBAL_OUT_OF_BOUNDS | rule::MISALIGNED) => Failure::Crashed { why },
                _ => Failure::Wrong { why },
            }
        }
        #[cfg(feature = "gpu")]
        JobError::Gpu(error) | JobError::NotRun(NotRun::Gpu(error)) => match error {
            heist_gpu::GpuError::Fault(_) | heist_gpu::GpuError::Lost(_) => {
                Failure::Crashed { why: why(error) }
            }
            heist_gpu::GpuError::Timeout { .. } => Failure::Crashed { why: why(error) },
            _ => Failure::Refused { why: why(error) },
        },
        JobError::NotRun(NotRun::Refused(..)) => Failure::Refused { why: why(&error) },
        _ => Failure::Refused { why: why(&error) },
    }
}
