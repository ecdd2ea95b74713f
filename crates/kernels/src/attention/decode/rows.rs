//! The mainloop and epilogue of a warp over the rows of a tile: scores, softmax, weighted values,
//! results.

use super::DecodeArgs;
use super::shape::{DecodeShape, PANEL};
use super::work::Part;
use crate::attention::cache::Cache;
use crate::attention::epilogue::{MergeShape, merge};
use crate::attention::mask::{KeyRange, hide_masked};
use crate::attention::params::Element;
use crate::attention::problem::Output;
use crate::attention::score::{Rules, ScoreRow, Scores, modify};
use crate::attention::softmax::{Row, Softmax, scale_rows};
use heist_builder::{
    ASource, Accumulator, FragmentA, Global, Kernel, On, Ptr, SharedTile, Val, WarpTile,
};

/// The part of a tile that is one warp's: some of its rows, some of its keys.
pub(super) struct Rows<'k, T: Element> {
    k: Kernel<'k>,
    shape: DecodeShape,
    /// The warp's first row in the tile.
    row: Val<'k, u32>,
    /// The warp's first key in a stage.
    col: Val<'k, u32>,
    queries: Queries<'k, T>,
    seen: Vec<[KeyRange<'k>; 2]>,
    /// What becomes of the scores, where something does, and the factor of the products.
    rules: Option<Vec<[Rules<'k>; 2]>>,
    scale: Val<'k, f32>,
    softmax: Softmax<'k>,
    results: WarpTile<'k>,
    /// The factor of the values, where they have one.
    value_scale: Option<Val<'k, f32>>,
}

/// Where the left fragments of the scores are.
enum Queries<'k, T: Element> {
    /// Loaded again for each stage.
    Shared(ASource<'k, T>),
    /// Kept: one for each 16 elements.
    Registers(Vec<FragmentA<'k, T>>),
}

/// Fills the tile of queries: `threads` threads, of which this is number `thread`. Rows
/// past the last are zeros. The warps must meet before anyone reads it.
pub(super) fn fill_queries<'k, T: Element>(
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    queries: &SharedTile<'k, T>,
    thread: Val<'k, u32>,
    threads: u32,
) {
    let k = thread.kernel();
    let rows = part.rows(args.group);
    let chunks = queries.chunks();
    let total = queries.rows() * chunks;
    for trip in 0..total.div_ceil(threads) {
        let index = thread + trip * threads;
        let (row, chunk) = (index / chunks, index % chunks);
        let whole = (trip + 1) * threads <= total;
        k.if_(k.c(whole) | index.lt(total), || {
            let words = [(); 4].map(|()| k.var(0u32));
            k.if_(row.lt(rows), || {
                let from = part.query(args, row);
                let from = args.q.cast::<T>().at(from).at(chunk * 8).cast::<u32>();
                for (word, value) in words.iter().zip(from.load_vec::<4>()) {
                    word.set(value);
                }
            });
            let to = queries.chunk(row, chunk).cast::<u32>();
            to.store_vec(words.map(heist_builder::Var::get));
        });
    }
}

impl<'k, T: Element> Rows<'k, T> {
    /// Of warp number `warp`, over queries that lie in shared memory.
    pub(super) fn new(
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'_, 'k>,
        part: &Part<'k>,
        queries: &SharedTile<'k, T>,
        warp: Val<'k, u32>,
    ) -> Self {
        let (down, across) = (warp % shape.down, warp / shape.down);
        let row = down * (16 * shape.row_blocks);
        let source = queries.a_rows(row);
        let kept = shape.row_blocks == 1 && shape.head_dim <= 128;
        let queries = if kept {
            let steps = 0..shape.head_dim / 16;
            Queries::Registers(steps.map(|step| source.fragment(0, step)).collect())
        } else {
            Queries::Shared(source)
        };
        let mask = part.sequence.mask(shape, args);
        let own = part.first_row + row + Accumulator::row(k);
        let seen = (0..shape.row_blocks)
            .map(|m| [0, 8].map(|down| mask.seen_by((own + (16 * m + down)) / args.group)));
        let rule = |down: u32| {
            scores.rules(|tables| {
                let row = own + down;
                ScoreRow {
                    sequence: part.sequence.number,
                    head: part.head(args, row),
                    position: mask.position(row / args.group),
                    keys: part.sequence.keys,
                    shift: mask.shift(),
                    first_key: match shape.ragged() {
                        true => part.sequence.k_start,
                        false => part.sequence.number * args.k_len,
                    },
                    tables,
                }
            })
        };
        let rules = |m: u32| Some([rule(16 * m)?, rule(16 * m + 8)?]);
        let of_head = |scales: Ptr<'k, Global, f32>| scales.at(part.kv_head).load();
        let (scale, value_scale) = match shape.cache {
            Cache::Same | Cache::Latent => (args.scale, None),
            Cache::E4m3 => (
                args.scale * of_head(args.k_scale),
                Some(of_head(args.v_scale)),
            ),
        };
        Rows {
            k: *k,
            shape: *shape,
            row,
            col: across * shape.cols(),
            queries,
            seen: seen.collect(),
            rules: (0..shape.row_blocks).map(rules).collect(),
            scale,
            softmax: Softmax::new(k, scores.factor(scale), shape.row_blocks as usize),
            results: WarpTile::zero(k, shape.row_blocks as usize, (shape.head_dim / 8) as usize),
            value_scale,
        }
    }

    pub(super) fn shape(&self) -> &DecodeShape {
        &self.shape
    }

    /// The warp's first key in a stage.
    pub(super) fn col(&self) -> Val<'k, u32> {
        self.col
    }

    pub(super) fn results(&self) -> &WarpTile<'k> {
        &self.results
    }

    pub(super) fn softmax(&self) -> &Softmax<'k> {
        &self.softmax
    }

    pub(super) fn kernel(&self) -> Kernel<'k> {
        self.k
    }

    /// One stage: the scores of its keys, and its values weighed by them. `first` is
    /// its first key; some rows may not see all of it where `masked` holds.
    pub(super) fn stage(
        &self,
        stage: &SharedTile<'k, T>,
        first: Val<'k, u32>,
        masked: heist_builder::Bool<'k>,
    ) {
        let (k, shape) = (self.k, &self.shape);
        let blocks = shape.row_blocks as usize;
        let scores = WarpTile::zero(&k, blocks, (shape.cols() / 8) as usize);
        let keys = stage.b_rows(self.col);
        for panel in 0..shape.panels() {
            for step in 0..shape.steps(panel) {
                let left = self.queries(panel * (PANEL / 16) + step);
                for pair in 0..shape.cols() / 16 {
                    let right = keys.fragments(pair + panel * (shape.keys / 16), step);
                    multiply(&scores, pair, &left, &right);
                }
            }
        }
        self.admit(&scores, first, masked);
        let values = stage.b_columns_from(self.col + shape.panels() * shape.keys, 0);
        for step in 0..shape.cols() / 16 {
            let weights: Vec<Vec<FragmentA<'k, T>>> = (0..blocks)
                .filter_map(|m| {
                    self.softmax
                        .weights(&scores, m, step as usize, shape.weights)
                })
                .collect();
            let terms = weights.iter().map(Vec::len).max().unwrap_or(0);
            for panel in 0..shape.panels() {
                for pair in 0..shape.steps(panel) {
                    let right = values.fragments(pair, step + panel * (shape.keys / 16));
                    for term in 0..terms {
                        let left: Vec<_> = weights.iter().map(|terms| terms[term]).collect();
                        multiply(&self.results, panel * (PANEL / 16) + pair, &left, &right);
                    }
                }
            }
        }
    }

    /// Changes and hides scores, and raises the levels where they need it.
    pub(super) fn admit(
        &self,
        scores: &WarpTile<'k>,
        first: Val<'k, u32>,
        masked: heist_builder::Bool<'k>,
    ) {
        if let Some(rules) = &self.rules {
            modify(scores, rules, self.scale, first + self.col);
        }
        let hide_masked = || hide_masked(scores, &self.seen, first + self.col);
        self.k.if_(masked, hide_masked);
        self.softmax.admit(scores, &self.results);
    }

    /// The left fragments of 16 elements, one for each 16 rows.
    pub(super) fn queries(&self, step: u32) -> Vec<FragmentA<'k, T>> {
        match &self.queries {
            Queries::Shared(source) => (0..self.shape.row_blocks)
                .map(|m| source.fragment(m, step))
                .collect(),
            Queries::Registers(kept) => vec![kept[step as usize]],
        }
    }

    /// Brings together what warps with the same rows have. `meet` is where all of
    /// them meet.
    pub(super) fn merge(&self, warp: Val<'k, u32>, meet: impl Fn()) {
        let shape = MergeShape {
            down: self.shape.down,
            across: self.shape.across(),
        };
        merge(&self.k, shape, warp, &self.softmax, &self.results, meet);
    }

    /// Normalises, and writes results and log-sum-exps of a whole tile. For warps
    /// that have all of their rows.
    pub(super) fn store<O: Element>(
        &self,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'_, 'k>,
        part: &Part<'k>,
    ) {
        let k = self.k;
        self.normalise(args, scores, part);
        let rows = part.rows(args.group);
        self.each_row(|row, state, values| {
            k.if_(row.lt(rows), || {
                let (at, lse) = part.result(args, row);
                k.if_((k.lane() & 3).eq(0), || {
                    args.lse.at(lse).store(state.log_sum());
                });
                match self.shape.output {
                    Output::Same => self.narrow::<O>(args.out.cast::<O>().at(at), values),
                    Output::F32 => self.wide(args.out.cast::<f32>().at(at), values),
                }
            });
        });
    }

    /// Normalises, and writes results and log-sum-exps of a part of a tile to a slot.
    pub(super) fn store_part(
        &self,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'_, 'k>,
        part: &Part<'k>,
        slot: Val<'k, u32>,
    ) {
        let (k, dim) = (self.k, self.shape.head_dim);
        self.normalise(args, scores, part);
        let rows = part.rows(args.group);
        let first = slot * self.shape.rows();
        self.each_row(|row, state, values| {
            k.if_(row.lt(rows), || {
                let number = first + row;
                k.if_((k.lane() & 3).eq(0), || {
                    args.partial_lse.at(number).store(state.log_sum());
                });
                self.wide(args.partial.at(number.mul_wide(dim)), values);
            });
        });
    }

    fn normalise(&self, args: &DecodeArgs<On<'k>>, scores: &Scores<'_, 'k>, part: &Part<'k>) {
        self.softmax.finish();
        if scores.scoring.sinks {
            let own = part.first_row + self.row + Accumulator::row(&self.k);
            // Once for a tile: with its first key block.
            let first = part.unit.eq(part.tile_unit);
            self.softmax.add_sinks(&self.results, |m, at| {
                let head = part.head(args, own + (16 * m + 8 * at) as u32);
                let none = self.k.c(f32::NEG_INFINITY);
                first.select(scores.sink(head).unwrap_or(none), none)
            });
        }
        for (m, rows) in self.softmax.rows.iter().enumerate() {
            let factor = |row: &Row<'k>| match self.value_scale {
                None => row.normaliser(),
                Some(scale) => row.normaliser() * scale,
            };
            scale_rows(&self.results, m, [factor(&rows[0]), factor(&rows[1])]);
        }
    }

    /// Stores what this lane has of a row, rounded.
    fn narrow<O: Element>(&self, to: Ptr<'k, Global, O>, values: &[[Val<'k, f32>; 2]]) {
        match self.shape.cache {
            Cache::Same | Cache::Latent => {
                store_rounded(to.at(Accumulator::col(&self.k)), values);
            }
            Cache::E4m3 => {
                let to = to.at((self.k.lane() & 3) * 4);
                for (n, [a, b, c, d]) in in_order(values).into_iter().enumerate() {
                    let pairs = [Val::pack_as::<O>(a, b), Val::pack_as::<O>(c, d)];
                    to.at(16 * n).cast::<O::Pair>().store_vec(pairs);
                }
            }
        }
    }

    /// The same in f32.
    fn wide(&self, to: Ptr<'k, Global, f32>, values: &[[Val<'k, f32>; 2]]) {
        match self.shape.cache {
            Cache::Same | Cache::Latent => {
                store_pairs(to.at(Accumulator::col(&self.k)), values);
            }
            Cache::E4m3 => {
                let to = to.at((self.k.lane() & 3) * 4);
                for (n, four) in in_order(values).into_iter().enumerate() {
                    to.at(16 * n).store_vec(four);
                }
            }
        }
    }

    /// Calls `each` with every row of the tile that this lane has results of.
    fn each_row(
        &self,
        each: impl Fn(Val<'k, u32>, &crate::attention::softmax::Row<'k>, &[[Val<'k, f32>; 2]]),
    ) {
        let k = self.k;
        let (_, cols) = self.results.shape();
        for (m, states) in self.softmax.rows.iter().enumerate() {
            let blocks: Vec<_> = (0..cols)
                .filter_map(|n| self.results.block(m, n))
                .map(|block| block.get())
                .collect();
            for (half, state) in states.iter().enumerate() {
                let row = self.row + Accumulator::row(&k) + (16 * m + 8 * half) as u32;
                let values: Vec<_> = blocks
                    .iter()
                    .map(|sums| [sums[2 * half], sums[2 * half + 1]])
                    .collect();
                each(row, state, &values);
            }
        }
    }
}

/// Stores neighbours, each two 8 elements further than the ones before, rounded.
pub(super) fn store_rounded<'k, O: Element>(to: Ptr<'k, Global, O>, pairs: &[[Val<'k, f32>; 2]]) {
    for (n, [left, right]) in pairs.iter().enumerate() {
        let packed = Val::pack_as::<O>(*left, *right);
        to.at(8 * n).cast::<O::Pair>().store(packed);
    }
}

/// The same in f32.
pub(super) fn store_pairs<'k>(to: Ptr<'k, Global, f32>, pairs: &[[Val<'k, f32>; 2]]) {
    for (n, pair) in pairs.iter().enumerate() {
        to.at(8 * n).store_vec(*pair);
    }
}

/// The results of a row in the order of their elements: from pairs that are even and odd elements of 16
/// to four neighbours, `4 * (lane % 4)` from each multiple of 16 on.
fn in_order<'k>(values: &[[Val<'k, f32>; 2]]) -> Vec<[Val<'k, f32>; 4]> {
    let pairs = values.chunks_exact(2);
    pairs
        .map(|pair| [pair[0][0], pair[1][0], pair[0][1], pair[1][1]])
        .collect()
}

/// Adds the products of all row blocks with two neighbouring columns of blocks.
fn multiply<'k, T: Element>(
    sums: &WarpTile<'k>,
    pair: u32,
    left: &[FragmentA<'k, T>],
    right: &[heist_builder::FragmentB<'k, T>; 2],
) {
    for (m, left) in left.iter().enumerate() {
        for (n, right) in right.iter().enumerate() {
            if let Some(block) = sums.block(m, 2 * pair as usize + n) {
                block.mma(left, right);
            }
        }
    }
}
