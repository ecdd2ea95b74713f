//! A piece of work that is ready for a device: kernels, launches and buffers.
//!
//! A [`Job`] is what every kernel family makes and every runner takes. It is independent of the
//! device: a runner allocates its buffers, launches its steps in order, and reads the results back.
//! The simulator and a real GPU take the same job, and a program that keeps its own device memory
//! binds that to the buffers' names instead.
//!
//! ```
//! use heist_builder::Arch;
//! use heist_kernels::Target;
//! use heist_kernels::catalogue::{Settings, entry};
//!
//! let settings = Settings::from_words(["m=32", "n=32", "k=16"])?;
//! let job = entry("gemm")?.prepare(&settings, None, Target { arch: Arch::SM_80, sms: 108 })?.job;
//! assert!(job.data("a").is_some(), "random data");
//! let arguments = job.arguments(0)?; // what a device takes for the first launch
//! assert!(!arguments.params.is_empty());
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

use crate::built::Shared;
use crate::error::KernelError;
use heist_builder::{BuiltKernel, Feature, KernelParams};
use heist_launch::{Arg, Arguments, Buffer, BufferRef, Launch, NamedBuffer, Outcome, Role};
use heist_ptx::Module;
use heist_sched::{Plan, Readout, TiledKernel};
use std::sync::Arc;

/// The least work of a job, for figures such as TFLOP/s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes that must cross the memory bus once.
    pub bytes: f64,
}

/// One launch of a job.
#[derive(Clone, Debug)]
pub struct Step {
    /// The PTX, which launches of the same kernel share.
    pub module: Arc<Module>,
    /// The kernel in it.
    pub entry: String,
    /// Grid, block, cluster, shared memory.
    pub launch: Launch,
    /// The parameters in order. Buffers of the job are [`Arg::Pointer`]s (or
    /// tensor maps) to their names; a buffer that the step brings itself is private to it.
    pub params: Vec<Arg>,
    /// How the scheduler's records are read, for a kernel that is scheduled.
    pub readout: Option<Readout>,
    /// Whether it waits by itself for the launch before it, and so may begin before that has ended.
    pub overlaps: bool,
    /// Which of its tiles are halves of one, where some are.
    pub halves: Option<HalfTiles>,
}

/// Tiles of a launch that are halves of one: so many from one number on, and as many at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfTiles {
    /// The first.
    pub first: u32,
    /// How many of each.
    pub count: u32,
}

/// Launches in order, over buffers that they share.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// What it is, in words.
    pub name: String,
    /// What it costs at least.
    pub work: Work,
    /// The buffers, by name.
    pub buffers: Vec<NamedBuffer>,
    /// Names of those that are scratch memory: what is in them afterwards does not matter, and may depend on who was first.
    pub scratch: Vec<String>,
    /// The launches.
    pub steps: Vec<Step>,
}

impl Step {
    /// A launch of a scheduled kernel with its own parameters.
    pub fn tiled<A: KernelParams>(kernel: &TiledKernel<A>, plan: &Plan, own: A::With<Arg>) -> Step {
        Step::of_tiled(kernel, Arc::new(kernel.built.module.clone()), plan, own)
    }

    /// The same for one that was built before.
    pub(crate) fn shared_tiled<A: KernelParams>(
        shared: &Shared<TiledKernel<A>>,
        plan: &Plan,
        own: A::With<Arg>,
    ) -> Step {
        Step::of_tiled(&shared.kernel, shared.module.clone(), plan, own)
    }

    fn of_tiled<A: KernelParams>(
        kernel: &TiledKernel<A>,
        module: Arc<Module>,
        plan: &Plan,
        own: A::With<Arg>,
    ) -> Step {
        Step {
            module,
            entry: kernel.built.launch.entry.clone(),
            launch: plan.launch,
            params: kernel.arguments(plan, own).params,
            readout: Some(kernel.readout(plan)),
            overlaps: overlaps(&kernel.built),
            halves: None,
        }
    }

