//! A job on a GPU, as a contestant.

use super::Candidate;
use heist::job::{JobError, OnGpu};
use heist_gpu::{Gpu, GpuError, KernelInfo, PtxText, Stream};
use heist_kernels::{Job, KernelError, Step};
use heist_launch::{Buffer, ElementType, Role};

/// A job on a GPU, as a contestant.
pub(super) struct Ready {
    on_gpu: OnGpu,
    texts: Vec<PtxText>,
    output: &'static str,
    ty: ElementType,
    /// What the output has before, where the kernels leave a part of it as it is; it is poisoned where
    /// they do not.
    kept: Option<Buffer>,
}

impl Ready {
    pub(super) fn new(gpu: &Gpu, job: &Job, output: &'static str) -> Result<Ready, JobError> {
        let Some(result) = job.data(output) else {
            return Err(KernelError::unfit(format!("the job has no buffer {output}")).into());
        };
        let text = |step: &Step| PtxText::new(step.entry.clone(), step.ptx());
        Ok(Ready {
            on_gpu: OnGpu::new(gpu, job)?,
            texts: job.steps.iter().map(text).collect(),
            output,
            ty: result.ty(),
            kept: job
                .buffers
                .iter()
                .find(|buffer| buffer.name == output && buffer.role == Role::InOut)
                .map(|buffer| buffer.data.clone()),
        })
    }
}

impl Candidate for Ready {
    fn enqueue(&self, stream: &Stream) -> Result<(), GpuError> {
        self.on_gpu.launch(stream)
    }

    fn poison(&self, stream: &Stream) -> Result<(), GpuError> {
        match (self.on_gpu.memory(self.output), &self.kept) {
            (Some(memory), Some(first)) => memory.write(0, first.bytes()),
            (Some(memory), None) => memory.fill(0xff, stream),
            (None, _) => Ok(()),
        }
    }

    fn result(&self) -> Result<Buffer, GpuError> {
        let Some(memory) = self.on_gpu.memory(self.output) else {
            return Ok(Buffer::zeros(self.ty, 0));
        };
        let mut bytes = vec![0; memory.len()];
        memory.read(0, &mut bytes)?;
        // As many bytes as the buffer had, so they are whole elements.
        Ok(Buffer::from_bytes(self.ty, bytes).unwrap_or(Buffer::zeros(self.ty, 0)))
    }

    fn kernels(&self) -> Vec<(PtxText, KernelInfo)> {
        let infos = self.on_gpu.kernels().cloned();
        self.texts.iter().cloned().zip(infos).collect()
    }
}
