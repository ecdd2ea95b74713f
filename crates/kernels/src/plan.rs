//! Launch plans: kernels, launches and buffer sizes, without any data.
//!
//! A [`LaunchPlan`] is for callers that have device memory of their own: they bind
//! an address to each [`BufferSpec`] by its name. A [`Job`] is a plan with data on the
//! host, for tests and benchmarks.
//!
//! ```
//! use heist_builder::Arch;
//! use heist_kernels::gemm::{FAMILY, Gemm, Input, Layout, Output};
//! use heist_kernels::{Purpose, Target};
//!
//! let problem = Gemm::new(64, 32, 16, Input::F16, Output::F16, Layout::Nt);
//! let plan = FAMILY.plan(None, &problem, Target { arch: Arch::SM_80, sms: 108 })?;
//! let a = plan.buffers.iter().find(|buffer| buffer.name == "a").expect("an operand");
//! assert_eq!((a.purpose, a.bytes()), (Purpose::Input, 64 * 16 * 2));
//! # Ok::<(), heist_kernels::KernelError>(())
//! ```

use crate::job::{Job, Step, Work};
use heist_launch::{Buffer, ElementType, Role};

/// Launches in order, over buffers that are not bound yet.
#[derive(Clone, Debug)]
pub struct LaunchPlan {
    /// What it is, in words.
    pub name: String,
    /// The variant that was chosen, as in `--variant NAME`.
    pub variant: String,
    /// What it costs at least.
    pub work: Work,
    /// The buffers that the steps name in their parameters and tensor maps.
    pub buffers: Vec<BufferSpec>,
    /// The launches: module, entry, grid, parameters.
    pub steps: Vec<Step>,
}

/// A buffer that a plan names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub purpose: Purpose,
    /// What its elements are.
    pub element: ElementType,
    /// How many elements it has.
    pub len: usize,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The caller's, read.
    Input,
    /// The caller's, written.
    Output,
    /// The caller's, read and written.
    Updated,
    /// Scratch memory between the launches of one call; its contents before and after do not
    /// matter.
    Workspace,
}

impl BufferSpec {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.len * self.element.bytes()
    }
}

impl LaunchPlan {
    /// A plan without buffers and steps.
    pub fn new(name: impl Into<String>, variant: impl Into<String>, work: Work) -> LaunchPlan {
        LaunchPlan {
            name: name.into(),
            variant: variant.into(),
            work,
            buffers: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// The plan of a job: the same without its data.
    pub fn of_job(variant: &str, job: Job) -> LaunchPlan {
        let buffers = job.buffers.iter().map(|buffer| BufferSpec {
            name: buffer.name.clone(),
            purpose: match buffer.role {
                _ if job.scratch.contains(&buffer.name) => Purpose::Workspace,
                Role::In => Purpose::Input,
                Role::Out => Purpose::Output,
                Role::InOut => Purpose::Updated,
            },
            element: buffer.data.ty(),
            len: buffer.data.len(),
        });
        LaunchPlan {
            buffers: buffers.collect(),
            name: job.name,
            variant: variant.to_owned(),
            work: job.work,
            steps: job.steps,
        }
    }

    /// The same with one more buffer.
    #[must_use]
    pub fn buffer(
        mut self,
        name: &str,
        purpose: Purpose,
        element: ElementType,
        len: usize,
    ) -> Self {
        self.buffers.push(BufferSpec {
            name: name.to_owned(),
            purpose,
            element,
            len,
        });
        self
    }

    /// The same with one more launch.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Bytes that a caller must have ready besides inputs and outputs.
    pub fn workspace_bytes(&self) -> usize {
        let workspace = |spec: &&BufferSpec| spec.purpose == Purpose::Workspace;
        let specs = self.buffers.iter().filter(workspace);
        specs.map(BufferSpec::bytes).sum()
    }

    /// With data on the host: inputs as `contents` has them or else zeros, the rest
    /// poisoned.
    pub fn job(self, contents: impl Fn(&str) -> Option<Buffer>) -> Job {
        let mut job = Job::new(self.name, self.work);
        for spec in self.buffers {
            let given = || {
                let zeros = || Buffer::zeros(spec.element, spec.len);
                contents(&spec.name).unwrap_or_else(zeros)
            };
            if spec.purpose == Purpose::Workspace {
                job.scratch.push(spec.name.clone());
            }
            let (role, data) = match spec.purpose {
                Purpose::Input => (Role::In, given()),
                Purpose::Updated => (Role::InOut, given()),
                Purpose::Output | Purpose::Workspace => {
                    (Role::Out, Buffer::poisoned(spec.element, spec.len))
                }
            };
            job = job.buffer(&spec.name, role, data);
        }
        job.steps = self.steps;
        job
    }
}
