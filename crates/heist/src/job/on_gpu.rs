//! A job that stays on a real GPU, to be launched over and over.

use super::JobError;
use heist_gpu::{
    DeviceMemory, Gpu, GpuError, Graph, Kernel, KernelArg, KernelInfo, PtxText, Stream,
};
use heist_kernels::{Job, KernelError, Step};
use heist_launch::{Arg, Buffer, BufferRef, ElementType, Launch, Param};
use heist_sched::{BELL_BYTES, Bell, LaunchReport, Readout, ReportError, TraceDevice};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// One step with its parameters on the GPU.
struct Loaded {
    kernel: Kernel,
    launch: Launch,
    arguments: Vec<KernelArg>,
    /// Buffers that are the step's own, by the number of their argument.
    own: BTreeMap<usize, DeviceMemory>,
    /// How its records are read, where it is scheduled.
    readout: Option<Readout>,
}

impl Loaded {
    /// Its control words, where it is scheduled.
    fn control(&self) -> Option<&DeviceMemory> {
        self.own.get(&self.readout.as_ref()?.control())
    }

    /// The records of its last launch, where it is watched.
    fn records(&self) -> Option<&DeviceMemory> {
        self.own.get(&self.readout.as_ref()?.records())
    }
}

/// A job on a GPU: assembled, its buffers allocated and filled. It can be
/// launched any number of times, and captured in a graph.
pub struct OnGpu {
    memory: BTreeMap<String, DeviceMemory>,
    steps: Vec<Loaded>,
    /// How often its bells were rung or silenced.
    rings: AtomicU32,
}

/// A visitor that is launched together with the ring of a batch's bell: see [`OnGpu::visits`].
pub struct Visits {
    graphs: [Graph; 2],
    launched: AtomicU32,
}

impl Visits {
    /// Rings and launches. Whoever launches silences the bell behind it ([`OnGpu::ring_in`]), in the same stream.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn launch(&self, stream: &Stream) -> Result<(), GpuError> {
        let turn = self.launched.fetch_add(1, Ordering::Relaxed) % 2;
        self.graphs[turn as usize].launch(stream)
    }
}

impl OnGpu {
    /// Assembles the kernels and fills the buffers.
    ///
    /// # Errors
    /// An error of the assembler or the driver.
    pub fn new(gpu: &Gpu, job: &Job) -> Result<OnGpu, JobError> {
        OnGpu::over(gpu, job, BTreeMap::new())
    }

    /// The same over existing memory, by the names of the job's buffers; buffers that are not named
    /// are allocated.
    ///
    /// # Errors
    /// An error of the assembler or the driver.
    pub fn over(
        gpu: &Gpu,
        job: &Job,
        mut memory: BTreeMap<String, DeviceMemory>,
    ) -> Result<OnGpu, JobError> {
        for buffer in &job.buffers {
            if !memory.contains_key(&buffer.name) {
                let filled = gpu.allocate_with(buffer.data.bytes())?;
                memory.insert(buffer.name.clone(), filled);
            }
        }
        let mut steps = Vec::with_capacity(job.steps.len());
        for (index, step) in job.steps.iter().enumerate() {
            steps.push(load(gpu, job, index, step, &memory)?);
        }
        Ok(OnGpu {
            memory,
            steps,
            rings: AtomicU32::new(0),
        })
    }

