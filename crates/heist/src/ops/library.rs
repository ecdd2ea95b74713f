//! The plans of a device.

use super::error::OpError;
use super::operand::{Operand, Operands};
use super::parameters::{Parameters, Scratch, used};
use super::plan::{On, Plan, Planned};
use heist_gpu::{JitOptions, PtxText};
use heist_kernels::{LaunchPlan, Target};
use heist_run::{Device, Settings};
use heist_sched::Schedule;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};

/// The operations of a device, and the plans that were made for it.
///
/// It can be shared by threads: a plan is made once and used by all.
pub struct Ops {
    device: Arc<Device>,
    target: Target,
    settings: Settings,
    plans: RwLock<HashMap<Key, Arc<Planned>>>,
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
            plans: RwLock::default(),
        })
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The plan for a key: the cached one, or the one that `make` describes (its launches and the
    /// requirements on operands).
    pub(super) fn plan<O: Operands>(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<(LaunchPlan, Vec<Operand>), OpError>,
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
                let (plan, operands) = make()?;
                let made = Arc::new(self.planned(plan, operands)?);
                let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
                plans.entry(key).or_insert(made).clone()
            }
        };
        Ok(Plan {
            inner,
            operands: PhantomData,
        })
    }

    fn planned(&self, plan: LaunchPlan, mut operands: Vec<Operand>) -> Result<Planned, OpError> {
        let used = used(&plan.steps, &operands);
        for (operand, used) in operands.iter_mut().zip(used) {
            if !used {
                operand.optional = true;
                operand.bytes = 0;
            }
        }
        let scratch = Scratch::of(&plan, &operands)?;
        let on = match &*self.device {
            Device::Gpu(gpu) => {
                let mut launches = Vec::with_capacity(plan.steps.len());
                for (index, step) in plan.steps.iter().enumerate() {
                    let text = PtxText::from_module(step.entry.clone(), &step.module);
                    let program = gpu.load(&text, &JitOptions::default())?;
                    let ready = Arc::new(program.kernel(&step.entry)?).ready(&step.launch)?;
                    let parameters =
                        Parameters::new(gpu, &ready, (index, step), &operands, &scratch)?;
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
