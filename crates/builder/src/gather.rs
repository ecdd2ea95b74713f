//! Rings of which one part is gathered: the copy engine takes boxes, and rows that lie anywhere are
//! copied by threads (`cp.async`).
//!
//! A stage is full when the bulk copies have landed and the copies of every gathering thread, too. No
//! producer waits for these: their completion arrives at the barrier by itself.

use crate::bulk_pipeline::BulkPipeline;
use crate::cp_async::StageSpec;
use crate::mbarrier::RingCursor;
use heist_ptx::arch::Feature;

/// The gathering end of a [`BulkPipeline`].
#[derive(Debug)]
pub struct BulkGatherer<'p, 'k, S: StageSpec> {
    pipeline: &'p BulkPipeline<'k, S>,
    cursor: RingCursor<'k>,
}

impl<'k, S: StageSpec> BulkPipeline<'k, S> {
    /// The gathering end, for as many threads as the ring was made with
    /// ([`bulk_pipeline_gathered`](crate::Kernel::bulk_pipeline_gathered)). Each of them fills every
    /// stage.
    #[track_caller]
    pub fn gatherer(&self) -> BulkGatherer<'_, 'k, S> {
        if self.gatherers == 0 {
            self.k.fail("this ring was made without gathering threads");
        }
        BulkGatherer {
            pipeline: self,
            cursor: self.k.ring_cursor(self.stages, 1),
        }
    }
}

impl<'k, S: StageSpec> BulkGatherer<'_, 'k, S> {
    /// Waits for an empty stage, and starts this thread's copies into it.
    ///
    /// The copies go through the generic proxy: consumers on tensor cores fence
    /// ([`fence_async_shared`](crate::Kernel::fence_async_shared)) between their wait and their
    /// products.
    #[track_caller]
    pub fn fill(&self, copies: impl FnOnce(S::Filling<'k>)) {
        let BulkPipeline {
            k,
            spec,
            memory,
            full,
            empty,
            ..
        } = self.pipeline;
        k.require(Feature::CpAsync);
        let stage = self.cursor.stage();
        empty.at(stage).wait_for_copies(self.cursor.parity());
        copies(spec.filling(*memory, stage));
        k.effect(
            "cp.async.mbarrier.arrive.noinc.shared.b64",
            vec![full.at(stage).operand()],
        );
        self.cursor.advance();
    }
}