    /// Puts every step into the stream, in order, and returns.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn launch(&self, stream: &Stream) -> Result<(), GpuError> {
        (0..self.steps.len()).try_for_each(|index| self.launch_step(index, stream))
    }

    /// Puts one step alone into the stream: for a job whose steps are alternatives. An index past
    /// the last step does nothing.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn launch_step(&self, index: usize, stream: &Stream) -> Result<(), GpuError> {
        match self.steps.get(index) {
            Some(step) => step.kernel.launch(stream, &step.launch, &step.arguments),
            None => Ok(()),
        }
    }

    /// What its bell says to have room for a visitor: as many of its blocks leave as the visitor
    /// launches at a time. Where a block of either has only a part of a multiprocessor, or needs
    /// neighbours, it is not known which blocks would make room, and all leave.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn bell_for(&self, visitor: &OnGpu) -> Result<Bell, GpuError> {
        for step in self.steps.iter().filter(|step| step.readout.is_some()) {
            if step.kernel.occupancy(&step.launch)?.blocks_per_sm != 1 {
                return Ok(Bell::All);
            }
        }
        let mut most = 0;
        for step in &visitor.steps {
            let fits = step.kernel.occupancy(&step.launch)?;
            if fits.active_clusters.is_some() {
                return Ok(Bell::All);
            }
            most = most.max(u32::try_from(step.launch.grid.count()).unwrap_or(u32::MAX));
        }
        Ok(match visitor.steps.len() {
            1 => Bell::Once(most),
            _ => Bell::For(most),
        })
    }

    /// What the assembler made of each step's kernel.
    pub fn kernels(&self) -> impl Iterator<Item = &KernelInfo> {
        self.steps.iter().map(|step| step.kernel.info())
    }

    /// Rings the bell of every scheduled step, or silences it: under a policy that listens
    /// ([`UntilAsked`](heist_sched::UntilAsked)) blocks leave.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn ring(&self, bell: Bell) -> Result<(), GpuError> {
        let word = self.word(bell);
        for step in &self.steps {
            if let Some(control) = step.control() {
                control.write(BELL_BYTES as usize, &word.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// The same in stream order: later work in the stream sees the bell rung, and the host does not
    /// wait.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn ring_in(&self, stream: &Stream, bell: Bell) -> Result<(), GpuError> {
        self.write_bell(stream, self.word(bell))
    }

    fn write_bell(&self, stream: &Stream, word: u32) -> Result<(), GpuError> {
        for step in &self.steps {
            if let Some(control) = step.control() {
                control.write_in(stream, BELL_BYTES as usize, word)?;
            }
        }
        Ok(())
    }

    /// Visits of a kernel beside this batch, in a stream of high priority: the bell is rung and the visitor launched at once. Where each is put into
    /// the stream by itself, the GPU has rung before the host has launched, and blocks leave for nobody.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn visits(&self, stream: &Stream, visitor: &OnGpu) -> Result<Visits, GpuError> {
        let bell = self.bell_for(visitor)?;
        // Two rings in a row say different words.
        let visit = |number: u32| {
            stream.capture(|stream| {
                self.write_bell(stream, bell.ring_launched(number))?;
                visitor.launch(stream)
            })
        };
        Ok(Visits {
            graphs: [visit(0)?, visit(1)?],
            launched: AtomicU32::new(0),
        })
    }

    /// What is written to ring, other than the time before.
    fn word(&self, bell: Bell) -> u32 {
        bell.ring(self.rings.fetch_add(1, Ordering::Relaxed))
    }

    /// Waits, and reads what the scheduled steps recorded since [`forget`](OnGpu::forget), which must
    /// have been one launch of each.
    ///
    /// # Errors
    /// A fault of a launch, or records that can't be read.
    pub fn reports(&self, place: &TraceDevice) -> Result<Vec<LaunchReport>, JobError> {
        let scheduled = self.steps.iter().filter_map(|step| {
            let (control, records) = (step.control()?, step.records()?);
            Some((step.readout.as_ref()?, control, records))
        });
        let mut reports = Vec::new();
        for (readout, control, records) in scheduled {
            let words = |memory: &DeviceMemory| -> Result<Vec<u64>, JobError> {
                let mut bytes = vec![0; memory.len()];
                memory.read(0, &mut bytes)?;
                let buffer = Buffer::from_bytes(ElementType::U64, bytes);
                let words = buffer.and_then(|buffer| buffer.to_vec());
                words.ok_or(ReportError::Missing.into())
            };
            reports.push(readout.report_words(&words(control)?, &words(records)?, place)?);
        }
        Ok(reports)
    }

    /// Waits, and forgets what was recorded so far.
    ///
    /// # Errors
    /// A fault of a launch.
    pub fn forget(&self, gpu: &Gpu) -> Result<(), GpuError> {
        gpu.synchronize()?;
        for records in self.steps.iter().filter_map(Loaded::records) {
            records.write(0, &[0; 8])?;
        }
        Ok(())
    }

    /// The memory of a buffer.
    pub fn memory(&self, name: &str) -> Option<&DeviceMemory> {
        self.memory.get(name)
    }

    /// Gives the buffers' memory back, for another job over the same.
    pub fn into_memory(self) -> BTreeMap<String, DeviceMemory> {
        self.memory
    }

    /// Waits, and reads back what the kernels wrote into the job's buffers.
    ///
    /// # Errors
    /// A fault of a launch, with its name.
    pub fn read_back(&self, job: &mut Job) -> Result<(), GpuError> {
        for buffer in &mut job.buffers {
            let Some(memory) = self.memory.get(&buffer.name) else {
                continue;
            };
            if buffer.role.is_read_back() {
                let mut bytes = vec![0; memory.len()];
                memory.read(0, &mut bytes)?;
                if let Some(read) = Buffer::from_bytes(buffer.data.ty(), bytes) {
                    buffer.data = read;
                }
            }
        }
        Ok(())
    }
}

