//! The mainloop: one thread of each block has stages copied, one thread multiplies them.
//!
//! A pair of blocks shares a tile: each copies its 128 rows of A and half of B's columns, and a
//! thread of the first one multiplies for both.

use super::tiling::{ACCUMULATORS, DEPTH, ROWS, TensorTiling};
use crate::gemm::Major;
use crate::gemm::warpgroup::{Peers, Side};
use heist_builder::{
    AccumulatorWriter, BlockGroup, Kernel, MultiplyingThread, Product, SharedTile, StageSpec,
    TensorConsumer, TensorInput, TensorMemory, TensorOperand, TensorProducer, TensorRing,
    TileLayout, TileSpec, Transaction, Val, Var, f16,
};

/// The contents of a stage: both factors, and their scales where blocks have some. Every element
/// type is copied as bits, in rows of 128 bytes.
pub(crate) type Stage<M> = (
    TileSpec<'static, f16>,
    TileSpec<'static, f16>,
    <M as Multiplication>::Scales,
);

/// How stages are multiplied: as they are, or by blocks with scales.
pub(crate) trait Multiplication: Sized {
    /// What a stage has beside the factors.
    type Scales: StageSpec;
    /// Where that comes from.
    type From<'k>: Copy;
    /// The multiplying end of the ring.
    type Consumer<'p, 't, 'k: 'p, G: BlockGroup>
    where
        Self: 'p;

    /// What a stage has beside the factors.
    fn scales(tiling: &TensorTiling) -> Self::Scales;

    /// Has it copied for stage `step`.
    fn copy<'k>(
        from: Self::From<'k>,
        copies: &Transaction<'k>,
        to: <Self::Scales as StageSpec>::Landing<'k>,
        step: Val<'k, u32>,
    );

    /// Accumulators that have room in tensor memory.
    fn accumulators(tiling: &TensorTiling) -> u32;

    /// The multiplying end.
    fn consumer<'p, 't, 'k, G: BlockGroup>(
        tiling: &TensorTiling,
        ring: &'p TensorRing<'k, Stage<Self>, G>,
        memory: &TensorMemory<'t, 'k, G>,
    ) -> Self::Consumer<'p, 't, 'k, G>;

    /// Multiplies stage `step` of a tile.
    fn multiply<'k, G: BlockGroup>(
        consumer: &Self::Consumer<'_, '_, 'k, G>,
        product: &Product<'_, 'k, G>,
        factors: &Factors<'k, Self::From<'k>>,
        step: Val<'k, u32>,
    );
}

impl<H: TensorInput> Multiplication for H {
    type Scales = ();
    type From<'k> = ();
    type Consumer<'p, 't, 'k: 'p, G: BlockGroup>
        = TensorConsumer<'p, 'k, Stage<H>, G>
    where
        H: 'p;

    fn scales(_: &TensorTiling) {}

    fn copy<'k>((): (), _: &Transaction<'k>, (): (), _: Val<'k, u32>) {}

    fn accumulators(_: &TensorTiling) -> u32 {
        ACCUMULATORS
    }

    fn consumer<'p, 't, 'k, G: BlockGroup>(
        _: &TensorTiling,
        ring: &'p TensorRing<'k, Stage<H>, G>,
        _: &TensorMemory<'t, 'k, G>,
    ) -> TensorConsumer<'p, 'k, Stage<H>, G> {
        ring.consumer()
    }

    fn multiply<'k, G: BlockGroup>(
        consumer: &TensorConsumer<'_, 'k, Stage<H>, G>,
        product: &Product<'_, 'k, G>,
        factors: &Factors<'k>,
        _: Val<'k, u32>,
    ) {
        consumer.multiply(product, |(left, right, ())| {
            let left = operand::<H>(left, factors.left.major);
            let right = operand::<H>(right, factors.right.major);
            for step in 0..4 {
                product.mma(left.step(step), right.step(step));
            }
        });
    }
}

/// What a block has of a tile's factors: A's rows and B's columns, and the steps of the depth.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'k, F = ()> {
    pub(crate) left: Side<'k>,
    pub(crate) right: Side<'k>,
    /// The blocks that have the same rows of A.
    pub(crate) peers: Peers<'k>,
    /// Where the scales of their blocks come from, where these have some.
    pub(crate) scales: F,
    /// Each is a stage.
    pub(crate) steps: Val<'k, u32>,
}

