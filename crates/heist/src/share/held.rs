//! A kernel that holds multiprocessors and does nothing.

use super::measured::alone;
use crate::job::{JobError, OnGpu};
use heist_builder::{Arch, BuildError, Global, KernelSpec, Scope, kernel_params};
use heist_gpu::{DeviceMemory, Gpu, GpuError, Kernel, KernelArg, PtxText, Stream};
use heist_kernels::KernelError;
use heist_launch::Launch;
use std::time::Duration;

kernel_params! {
    /// The holder's parameters.
    pub struct HolderArgs { leave: Global<u32> }
}

/// The longest that blocks are held, in nanoseconds, in case nobody releases them.
const LONGEST: u64 = 10_000_000_000;

/// The PTX of the holder: blocks that stay until a word is not zero.
///
/// # Errors
/// None that is known.
pub fn holder_ptx(arch: Arch) -> Result<String, BuildError> {
    let spec = KernelSpec::<HolderArgs>::new("hold").block(32);
    let built = spec.build(arch, |k, args| {
        let start = k.nanoseconds();
        k.loop_(|flow| {
            flow.break_if(args.leave.load_relaxed(Scope::Gpu).ne(0));
            flow.break_if((k.nanoseconds() - start).gt(LONGEST));
            k.nanosleep(1000);
        });
    })?;
    Ok(heist_ptx::print(&built.module))
}

/// Holds multiprocessors: a block fills one, so that no other fits beside it.
pub struct Holder {
    gpu: Gpu,
    kernel: Kernel,
    leave: DeviceMemory,
    stream: Stream,
    /// Shared memory of a block: all there is.
    shared: u32,
}

impl Holder {
    /// A holder that holds nothing yet.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn new(gpu: &Gpu, arch: Arch) -> Result<Holder, JobError> {
        let text = holder_ptx(arch)
            .map_err(|error| JobError::Kernel(KernelError::unfit(error.to_string())))?;
        let program = gpu.load(&PtxText::new("hold", text), &Default::default())?;
        Ok(Holder {
            gpu: gpu.clone(),
            kernel: program.kernel("hold")?,
            leave: gpu.allocate_with(&[0; 4])?,
            stream: gpu.untracked_stream_with_priority(-5)?,
            shared: gpu.info().limits.shared_per_block,
        })
    }

    /// Launches of each tenant while `sms` multiprocessors are held, in turns: for each its
    /// samples, in microseconds.
    ///
    /// # Errors
    /// A fault of a launch.
    pub fn time(
        &self,
        sms: u32,
        tenants: &[&OnGpu],
        rounds: usize,
    ) -> Result<Vec<Vec<f64>>, GpuError> {
        self.leave.write(0, &0u32.to_le_bytes())?;
        if sms > 0 {
            let launch = Launch::new(sms, 32).dynamic_shared(self.shared);
            let arguments = [KernelArg::memory(&self.leave)];
            self.kernel.launch(&self.stream, &launch, &arguments)?;
            // Nothing else runs, so the blocks start at once.
            std::thread::sleep(Duration::from_millis(2));
        }
        let timed = alone(&self.gpu, tenants, rounds, 1);
        self.leave.write(0, &1u32.to_le_bytes())?;
        self.stream.synchronize()?;
        timed
    }
}