    /// A launch of a kernel that schedules nothing.
    pub fn plain<A: KernelParams>(
        kernel: &BuiltKernel<A>,
        grid: impl Into<heist_launch::Dim3>,
        own: A::With<Arg>,
    ) -> Step {
        Step::of(kernel, Arc::new(kernel.module.clone()), grid, own)
    }

    /// The same for one that was built before.
    pub(crate) fn shared<A: KernelParams>(
        shared: &Shared<BuiltKernel<A>>,
        grid: impl Into<heist_launch::Dim3>,
        own: A::With<Arg>,
    ) -> Step {
        Step::of(&shared.kernel, shared.module.clone(), grid, own)
    }

    fn of<A: KernelParams>(
        kernel: &BuiltKernel<A>,
        module: Arc<Module>,
        grid: impl Into<heist_launch::Dim3>,
        own: A::With<Arg>,
    ) -> Step {
        let info = &kernel.launch;
        let mut launch = Launch::new(grid, info.block).dynamic_shared(info.dynamic_shared);
        if let Some(cluster) = info.cluster {
            launch = launch.cluster(cluster);
        }
        Step {
            module,
            entry: info.entry.clone(),
            launch,
            params: A::arguments(own),
            readout: None,
            overlaps: overlaps(kernel),
            halves: None,
        }
    }

    /// The PTX as text.
    pub fn ptx(&self) -> String {
        heist_ptx::print(&self.module)
    }
}

/// Whether a kernel waits by itself for the launch before it.
fn overlaps<A>(kernel: &BuiltKernel<A>) -> bool {
    let features = &kernel.contents.features;
    features.contains(&Feature::GridDependency)
}

/// A parameter that points to a buffer of the job.
pub fn buffer(name: &str) -> Arg {
    Arg::Pointer {
        buffer: BufferRef::Named(name.to_owned()),
        offset: 0,
    }
}

impl Job {
    /// The buffers that are its results.
    pub fn results(&self) -> impl Iterator<Item = &NamedBuffer> {
        let result = |buffer: &&NamedBuffer| {
            buffer.role.is_read_back() && !self.scratch.contains(&buffer.name)
        };
        self.buffers.iter().filter(result)
    }

    /// A job without buffers and steps.
    pub fn new(name: impl Into<String>, work: Work) -> Job {
        Job {
            name: name.into(),
            work,
            ..Job::default()
        }
    }

    /// The same with one more buffer, or with another in the place of one of that name.
    #[must_use]
    pub fn buffer(mut self, name: &str, role: Role, data: Buffer) -> Job {
        self.buffers.retain(|buffer| buffer.name != name);
        self.buffers.push(NamedBuffer {
            name: name.to_owned(),
            role,
            data,
        });
        self
    }

    /// The same with one more launch.
    #[must_use]
    pub fn step(mut self, step: Step) -> Job {
        self.steps.push(step);
        self
    }

    /// What is in a buffer now.
    pub fn data(&self, name: &str) -> Option<&Buffer> {
        let found = self.buffers.iter().find(|buffer| buffer.name == name)?;
        Some(&found.data)
    }

    /// The arguments of a step, for a runner that makes its buffers anew.
    ///
    /// # Errors
    /// When there is no such step.
    pub fn arguments(&self, step: usize) -> Result<Arguments, KernelError> {
        let Some(step) = self.steps.get(step) else {
            return Err(KernelError::unfit(format!(
                "{} has {} launches, and number {step} was asked for",
                self.name,
                self.steps.len()
            )));
        };
        let mut arguments = Arguments::new(step.params.clone());
        arguments.buffers.clone_from(&self.buffers);
        Ok(arguments)
    }

    /// Copies the results of a step into the job's buffers, before the next one runs.
    pub fn absorb(&mut self, outcome: &Outcome) {
        for buffer in &mut self.buffers {
            let name = BufferRef::Named(buffer.name.clone());
            if let Some(after) = outcome.output(name) {
                buffer.data = after.clone();
                // It has contents now, which the next launch must see.
                buffer.role = Role::InOut;
            }
        }
    }
}
