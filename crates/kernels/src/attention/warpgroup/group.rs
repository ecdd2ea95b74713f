//! The mainloop and epilogue of a warpgroup over its 64 rows: scores, softmax, weighted values,
//! results.

use super::WarpgroupArgs;
use super::exchange::{Exchange, to_places};
use super::shape::{GROUP_ROWS, WarpgroupShape};
use crate::attention::epilogue::absorb;
use crate::attention::mask::{KeyRange, hide_masked};
use crate::attention::panels::{PANEL, Rows};
use crate::attention::params::Element;
use crate::attention::problem::{Output, Weights};
use crate::attention::score::{Rules, ScoreRow, Scores, modify, modify_whole};
use crate::attention::softmax::{Raised, Softmax, scale_rows};
use heist_builder::{
    Accumulator, Bool, Global, Kernel, On, Ptr, Val, Var, WarpTile, WgmmaLeft, WgmmaOperand,
    WgmmaSums,
};
use heist_sched::Position;
use std::cell::Cell;

/// What one warpgroup has of a tile.
pub(super) struct Work<'k, T: Element> {
    k: Kernel<'k>,
    shape: WarpgroupShape,
    /// Its first row in the tile.
    row: Val<'k, u32>,
    seen: [KeyRange<'k>; 2],
    /// What becomes of the scores, where something does, and the factor of the products.
    rules: Option<[[Rules<'k>; 2]; 1]>,
    scale: Val<'k, f32>,
    softmax: Softmax<'k>,
    pub(super) scores: WgmmaSums<'k>,
    /// The weights of a block in halves, 16 keys each, or two terms of them.
    weights: Vec<Terms<'k, T>>,
    /// Those of the next block, where they are rounded before nothing reads the ones before any more.
    next: Option<Vec<Terms<'k, T>>>,
    pub(super) results: WgmmaSums<'k>,
}

/// The weights of 16 keys, as products take them.
enum Terms<'k, T: Element> {
    Rounded([WgmmaLeft<'k, T>; 1]),
    Split([WgmmaLeft<'k, T>; 2]),
}

impl<'k, T: Element> Terms<'k, T> {
    fn new(k: &Kernel<'k>, weights: Weights) -> Self {
        match weights {
            Weights::Rounded => Terms::Rounded([WgmmaLeft::new(k)]),
            Weights::Split => Terms::Split([(); 2].map(|()| WgmmaLeft::new(k))),
        }
    }

    fn of_block(k: &Kernel<'k>, shape: &WarpgroupShape) -> Vec<Self> {
        let steps = 0..shape.keys / 16;
        steps.map(|_| Terms::new(k, shape.weights)).collect()
    }

    fn set(&self, left: [Val<'k, f32>; 4], right: [Val<'k, f32>; 4]) {
        match self {
            Terms::Rounded([rounded]) => rounded.set(left, right),
            Terms::Split([rounded, rest]) => WgmmaLeft::set_split([rounded, rest], left, right),
        }
    }

    fn each(&self) -> &[WgmmaLeft<'k, T>] {
        match self {
            Terms::Rounded(terms) => terms,
            Terms::Split(terms) => terms,
        }
    }
}

impl<'k, T: Element> Work<'k, T> {
    pub(super) fn new(
        k: &Kernel<'k>,
        shape: &WarpgroupShape,
        args: &WarpgroupArgs<On<'k>>,
        scores: &Scores<'_, 'k>,
        group: Val<'k, u32>,
        (tile, rows): (&Position<'k>, &Rows<'k>),
    ) -> Self {
        let row = group * GROUP_ROWS;
        let own = row + ((k.warp() & 3) << 4) + Accumulator::row(k);
        let mask = &rows.mask;
        let rules = |down: u32| {
            scores.rules(|tables| ScoreRow {
                sequence: tile.z,
                head: tile.y,
                position: mask.position(own + down),
                keys: mask.keys(),
                shift: mask.shift(),
                first_key: rows.sequence.first_key,
                tables,
            })
        };
        Work {
            k: *k,
            shape: *shape,
            row,
            seen: [0, 8].map(|down| mask.seen_by(own + down)),
            rules: rules(0)
                .zip(rules(8))
                .map(|(upper, lower)| [[upper, lower]]),
            scale: args.scale,
            softmax: Softmax::new(k, scores.factor(args.scale), 1),
            scores: WgmmaSums::zero(k, shape.keys),
            weights: Terms::of_block(k, shape),
            next: shape.lazy.then(|| Terms::of_block(k, shape)),
            results: WgmmaSums::zero(k, shape.value_dim),
        }
    }

    /// Asks for the scores of a block.
    pub(super) fn score(
        &self,
        queries: &heist_builder::SharedTile<'k, T>,
        keys: &heist_builder::SharedTile<'k, T>,
    ) {
        let (rows, width, cut) = (self.shape.rows(), self.shape.keys, self.shape.cut());
        self.scores.accumulate(|batch| {
            for panel in 0..cut.count() {
                let left: WgmmaOperand<'k, T> = queries.wgmma_operand(self.row + panel * rows);
                let right = keys.wgmma_operand(panel * width);
                for step in 0..cut.steps(panel) {
                    let (left, right) = (left.step(step), right.step(step));
                    match (panel, step) {
                        (0, 0) => batch.mma_fresh(left, right),
                        _ => batch.mma(left, right),
                    }
                }
            }
        });
    }

    /// Asks for the values of a block to be weighed and added.
    pub(super) fn weigh(&self, values: &heist_builder::SharedTile<'k, T>) {
        let width = self.shape.keys;
        let parts = self.shape.products().into_iter().map(|columns| {
            let values = values.wgmma_operand_across(columns.start / PANEL, width);
            (columns, values)
        });
        let parts: Vec<_> = parts.collect();
        self.results.accumulate(|batch| {
            for (step, weights) in self.weights.iter().enumerate() {
                for term in weights.each() {
                    for (columns, values) in &parts {
                        let batch = batch.of_columns(columns.clone());
                        batch.mma_left(term, values.step(step as u32));
                    }
                }
            }
        });
    }

    /// Turns the scores of a tile's first block into weights, in place, and rounds them to halves. `at_edge` says whether some rows may
    /// not see all of it. Where a tile `resumes`, that block is a later one of the tile, and is weighed like one: the results have the
    /// bits of a tile that was not left.
    pub(super) fn begin(
        &self,
        scores: &WarpTile<'k>,
        first: Val<'k, u32>,
        at_edge: Bool<'k>,
        resumes: bool,
    ) -> Raised<'k> {
        if let Some(rules) = &self.rules {
            modify(scores, rules, self.scale, first);
        }
        let hide = || hide_masked(scores, &[self.seen], first);
        self.k.if_(at_edge, hide);
        if resumes {
            let raised = self.weigh_later(scores);
            self.turn(scores);
            return raised;
        }
        let raised = self.softmax.raise(scores);
        self.softmax.weigh(scores);
        self.round(scores);
        raised
    }

    /// Turns the scores of a later block into weights, in place, or rounds them to halves for later. `first` gives the block's first key,
    /// and some rows may not see all of it where it is `masked`.
    pub(super) fn admit(
        &self,
        scores: &WarpTile<'k>,
        masked: bool,
        first: impl FnOnce() -> Val<'k, u32>,
    ) -> Raised<'k> {
        let first = (masked || self.rules.is_some()).then(first);
        if let (Some(first), Some(rules)) = (first, &self.rules) {
            let modify = if masked { modify } else { modify_whole };
            modify(scores, rules, self.scale, first);
        }
        if let (Some(first), true) = (first, masked) {
            hide_masked(scores, &[self.seen], first);
        }
        self.weigh_later(scores)
    }

    /// Turns the scores of a later block, all of which are seen, into weights.
    fn weigh_later(&self, scores: &WarpTile<'k>) -> Raised<'k> {
        let Some(next) = &self.next else {
            let raised = self.softmax.raise(scores);
            self.softmax.weigh(scores);
            return raised;
        };
        let left = Cell::new([self.k.c(0.0f32); 4]);
        self.softmax.weigh_or_raise(scores, |_, col, weights| {
            match (col % 2, next.get(col / 2)) {
                (1, Some(terms)) => terms.set(left.get(), weights),
                _ => left.set(weights),
            }
        })
    }

    /// Has the weights of the block that was admitted ready for products. Nothing reads the ones before any more.
    pub(super) fn turn(&self, scores: &WarpTile<'k>) {
        match &self.next {
            None => self.round(scores),
            Some(next) => {
                for (weights, next) in self.weights.iter().zip(next) {
                    for (weights, next) in weights.each().iter().zip(next.each()) {
                        weights.take(next);
                    }
                }
            }
        }
    }

    /// Rounds the weights to halves.
    fn round(&self, scores: &WarpTile<'k>) {
        for (index, weights) in self.weights.iter().enumerate() {
            let blocks = [2 * index, 2 * index + 1].map(|col| scores.block(0, col));
            if let [Some(left), Some(right)] = blocks {
                weights.set(left.get(), right.get());
            }
        }
    }

    /// What all blocks of a cluster have of this one's part of the columns.
    pub(super) fn exchange(&self, others: &Exchange<'k>) -> WarpTile<'k> {
        let k = self.k;
        let blocks = self.shape.value_dim as usize / 8;
        let width = blocks / self.shape.sharing.blocks() as usize;
        let results = self.results.settled(0);
        let words = (0..blocks).filter_map(|col| results.block(0, col));
        let words: Vec<_> = words.map(|block| block.get()).collect();
        let parts = words.chunks_exact(width).map(<[_]>::to_vec).collect();
        let parts = to_places(k.cluster_rank(), parts);
        let (kept, rows) = (WarpTile::zero(&k, 1, width), self.softmax.rows.iter());
        let state = rows.map(|[upper, lower]| {
            [upper.level, upper.sum, lower.level, lower.sum].map(|word| word.get())
        });
        let state: Vec<_> = state.collect();
        for (col, own) in parts.iter().take(1).flatten().enumerate() {
            if let Some(block) = kept.block(0, col) {
                block.set(*own);
            }
        }
        let sent = parts.iter().skip(1);
        let sent: Vec<_> = sent.map(|part| [&state[..], part].concat()).collect();
        others.send(&sent);
        for other in others.received() {
            absorb(&self.softmax, &kept, |word| other[word]);
        }
        kept
    }

    /// What a thread keeps of a tile that is left half done.
    fn state(&self) -> impl Iterator<Item = Var<'k, f32>> {
        let rows = self.softmax.rows.iter().flatten();
        let rows: Vec<_> = rows.flat_map(|row| [row.level, row.sum]).collect();
        self.results.vars().chain(rows)
    }

    /// Where this thread's word `index` of a saved state is: neighbours have neighbouring words.
    fn word(&self, state: Ptr<'k, Global, u32>, index: usize) -> Ptr<'k, Global, f32> {
        let threads = 128 * self.shape.groups;
        let first = state.cast::<f32>().at(self.k.thread_index());
        first.at(index as u32 * threads)
    }

    /// Saves the state of a tile that is left half done. Nothing is being added to it.
    pub(super) fn save(&self, state: Ptr<'k, Global, u32>) {
        self.k.comment("left half done");
        for (index, var) in self.state().enumerate() {
            self.word(state, index).store(var.get());
        }
    }

    /// Goes on with what was saved.
    pub(super) fn restore(&self, state: Ptr<'k, Global, u32>) {
        self.k.comment("go on with what was left half done");
        for (index, var) in self.state().enumerate() {
            var.set(self.word(state, index).load());
        }
    }

    /// Writes results and log-sum-exps. `stage` is shared memory with this
    /// warpgroup's rows, which nothing reads any more; `part` are the results of a block of a cluster.
    pub(super) fn store(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        (tile, rows): (&Position<'k>, &Rows<'k>),
        sink: Option<Val<'k, f32>>,
        stage: &heist_builder::SharedTile<'k, T>,
        part: Option<&WarpTile<'k>>,
    ) {
        let k = self.k;
        k.comment("normalise and store");
        self.softmax.finish();
        let whole = part.is_none().then(|| self.results.settled(0));
        let Some(results) = part.or(whole.as_ref()) else {
            return;
        };
        let width = results.shape().1 as u32 * 8;
        let first_col = k.cluster_rank() * width;
        if let Some(sink) = sink {
            self.softmax.add_sinks(results, |_, _| sink);
        }
        let own = self.row + ((k.warp() & 3) << 4);
        let (first, inside) = (rows.sequence.q_start + rows.first, rows.mask.rows);
        let line = tile.z * args.lse_batch + tile.y * args.lse_head + first;
        for (at, row) in self.softmax.rows.iter().flatten().enumerate() {
            let number = own + Accumulator::row(&k) + 8 * at as u32;
            k.if_(
                number.lt(inside) & (k.lane() & 3).eq(0) & first_col.eq(0),
                || {
                    args.lse.at(line + number).store(row.log_sum());
                },
            );
        }
        for rows in &self.softmax.rows {
            scale_rows(results, 0, rows.map(|row| row.normaliser()));
        }
        let out = tile.z.mul_wide(args.q_batch)
            + tile.y.mul_wide(args.q_head)
            + first.mul_wide(args.q_row);
        match self.shape.output {
            Output::F32 => {
                let out = args.out.cast::<f32>().at(out).at(first_col);
                results.each_pair(|row, col, pair| {
                    let row = own + row;
                    k.if_(row.lt(inside), || {
                        out.at(row.mul_add(args.q_row, col)).store_vec(pair);
                    });
                });
            }
            Output::Same => {
                // By way of shared memory, so that the stores are whole lines.
                self.leave(results, stage, own);
                k.sync_warp();
                let chunks = width / 8;
                let out = args.out.cast::<T>().at(out).at(first_col);
                for trip in 0..(16 * chunks).div_ceil(32) {
                    let index = k.lane() + trip * 32;
                    let (row, chunk) = (own + index / chunks, index % chunks);
                    let there = match (trip + 1) * 32 <= 16 * chunks {
                        true => row.lt(inside),
                        // The last trip may have rows of the next warp.
                        false => row.lt(inside) & index.lt(16 * chunks),
                    };
                    k.if_(there, || {
                        let from = self.panel_row(row, chunk / (PANEL / 8));
                        let words = stage.chunk(from, chunk % (PANEL / 8));
                        let to = out.at(row.mul_add(args.q_row, chunk * 8));
                        to.cast::<u32>()
                            .store_vec(words.cast::<u32>().load_vec::<4>());
                    });
                }
            }
        }
    }

    /// Leaves results in shared memory, rounded, from row `own` on: 16 columns at a time, and the last 8 of an odd number.
    fn leave(
        &self,
        results: &WarpTile<'k>,
        stage: &heist_builder::SharedTile<'k, T>,
        own: Val<'k, u32>,
    ) {
        let k = self.k;
        let blocks = results.shape().1;
        let rounded = |n: usize| {
            let [a, b, c, d] = results.block(0, n)?.get();
            Some([Val::pack_as::<T>(a, b), Val::pack_as::<T>(c, d)])
        };
        // A lane names a row of one of four matrices: above and below, left and right.
        let (row, right) = (own + (k.lane() & 15), k.lane() >> 4);
        for left in (0..blocks).step_by(2) {
            let chunk = left as u32;
            let panel = self.panel_row(row, k.c(chunk / (PANEL / 8)));
            let chunk = chunk % (PANEL / 8);
            match (rounded(left), rounded(left + 1)) {
                (Some([a, b]), Some([c, d])) => {
                    let to = stage.chunk(panel, right + chunk);
                    to.store_matrices([a, b, c, d]);
                }
                (Some([a, b]), None) => stage.chunk(panel, k.c(chunk)).store_matrices([a, b]),
                _ => {}
            }
        }
    }

    /// The row of a panel, which lie one below the other.
    fn panel_row(&self, row: Val<'k, u32>, panel: Val<'k, u32>) -> Val<'k, u32> {
        panel.mul_add(self.shape.rows(), row)
    }
}
