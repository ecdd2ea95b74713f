//! Bulk copies: one thread issues them, the copy engine (TMA) moves whole rows and tiles, and an
//! mbarrier counts the bytes.
//!
//! [`Mbarrier::fill`] sums the bytes of its copies, so the expected bytes are always right.

use crate::cp_async::StageSpec;
use crate::emit::{Base, Line, Opnd};
use crate::group::{BlockGroup, LEADER, OneBlock};
use crate::kernel::{Kernel, number};
use crate::mbarrier::{BarrierSpec, Mbarrier, Mbarriers, RemoteMbarrier, RingCursor};
use crate::params::{Param, ParamKind, ParamShape, Passed};
use crate::pointer::{Global, Ptr, Shared};
use crate::scalar::{Class, Storable};
use crate::value::{IntoVal, Val, Var};
use heist_ptx::arch::Feature;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// The destination of bulk copies: can be filled, not read.
#[derive(Debug)]
pub struct Landing<'k, T> {
    at: Ptr<'k, Shared, T>,
    bytes: u32,
}
impl<T> Clone for Landing<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Landing<'_, T> {}

impl<'k, T: Storable> Landing<'k, T> {
    pub(crate) fn new(at: Ptr<'k, Shared, T>, bytes: u32) -> Landing<'k, T> {
        Landing { at, bytes }
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The part of `len` elements from element `from` on.
    #[track_caller]
    pub fn part(&self, from: u32, len: u32) -> Landing<'k, T> {
        let end = u64::from(from + len) * u64::from(T::BYTES);
        if end > self.bytes.into() {
            self.at.k.fail_with(crate::Problem::OutOfRange {
                what: "the end of a part of a landing in bytes".into(),
                value: end as i64,
                low: 0,
                high: self.bytes.into(),
            });
        }
        Landing::new(self.at.at(from), len * T::BYTES)
    }

    /// The part of `len` elements from an element on that is known only in the kernel:
    /// it must lie inside.
    #[track_caller]
    pub fn part_at(&self, from: impl IntoVal<'k, u32>, len: u32) -> Landing<'k, T> {
        let from = from.into_val(&self.at.k);
        if let Some(from) = from.known() {
            return self.part(from, len);
        }
        Landing::new(self.at.at(from), len * T::BYTES)
    }
}

/// The copies that one filling of a barrier waits for.
#[derive(Debug)]
pub struct Transaction<'k> {
    k: Kernel<'k>,
    barrier: Mbarrier<'k>,
    /// The leader's barrier, where a pair of blocks fills a stage together.
    pair: Option<RemoteMbarrier<'k>>,
    bytes: Cell<u32>,
    depth: u32,
}

impl<'k> Mbarrier<'k> {
    /// One thread arrives, and starts the copies that `copies` asks for. The
    /// barrier expects exactly their bytes.
    ///
    /// A copy inside an emitted branch or loop would make the sum wrong, and
    /// fails the build.
    #[track_caller]
    pub fn fill(&self, copies: impl FnOnce(&Transaction<'k>)) {
        self.fill_in::<OneBlock>(copies);
    }

    /// The same in one thread of each block of a group: the leader's barrier expects the bytes of
    /// all of them, which are as many in each. A block's copies may land before the leader has
    /// arrived: until then the phase can't end.
    #[track_caller]
    fn fill_in<G: BlockGroup>(&self, copies: impl FnOnce(&Transaction<'k>)) {
        let k = self.at.k;
        let line = Cell::new(0);
        k.if_(k.leads::<G>(), || {
            line.set(k.rec.body.borrow().len());
            self.arrive_expecting(0);
        });
        let line = line.get();
        let transaction = Transaction {
            k,
            barrier: *self,
            pair: (G::BLOCKS > 1).then(|| self.on(LEADER)),
            bytes: Cell::new(0),
            depth: k.rec.depth.get(),
        };
        copies(&transaction);
        let bytes = transaction.bytes.get() * G::BLOCKS;
        if bytes >= 1 << 20 {
            k.fail_with(crate::Problem::OutOfRange {
                what: "the bytes that a barrier expects".into(),
                value: bytes.into(),
                low: 0,
                high: (1 << 20) - 1,
            });
        }
        if let Some(Line::Op(op)) = k.rec.body.borrow_mut().get_mut(line)
            && let Some(expected) = op.operands.last_mut()
        {
            *expected = number(bytes.into());
        }
    }
}

impl<'k> Transaction<'k> {
    #[track_caller]
    fn count(&self, bytes: u32) {
        if self.k.rec.depth.get() != self.depth {
            self.k.fail(
                "a bulk copy inside an emitted branch or loop of `fill`: the barrier would expect \
                 its bytes whether it runs or not; put the branch around `fill`",
            );
        }
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Expects bytes that another block of the cluster copies into this one's memory
    /// ([`copy_tensor_multicast`](Transaction::copy_tensor_multicast)).
    #[track_caller]
    pub fn expect(&self, bytes: u32) {
        self.count(bytes);
    }

    /// Copies as many neighbours from global memory as the landing takes. Both
    /// addresses and the size are multiples of 16 bytes.
    #[track_caller]
    pub fn copy<T: Storable>(&self, to: Landing<'k, T>, from: Ptr<'k, Global, T>) {
        self.k.require(Feature::BulkCopy);
        self.by_one_block("a bulk copy of neighbours");
        self.k
            .must_divide("the bytes of a bulk copy", to.bytes.into(), 16);
        self.count(to.bytes);
        self.k.effect(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
            vec![
                to.at.operand(),
                from.operand(),
                number(to.bytes.into()),
                self.barrier.operand(),
            ],
        );
    }

    /// Copies the box at `coordinates` (innermost first) of a tensor. The map's
    /// box must have as many bytes as the landing.
    #[track_caller]
    pub fn copy_tensor<T: Storable, const D: usize>(
        &self,
        to: Landing<'k, T>,
        from: TensorMapRef<'k, T, D>,
        coordinates: [Val<'k, i32>; D],
    ) {
        self.k.require(Feature::TensorCopy);
        self.count(to.bytes);
        from.box_has(to.bytes);
        let (group, barrier) = match &self.pair {
            None => ("", self.barrier.operand()),
            Some(leader) => {
                self.k.require(Feature::TensorCtaGroup);
                (".cta_group::2", leader.operand())
            }
        };
        self.k.effect(
            format!(
                "cp.async.bulk.tensor.{D}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{group}"
            ),
            vec![to.at.operand(), from.operand(coordinates), barrier],
        );
    }

    #[track_caller]
    fn by_one_block(&self, what: &str) {
        if self.pair.is_some() {
            self.k.fail(format!(
                "{what} into a stage of a pair of blocks: its bytes can't be counted by the leader; use `copy_tensor`"
            ));
        }
    }

    /// The same box to the same place of every block of the cluster in `mask`;
    /// each block's own barrier in the same place counts the bytes there.
    #[track_caller]
    pub fn copy_tensor_multicast<T: Storable, const D: usize>(
        &self,
        to: Landing<'k, T>,
        from: TensorMapRef<'k, T, D>,
        coordinates: [Val<'k, i32>; D],
        mask: impl IntoVal<'k, u16>,
    ) {
        self.k.require(Feature::TensorCopy);
        self.by_one_block("a multicast copy");
        self.count(to.bytes);
        from.box_has(to.bytes);
        let mask = mask.into_val(&self.k);
        self.k.effect(
            format!(
                "cp.async.bulk.tensor.{D}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\
                 .multicast::cluster"
            ),
            vec![
                to.at.operand(),
                from.operand(coordinates),
                self.barrier.operand(),
                mask.register().into(),
            ],
        );
    }
}

/// A tensor map as a kernel parameter: `D` dimensions of `T`.
#[derive(Clone, Copy, Debug)]
pub struct TensorMap<T, const D: usize>(PhantomData<T>);

/// A tensor map's 128 bytes, as the driver encodes them.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub struct EncodedTensorMap(pub [u8; 128]);

impl fmt::Debug for EncodedTensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncodedTensorMap")
    }
}

/// A tensor map inside the kernel.
pub struct TensorMapRef<'k, T, const D: usize> {
    k: Kernel<'k>,
    param: u32,
    address: crate::emit::Reg,
    of: PhantomData<fn() -> T>,
}
impl<T, const D: usize> Clone for TensorMapRef<'_, T, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const D: usize> Copy for TensorMapRef<'_, T, D> {}
impl<T, const D: usize> fmt::Debug for TensorMapRef<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMapRef(parameter {})", self.param)
    }
}

impl<T: Storable, const D: usize> Param for TensorMap<T, D> {
    type Host = EncodedTensorMap;
    type Device<'k> = TensorMapRef<'k, T, D>;
    type With<B: Clone + fmt::Debug> = B;
    fn pass<B: Clone + fmt::Debug>(name: &'static str, data: B) -> Passed<B> {
        let kind = Self::shape().kind;
        Passed::Buffer { name, data, kind }
    }
    fn shape() -> ParamShape {
        ParamShape {
            size: 128,
            align: 64,
            kind: ParamKind::TensorMap,
        }
    }
    fn bytes(host: &EncodedTensorMap) -> Vec<u8> {
        host.0.to_vec()
    }
    fn read<'k>(k: &Kernel<'k>, index: u32, name: &str) -> TensorMapRef<'k, T, D> {
        let place = k.rec.place;
        let (param, address) = (k.rec.reg(Class::B64), k.rec.reg(Class::B64));
        k.rec.name_reg(param, &format!("{name}_param"));
        k.rec.name_reg(address, name);
        let from = Opnd::AddressOf(Base::Param(index), 0);
        k.rec
            .prologue_op("mov.b64", vec![param.into(), from], place);
        k.rec
            .prologue_op("cvta.param.u64", vec![address.into(), param.into()], place);
        TensorMapRef {
            k: *k,
            param: index,
            address,
            of: PhantomData,
        }
    }
}

