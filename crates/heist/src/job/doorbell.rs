//! The bell of a job that others visit.

use super::OnGpu;
use heist_gpu::{Event, Gpu, GpuError, Stream};
use heist_sched::Bell;

/// Rings the bell of a job for launches of others: from each launch until all of its blocks
/// have begun.
///
/// The bell is rung behind the launch, in a stream of its own. A block that left before the
/// launch had come would be followed by one of its own kernel. And it is silent once nobody
/// waits: whoever comes back then stays.
pub struct Doorbell<'j> {
    job: &'j OnGpu,
    stream: Stream,
    /// The visitor's stream has come to the launch.
    came: Event,
    /// All blocks of the launch have begun.
    begun: Event,
}

impl<'j> Doorbell<'j> {
    /// Of a job.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn new(gpu: &Gpu, job: &'j OnGpu) -> Result<Doorbell<'j>, GpuError> {
        Ok(Doorbell {
            job,
            stream: gpu.untracked_stream_with_priority(-5)?,
            came: gpu.untimed_event()?,
            begun: gpu.untimed_event()?,
        })
    }

    /// Launches a visitor into its stream, and rings for it.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn launch(&self, visitor: &OnGpu, stream: &Stream, bell: Bell) -> Result<(), GpuError> {
        self.came.record(stream)?;
        visitor.launch_announced(stream, &self.begun)?;
        self.stream.wait_for(&self.came)?;
        self.job.ring_in(&self.stream, bell)?;
        self.stream.wait_for(&self.begun)?;
        self.job.ring_in(&self.stream, Bell::Silent)
    }
}
