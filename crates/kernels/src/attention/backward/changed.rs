//! Changed scores, worked out again from the products of keys and queries, and gradients through the change.
//!
//! Tiles lie keys down and queries across. Changed scores are to base 2, so that a weight is `exp2(score - level)`. The score is had back
//! from the weight and the level of its row: nothing is kept for the derivative of a soft-cap.

use crate::attention::score::{Differentiable, SoftCap};
use heist_builder::{Accumulator, Global, Ptr, SharedArray, Val, WarpTile};
use std::f32::consts::LOG2_E;

/// What makes scores of products, besides their factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    SoftCap(SoftCap),
    Alibi,
}

/// The same for one query head and a thread's keys and queries.
pub(super) enum Changed<'k> {
    SoftCap {
        cap: SoftCap,
        /// What products are multiplied with before they are capped.
        factor: Val<'k, f32>,
    },
    Alibi {
        /// The factor of products.
        factor: Val<'k, f32>,
        /// The head's slope, negative and to base 2.
        slope: Val<'k, f32>,
        /// How far after the place of a thread's first query its first key is.
        after: Val<'k, f32>,
    },
}

impl Change {
    /// That of a problem, where there is one.
    pub(super) fn of(scores: Differentiable) -> Option<Change> {
        match scores {
            Differentiable::SoftCap(cap) => Some(Change::SoftCap(cap)),
            Differentiable::Alibi => Some(Change::Alibi),
            Differentiable::Plain | Differentiable::Pairs(_) => None,
        }
    }

    /// For the query head `head` and products that become scores by `scale`. `after` tells how far after the place of a thread's first
    /// query its first key is.
    pub(super) fn of_head<'k>(
        self,
        scale: Val<'k, f32>,
        slopes: Ptr<'k, Global, f32>,
        head: Val<'k, u32>,
        after: impl FnOnce() -> Val<'k, i32>,
    ) -> Changed<'k> {
        match self {
            Change::SoftCap(cap) => Changed::SoftCap {
                cap,
                factor: scale * cap.factor(),
            },
            Change::Alibi => Changed::Alibi {
                factor: scale * LOG2_E,
                slope: slopes.at(head).load_readonly() * -LOG2_E,
                after: after().cast(),
            },
        }
    }
}

impl<'k> Changed<'k> {
    /// Makes scores of products.
    pub(super) fn change(&self, products: &WarpTile<'k>) {
        each(products, |n, values| {
            let mut places = PLACES.into_iter();
            values.map(|product| match *self {
                Changed::SoftCap { cap, factor } => cap.cap(product * factor, LOG2_E),
                Changed::Alibi {
                    factor,
                    slope,
                    after,
                } => {
                    let [down, across] = places.next().unwrap_or_default();
                    let distance = (after + (down - across - n as f32)).abs();
                    product.mul_add(factor, distance * slope)
                }
            })
        });
    }

    /// Makes gradients of the scores of those of the changed ones. `levels` has a number for each query.
    pub(super) fn through(
        &self,
        gradients: &WarpTile<'k>,
        weights: &WarpTile<'k>,
        levels: &SharedArray<'k, f32>,
    ) {
        let Changed::SoftCap { cap, .. } = *self else {
            // A number was added, whose derivative is zero.
            return;
        };
        let col = Accumulator::col(&gradients.kernel());
        each(gradients, |n, [a, b, c, d]| {
            let Some(weights) = weights.block(0, n as usize / 8) else {
                return [a, b, c, d];
            };
            let [even, odd] = levels.at(col + n).load_vec::<2>();
            let slope =
                |weight: Val<'k, f32>, level| cap.slope(weight.log2_approx() + level, LOG2_E);
            let [p, q, r, s] = weights.get();
            [
                a * slope(p, even),
                b * slope(q, odd),
                c * slope(r, even),
                d * slope(s, odd),
            ]
        });
    }
}

/// Rows down and columns across of a thread's four numbers of a block of 8 columns.
const PLACES: [[f32; 2]; 4] = [[0.0, 0.0], [0.0, 1.0], [8.0, 0.0], [8.0, 1.0]];

/// Changes every block of 8 columns, from column `n` on.
fn each<'k>(tile: &WarpTile<'k>, change: impl Fn(u32, [Val<'k, f32>; 4]) -> [Val<'k, f32>; 4]) {
    for index in 0..tile.shape().1 {
        if let Some(block) = tile.block(0, index) {
            block.set(change(8 * index as u32, block.get()));
        }
    }
}
