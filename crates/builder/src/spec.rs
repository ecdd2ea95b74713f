//! From a name and a body to a finished kernel.

use crate::emit::{CallSite, Recorder};
use crate::error::{BuildError, Problem};
use crate::kernel::Kernel;
use crate::launch_info::{Contents, LaunchInfo};
use crate::lower::{self, Lowered};
use crate::params::{KernelParams, ParamInfo};
use heist_ptx::Module;
use heist_ptx::arch::{Arch, Feature};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

/// What a kernel is called and how it is launched: its name, the shape of its
/// blocks and clusters, and what the PTX should carry.
///
/// ```
/// use heist_builder::*;
/// kernel_params! { pub struct Args { data: Global<f32>, n: u32 } }
/// let kernel = KernelSpec::<Args>::new("double")
///     .block(128)
///     .build(Arch::SM_80, |k, args| {
///         let i = k.block().x * k.block_dim().x + k.thread().x;
///         k.if_(i.lt(args.n), || args.data.at(i).update(|v| v * 2.0));
///     })?;
/// assert_eq!(kernel.launch.block, [128, 1, 1]);
/// # Ok::<(), BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct KernelSpec<A> {
    head: Head,
    args: PhantomData<fn() -> A>,
}

/// What of it does not depend on the parameters, so that it is compiled once.
#[derive(Clone, Debug)]
struct Head {
    name: String,
    block: [u32; 3],
    cluster: Option<[u32; 3]>,
    min_blocks: Option<u32>,
    locations: bool,
}

/// A finished kernel.
pub struct BuiltKernel<A> {
    /// The PTX module with this one kernel.
    pub module: Module,
    /// How to launch it.
    pub launch: LaunchInfo,
    /// What went into it.
    pub contents: Contents,
    args: PhantomData<fn() -> A>,
}

impl<A: KernelParams> KernelSpec<A> {
    /// A kernel called `name`, with blocks of 128 threads.
    pub fn new(name: impl Into<String>) -> KernelSpec<A> {
        let head = Head {
            name: name.into(),
            block: [128, 1, 1],
            cluster: None,
            min_blocks: None,
            locations: true,
        };
        KernelSpec {
            head,
            args: PhantomData,
        }
    }

    /// Blocks of `threads` along x.
    #[must_use]
    pub fn block(self, threads: u32) -> Self {
        self.block3([threads, 1, 1])
    }

    /// Blocks of x * y * z threads.
    #[must_use]
    pub fn block3(mut self, threads: [u32; 3]) -> Self {
        self.head.block = threads;
        self
    }

    /// Clusters of x * y * z blocks.
    #[must_use]
    pub fn cluster(mut self, blocks: [u32; 3]) -> Self {
        self.head.cluster = Some(blocks);
        self
    }

    /// Keeps registers low enough for this many blocks on a multiprocessor.
    #[must_use]
    pub fn min_blocks(mut self, blocks: u32) -> Self {
        self.head.min_blocks = Some(blocks);
        self
    }

    /// Whether the PTX says which Rust line each instruction comes from. On
    /// unless turned off.
    #[must_use]
    pub fn locations(mut self, on: bool) -> Self {
        self.head.locations = on;
        self
    }

    /// Builds the kernel. `body` runs once, here; what it does with the values
    /// it is given becomes the kernel.
    ///
    /// # Errors
    /// The first thing that could not be built, with its numbers and the Rust
    /// line that asked for it: too much shared memory, a feature that `arch`
    /// lacks, a tile that does not divide.
    #[track_caller]
    pub fn build<F>(&self, arch: Arch, body: F) -> Result<BuiltKernel<A>, BuildError>
    where
        F: for<'k> FnOnce(&Kernel<'k>, A::Device<'k>),
    {
        let place = Location::caller();
        let recorder = self.head.begin(arch, place)?;
        let kernel = Kernel {
            rec: &recorder,
            brand: PhantomData,
        };
        let args = A::read(&kernel);
        body(&kernel, args);
        let Lowered {
            module,
            launch,
            contents,
        } = self.head.finish(&recorder, A::layout(), place)?;
        Ok(BuiltKernel {
            module,
            launch,
            contents,
            args: PhantomData,
        })
    }
}

impl Head {
    fn begin(&self, arch: Arch, place: CallSite) -> Result<Recorder, BuildError> {
        self.check(arch, place)?;
        let recorder = Recorder::new(arch, self.block, self.cluster, place);
        if self.cluster.is_some() {
            recorder.need(Feature::Clusters, place);
        }
        Ok(recorder)
    }

    fn finish(
        &self,
        recorder: &Recorder,
        params: Vec<ParamInfo>,
        place: CallSite,
    ) -> Result<Lowered, BuildError> {
        let header = lower::Header {
            name: &self.name,
            min_blocks: self.min_blocks,
            locations: self.locations,
            params,
            place,
        };
        lower::lower(recorder, &header)
    }

    fn check(&self, arch: Arch, place: CallSite) -> Result<(), BuildError> {
        let out_of_range = |what: &str, value: u64, high: u32| {
            let problem = Problem::OutOfRange {
                what: what.into(),
                value: value as i64,
                low: 1,
                high: high.into(),
            };
            Err(BuildError::at(problem, place))
        };
        let product = |dims: [u32; 3]| dims.iter().map(|&n| u64::from(n)).product::<u64>();
        let limits = arch.limits();
        let threads = product(self.block);
        if !(1..=limits.threads_per_block.into()).contains(&threads) {
            let high = limits.threads_per_block;
            return out_of_range("the number of threads in a block", threads, high);
        }
        for (axis, high) in limits.block.into_iter().enumerate() {
            if self.block[axis] > high {
                let what = format!("the block's extent along {}", ["x", "y", "z"][axis]);
                return out_of_range(&what, self.block[axis].into(), high);
            }
        }
        if let Some(cluster) = self.cluster {
            let blocks = product(cluster);
            if blocks == 0 || (limits.cluster_max > 0 && blocks > limits.cluster_max.into()) {
                let high = limits.cluster_max;
                return out_of_range("the number of blocks in a cluster", blocks, high);
            }
        }
        if !valid_name(&self.name) {
            let problem = Problem::Other(format!(
                "`{}` can't name a kernel: use letters, digits and underscores, and start with a letter",
                self.name
            ));
            return Err(BuildError::at(problem, place));
        }
        Ok(())
    }
}

fn valid_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl<A> fmt::Debug for BuiltKernel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltKernel")
            .field("launch", &self.launch)
            .field("contents", &self.contents)
            .finish_non_exhaustive()
    }
}

impl<A> Clone for BuiltKernel<A> {
    fn clone(&self) -> Self {
        BuiltKernel {
            module: self.module.clone(),
            launch: self.launch.clone(),
            contents: self.contents.clone(),
            args: PhantomData,
        }
    }
}