fn load(
    gpu: &Gpu,
    job: &Job,
    index: usize,
    step: &Step,
    memory: &BTreeMap<String, DeviceMemory>,
) -> Result<Loaded, JobError> {
    let text = PtxText::from_module(step.entry.clone(), &step.module);
    let kernel = gpu.load(&text, &Default::default())?.kernel(&step.entry)?;
    // The job's buffers can be large and are on the GPU already: bind empty ones
    // of the same names, and look the memory up by name. A tensor map is made
    // over the memory itself.
    let mut arguments = job.arguments(index)?;
    let mut maps = Vec::new();
    for (at, param) in arguments.params.iter_mut().enumerate() {
        if let Arg::TensorMap(map) = param {
            let pointer = Arg::Pointer {
                buffer: map.buffer.clone(),
                offset: 0,
            };
            if let Arg::TensorMap(map) = std::mem::replace(param, pointer) {
                maps.push((at, map));
            }
        }
    }
    for buffer in &mut arguments.buffers {
        let named = BufferRef::Named(buffer.name.clone());
        let inside = |param: &Arg| matches!(param, Arg::Pointer { buffer, offset } if *offset > 0 && *buffer == named);
        if !arguments.params.iter().any(inside) {
            buffer.data = Buffer::zeros(buffer.data.ty(), 0);
        }
    }
    let bound = arguments.bind().map_err(GpuError::from)?;
    let mut own = BTreeMap::new();
    let mut address = BTreeMap::new();
    for (slot, brought) in bound.slots.iter().enumerate() {
        match &brought.name {
            BufferRef::Named(name) => {
                if let Some(memory) = memory.get(name) {
                    address.insert(slot, memory.address());
                }
            }
            BufferRef::Argument(at) => {
                let filled = gpu.allocate_with(brought.data.bytes())?;
                address.insert(slot, filled.address());
                own.insert(*at, filled);
            }
        }
    }
    let mut parameters = Vec::with_capacity(bound.params.len());
    for param in &bound.params {
        parameters.push(match param {
            Param::Bytes(bytes) => KernelArg::bytes(bytes.clone()),
            Param::Pointer { slot, offset } => {
                KernelArg::address(address.get(slot).copied().unwrap_or(0) + offset)
            }
            Param::TensorMap { .. } => KernelArg::bytes(Vec::new()),
            Param::Struct(_) => {
                let why = "a struct of addresses, which no kernel of a job takes".to_owned();
                return Err(KernelError::unfit(why).into());
            }
        });
    }
    for (at, map) in maps {
        let memory = match &map.buffer {
            BufferRef::Named(name) => memory.get(name),
            BufferRef::Argument(_) => None,
        };
        let Some(memory) = memory else {
            let why = format!(
                "a tensor map over `{}`, which is no buffer of the job",
                map.buffer
            );
            return Err(KernelError::unfit(why).into());
        };
        parameters[at] = KernelArg::tensor_map(gpu, &step.entry, &map, memory)?;
    }
    Ok(Loaded {
        kernel,
        launch: step.launch,
        arguments: parameters,
        own,
        readout: step.readout.clone(),
    })
}
