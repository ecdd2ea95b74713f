//! A planned operation: launched any number of times, with the caller's memory.

use super::error::OpError;
use super::memory::Memory;
use super::operand::{Operand, Operands, SLOTS, Slots, Workspace, WorkspaceMemory};
use super::parameters::Parameters;
use super::tuning::Tuning;
use heist_gpu::{BorrowedStream, Gpu, ReadyLaunch};
use heist_kernels::{Job, Step, Work};
use heist_launch::{Buffer, NamedBuffer, Role};
use heist_run::{Device, Settings};
use std::marker::PhantomData;
use std::sync::Arc;

/// A planned operation on operands `O`.
///
/// Made by [`Ops`](super::Ops). Launching takes a few microseconds of the host, and
/// may be done from several threads at a time.
pub struct Plan<O> {
    pub(super) inner: Arc<Planned>,
    pub(super) operands: PhantomData<fn() -> O>,
}

/// A plan, whatever its operands are.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) work: Work,
    pub(super) operands: Vec<Operand>,
    pub(super) workspace: Workspace,
    pub(super) tuning: Tuning,
    pub(super) on: On,
}

/// What is kept for a device.
pub(super) enum On {
    Gpu {
        gpu: Gpu,
        launches: Vec<(ReadyLaunch, Parameters)>,
    },
    Sim {
        device: Arc<Device>,
        steps: Vec<Step>,
        /// Buffers of the workspace.
        scratch: Vec<NamedBuffer>,
        settings: Settings,
    },
}

impl<O> Clone for Plan<O> {
    fn clone(&self) -> Plan<O> {
        Plan {
            inner: self.inner.clone(),
            operands: PhantomData,
        }
    }
}

impl<O: Operands> Plan<O> {
    /// What was planned, in words.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What it costs at least.
    pub fn work(&self) -> Work {
        self.inner.work
    }

    /// What it asks of its operands.
    pub fn operands(&self) -> &[Operand] {
        &self.inner.operands
    }

    /// The memory that it needs besides them.
    pub fn workspace(&self) -> Workspace {
        self.inner.workspace
    }

    /// Whether it is an answer of the tuner's.
    pub fn tuning(&self) -> &Tuning {
        &self.inner.tuning
    }

    /// How many kernels a launch puts into the stream.
    pub fn launches(&self) -> usize {
        match &self.inner.on {
            On::Gpu { launches, .. } => launches.len(),
            On::Sim { steps, .. } => steps.len(),
        }
    }

    /// The same plan, whose operands are given by their place in
    /// [`Plan::operands`].
    pub fn by_slot(&self) -> Plan<Slots<'static>> {
        Plan {
            inner: self.inner.clone(),
            operands: PhantomData,
        }
    }

    /// Whether a graph is being captured from the caller's stream: what is launched
    /// then runs later, any number of times. Where the driver can't say, it is taken
    /// for one.
    pub fn is_captured(&self, stream: BorrowedStream) -> bool {
        match &self.inner.on {
            On::Gpu { gpu, .. } => gpu.is_capturing(stream),
            On::Sim { .. } => false,
        }
    }

    /// Puts it into the caller's stream, and returns. A simulated GPU runs it and
    /// returns when it is done.
    ///
    /// # Errors
    /// Memory that does not fit, an error of the driver, or findings of the simulated GPU.
    pub fn launch(
        &self,
        operands: &O,
        workspace: WorkspaceMemory<'_>,
        stream: BorrowedStream,
    ) -> Result<(), OpError> {
        self.inner.launch(&operands.memory(), workspace, stream)
    }
}

impl Planned {
    fn launch(
        &self,
        memory: &[Option<Memory<'_>>; SLOTS],
        workspace: WorkspaceMemory<'_>,
        stream: BorrowedStream,
    ) -> Result<(), OpError> {
        let on_host = matches!(self.on, On::Sim { .. });
        for (operand, given) in self.operands.iter().zip(memory) {
            match given {
                Some(memory) => self.check(operand, memory, on_host)?,
                None if operand.optional => {}
                None => {
                    return Err(OpError::Memory(format!(
                        "{}: operand {} is missing",
                        self.name, operand.name
                    )));
                }
            }
        }
        match &self.on {
            On::Gpu { gpu, launches } => {
                let Workspace { counters, scratch } = self.workspace;
                self.check_workspace("counters", counters, workspace.counters)?;
                self.check_workspace("scratch", scratch, workspace.scratch)?;
                for (ready, parameters) in launches {
                    parameters.launch(gpu, ready, memory, workspace, stream)?;
                }
                Ok(())
            }
            // It has its own memory, so that it can detect uninitialised reads.
            On::Sim {
                device,
                steps,
                scratch,
                settings,
            } => {
                let mut job = Job::new(self.name.as_str(), self.work);
                job.steps.clone_from(steps);
                job.buffers.clone_from(scratch);
                self.simulate(device, job, settings, memory)
            }
        }
    }

    fn check(&self, operand: &Operand, memory: &Memory<'_>, on_host: bool) -> Result<(), OpError> {
        let wrong = |why: String| {
            let Operand { name, .. } = operand;
            Err(OpError::Memory(format!("{}: {name} {why}", self.name)))
        };
        if memory.len() < operand.bytes {
            return wrong(format!(
                "takes {} bytes and has {}",
                operand.bytes,
                memory.len()
            ));
        }
        if !memory.address().is_multiple_of(operand.alignment) {
            return wrong(format!(
                "begins at {:#x}, which is no multiple of {} bytes; copy it to memory of its own",
                memory.address(),
                operand.alignment
            ));
        }
        if memory.is_on_host() != on_host {
            return wrong(match on_host {
                true => "is on a GPU, and the plan is for a simulated one: give host memory".into(),
                false => "is the host's, and the plan is for a GPU: give memory of that GPU".into(),
            });
        }
        if operand.role != Role::In && !memory.is_writable() {
            return wrong("is written and was given to be read: make it with `host_mut`".into());
        }
        Ok(())
    }

    fn check_workspace(&self, what: &str, need: u64, given: Memory<'_>) -> Result<(), OpError> {
        if need <= given.len() && (need == 0 || given.address().is_multiple_of(256)) {
            return Ok(());
        }
        Err(OpError::Memory(format!(
            "{}: the {what} of its workspace take {need} bytes at a multiple of 256; given: {} bytes at {:#x}",
            self.name,
            given.len(),
            given.address()
        )))
    }

    fn simulate(
        &self,
        device: &Device,
        mut job: Job,
        settings: &Settings,
        memory: &[Option<Memory<'_>>; SLOTS],
    ) -> Result<(), OpError> {
        for (operand, given) in self.operands.iter().zip(memory) {
            let count = operand.bytes as usize / operand.element.bytes();
            let data = match given {
                Some(memory) if operand.role.is_filled() => memory
                    .read(operand.bytes)
                    .and_then(|bytes| Buffer::from_bytes(operand.element, bytes)),
                _ => None,
            };
            job.buffers.push(NamedBuffer {
                name: operand.name.to_owned(),
                role: operand.role,
                data: data.unwrap_or_else(|| Buffer::poisoned(operand.element, count)),
            });
        }
        crate::job::run(device, &mut job, settings)?;
        for (operand, given) in self.operands.iter().zip(memory) {
            let (Some(memory), Some(data)) = (given, job.data(operand.name)) else {
                continue;
            };
            if operand.role.is_read_back() && !memory.write(data.bytes()) {
                return Err(OpError::Memory(format!(
                    "{}: {} could not be written",
                    self.name, operand.name
                )));
            }
        }
        Ok(())
    }
}
