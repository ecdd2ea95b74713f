//! Rings of stages in shared memory that bulk copies fill and warps consume.

use crate::bulk::Transaction;
use crate::cp_async::StageSpec;
use crate::group::{BlockGroup, OneBlock};
use crate::kernel::Kernel;
use crate::mbarrier::{BarrierSpec, Mbarrier, Mbarriers, RingCursor};
use crate::value::{IntoVal, Val, Var};
use heist_ptx::arch::Feature;

/// A ring of stages between one producing thread and consuming warps: a stage
/// is readable only between its wait and its release.
#[derive(Debug)]
pub struct BulkPipeline<'k, S: StageSpec> {
    pub(crate) k: Kernel<'k>,
    pub(crate) stages: u32,
    pub(crate) spec: S,
    pub(crate) memory: S::Memory<'k>,
    pub(crate) full: Mbarriers<'k>,
    pub(crate) empty: Mbarriers<'k>,
    /// Blocks of the cluster that fill each other's stages.
    peers: u32,
    /// Threads that fill a part of every stage themselves.
    pub(crate) gatherers: u32,
    /// Whether every lane gives a stage back, instead of one for its warp.
    by_lanes: bool,
}

/// The producing end of a [`BulkPipeline`].
#[derive(Debug)]
pub struct BulkProducer<'p, 'k, S: StageSpec> {
    pipeline: &'p BulkPipeline<'k, S>,
    cursor: RingCursor<'k>,
}

/// The consuming end of a [`BulkPipeline`].
#[derive(Debug)]
pub struct BulkConsumer<'p, 'k, S: StageSpec> {
    pipeline: &'p BulkPipeline<'k, S>,
    cursor: RingCursor<'k>,
    /// Whether a stage is held back, and which.
    holding: Var<'k, bool>,
    held: Var<'k, u32>,
}

impl<'k> Kernel<'k> {
    /// A ring of `STAGES` stages filled by bulk copies and consumed by
    /// `consumers` warps. The whole block takes part in making it.
    #[track_caller]
    pub fn bulk_pipeline<const STAGES: usize, S: StageSpec>(
        &self,
        spec: S,
        consumers: u32,
    ) -> BulkPipeline<'k, S> {
        const { assert!(STAGES >= 1 && STAGES <= 16, "a ring has 1 to 16 stages") }
        self.bulk_pipeline_of(STAGES as u32, spec, consumers)
    }

    /// The same with a number of stages that is known only while building; one
    /// outside of 1 to 16 fails the build.
    #[track_caller]
    pub fn bulk_pipeline_of<S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
        consumers: u32,
    ) -> BulkPipeline<'k, S> {
        self.bulk_pipeline_among(stages, spec, consumers, 1)
    }

    /// The same, with an arrival of every lane of `consumers` warps for a stage that is given back: compute-sanitizer's racecheck does
    /// not see that one lane arrives for all of its warp. And with so many `producers`, threads of which each has an end of its own
    /// and starts the copies of a part of every stage.
    #[track_caller]
    pub fn bulk_pipeline_by_lanes<S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
        consumers: u32,
        producers: u32,
    ) -> BulkPipeline<'k, S> {
        // What others than the first bring is an arrival each, as that of threads that gather.
        let ring = self.ring_of(stages, spec, 32 * consumers, 1, producers.max(1) - 1);
        BulkPipeline {
            by_lanes: true,
            gatherers: 0,
            ..ring
        }
    }

    /// The same, with stages that all `peers` blocks of the cluster fill together:
    /// each copies a part and sends it to all of them. A stage is empty when all of
    /// them have consumed it. Every block fills as many stages as the others, and the cluster
    /// synchronises before any of its blocks exits.
    #[track_caller]
    pub fn bulk_pipeline_among<S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
        consumers: u32,
        peers: u32,
    ) -> BulkPipeline<'k, S> {
        self.ring_of(stages, spec, consumers, peers, 0)
    }

    /// The same for one block, with `gatherers` threads that fill a part of every stage themselves
    /// ([`BulkPipeline::gatherer`]): rows that no box has.
    #[track_caller]
    pub fn bulk_pipeline_gathered<S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
        consumers: u32,
        gatherers: u32,
    ) -> BulkPipeline<'k, S> {
        self.ring_of(stages, spec, consumers, 1, gatherers)
    }

    #[track_caller]
    fn ring_of<S: StageSpec>(
        &self,
        stages: u32,
        spec: S,
        consumers: u32,
        peers: u32,
        gatherers: u32,
    ) -> BulkPipeline<'k, S> {
        self.require(Feature::MbarrierTransactions);
        if peers != 1 && peers != self.cluster_size() {
            self.fail(format!(
                "a ring among {peers} blocks in clusters of {}: it is one block's or the whole cluster's",
                self.cluster_size()
            ));
        }
        if !(1..=16).contains(&stages) {
            self.fail_with(crate::Problem::OutOfRange {
                what: "the number of stages of a ring".into(),
                value: stages.into(),
                low: 1,
                high: 16,
            });
        }
        let stages = stages.clamp(1, 16);
        let memory = spec.allocate(self, stages);
        let [full, empty] = self.mbarriers([
            BarrierSpec {
                name: "full",
                count: stages,
                arrivals: 1 + gatherers,
            },
            BarrierSpec {
                name: "empty",
                count: stages,
                arrivals: consumers * peers,
            },
        ]);
        BulkPipeline {
            k: *self,
            stages,
            spec,
            memory,
            full,
            empty,
            peers,
            gatherers,
            by_lanes: false,
        }
    }
}

