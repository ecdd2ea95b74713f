//! Rings of stages in shared memory between the copy engine and the tensor cores.
//!
//! One thread of each block has stages copied; the multiplying thread of the group consumes them,
//! and its commit gives a stage back to every block. In a pair both blocks copy their own halves of
//! a stage, and the leader's barrier counts the bytes of both.

use crate::bulk::Transaction;
use crate::bulk_pipeline::{BulkConsumer, BulkPipeline, BulkProducer};
use crate::cp_async::StageSpec;
use crate::group::BlockGroup;
use crate::kernel::Kernel;
use crate::mbarrier::Mbarrier;
use crate::tcgen05::{MultiplyingThread, Product, commit, commit_to};
use std::marker::PhantomData;

/// A ring of stages that a group of blocks fills and multiplies.
#[derive(Debug)]
pub struct TensorRing<'k, S: StageSpec, G: BlockGroup> {
    stages: BulkPipeline<'k, S>,
    groups: u32,
    group: PhantomData<G>,
}

/// The end that fills stages, in one thread of each block.
#[derive(Debug)]
pub struct TensorProducer<'p, 'k, S: StageSpec, G: BlockGroup> {
    stages: BulkProducer<'p, 'k, S>,
    group: PhantomData<G>,
}

/// The end that multiplies them, in the multiplying thread of the group.
#[derive(Debug)]
pub struct TensorConsumer<'p, 'k, S: StageSpec, G: BlockGroup> {
    stages: BulkConsumer<'p, 'k, S>,
    groups: u32,
    group: PhantomData<G>,
}

impl<'k> Kernel<'k> {
    /// A ring of 1 to 16 stages, each as `spec` says what a block holds of it. The whole group
    /// takes part in making it.
    #[track_caller]
    pub fn tensor_ring<G: BlockGroup, S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
    ) -> TensorRing<'k, S, G> {
        self.tensor_ring_of(stages, spec, 1)
    }

    /// The same with stages that all groups of a cluster fill together: what several have in common
    /// each copies a part of, and sends it to all
    /// ([`copy_tensor_multicast`](Transaction::copy_tensor_multicast)). A stage is empty when all groups
    /// have multiplied theirs. Every group fills as many stages as the others.
    #[track_caller]
    pub fn tensor_ring_among<G: BlockGroup, S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
    ) -> TensorRing<'k, S, G> {
        self.tensor_ring_of(stages, spec, self.cluster_size() / G::BLOCKS)
    }

    #[track_caller]
    fn tensor_ring_of<G: BlockGroup, S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
        groups: u32,
    ) -> TensorRing<'k, S, G> {
        self.has_group::<G>();
        TensorRing {
            stages: self.bulk_pipeline_of(stages, spec, groups),
            groups,
            group: PhantomData,
        }
    }

    /// A commit that gives a stage back to every block that fills it.
    #[track_caller]
    pub(crate) fn give_back<G: BlockGroup>(&self, empty: Mbarrier<'k>, groups: u32) {
        match groups {
            1 => commit::<G>(*self, empty),
            _ => {
                let all = (1u32 << self.cluster_size()) - 1;
                commit_to::<G>(*self, empty, Some(self.c(all)));
            }
        }
    }
}

impl<'k, S: StageSpec, G: BlockGroup> TensorRing<'k, S, G> {
    /// Its stages, and how many groups fill them together.
    pub(crate) fn stages(&self) -> (&BulkPipeline<'k, S>, u32) {
        (&self.stages, self.groups)
    }

    /// The filling end, for one thread of each block.
    #[track_caller]
    pub fn producer(&self) -> TensorProducer<'_, 'k, S, G> {
        TensorProducer {
            stages: self.stages.producer(),
            group: PhantomData,
        }
    }

    /// The multiplying end.
    #[track_caller]
    pub fn consumer(&self) -> TensorConsumer<'_, 'k, S, G> {
        TensorConsumer {
            stages: self.stages.consumer(),
            groups: self.groups,
            group: PhantomData,
        }
    }
}

impl<'k, S: StageSpec, G: BlockGroup> TensorProducer<'_, 'k, S, G> {
    /// Waits for an empty stage and starts the tensor copies that fill this block's part of it.
    /// Both blocks of a pair fill as many stages, with as many bytes each.
    #[track_caller]
    pub fn fill(&self, copies: impl FnOnce(&Transaction<'k>, S::Landing<'k>)) {
        self.stages.fill_in::<G>(None, copies);
    }

    /// Waits until every stage has been multiplied, so that the block can exit.
    #[track_caller]
    pub fn drain(&self) {
        self.stages.drain();
    }
}

impl<'k, S: StageSpec, G: BlockGroup> TensorConsumer<'_, 'k, S, G> {
    /// Waits for the next stage and multiplies it; every block of the group gets it back when the
    /// tensor cores have read it.
    #[track_caller]
    pub fn multiply(&self, product: &Product<'_, 'k, G>, work: impl FnOnce(S::Ready<'k>)) {
        let empty = self.stages.next_by_one_thread(work);
        product.kernel().give_back::<G>(empty, self.groups);
    }

    /// Waits for the next stage and keeps it for as many products as `work` asks for; every block
    /// of the group gets it back when the tensor cores have read it for the last.
    #[track_caller]
    pub fn multiply_throughout(
        &self,
        thread: &MultiplyingThread<'_, 'k, G>,
        work: impl FnOnce(S::Ready<'k>),
    ) {
        let empty = self.stages.next_by_one_thread(work);
        thread.kernel().give_back::<G>(empty, self.groups);
    }

    /// In warps that multiply nothing: waits for the stage that they are at and works on it. What
    /// they write must be fenced ([`fence_async_shared`](Kernel::fence_async_shared)), and the
    /// multiplying thread must wait for them before it multiplies the stage.
    #[track_caller]
    pub fn peek<R>(&self, work: impl FnOnce(S::Ready<'k>) -> R) -> R {
        self.stages.peek(work)
    }

    /// In warps that multiply nothing: goes to the next stage.
    #[track_caller]
    pub fn pass(&self) {
        self.stages.pass();
    }
}
