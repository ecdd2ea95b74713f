//! The mainloop and epilogue of a warp over the rows of a tile: scores, softmax, weighted values,
//! results.

use super::DecodeArgs;
use super::merge::{Columns, Merge};
use super::shape::{DecodeShape, PANEL};
use super::work::Part;
use crate::attention::cache::Cache;
use crate::attention::epilogue::MergeShape;
use crate::attention::mask::{KeyOrder, KeyRange, hide_masked_in};
use crate::attention::params::Element;
use crate::attention::problem::Output;
use crate::attention::score::{Rules, ScoreRow, Scores, modify};
use crate::attention::softmax::{Row, Softmax};
use heist_builder::{
    ASource, Accumulator, FragmentA, Global, Kernel, On, Ptr, SharedTile, Val, WarpTile, f16,
};

/// The part of a tile that is one warp's: some of its rows, some of its keys.
pub(super) struct Rows<'k, T: Element> {
    k: Kernel<'k>,
    shape: DecodeShape,
    /// The warp's first row in the tile.
    row: Val<'k, u32>,
    /// The warp's first key in a stage.
    col: Val<'k, u32>,
    /// The first panel of a stage that has elements of the warp's key head, and the piece of 16
    /// bytes of that panel that they begin with.
    panel: Val<'k, u32>,
    chunk: Val<'k, u32>,
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
struct Queries<'k, T: Element> {
    /// In registers, those of the first 16 rows, one for each 16 elements; none where [`DecodeShape::keeps_queries`] says so.
    kept: Vec<FragmentA<'k, T>>,
    /// In shared memory, from where the others are loaded again for each stage.
    source: ASource<'k, T>,
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
    let chunks = queries.chunks();
    let total = queries.rows() * chunks;
    for trip in 0..total.div_ceil(threads) {
        let index = thread + trip * threads;
        let (row, chunk) = (index / chunks, index % chunks);
        let whole = (trip + 1) * threads <= total;
        k.if_(k.c(whole) | index.lt(total), || {
            let words = [(); 4].map(|()| k.var(0u32));
            k.if_(part.has(args, row), || {
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

/// Brings the queries of a tile into the L2 cache, and the factors of its keys and values. This reads nothing, so the launch before may
/// still write them.
pub(super) fn prefetch_queries<'k>(
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
) {
    let k = args.scale.kernel();
    // Elements of a line of 128 bytes.
    let lines = shape.head_dim.div_ceil(64);
    let (row, line) = (k.thread_index() / lines, k.thread_index() % lines);
    k.if_(row.lt(shape.rows()) & part.has(args, row), || {
        args.q.at(part.query(args, row)).at(line * 64).prefetch();
    });
    if shape.cache == Cache::E4m3 {
        k.if_(k.thread_index().eq(0), || {
            let head = part.key_head(k.c(0));
            for scales in [args.k_scale, args.v_scale] {
                scales.at(head).prefetch();
            }
        });
    }
}

/// The first row of the tile that a warp has.
fn first_row<'k>(shape: &DecodeShape, warp: Val<'k, u32>) -> Val<'k, u32> {
    warp % shape.down * (16 * shape.row_blocks)
}

/// The factors of the keys and values of a warp's rows, where these have 8 bits: asked for before the warps meet, so that nobody waits for them.
pub(super) fn scales<'k>(
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    warp: Val<'k, u32>,
) -> Option<[Val<'k, f32>; 2]> {
    match shape.cache {
        Cache::Same | Cache::Latent => None,
        Cache::E4m3 => {
            let head = part.key_head(first_row(shape, warp));
            Some([args.k_scale, args.v_scale].map(|scales| scales.at(head).load()))
        }
    }
}

impl<'k, T: Element> Rows<'k, T> {
    /// Of warp number `warp`, with the factors of its keys and values, over queries that lie in shared memory.
    pub(super) fn new(
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'_, 'k>,
        part: &Part<'k>,
        queries: &SharedTile<'k, T>,
        (warp, scales): (Val<'k, u32>, Option<[Val<'k, f32>; 2]>),
    ) -> Self {
        let row = first_row(shape, warp);
        let across = warp / shape.down;
        let source = queries.a_rows(row);
        let steps = match shape.keeps_queries(scores.scoring) {
            true => 0..shape.head_dim / 16,
            false => 0..0,
        };
        let queries = Queries {
            kept: steps.map(|step| source.fragment(0, step)).collect(),
            source,
        };
        let mask = part.sequence.mask(shape, args);
        let [head, head_row] = part.own(row);
        let piece = head * shape.head_chunks();
        let own = part.first_row + head_row + Accumulator::row(k);
        let query = |down: u32| part.query_number(args, own + down);
        let seen =
            (0..shape.row_blocks).map(|m| [0, 8].map(|down| mask.seen_by(query(16 * m + down))));
        let rule = |down: u32| {
            scores.rules(|tables| ScoreRow {
                sequence: part.sequence.number,
                head: part.head(args, row + Accumulator::row(k) + down),
                position: mask.position(query(down)),
                keys: part.sequence.keys,
                shift: mask.shift(),
                first_key: match shape.ragged() {
                    true => part.sequence.k_start,
                    false => part.sequence.number * args.k_len,
                },
                tables,
            })
        };
        let rules = |m: u32| Some([rule(16 * m)?, rule(16 * m + 8)?]);
        let (scale, value_scale) = match scales {
            None => (args.scale, None),
            Some([key, value]) => (args.scale * key, Some(value)),
        };
        Rows {
            k: *k,
            shape: *shape,
            row,
            col: across * shape.cols(),
            panel: piece / 8,
            chunk: piece % 8,
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

    /// The row of a stage that the warp's first key is in.
    pub(super) fn first_row(&self) -> Val<'k, u32> {
        match self.shape.twins {
            false => self.shape.row_of(self.col),
            true => self.col / 2,
        }
    }

    /// The first panel of a stage that has elements of the warp's key head.
    pub(super) fn panel(&self) -> Val<'k, u32> {
        self.panel
    }

    /// The piece of 16 bytes of that panel that they begin with.
    pub(super) fn chunk(&self) -> Val<'k, u32> {
        self.chunk
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
        let scores = WarpTile::zero(&k, 1, (shape.cols() / 8) as usize);
        let first_row = self.first_row() + self.panel * shape.panel_rows();
        // Counted in 16 rows of a stage.
        let place = |number: u32, panel: u32| {
            (shape.place_of_keys(number).0 + panel * shape.panel_rows()) / 16
        };
        let keys = stage.b_rows(first_row);
        for panel in 0..shape.head_panels() {
            for step in 0..shape.steps(panel) {
                let left = self.queries(0, panel * (PANEL / 16) + step);
                for pair in 0..shape.cols() / 16 {
                    let right = keys.fragments(place(pair, panel), step);
                    multiply(&scores, pair, &left, &right);
                }
            }
        }
        self.admit(&scores, first, masked);
        let values = stage.b_columns_from(first_row + shape.panels() * shape.keys, 0);
        for step in 0..shape.cols() / 16 {
            let weights = self
                .softmax
                .weights(&scores, 0, step as usize, shape.weights);
            let weights: Vec<FragmentA<'k, T>> = weights.unwrap_or_default();
            for panel in 0..shape.head_panels() {
                for pair in 0..shape.steps(panel) {
                    let right = values.fragments(pair, place(step, panel));
                    for left in &weights {
                        multiply(&self.results, panel * (PANEL / 16) + pair, left, &right);
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
        let order = match self.shape.twins {
            false => KeyOrder::Rising,
            true => KeyOrder::EvenThenOdd,
        };
        let hide = || hide_masked_in(scores, &self.seen, first + self.col, order);
        self.k.if_(masked, hide);
        self.softmax.admit(scores, &self.results);
    }

    /// The left fragment of a block of 16 rows and 16 elements.
    pub(super) fn queries(&self, block: u32, step: u32) -> FragmentA<'k, T> {
        match self.queries.kept.get(step as usize) {
            Some(&kept) if block == 0 => kept,
            _ => self.queries.source.fragment(block, step),
        }
    }

    /// Brings together what warps with the same rows have, normalises it, and writes results and log-sum-exps: of a whole
    /// tile, or of a part of one to a slot. `meet` is where all warps meet; `lent` is a stage that nothing is copied to.
    pub(super) fn merge_and_store<O: Element>(
        &self,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'_, 'k>,
        part: &Part<'k>,
        (warp, slot): (Val<'k, u32>, Val<'k, u32>),
        lent: Option<&SharedTile<'k, f16>>,
        meet: impl Fn(),
    ) {
        let shape = MergeShape {
            down: self.shape.down,
            across: self.shape.across(),
        };
        let own = (&self.softmax, &self.results);
        let merge = Merge::new(&self.k, shape, warp, own, (lent, self.shape.merge_rounds()));
        let normalisers = || self.normalisers(args, scores, part);
        merge.merge(meet, normalisers, |columns, normalisers| {
            self.k.if_else(
                part.whole(),
                || self.store::<O>(args, part, columns, normalisers),
                || self.store_part(args, part, slot, columns, normalisers),
            );
        });
    }

    /// Writes results and log-sum-exps of a whole tile.
    fn store<O: Element>(
        &self,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        columns: &Columns<'k>,
        normalisers: &[[Val<'k, f32>; 2]],
    ) {
        let k = self.k;
        let first = columns.first;
        self.each_row(columns, normalisers, |row, state, values| {
            k.if_(part.has(args, row), || {
                let (at, lse) = part.result(args, row);
                k.if_(first.eq(0) & (k.lane() & 3).eq(0), || {
                    args.lse.at(lse).store(state.log_sum());
                });
                match self.shape.output {
                    Output::Same => self.narrow::<O>(args.out.cast::<O>().at(at).at(first), values),
                    Output::F32 => self.wide(args.out.cast::<f32>().at(at).at(first), values),
                }
            });
        });
    }

    /// Writes results and log-sum-exps of a part of a tile to a slot.
    fn store_part(
        &self,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        slot: Val<'k, u32>,
        columns: &Columns<'k>,
        normalisers: &[[Val<'k, f32>; 2]],
    ) {
        let (k, dim) = (self.k, self.shape.head_dim);
        let (first_row, first) = (slot * self.shape.rows(), columns.first);
        self.each_row(columns, normalisers, |row, state, values| {
            k.if_(part.has(args, row), || {
                let number = first_row + row;
                k.if_(first.eq(0) & (k.lane() & 3).eq(0), || {
                    args.partial_lse.at(number).store(state.log_sum());
                });
                self.wide(args.partial.at(number.mul_wide(dim)).at(first), values);
            });
        });
    }

    /// Completes the levels and sums of the rows; what normalises the results of each.
    fn normalisers(
        &self,
        args: &DecodeArgs<On<'k>>,
        scores: &Scores<'_, 'k>,
        part: &Part<'k>,
    ) -> Vec<[Val<'k, f32>; 2]> {
        self.softmax.finish();
        let own = self.row + Accumulator::row(&self.k);
        // Once for a tile: with its first key block.
        let first = part.unit.eq(part.tile_unit);
        let rows = self.softmax.rows.iter().enumerate();
        rows.map(|(m, rows)| {
            [0, 1].map(|at| {
                let row = &rows[at];
                let raised = scores.scoring.sinks.then(|| {
                    let head = part.head(args, own + (16 * m + 8 * at) as u32);
                    let none = self.k.c(f32::NEG_INFINITY);
                    row.add_sink(first.select(scores.sink(head).unwrap_or(none), none))
                });
                let factor = raised.map_or(row.normaliser(), |raised| row.normaliser() * raised);
                match self.value_scale {
                    None => factor,
                    Some(scale) => factor * scale,
                }
            })
        })
        .collect()
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

    /// Calls `each` with every row of the tile that this lane has results of, and with those of some columns of 8, normalised.
    fn each_row(
        &self,
        columns: &Columns<'k>,
        normalisers: &[[Val<'k, f32>; 2]],
        each: impl Fn(Val<'k, u32>, &Row<'k>, &[[Val<'k, f32>; 2]]),
    ) {
        let k = self.k;
        for (m, states) in self.softmax.rows.iter().enumerate() {
            let blocks = &columns.blocks[m];
            for (half, state) in states.iter().enumerate() {
                let row = self.row + Accumulator::row(&k) + (16 * m + 8 * half) as u32;
                let factor = normalisers[m][half];
                let values: Vec<_> = blocks
                    .iter()
                    .map(|sums| [sums[2 * half] * factor, sums[2 * half + 1] * factor])
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

/// Adds the products with two neighbouring columns of blocks.
fn multiply<'k, T: Element>(
    sums: &WarpTile<'k>,
    pair: u32,
    left: &FragmentA<'k, T>,
    right: &[heist_builder::FragmentB<'k, T>; 2],
) {
    for (n, right) in right.iter().enumerate() {
        if let Some(block) = sums.block(0, 2 * pair as usize + n) {
            block.mma(left, right);
        }
    }
}