impl<'k, S: StageSpec> BulkPipeline<'k, S> {
    /// The producing end, for one thread.
    #[track_caller]
    pub fn producer(&self) -> BulkProducer<'_, 'k, S> {
        BulkProducer {
            pipeline: self,
            cursor: self.k.ring_cursor(self.stages, 1),
        }
    }

    /// The consuming end, for whole warps.
    #[track_caller]
    pub fn consumer(&self) -> BulkConsumer<'_, 'k, S> {
        BulkConsumer {
            pipeline: self,
            cursor: self.k.ring_cursor(self.stages, 0),
            holding: self.k.var(false),
            held: self.k.var(0u32),
        }
    }
}

impl<'k, S: StageSpec> BulkProducer<'_, 'k, S> {
    /// Waits for an empty stage and starts the copies that fill it.
    #[track_caller]
    pub fn fill(&self, copies: impl FnOnce(&Transaction<'k>, S::Landing<'k>)) {
        self.fill_in::<OneBlock>(None, copies);
    }

    /// The same where boxes are smaller than their landings ([`TensorMapRef::or_edge`](crate::TensorMapRef::or_edge)), by
    /// so many bytes in all.
    #[track_caller]
    pub fn fill_less(
        &self,
        less: impl IntoVal<'k, u32>,
        copies: impl FnOnce(&Transaction<'k>, S::Landing<'k>),
    ) {
        let less = less.into_val(&self.pipeline.k);
        self.fill_in::<OneBlock>(Some(less), copies);
    }

    /// The same in one thread of each block of a group.
    #[track_caller]
    pub(crate) fn fill_in<G: BlockGroup>(
        &self,
        less: Option<Val<'k, u32>>,
        copies: impl FnOnce(&Transaction<'k>, S::Landing<'k>),
    ) {
        let BulkPipeline {
            spec,
            memory,
            full,
            empty,
            ..
        } = self.pipeline;
        let stage = self.cursor.stage();
        empty.at(stage).wait_for_copies(self.cursor.parity());
        let landing = spec.landing(*memory, stage);
        full.at(stage)
            .fill_in::<G>(less, |transaction| copies(transaction, landing));
        self.cursor.advance();
    }

    /// Waits for an empty stage and hands it over as it is: memory that consumers use as they like
    /// until they give it back. What they write there must be fenced
    /// ([`fence_async_shared`](Kernel::fence_async_shared)) before that.
    #[track_caller]
    pub fn lend(&self) {
        let BulkPipeline { full, empty, .. } = self.pipeline;
        let stage = self.cursor.stage();
        empty.at(stage).wait_for_copies(self.cursor.parity());
        full.at(stage).arrive();
        self.cursor.advance();
    }

    /// Waits until every stage has been consumed, so that the block can exit.
    #[track_caller]
    pub fn drain(&self) {
        for _ in 0..self.pipeline.stages {
            let stage = self.cursor.stage();
            self.pipeline
                .empty
                .at(stage)
                .wait_for_copies(self.cursor.parity());
            self.cursor.advance();
        }
    }

    /// Waits until every stage has been consumed. More can be filled afterwards.
    #[track_caller]
    pub fn settle(&self) {
        self.drain();
        self.cursor.back_a_round();
    }
}

