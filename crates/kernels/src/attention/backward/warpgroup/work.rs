//! The mainloop of a warpgroup over its 64 keys.

use super::block::{KeyTile, QueryBlock};
use super::layout::{self, Fixed};
use super::shape::{KEYS, WarpgroupArgs, WarpgroupShape};
use crate::attention::backward::changed::Changed;
use crate::attention::backward::problem::Sums;
use crate::attention::params::Element;
use heist_builder::{
    Accumulator, Global, Kernel, On, Ptr, SharedArray, SharedTile, Val, WarpTile, WgmmaLeft,
    WgmmaSums,
};
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// What one warpgroup has of a tile.
pub(super) struct Work<'k, T: Element> {
    k: Kernel<'k>,
    shape: WarpgroupShape,
    /// What makes exponents of two of products, or of what a change has made of them.
    scale: Val<'k, f32>,
    /// The number of the warpgroup.
    group: Val<'k, u32>,
    /// Scores, transposed; then weights.
    scores: WgmmaSums<'k>,
    /// Gradients of weights, transposed; then of scores.
    d_scores: WgmmaSums<'k>,
    /// Weights rounded, 16 queries each.
    weights: Vec<WgmmaLeft<'k, T>>,
    /// Gradients of scores rounded.
    rounded: Vec<WgmmaLeft<'k, T>>,
    /// A piece of a block's dQ.
    dq: WgmmaSums<'k>,
    dk: WgmmaSums<'k>,
    dv: WgmmaSums<'k>,
}

impl<'k, T: Element> Work<'k, T> {
    pub(super) fn new(
        k: &Kernel<'k>,
        shape: WarpgroupShape,
        args: &WarpgroupArgs<On<'k>>,
        group: Val<'k, u32>,
    ) -> Self {
        let lefts = || {
            let count = shape.queries() / 16;
            (0..count).map(|_| WgmmaLeft::new(k)).collect()
        };
        Work {
            k: *k,
            shape,
            scale: match shape.change {
                None => args.scale * LOG2_E,
                Some(_) => k.c(1.0),
            },
            group,
            scores: WgmmaSums::zero(k, shape.queries()),
            d_scores: WgmmaSums::zero(k, shape.queries()),
            weights: lefts(),
            rounded: lefts(),
            dq: WgmmaSums::zero(k, layout::columns(shape.head_dim)[0]),
            dk: WgmmaSums::zero(k, shape.head_dim),
            dv: WgmmaSums::zero(k, shape.head_dim),
        }
    }

