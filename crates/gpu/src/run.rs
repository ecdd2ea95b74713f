//! One launch from start to end: the same arguments and the same outcome as on
//! the simulator.

use crate::context::Gpu;
use crate::error::GpuError;
use crate::fault::argument_flags;
use crate::kernel::{Kernel, KernelArg, KernelInfo, LaunchOptions};
use crate::memory::DeviceMemory;
use crate::program::JitOptions;
use crate::ptx::PtxText;
use crate::stream::Stream;
use heist_launch::{Arguments, Buffer, Launch, Outcome, Param, Role, Slot, Time};
use std::time::Duration;

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// What to ask of the assembler.
    pub jit: JitOptions,
    /// All blocks at once on the device, or a refusal.
    pub cooperative: bool,
    /// How long the kernel may take; a kernel that takes longer costs the context.
    pub limit: Duration,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            jit: JitOptions::default(),
            cooperative: false,
            limit: Duration::from_secs(60),
        }
    }
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct GpuRun {
    /// The buffers.
    pub outcome: Outcome,
    /// How long the kernel took, by events around it; a first launch includes
    /// what the driver does once.
    pub elapsed: Time,
    /// What the assembler made of the kernel.
    pub kernel: KernelInfo,
    /// What the assembler had to say.
    pub log: String,
}

/// A launch with its program assembled and its buffers on the device: it can be
/// put into streams as often as one likes.
pub struct Prepared {
    kernel: Kernel,
    launch: Launch,
    parameters: Vec<KernelArg>,
    options: LaunchOptions,
    slots: Vec<Slot>,
    memory: Vec<DeviceMemory>,
    log: String,
}

impl Prepared {
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Its launch.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// What the assembler had to say.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Puts the launch into a stream.
    pub fn enqueue(&self, stream: &Stream) -> Result<(), GpuError> {
        self.kernel
            .launch_with(stream, &self.launch, &self.parameters, &self.options)
    }

    /// Overwrites every buffer that the kernel only fills with a pattern that no
    /// result looks like, so that what it left out shows.
    pub fn poison(&self, stream: &Stream) -> Result<(), GpuError> {
        for (slot, memory) in self.slots.iter().zip(&self.memory) {
            if slot.role == Role::Out {
                memory.fill(0xff, stream)?;
            }
        }
        Ok(())
    }

    /// The buffers that are read back, as they are now.
    pub fn outputs(&self) -> Result<Outcome, GpuError> {
        let mut outputs = Vec::new();
        for (slot, memory) in self.slots.iter().zip(&self.memory) {
            if !slot.role.is_read_back() {
                continue;
            }
            let mut bytes = vec![0; memory.len()];
            memory.read(0, &mut bytes)?;
            // As many bytes as the slot had, so the elements come out whole.
            if let Some(buffer) = Buffer::from_bytes(slot.data.ty(), bytes) {
                outputs.push((slot.name.clone(), buffer));
            }
        }
        Ok(Outcome {
            outputs,
            trace: None,
        })
    }
}

impl Gpu {
    /// Assembles PTX and makes the buffers of a launch, without launching.
    pub fn prepare(
        &self,
        ptx: &PtxText,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        options: &RunOptions,
    ) -> Result<Prepared, GpuError> {
        let program = self.load(ptx, &options.jit)?;
        let kernel = program.kernel(entry)?;
        let bound = arguments.bind()?;
        let mut memory = Vec::with_capacity(bound.slots.len());
        for slot in &bound.slots {
            memory.push(self.allocate_with(slot.data.bytes())?);
        }
        let mut parameters = Vec::with_capacity(bound.params.len());
        for param in &bound.params {
            parameters.push(match param {
                Param::Bytes(bytes) => KernelArg::bytes(bytes.clone()),
                Param::Pointer { slot, offset } => {
                    KernelArg::address(memory[*slot].address() + offset)
                }
                Param::TensorMap { slot, map } => {
                    KernelArg::tensor_map(self, entry, map, &memory[*slot])?
                }
            });
        }
        Ok(Prepared {
            kernel,
            launch: *launch,
            parameters,
            options: LaunchOptions {
                flags: Some(argument_flags(arguments)),
                cooperative: options.cooperative,
                ..LaunchOptions::default()
            },
            slots: bound.slots,
            memory,
            log: program.log().to_owned(),
        })
    }

    /// Assembles PTX, makes the buffers, launches a kernel once, waits, and reads
    /// the buffers back.
    pub fn run(
        &self,
        ptx: &PtxText,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        options: &RunOptions,
    ) -> Result<GpuRun, GpuError> {
        let prepared = self.prepare(ptx, entry, launch, arguments, options)?;
        let stream = self.stream()?;
        let (start, end) = (self.event()?, self.event()?);
        start.record(&stream)?;
        prepared.enqueue(&stream)?;
        end.record(&stream)?;
        stream.synchronize_within(options.limit)?;
        Ok(GpuRun {
            outcome: prepared.outputs()?,
            elapsed: end.since(&start)?,
            kernel: prepared.kernel.info().clone(),
            log: prepared.log,
        })
    }
}