impl<'k, S: StageSpec> BulkConsumer<'_, 'k, S> {
    /// Passes over stages that other warps consume, where each stage is for some of them. It holds none back.
    #[track_caller]
    pub fn skip(&self, stages: Val<'k, u32>) {
        self.cursor.advance_by(stages);
    }

    /// Waits for the next stage, works on it, and gives it back.
    #[track_caller]
    pub fn consume<R>(&self, work: impl FnOnce(S::Ready<'k>) -> R) -> R {
        let (stage, result) = self.next(work);
        self.release(stage);
        self.cursor.advance();
        result
    }

    /// Waits for the next stage and works on it, without giving it back: it is
    /// still the next one after that. What threads write to it with ordinary stores must be fenced
    /// ([`fence_async_shared`](Kernel::fence_async_shared)) before it is consumed.
    #[track_caller]
    pub fn peek<R>(&self, work: impl FnOnce(S::Ready<'k>) -> R) -> R {
        self.next(work).1
    }

    /// The same with the stage behind the next one, which is still the next. Where that one waits for what other warps do with this one, there are
    /// two stages at least.
    #[track_caller]
    pub fn peek_second<R>(&self, work: impl FnOnce(S::Ready<'k>) -> R) -> R {
        let BulkPipeline {
            spec, memory, full, ..
        } = self.pipeline;
        let (stage, parity) = self.cursor.second();
        full.at(stage).wait_for_copies(parity);
        work(spec.ready(*memory, stage))
    }

    /// Gives the next stage back, which was looked at and is done with.
    #[track_caller]
    pub fn give_back(&self) {
        self.release(self.cursor.stage());
        self.cursor.advance();
    }

    /// Goes to the next stage in warps that only look at some ([`peek`](BulkConsumer::peek)).
    #[track_caller]
    pub(crate) fn pass(&self) {
        self.cursor.advance();
    }

    /// Waits for the next stage, works on it, and gives back the one before: for asynchronous work,
    /// such as `wgmma` in flight. `work` must not return before what it started on the stage before
    /// has ended ([`WgmmaSums::wait_for_older`](crate::WgmmaSums::wait_for_older) of 1). End with
    /// [`release_last`](BulkConsumer::release_last).
    #[track_caller]
    pub fn consume_lagging(&self, work: impl FnOnce(S::Ready<'k>)) {
        let k = self.pipeline.k;
        let (stage, ()) = self.next(work);
        k.if_(self.holding, || self.release(self.held.get()));
        self.holding.set(true);
        self.held.set(stage);
        self.cursor.advance();
    }

    /// Gives back the stage that [`consume_lagging`](BulkConsumer::consume_lagging)
    /// held last.
    #[track_caller]
    pub fn release_last(&self) {
        let k = self.pipeline.k;
        k.if_(self.holding, || self.release(self.held.get()));
        self.holding.set(false);
    }

    /// The same in one thread, for work that the caller has the stage given back after: at the
    /// barrier that is returned.
    #[track_caller]
    pub(crate) fn next_by_one_thread(&self, work: impl FnOnce(S::Ready<'k>)) -> Mbarrier<'k> {
        self.next_numbered(|_, ready| work(ready))
    }

    /// The same with the number of the stage.
    #[track_caller]
    pub(crate) fn next_numbered(
        &self,
        work: impl FnOnce(Val<'k, u32>, S::Ready<'k>),
    ) -> Mbarrier<'k> {
        let number = self.cursor.stage();
        let (stage, ()) = self.next(|ready| work(number, ready));
        self.cursor.advance();
        self.pipeline.empty.at(stage)
    }

    #[track_caller]
    fn next<R>(&self, work: impl FnOnce(S::Ready<'k>) -> R) -> (Val<'k, u32>, R) {
        let BulkPipeline {
            spec, memory, full, ..
        } = self.pipeline;
        let stage = self.cursor.stage();
        full.at(stage).wait_for_copies(self.cursor.parity());
        let result = work(spec.ready(*memory, stage));
        (stage, result)
    }

    /// One arrival per warp, in every block that fills the stage, after all of its
    /// lanes are done; or one of every lane.
    #[track_caller]
    fn release(&self, stage: Val<'k, u32>) {
        let k = self.pipeline.k;
        let barrier = self.pipeline.empty.at(stage);
        if self.pipeline.by_lanes {
            return barrier.arrive();
        }
        k.sync_warp();
        match self.pipeline.peers {
            1 => k.if_(k.elect(), || barrier.arrive()),
            peers => k.if_(k.lane().lt(peers), || {
                barrier.on(k.lane()).arrive_after_reading();
            }),
        }
    }
}
