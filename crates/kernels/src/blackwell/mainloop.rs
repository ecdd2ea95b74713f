//! The mainloop: one thread of each block has stages copied, one thread multiplies them.
//!
//! A pair of blocks shares a tile: each copies its 128 rows of A and half of B's columns, and a
//! thread of the first one multiplies for both.

use super::tiling::{DEPTH, ROWS, TensorTiling};
use crate::gemm::Major;
use crate::gemm::warpgroup::Side;
use heist_builder::{
    AccumulatorWriter, BlockGroup, Kernel, MultiplyingThread, SharedTile, TensorConsumer,
    TensorInput, TensorOperand, TensorProducer, TensorRing, TileLayout, TileSpec, Val, Var, f16,
};

/// The contents of a stage. Every element type is copied as bits, in rows of 128 bytes.
pub(crate) type Stage = (TileSpec<'static, f16>, TileSpec<'static, f16>);

/// What a block has of a tile's factors: A's rows and B's columns, and the steps of the depth.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'k> {
    pub(crate) left: Side<'k>,
    pub(crate) right: Side<'k>,
    /// Each is a stage.
    pub(crate) steps: Val<'k, u32>,
}

/// The stages of a block, for operands stored like this.
pub(crate) fn ring<'k, G: BlockGroup>(
    k: &Kernel<'k>,
    tiling: &TensorTiling,
    [left, right]: [Major; 2],
) -> TensorRing<'k, Stage, G> {
    let spec = |name, outer, major| {
        let rows = TensorTiling::stage_rows(outer, major);
        TileSpec::new(name, rows, DEPTH, TileLayout::Swizzled)
    };
    let right = spec("right", tiling.own_cols(), right);
    k.tensor_ring(tiling.stages, (spec("left", ROWS, left), right))
}

/// Both ends of the ring. They are made once a block, and their state continues from tile to tile.
pub(super) struct Mainloop<'p, 'k, G: BlockGroup> {
    k: Kernel<'k>,
    tiling: TensorTiling,
    producer: TensorProducer<'p, 'k, Stage, G>,
    consumer: TensorConsumer<'p, 'k, Stage, G>,
    /// Stages of the next tile that are already in flight.
    ahead: Var<'k, u32>,
}

impl<'p, 'k, G: BlockGroup> Mainloop<'p, 'k, G> {
    pub(super) fn new(
        k: &Kernel<'k>,
        tiling: &TensorTiling,
        ring: &'p TensorRing<'k, Stage, G>,
    ) -> Mainloop<'p, 'k, G> {
        Mainloop {
            k: *k,
            tiling: *tiling,
            producer: ring.producer(),
            consumer: ring.consumer(),
            ahead: k.var(0u32).named("ahead"),
        }
    }

    /// In the copying thread: issues the copies of a tile.
    pub(super) fn copy(&self, factors: Factors<'k>) {
        self.fill(factors, self.ahead.get(), factors.steps);
        self.ahead.set(0u32);
    }

    /// In the copying thread: begins a tile while the one before is still multiplied, with as many
    /// stages as there are.
    pub(super) fn begin(&self, factors: Factors<'k>) {
        let steps = factors.steps.min(self.tiling.stages);
        self.fill(factors, self.k.c(0), steps);
        self.ahead.set(steps);
    }

    /// In the copying thread: waits until no copy is in flight, before the block exits.
    pub(super) fn finish(&self) {
        self.producer.drain();
    }

    fn fill(&self, factors: Factors<'k>, first: Val<'k, u32>, last: Val<'k, u32>) {
        let Factors { left, right, .. } = factors;
        self.k.for_range(first, last, |step| {
            let at = step * left.span;
            self.producer.fill(|copies, (to_left, to_right)| {
                left.copy(copies, to_left, ROWS, DEPTH, at, 1);
                right.copy(copies, to_right, self.tiling.own_cols(), DEPTH, at, 1);
            });
        });
    }

    /// In the multiplying thread: the product of a tile, stage by stage.
    pub(super) fn multiply<H: TensorInput>(
        &self,
        thread: &MultiplyingThread<'_, 'k, G>,
        writer: &AccumulatorWriter<'_, 'k, G>,
        factors: Factors<'k>,
    ) {
        writer.product(thread, |product| {
            self.k.for_range(0, factors.steps, |_| {
                self.consumer.multiply(product, |(left, right)| {
                    let left = operand::<H>(left, factors.left.major);
                    let right = operand::<H>(right, factors.right.major);
                    for step in 0..4 {
                        product.mma(left.step(step), right.step(step));
                    }
                });
            });
        });
    }
}

/// What a stage has of a matrix: four steps of 32 bytes along the depth, or of 16 rows across it.
fn operand<'k, H: TensorInput>(tile: SharedTile<'k, f16>, major: Major) -> TensorOperand<'k, H> {
    let tile = tile.retyped::<H::Stored>();
    match major {
        Major::Depth => tile.tensor_operand(0u32),
        Major::Outer => tile.tensor_operand_across(0u32, DEPTH),
    }
}