impl<'k, T: Storable, const D: usize> TensorMapRef<'k, T, D> {
    fn operand(&self, coordinates: [Val<'k, i32>; D]) -> Opnd {
        const { assert!(D >= 1 && D <= 5, "a tensor map has 1 to 5 dimensions") }
        let coordinates = coordinates.iter().map(|c| c.register().into()).collect();
        Opnd::TensorAddress(Base::Reg(self.address), coordinates)
    }

    /// Remembers how many bytes the map's box must have; a second size fails.
    #[track_caller]
    fn box_has(&self, bytes: u32) {
        self.k.require(Feature::ParamGeneric);
        let mut boxes = self.k.rec.tensor_boxes.borrow_mut();
        match boxes.iter().find(|(param, _)| *param == self.param) {
            Some((_, known)) if *known != u64::from(bytes) => {
                self.k.fail(format!(
                    "one tensor map used with boxes of {known} and of {bytes} bytes"
                ));
            }
            Some(_) => {}
            None => boxes.push((self.param, bytes.into())),
        }
    }

    /// Fetches the map itself ahead of its first use.
    #[track_caller]
    pub fn prefetch(&self) {
        self.k.require(Feature::TensormapPrefetch);
        self.k.require(Feature::ParamGeneric);
        self.k.effect(
            "prefetch.tensormap",
            vec![Opnd::Address(Base::Reg(self.address), 0)],
        );
    }

    /// One thread starts writing a box from shared memory to the tensor. What
    /// the block wrote must have been made visible before:
    /// [`Kernel::fence_async_shared`] in every writer, then a barrier.
    #[track_caller]
    pub fn store(
        &self,
        from: crate::SharedArray<'k, T>,
        coordinates: [Val<'k, i32>; D],
    ) -> PendingStore<'k> {
        self.store_from(from.ptr(), from.bytes() as u32, coordinates)
    }

    /// The same from a tile without gaps between its rows.
    #[track_caller]
    pub fn store_tile(
        &self,
        from: crate::SharedTile<'k, T>,
        coordinates: [Val<'k, i32>; D],
    ) -> PendingStore<'k> {
        let bytes = from.rows() * from.pitch() * T::BYTES;
        self.store_from(from.ptr(), bytes, coordinates)
    }

    #[track_caller]
    fn store_from(
        &self,
        from: Ptr<'k, Shared, T>,
        bytes: u32,
        coordinates: [Val<'k, i32>; D],
    ) -> PendingStore<'k> {
        self.k.require(Feature::TensorCopy);
        self.box_has(bytes);
        self.k.effect(
            format!("cp.async.bulk.tensor.{D}d.global.shared::cta.tile.bulk_group"),
            vec![self.operand(coordinates), from.operand()],
        );
        PendingStore::commit(self.k)
    }
}

impl<'k> Kernel<'k> {
    /// One thread starts writing `from` to global memory; sizes and addresses
    /// are multiples of 16 bytes. What the block wrote must have been made
    /// visible before: [`Kernel::fence_async_shared`] in every writer, then a
    /// barrier.
    #[track_caller]
    pub fn store_bulk<T: Storable>(
        &self,
        to: Ptr<'k, Global, T>,
        from: crate::SharedArray<'k, T>,
    ) -> PendingStore<'k> {
        self.require(Feature::BulkCopy);
        self.must_divide("the bytes of a bulk store", from.bytes(), 16);
        self.effect(
            "cp.async.bulk.global.shared::cta.bulk_group",
            vec![
                to.operand(),
                from.ptr().operand(),
                number(from.bytes() as i64),
            ],
        );
        PendingStore::commit(*self)
    }