/// Pairs that stand side by side in a cluster: they have the same rows of A.
pub(super) fn side_by_side<G: BlockGroup>(k: &Kernel<'_>) -> u32 {
    match G::BLOCKS {
        1 => 1,
        blocks => k.cluster_size() / blocks,
    }
}

/// The stages of a block, for operands stored like this.
pub(crate) fn ring<'k, M: Multiplication, G: BlockGroup>(
    k: &Kernel<'k>,
    tiling: &TensorTiling,
    [left, right]: [Major; 2],
) -> TensorRing<'k, Stage<M>, G> {
    let spec = |name, outer, major| {
        let rows = TensorTiling::stage_rows(outer, major);
        TileSpec::new(name, rows, DEPTH, TileLayout::Swizzled)
    };
    let left = spec("left", ROWS, left);
    let right = spec("right", tiling.own_cols(), right);
    let stage = (left, right, M::scales(tiling));
    match side_by_side::<G>(k) {
        1 => k.tensor_ring(tiling.stages, stage),
        _ => k.tensor_ring_among(tiling.stages, stage),
    }
}

/// Both ends of the ring. They are made once a block, and their state continues from tile to tile.
pub(super) struct Mainloop<'p, 't, 'k, G: BlockGroup, M: Multiplication + 'p> {
    k: Kernel<'k>,
    tiling: TensorTiling,
    producer: TensorProducer<'p, 'k, Stage<M>, G>,
    consumer: M::Consumer<'p, 't, 'k, G>,
    /// Stages of the next tile that are already in flight.
    ahead: Var<'k, u32>,
}

impl<'p, 't, 'k, G: BlockGroup, M: Multiplication + 'p> Mainloop<'p, 't, 'k, G, M> {
    pub(super) fn new(
        k: &Kernel<'k>,
        tiling: &TensorTiling,
        ring: &'p TensorRing<'k, Stage<M>, G>,
        memory: &TensorMemory<'t, 'k, G>,
    ) -> Self {
        Mainloop {
            k: *k,
            tiling: *tiling,
            producer: ring.producer(),
            consumer: M::consumer(tiling, ring, memory),
            ahead: k.var(0u32).named("ahead"),
        }
    }

    /// In the copying thread: issues the copies of a tile.
    pub(super) fn copy(&self, factors: Factors<'k, M::From<'k>>) {
        self.fill(factors, self.ahead.get(), factors.steps);
        self.ahead.set(0u32);
    }

    /// In the copying thread: begins a tile while the one before is still multiplied, with as many
    /// stages as there are.
    pub(super) fn begin(&self, factors: Factors<'k, M::From<'k>>) {
        let steps = factors.steps.min(self.tiling.stages);
        self.fill(factors, self.k.c(0), steps);
        self.ahead.set(steps);
    }

    /// In the copying thread: waits until no copy is in flight, before the block exits.
    pub(super) fn finish(&self) {
        self.producer.drain();
    }

    fn fill(&self, factors: Factors<'k, M::From<'k>>, first: Val<'k, u32>, last: Val<'k, u32>) {
        let Factors {
            left,
            right,
            scales,
            ..
        } = factors;
        self.k.for_range(first, last, |step| {
            let at = step * left.span;
            self.producer
                .fill(|copies, (to_left, to_right, to_scales)| {
                    let alone = Peers::first(&self.k, 1);
                    left.copy(copies, to_left, ROWS, DEPTH, at, factors.peers);
                    right.copy(copies, to_right, self.tiling.own_cols(), DEPTH, at, alone);
                    M::copy(scales, copies, to_scales, step);
                });
        });
    }

    /// In the multiplying thread: the product of a tile, stage by stage.
    pub(super) fn multiply(
        &self,
        thread: &MultiplyingThread<'_, 'k, G>,
        writer: &AccumulatorWriter<'_, 'k, G>,
        factors: Factors<'k, M::From<'k>>,
    ) {
        writer.product(thread, |product| {
            self.k.for_range(0, factors.steps, |step| {
                M::multiply(&self.consumer, product, &factors, step);
            });
        });
    }
}

/// What a stage has of a matrix: four steps of 32 bytes along the depth, or of 16 rows across it.
pub(super) fn operand<'k, H: TensorInput>(
    tile: SharedTile<'k, f16>,
    major: Major,
) -> TensorOperand<'k, H> {
    let tile = tile.retyped::<H::Stored>();
    match major {
        Major::Depth => tile.tensor_operand(0u32),
        Major::Outer => tile.tensor_operand_across(0u32, DEPTH),
    }
}
