//! What the multiplying thread does with a tile: scores into tensor memory, weights from there.

use super::shape::{ROWS, TensorShape};
use crate::attention::panels::Spec;
use crate::attention::params::Element;
use heist_builder::{
    AccumulatorWriter, Kernel, LeftReader, MultiplyingThread, OneBlock, Product, SharedTile,
    TensorConsumer, TensorInput, Val,
};

/// The multiplying thread's ends of all rings, which go on from tile to tile.
pub(super) struct Products<'p, 't, 'k, T> {
    pub(super) k: Kernel<'k>,
    pub(super) shape: TensorShape,
    pub(super) queries: TensorConsumer<'p, 'k, Spec, OneBlock>,
    pub(super) keys: TensorConsumer<'p, 'k, Spec, OneBlock>,
    pub(super) values: TensorConsumer<'p, 'k, Spec, OneBlock>,
    pub(super) scores: AccumulatorWriter<'t, 'k>,
    pub(super) weights: LeftReader<'t, 'k, T>,
    pub(super) results: AccumulatorWriter<'t, 'k>,
}

impl<'k, T: Element + TensorInput<Stored = T>> Products<'_, '_, 'k, T> {
    /// All products of a tile over `blocks` blocks of keys, one at least. The scores of a block are
    /// asked for before the values of the one before are weighed: so there are scores to make
    /// weights of while those are multiplied.
    pub(super) fn tile(&self, thread: &MultiplyingThread<'_, 'k>, blocks: Val<'k, u32>) {
        self.results.product(thread, |results| {
            self.queries.multiply_throughout(thread, |queries| {
                let queries = queries.cast();
                self.score(thread, &queries);
                self.k.for_range(1, blocks, |_| {
                    self.score(thread, &queries);
                    self.weigh(results);
                });
            });
            self.weigh(results);
        });
    }

    /// The scores of the next block: queries times keys.
    fn score(&self, thread: &MultiplyingThread<'_, 'k>, queries: &SharedTile<'k, T>) {
        let (panels, width) = (self.shape.panels(), self.shape.keys);
        self.scores.product(thread, |scores| {
            self.keys.multiply(scores, |keys| {
                let keys = keys.cast::<T>();
                for panel in 0..panels.count() {
                    let left = queries.tensor_operand::<T>(panel * ROWS);
                    let right = keys.tensor_operand::<T>(panel * width);
                    for step in 0..panels.steps(panel) {
                        scores.mma(left.step(step), right.step(step));
                    }
                }
            });
        });
    }

    /// Adds the next block's values, each times its weight.
    fn weigh(&self, results: &Product<'_, 'k>) {
        let steps = self.shape.keys / 16;
        self.weights.multiply(results, |weights| {
            self.values.multiply(results, |values| {
                let values = values.cast::<T>();
                let values = values.tensor_operand_across::<T>(0u32, self.shape.keys);
                for step in 0..steps {
                    for term in 0..self.shape.terms() {
                        results.mma_left(weights.step(term * steps + step), values.step(step));
                    }
                }
            });
        });
    }
}
