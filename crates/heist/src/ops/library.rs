//! The plans of a device.

use super::error::OpError;
use super::kernels::{Kernels, Known};
use super::operand::{Operand, Operands};
use super::parameters::{Parameters, Scratch, used};
use super::plan::{On, Plan, Planned};
use super::tuning::Tuning;
use crate::tune::memory;
use heist_kernels::{KernelError, LaunchPlan, Target, Tuned};
use heist_run::{Device, Settings};
use heist_sched::Schedule;
use heist_tune::Candidate;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// The operations of a device, and the plans that were made for it.
///
/// It can be shared by threads: a plan is made once and used by all.
pub struct Ops {
    device: Arc<Device>,
    target: Target,
    settings: Settings,
    /// The file of the tuner's answers.
    answers: Option<PathBuf>,
    plans: RwLock<HashMap<Key, Arc<Planned>>>,
    kernels: Kernels,
}

/// What a plan depends on: the family, the numbers of the problem, the schedule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) family: &'static str,
    pub(super) numbers: Vec<u64>,
    pub(super) schedule: Option<String>,
}

impl Ops {
    /// Of a device.
    ///
    /// # Errors
    /// When a real GPU is newer than Heist.
    pub fn new(device: Device) -> Result<Ops, OpError> {
        Ops::with_settings(device, Settings::default())
    }

    /// Of a device; the settings are for a simulated one.
    ///
    /// # Errors
    /// When a real GPU is newer than Heist.
    pub fn with_settings(device: Device, settings: Settings) -> Result<Ops, OpError> {
        let target = crate::job::target(&device).map_err(crate::job::JobError::from)?;
        Ok(Ops {
            device: Arc::new(device),
            target,
            settings,
            answers: memory::place(),
            plans: RwLock::default(),
            kernels: Kernels::default(),
        })
    }

    /// The same with the tuner's answers of another file than the [usual](memory::place), or without
    /// any; plans that were made are forgotten.
    #[must_use]
    pub fn with_answers(self, file: Option<PathBuf>) -> Ops {
        Ops {
            answers: file,
            plans: RwLock::default(),
            ..self
        }
    }

    /// What kernels are made for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// How many plans there are.
    pub fn len(&self) -> usize {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        plans.len()
    }

    /// Every plan's name, and what the tuner had to do with it; by name.
    pub fn plans(&self) -> Vec<(String, Tuning)> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let told = plans
            .values()
            .map(|plan| (plan.name.clone(), plan.tuning.clone()));
        let mut told: Vec<_> = told.collect();
        told.sort_by(|one, other| one.0.cmp(&other.0));
        told
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The plan for a key: the cached one, or the one that is made.
    pub(super) fn plan<O: Operands>(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<Planned, OpError>,
    ) -> Result<Plan<O>, OpError> {
        let known = {
            let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
            plans.get(&key).cloned()
        };
        let inner = match known {
            Some(known) => known,
            None => {
                // Made without holding the lock: two threads may make the same, and
                // the first one's is kept.
                let made = Arc::new(make()?);
                let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
                plans.entry(key).or_insert(made).clone()
            }
        };
        Ok(Plan {
            inner,
            operands: PhantomData,
        })
    }

    /// A problem, planned as the tuner answered, or else as `plan` does without a candidate. A caller's
    /// schedule asks for no answer.
    pub(super) fn tuned<P: Tuned>(
        &self,
        problem: &P,
        schedule: Option<&Schedule>,
        operands: Vec<Operand>,
        plan: impl Fn(Option<&Candidate>) -> Result<LaunchPlan, KernelError>,
    ) -> Result<Planned, OpError> {
        let mut tuning = match (&self.answers, schedule) {
            (Some(answers), None) => Tuning::of(problem, &self.device, answers),
            _ => Tuning::default(),
        };
        if let Some(answer) = &tuning.answer {
            let made = plan(Some(answer)).map_err(OpError::from);
            match made.and_then(|plan| self.planned(plan, operands.clone())) {
                Ok(planned) => return Ok(Planned { tuning, ..planned }),
                // Whatever is wrong with the answer, the problem can be solved without.
                Err(error) => tuning = tuning.refused(error),
            }
        }
        let planned = self.planned(plan(None)?, operands)?;
        Ok(Planned { tuning, ..planned })
    }

    /// Launches over operands, made ready for the device.
    pub(super) fn planned(
        &self,
        plan: LaunchPlan,
        mut operands: Vec<Operand>,
    ) -> Result<Planned, OpError> {
        let known = plan.steps.iter().map(|step| self.kernels.of(step));
        let kernels: Vec<Arc<Known>> = known.collect();
        let used = used(&plan.steps, &kernels, &operands);
        for (operand, used) in operands.iter_mut().zip(used) {
            if !used {
                operand.optional = true;
                operand.bytes = 0;
            }
        }
        let scratch = Scratch::of(&plan, &kernels, &operands)?;
        let on = match &*self.device {
            Device::Gpu(gpu) => {
                let mut launches = Vec::with_capacity(plan.steps.len());
                for (index, (step, known)) in plan.steps.iter().zip(&kernels).enumerate() {
                    let mut ready = known.on(gpu)?.ready(&step.launch)?;
                    if step.overlaps {
                        ready = ready.programmatic();
                    }
                    let of = (index, step, &**known);
                    let parameters = Parameters::new(gpu, &ready, of, &operands, &scratch)?;
                    launches.push((ready, parameters));
                }
                On::Gpu {
                    gpu: gpu.clone(),
                    launches,
                }
            }
            Device::Sim(_) => On::Sim {
                device: self.device.clone(),
                scratch: Scratch::buffers(&plan, &operands),
                settings: self.settings.clone(),
                steps: plan.steps,
            },
        };
        Ok(Planned {
            name: plan.name,
            work: plan.work,
            operands,
            workspace: scratch.workspace,
            tuning: Tuning::default(),
            on,
        })
    }
}

impl Key {
    pub(super) fn new(family: &'static str, numbers: Vec<u64>, schedule: Option<&Schedule>) -> Key {
        Key {
            family,
            numbers,
            schedule: schedule.map(|schedule| format!("{schedule:?}")),
        }
    }
}