    /// The warp's first key in the tile.
    pub(super) fn row(&self) -> Val<'k, u32> {
        self.group * 64 + ((self.k.warp() & 3) << 4)
    }

    /// Asks for the product of the warpgroup's rows of a tile of keys and all rows of a
    /// block of queries.
    fn ask(&self, sums: &WgmmaSums<'k>, keys: &SharedTile<'k, T>, queries: &SharedTile<'k, T>) {
        sums.accumulate(|batch| {
            for panel in 0..self.shape.panels() {
                let left = keys.wgmma_operand(self.group * 64 + panel * KEYS);
                let right = queries.wgmma_operand(panel * self.shape.queries());
                for step in 0..self.shape.steps(panel) {
                    let (left, right) = (left.step(step), right.step(step));
                    match (panel, step) {
                        (0, 0) => batch.mma_fresh(left, right),
                        _ => batch.mma(left, right),
                    }
                }
            }
        });
    }

    /// Asks for the scores of a block of queries.
    pub(super) fn score(&self, keys: &SharedTile<'k, T>, queries: &SharedTile<'k, T>) {
        self.ask(&self.scores, keys, queries);
    }

    /// Asks for the gradients of its weights.
    pub(super) fn d_weigh(&self, values: &SharedTile<'k, T>, d_out: &SharedTile<'k, T>) {
        self.ask(&self.d_scores, values, d_out);
    }

    /// Whether weights are rounded before the gradients of scores are worked out, so that
    /// dV is on its way meanwhile: where there are registers for both kinds of weights.
    pub(super) fn rounds_first(&self) -> bool {
        self.shape.head_dim > 64
    }

    /// Turns scores into weights, when they are there: only the gradients of weights have
    /// been asked for since.
    pub(super) fn weigh(
        &self,
        place: &KeyTile<'k>,
        block: QueryBlock<'k>,
        levels: &SharedArray<'k, f32>,
        changed: Option<&Changed<'k>>,
    ) {
        let k = self.k;
        let scores = self.scores.settled(1);
        if let Some(changed) = changed {
            changed.change(&scores);
        }
        k.if_(
            !place.reach.whole(block.first, self.shape.queries()),
            || {
                place.reach.hide_masked(&scores, self.row(), block.first);
            },
        );
        self.each_column(&scores, levels, |value, level| {
            value.mul_add(self.scale, -level).exp2_approx()
        });
    }

    /// Changes every number with its query's number.
    fn each_column(
        &self,
        tile: &WarpTile<'k>,
        numbers: &SharedArray<'k, f32>,
        change: impl Fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, f32>,
    ) {
        let col = Accumulator::col(&self.k);
        for n in 0..tile.shape().1 {
            if let Some(block) = tile.block(0, n) {
                let [p, q] = numbers.at(col + 8 * n as u32).load_vec::<2>();
                let [a, b, c, d] = block.get();
                block.set([change(a, p), change(b, q), change(c, p), change(d, q)]);
            }
        }
    }

    /// Rounds the weights and asks for dV += P^T dO.
    pub(super) fn add_values(&self, d_out: &SharedTile<'k, T>) {
        round(&self.weights, &self.scores.held());
        self.accumulate(&self.dv, &self.weights, d_out, self.early());
    }

    /// The steps of dV that are asked for with the weights. Where dQ is turned into whole numbers, which takes longer than dK does, the others are
    /// asked for behind it: half of them, or one of eight where dV is not on its way before.
    fn early(&self) -> Range<usize> {
        let all = self.weights.len();
        match (self.shape.sums, self.rounds_first()) {
            (Sums::Fixed, true) => 0..all / 2,
            (Sums::Fixed, false) => 0..all - 1,
            _ => 0..all,
        }
    }

    /// Asks for what is left of dV, behind dQ. How many products that is.
    pub(super) fn add_late_values(&self, d_out: &SharedTile<'k, T>) -> u32 {
        let late = self.early().end..self.weights.len();
        let some = !late.is_empty();
        if some {
            self.accumulate(&self.dv, &self.weights, d_out, late);
        }
        some.into()
    }

    /// The gradients of the scores, rounded, in registers and in shared memory. `newer`
    /// products have been asked for since those of the weights.
    pub(super) fn d_score(
        &self,
        [levels, deltas]: [&SharedArray<'k, f32>; 2],
        stage: &SharedTile<'k, T>,
        newer: u32,
        changed: Option<&Changed<'k>>,
    ) {
        let k = self.k;
        let d_scores = self.d_scores.settled(newer);
        let weights = self.scores.held();
        self.each_column(&d_scores, deltas, |value, delta| value - delta);
        for n in 0..d_scores.shape().1 {
            if let (Some(block), Some(weights)) = (d_scores.block(0, n), weights.block(0, n)) {
                let ([a, b, c, d], [p, q, r, s]) = (block.get(), weights.get());
                block.set([a * p, b * q, c * r, d * s]);
            }
        }
        if let Some(changed) = changed {
            changed.through(&d_scores, &weights, levels);
        }
        round(&self.rounded, &d_scores);
        let (row, half) = (self.row() + (k.lane() & 15), k.lane() >> 4);
        for (index, rounded) in self.rounded.iter().enumerate() {
            let (panel, pair) = (index as u32 / 4, index as u32 % 4);
            let to = stage.chunk(row + panel * KEYS, half + 2 * pair);
            to.store_matrices(rounded.matrices());
        }
    }

    /// The steps of a thread's two rows of a block's dQ, where sums are in fixed point.
    pub(super) fn steps(&self, steps: &SharedArray<'k, f32>) -> Option<[Val<'k, f32>; 2]> {
        let [row, _] = layout::corner(self.shape.head_dim, self.group, self.thread());
        (self.shape.sums == Sums::Fixed).then(|| [0, 8].map(|down| steps.at(row + down).load()))
    }

    /// The number of a thread in its warpgroup.
    fn thread(&self) -> Val<'k, u32> {
        self.k.thread_index() & 127
    }

    /// Asks for this warpgroup's piece of the block's dS K. A second piece that is narrower than the first is multiplied as wide: with
    /// the zeros behind the last element of a key.
    pub(super) fn ask_queries(&self, stage: &SharedTile<'k, T>, keys: &SharedTile<'k, T>) {
        let zero = self.k.c(0);
        let (left, right) = match self.shape.panels() {
            1 => (self.group, zero),
            _ => (zero, self.group),
        };
        let left = stage.wgmma_operand_across(left, KEYS);
        let right = keys.wgmma_operand_across(right, KEYS);
        self.dq.accumulate(|batch| {
            for step in 0..KEYS / 16 {
                let (left, right) = (left.step(step), right.step(step));
                match step {
                    0 => batch.mma_fresh(left, right),
                    _ => batch.mma(left, right),
                }
            }
        });
    }

    /// Asks for dK += dS^T Q.
    pub(super) fn add_keys(&self, queries: &SharedTile<'k, T>) {
        let all = 0..self.rounded.len();
        self.accumulate(&self.dk, &self.rounded, queries, all);
    }

    fn accumulate(
        &self,
        sums: &WgmmaSums<'k>,
        left: &[WgmmaLeft<'k, T>],
        right: &SharedTile<'k, T>,
        steps: Range<usize>,
    ) {
        let right = right.wgmma_operand_across(0, self.shape.queries());
        sums.accumulate(|batch| {
            for step in steps {
                batch.mma_left(&left[step], right.step(step as u32));
            }
        });
    }

    /// Adds this warpgroup's piece of the block's dQ to the sums, while `newer` products are on their way.
    pub(super) fn add_queries(
        &self,
        sums: Ptr<'k, Global, f32>,
        number: Val<'k, u32>,
        steps: Option<[Val<'k, f32>; 2]>,
        outbox: Option<SharedArray<'k, i32>>,
        newer: u32,
    ) {
        let product = self.dq.settled(newer);
        let thread = self.thread();
        let own = layout::begin(self.shape.head_dim, self.group);
        let piece = sums.at(number.mul_wide(self.shape.head_dim)).at(own);
        let parts: Vec<_> = (0..product.shape().1)
            .filter_map(|index| product.block(0, index))
            .map(|block| block.get())
            .collect();
        let outbox = outbox.map(|outbox| outbox.at(own));
        let fixed = steps.map(|steps| Fixed { steps, outbox });
        let [_, second] = layout::columns(self.shape.head_dim);
        let split = (second / layout::COLUMNS) as usize;
        layout::add(piece, thread, parts.split_at(split), self.group, fixed);
    }

    /// Waits for all products.
    pub(super) fn wait(&self) {
        self.dk.wait_for_older(0);
    }

    /// Stores dK and dV, or the part of them.
    pub(super) fn store(&self, args: &WarpgroupArgs<On<'k>>, place: &KeyTile<'k>) {
        let k = self.k;
        if let Some(partials) = place.partials(args, &self.shape, self.group) {
            for (to, sums) in partials.into_iter().zip([&self.dk, &self.dv]) {
                let sums = sums.settled(0);
                for index in 0..sums.shape().1 {
                    if let Some(block) = sums.block(0, index) {
                        layout::four(to, self.thread(), index as u32).store_vec(block.get());
                    }
                }
            }
            return;
        }
        let inside = place.reach.keys - place.reach.first_key;
        let first = place.first_element(args);
        let own = self.row();
        for (to, sums, factor) in [
            (args.dk, &self.dk, args.scale),
            (args.dv, &self.dv, k.c(1.0)),
        ] {
            let to = to.cast::<T>().at(first);
            sums.settled(0).each_row(|down, across, pairs| {
                let row = own + down;
                k.if_(row.lt(inside), || {
                    let to = to.at(row.mul_add(args.k_row, across));
                    for (n, [a, b]) in pairs.iter().enumerate() {
                        let pair = Val::pack_as::<T>(*a * factor, *b * factor);
                        to.at(8 * n).cast::<T::Pair>().store(pair);
                    }
                });
            });
        }
    }
}

/// Rounds numbers to left operands.
fn round<'k, T: Element>(to: &[WgmmaLeft<'k, T>], numbers: &WarpTile<'k>) {
    for (index, left) in to.iter().enumerate() {
        let blocks = [2 * index, 2 * index + 1].map(|col| numbers.block(0, col));
        if let [Some(a), Some(b)] = blocks {
            left.set(a.get(), b.get());
        }
    }
}