    /// Waits until all bulk stores of this thread but the newest `newer` have read their source, so
    /// that it may be written again.
    #[track_caller]
    pub fn wait_stores_read(&self, newer: u32) {
        self.require(Feature::BulkCopy);
        self.effect("cp.async.bulk.wait_group.read", vec![number(newer.into())]);
    }
}

/// A bulk store in flight from shared memory.
#[must_use = "the memory a bulk store reads must not change before `.wait_read()`, and the block must not exit"]
#[derive(Debug)]
pub struct PendingStore<'k> {
    k: Kernel<'k>,
}

impl<'k> PendingStore<'k> {
    #[track_caller]
    fn commit(k: Kernel<'k>) -> PendingStore<'k> {
        k.effect("cp.async.bulk.commit_group", vec![]);
        PendingStore { k }
    }

    /// Waits until shared memory has been read and may be written again.
    #[track_caller]
    pub fn wait_read(self) {
        self.k
            .effect("cp.async.bulk.wait_group.read", vec![number(0)]);
    }

    /// Leaves it in flight: the same thread waits later, with [`Kernel::wait_stores_read`].
    pub fn in_flight(self) {}

    /// Waits until everything has been written.
    #[track_caller]
    pub fn wait_written(self) {
        self.k.effect("cp.async.bulk.wait_group", vec![number(0)]);
    }
}

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
        self.fill_in::<OneBlock>(copies);
    }

    /// The same in one thread of each block of a group.
    #[track_caller]
    pub(crate) fn fill_in<G: BlockGroup>(
        &self,
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
            .fill_in::<G>(|transaction| copies(transaction, landing));
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
}

impl<'k, S: StageSpec> BulkConsumer<'_, 'k, S> {
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
        let (stage, ()) = self.next(work);
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
    /// lanes are done.
    #[track_caller]
    fn release(&self, stage: Val<'k, u32>) {
        let k = self.pipeline.k;
        let barrier = self.pipeline.empty.at(stage);
        k.sync_warp();
        match self.pipeline.peers {
            1 => k.if_(k.elect(), || barrier.arrive()),
            peers => k.if_(k.lane().lt(peers), || {
                barrier.on(k.lane()).arrive_after_reading();
            }),
        }
    }
}
