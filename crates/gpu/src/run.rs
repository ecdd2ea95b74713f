//! One launch from start to end: the same arguments and the same outcome as on
//! the simulator.

use crate::cache::JitOptions;
use crate::context::Gpu;
use crate::error::GpuError;
use crate::fault::argument_flags;
use crate::kernel::{KernelArg, KernelInfo, LaunchOptions};
use crate::memory::DeviceMemory;
use crate::ptx::PtxText;
use crate::stream::Event;
use heist_launch::{Address, Arguments, Bound, Buffer, BufferRef, Launch, Outcome, Param, Time};
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

/// A kernel that was launched and has perhaps not ended.
pub struct InFlight<'r> {
    bound: &'r Bound,
    slots: &'r [DeviceMemory],
    end: &'r Event,
}

impl InFlight<'_> {
    /// Whether it has ended.
    pub fn has_ended(&self) -> Result<bool, GpuError> {
        self.end.has_happened()
    }

    /// The memory of the buffer that an argument brought.
    pub fn memory(&self, argument: usize) -> Option<&DeviceMemory> {
        self.slots
            .get(self.bound.slot(&BufferRef::Argument(argument))?)
    }
}

impl Gpu {
    /// Assembles PTX, makes the buffers, launches a kernel once, waits, and reads
    /// the buffers back. Variables of the module are as the text initialises them, whatever ran
    /// before.
    pub fn run(
        &self,
        ptx: &PtxText,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        options: &RunOptions,
    ) -> Result<GpuRun, GpuError> {
        self.run_while(ptx, entry, launch, arguments, options, |_| Ok(()))
    }

    /// The same; `meanwhile` is called once the kernel is launched, and can reach its
    /// buffers while it runs.
    pub fn run_while(
        &self,
        ptx: &PtxText,
        entry: &str,
        launch: &Launch,
        arguments: &Arguments,
        options: &RunOptions,
        meanwhile: impl FnOnce(&InFlight<'_>) -> Result<(), GpuError>,
    ) -> Result<GpuRun, GpuError> {
        let loaded = self.load_for_a_run(ptx, &options.jit)?;
        let program = &loaded.program;
        let kernel = program.kernel(entry)?;
        if let Some(placed) = arguments.placed.first() {
            return Err(GpuError::Arguments {
                kernel: entry.to_owned(),
                why: format!(
                    "`{}` has an address of its own, and a real GPU chooses addresses itself: \
                     use a simulated one, such as `sim:h200`",
                    placed.name
                ),
            });
        }
        let bound = arguments.bind()?;
        let mut slots = Vec::with_capacity(bound.slots.len());
        for slot in &bound.slots {
            slots.push(self.allocate_with(slot.data.bytes())?);
        }
        let mut parameters = Vec::with_capacity(bound.params.len());
        for param in &bound.params {
            parameters.push(match param {
                Param::Bytes(bytes) => KernelArg::bytes(bytes.clone()),
                Param::Pointer { slot, offset } => {
                    KernelArg::address(slots[*slot].address() + offset)
                }
                Param::TensorMap { slot, map } => {
                    KernelArg::tensor_map(self, entry, map, &slots[*slot])?
                }
                Param::Struct(fields) => KernelArg::bytes(fields.filled(|address| {
                    let Address::Slot { slot, offset } = address else {
                        return Err(GpuError::Arguments {
                            kernel: entry.to_owned(),
                            why:
                                "the driver tells no addresses of functions: use a simulated GPU, \
                                  such as `sim:h200`"
                                    .to_owned(),
                        });
                    };
                    Ok(slots[*slot].address() + offset)
                })?),
            });
        }
        let stream = self.stream()?;
        let (start, end) = (self.event()?, self.event()?);
        start.record(&stream)?;
        kernel.launch_with(
            &stream,
            launch,
            &parameters,
            &LaunchOptions {
                flags: Some(argument_flags(arguments)),
                cooperative: options.cooperative,
                ..LaunchOptions::default()
            },
        )?;
        end.record(&stream)?;
        meanwhile(&InFlight {
            bound: &bound,
            slots: &slots,
            end: &end,
        })?;
        stream.synchronize_within(options.limit)?;
        let elapsed = end.since(&start)?;
        let mut outputs = Vec::new();
        for (slot, memory) in bound.slots.iter().zip(&slots) {
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
        Ok(GpuRun {
            outcome: Outcome {
                outputs,
                trace: None,
            },
            elapsed,
            kernel: kernel.info().clone(),
            log: program.log().to_owned(),
        })
    }
}
