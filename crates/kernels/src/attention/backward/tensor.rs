//! The main kernel on `mma.sync`, for every GPU from sm_80 on.
//!
//! Each of four warps has 16 keys of the tile. Scores are worked out transposed, keys
//! down and queries across, so that weights and their gradients come out as the left
//! operands of dV and dK and never leave the registers; for dQ, which sums over keys
//! of all warps, the gradients of the scores go through shared memory once.

use super::BackwardArgs;
use super::changed::{Change, Changed};
use super::numbers::Sequences;
use super::problem::Sums;
use super::reach::Reach;
use crate::attention::mask::MaskArgs;
use crate::attention::params::Element;
use crate::attention::problem::{Dtype, MaskKind};
use crate::attention::score::{PairColumns, PairElement};
use heist_builder::{
    ASource, Accumulator, Arch, ArraySpec, BSource, BuildError, FillArray, FillTile, FragmentA,
    FragmentB, Global, Kernel, On, Ptr, SharedArray, SharedTile, TileLayout, TileSpec, Val,
    WarpTile, bf16, f16,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tiled, TiledKernel};

/// What a kernel is built for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TensorShape {
    pub(super) head_dim: u32,
    pub(super) dtype: Dtype,
    pub(super) mask: MaskKind,
    pub(super) ragged: bool,
    pub(super) sums: Sums,
    /// What a mask of pairs is made of, where there is one.
    pub(super) pairs: Option<PairElement>,
    pub(super) change: Option<Change>,
}

/// Warps of a block.
const WARPS: u32 = 4;
/// Keys of a tile: 16 to a warp.
pub(super) const KEYS: u32 = 16 * WARPS;
/// Stages of queries and gradients.
const STAGES: u32 = 2;

impl TensorShape {
    /// Queries of a block: as many as leave registers for the gradients, and for what a change of scores takes.
    pub(super) fn queries(&self) -> u32 {
        match self.head_dim <= 64 && self.change.is_none() {
            true => 64,
            false => 32,
        }
    }

    /// Warps that share rows of a block's dQ.
    fn turns(&self) -> u32 {
        WARPS / (self.queries() / 16)
    }

    fn tile<T: Element>(&self, name: &'static str, rows: u32) -> TileSpec<'static, T> {
        TileSpec::new(name, rows, self.head_dim, padded(self.head_dim))
    }
}

/// Rows an odd number of 16 bytes apart: no two lanes of a load meet in a bank, and all
/// columns have one address, which is what registers are dear for.
fn padded(cols: u32) -> TileLayout {
    TileLayout::Padded(if (cols / 8).is_multiple_of(2) { 8 } else { 0 })
}

/// Builds the kernel: tiles of keys along x, key heads along y, sequences along z.
pub(super) fn build(
    shape: TensorShape,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<BackwardArgs>, BuildError> {
    // Some grid with three axes: the launch has the real one.
    Tiled::<BackwardArgs>::new("attention_backward", Dim3::new(2, 2, 2))
        .schedule(schedule)
        .block(32 * WARPS)
        .build(arch, |k, args, tiles| {
            k.keep_arithmetic_in_loops();
            tiles.each(|tile| match shape.dtype {
                Dtype::F16 => emit::<f16>(k, &args, shape, &tile),
                Dtype::Bf16 => emit::<bf16>(k, &args, shape, &tile),
            })
        })
}

/// Where a tile is.
#[derive(Clone, Copy)]
struct KeyTile<'k> {
    reach: Reach<'k>,
    /// The first element of the tile's keys.
    keys: Val<'k, u64>,
    /// The first element of the sequence's queries, in the first head of the group.
    queries: Val<'k, u64>,
    /// The number of the sequence's first row in that head.
    row_number: Val<'k, u32>,
    /// The sequence.
    sequence: Val<'k, u32>,
    /// The first head of the group.
    query_head: Val<'k, u32>,
}

impl<'k> KeyTile<'k> {
    fn of(
        args: &BackwardArgs<On<'k>>,
        shape: &TensorShape,
        tile: &heist_sched::Tile<'k>,
    ) -> KeyTile<'k> {
        let (sequence, head) = (tile.z, tile.y);
        let first_key = (tile.x * KEYS).named("first_key");
        let of = Sequences {
            ragged: shape.ragged,
            height: shape.queries(),
            q_starts: args.q_starts,
            k_starts: args.k_starts,
            q_len: args.q_len,
            k_len: args.k_len,
            number_batch: args.number_batch,
        }
        .get(sequence);
        let mask = MaskArgs {
            kind: shape.mask,
            left: args.left,
            right: args.right,
            prefix: None,
        };
        let query_head = head * args.group;
        KeyTile {
            reach: Reach::new(first_key, KEYS, [of.queries, of.keys], mask),
            keys: sequence.mul_wide(args.k_batch)
                + (of.k_start + first_key).mul_wide(args.k_row)
                + head.mul_wide(args.k_head),
            queries: sequence.mul_wide(args.q_batch)
                + of.q_start.mul_wide(args.q_row)
                + query_head.mul_wide(args.q_head),
            row_number: of.number + query_head * args.number_head,
            sequence,
            query_head,
        }
    }

    /// The changes of the scores of a block of queries; `row` is the warp's first key in the tile.
    fn changed(
        &self,
        args: &BackwardArgs<On<'k>>,
        shape: &TensorShape,
        block: QueryBlock<'k>,
        row: Val<'k, u32>,
    ) -> Option<Changed<'k>> {
        let after = || self.reach.after(row, block.first);
        let change = shape.change?;
        Some(change.of_head(args.scale, args.slopes, self.query_head + block.head, after))
    }

    /// The mask of pairs of a head of the group.
    fn pairs(
        &self,
        args: &BackwardArgs<On<'k>>,
        element: PairElement,
        head: Val<'k, u32>,
    ) -> PairColumns<'k> {
        let first = self.sequence.mul_wide(args.pairs_sequence)
            + (self.query_head + head).mul_wide(args.pairs_head);
        PairColumns {
            element,
            first: element.at(args.pairs, first),
            row: args.pairs_row,
            queries: self.reach.queries,
            keys: self.reach.keys,
        }
    }
}

/// Where the rows of a tile are, in shared memory: registers are dear while queries are gone through.
struct SetAside<'k> {
    places: SharedArray<'k, u64>,
    numbers: SharedArray<'k, u32>,
}

impl<'k> SetAside<'k> {
    /// Puts it there. A barrier must follow before it is taken, and one after that before the next tile's.
    fn new(k: &Kernel<'k>, place: &KeyTile<'k>) -> Self {
        let aside = SetAside {
            places: k.shared("places", 2),
            numbers: k.shared("numbers", 2),
        };
        k.one_thread(|| {
            aside.places.at(0).store(place.keys);
            aside.places.at(1).store(place.queries);
            aside.numbers.at(0).store(place.row_number);
            aside.numbers.at(1).store(place.reach.first_key);
        });
        aside
    }

    /// Takes it back, for a moment.
    fn take(&self, place: KeyTile<'k>) -> KeyTile<'k> {
        KeyTile {
            keys: self.places.at(0).load(),
            queries: self.places.at(1).load(),
            row_number: self.numbers.at(0).load(),
            reach: place.reach.from(self.numbers.at(1).load()),
            ..place
        }
    }
}

/// A block of queries: of which head, and from which row on.
#[derive(Clone, Copy)]
struct QueryBlock<'k> {
    /// The head, in its group.
    head: Val<'k, u32>,
    /// Its first query, in the sequence.
    first: Val<'k, u32>,
}

/// One tile.
fn emit<'k, T: Element>(
    k: &Kernel<'k>,
    args: &BackwardArgs<On<'k>>,
    shape: TensorShape,
    tile: &heist_sched::Tile<'k>,
) {
    let place = KeyTile::of(args, &shape, tile);
    let reach = place.reach;
    k.if_(reach.first_key.lt(reach.keys), || {
        let height = shape.queries();
        let specs = (shape.tile::<T>("k", KEYS), shape.tile::<T>("v", KEYS));
        let kv = k.copy_once(specs, |(to_k, to_v)| {
            let inside = Some(reach.keys - reach.first_key);
            for (to, from) in [(to_k, args.k), (to_v, args.v)] {
                to.copy_rows(from.cast::<T>().at(place.keys), args.k_row, inside);
            }
        });
        let blocks = reach.blocks(height);
        let aside = SetAside::new(k, &place);
        let block = |index: Val<'k, u32>| {
            let head = index / blocks.count;
            QueryBlock {
                head,
                first: (blocks.begin + (index - head * blocks.count)) * height,
            }
        };
        let specs = (
            shape.tile::<T>("q", height),
            shape.tile::<T>("d_out", height),
            ArraySpec::<f32>::new("rows", ROW_NUMBERS * height),
        );
        let pipeline = k.copy_pipeline_of(STAGES, specs);
        let (keys, values) = kv.wait();
        let work = Work::new(k, args, shape, &keys, &values);
        pipeline.run(
            args.group * blocks.count,
            |index, to| copy(k, args, &shape, &aside.take(place), block(index), to),
            |index, (queries, d_out, rows)| {
                let block = block(index);
                let place = aside.take(place);
                let reach = place.reach;
                let scores = work.score(&queries);
                if let Some(element) = shape.pairs {
                    let pairs = place.pairs(args, element, block.head);
                    pairs.change(
                        &scores,
                        args.scale,
                        [reach.first_key + work.row, block.first],
                    );
                }
                let changed = place.changed(args, &shape, block, work.row);
                if let Some(changed) = &changed {
                    changed.change(&scores);
                }
                k.if_(!reach.whole(block.first, height), || {
                    reach.hide_masked(&scores, work.row, block.first);
                });
                work.weigh(&scores, &rows);
                work.add_values(&scores, &d_out);
                let d_scores = work.d_scores(&scores, &d_out, &rows, changed.as_ref());
                work.add_keys(&d_scores, &queries);
                k.sync();
                let number = place.row_number + block.head * args.number_head + block.first;
                work.add_queries(&rows, number);
            },
        );
        k.comment("store");
        let place = aside.take(place);
        let reach = place.reach;
        let inside = reach.keys - reach.first_key;
        let scale = args.scale;
        let to = |to: Ptr<'k, Global, u16>| (to.cast::<T>().at(place.keys), args.k_row);
        work.store(to(args.dk), &work.dk, scale, inside);
        work.store(to(args.dv), &work.dv, k.c(1.0), inside);
    });
}

/// Numbers of each query row: level, delta, and the step of a fixed-point sum.
const ROW_NUMBERS: u32 = 3;

/// Starts copying a block of queries, their gradients and their numbers.
fn copy<'k, T: Element>(
    k: &Kernel<'k>,
    args: &BackwardArgs<On<'k>>,
    shape: &TensorShape,
    place: &KeyTile<'k>,
    block: QueryBlock<'k>,
    (to_q, to_d, to_rows): (FillTile<'k, T>, FillTile<'k, T>, FillArray<'k, f32>),
) {
    let height = shape.queries();
    let inside = place.reach.queries - block.first;
    let from = place.queries + block.first.mul_wide(args.q_row) + block.head.mul_wide(args.q_head);
    to_q.copy_rows(args.q.cast::<T>().at(from), args.q_row, Some(inside));
    to_d.copy_rows(args.d_out.cast::<T>().at(from), args.q_row, Some(inside));
    let number = place.row_number + block.head * args.number_head + block.first;
    let numbers: &[Ptr<'k, Global, f32>] = match shape.sums {
        Sums::Float => &[args.level, args.delta],
        Sums::Fixed => &[args.level, args.delta, args.step],
    };
    let row = k.thread_index() * 4;
    k.if_(row.lt(height), || {
        for (which, from) in numbers.iter().enumerate() {
            to_rows.copy::<16>(row + which as u32 * height, from.at(number + row));
        }
    });
}

/// What a warp has of a tile.
struct Work<'k, T: Element> {
    k: Kernel<'k>,
    shape: TensorShape,
    sums: Ptr<'k, Global, f32>,
    /// What makes exponents of two of products, or of what a mask or a change has made of them.
    scale: Val<'k, f32>,
    /// The warp's first key in the tile.
    row: Val<'k, u32>,
    keys: ASource<'k, T>,
    values: ASource<'k, T>,
    /// The keys once more, as the right operand of dQ, from the warp's columns on.
    key_columns: BSource<'k, T>,
    /// Gradients of the scores: keys down, queries across.
    stage: SharedTile<'k, T>,
    /// The warp's part of a block's dQ: its first row, and which turn of columns.
    part: [Val<'k, u32>; 2],
    dk: WarpTile<'k>,
    dv: WarpTile<'k>,
}

impl<'k, T: Element> Work<'k, T> {
    fn new(
        k: &Kernel<'k>,
        args: &BackwardArgs<On<'k>>,
        shape: TensorShape,
        keys: &SharedTile<'k, T>,
        values: &SharedTile<'k, T>,
    ) -> Self {
        let row = k.warp() * 16;
        let stage = TileSpec::new("d_scores", KEYS, shape.queries(), padded(shape.queries()));
        let down = shape.queries() / 16;
        let warp = k.warp_uniform();
        let part = [(warp % down) * 16, warp / down];
        let sums = || WarpTile::zero(k, 1, (shape.head_dim / 8) as usize);
        Work {
            k: *k,
            shape,
            sums: args.sums,
            scale: match (shape.change, shape.pairs) {
                (None, None) => args.scale * std::f32::consts::LOG2_E,
                (None, Some(_)) => k.c(std::f32::consts::LOG2_E),
                (Some(_), _) => k.c(1.0),
            },
            row,
            keys: keys.a_rows(row),
            values: values.a_rows(row),
            key_columns: keys.b_columns(part[1] * 16),
            stage: k.tile(stage),
            part,
            dk: sums(),
            dv: sums(),
        }
    }

    /// The product of a warp's rows with all rows of another tile.
    fn product(&self, left: &ASource<'k, T>, right: &SharedTile<'k, T>) -> WarpTile<'k> {
        let height = self.shape.queries();
        let product = WarpTile::zero(&self.k, 1, (height / 8) as usize);
        let right = right.b_rows(0);
        for step in 0..self.shape.head_dim / 16 {
            let left = left.fragment(0, step);
            for pair in 0..height / 16 {
                multiply(&product, pair, &left, &right.fragments(pair, step));
            }
        }
        product
    }

    /// The scores of a block of queries, unscaled and transposed.
    fn score(&self, queries: &SharedTile<'k, T>) -> WarpTile<'k> {
        self.product(&self.keys, queries)
    }

    /// Turns scores into weights.
    fn weigh(&self, scores: &WarpTile<'k>, rows: &SharedArray<'k, f32>) {
        self.each_column(scores, rows, 0, |values, levels| {
            let levels = [levels[0], levels[1], levels[0], levels[1]];
            let mut at = 0;
            values.map(|value| {
                let level = levels[at];
                at += 1;
                value.mul_add(self.scale, -level).exp2_approx()
            })
        });
    }

    /// Changes every block of 8 queries, with two of the rows' numbers `which`.
    fn each_column(
        &self,
        tile: &WarpTile<'k>,
        rows: &SharedArray<'k, f32>,
        which: u32,
        change: impl Fn([Val<'k, f32>; 4], [Val<'k, f32>; 2]) -> [Val<'k, f32>; 4],
    ) {
        let first = which * self.shape.queries();
        let col = Accumulator::col(&self.k);
        for n in 0..tile.shape().1 {
            if let Some(block) = tile.block(0, n) {
                let numbers = rows.at(col + (first + 8 * n as u32)).load_vec::<2>();
                block.set(change(block.get(), numbers));
            }
        }
    }

    /// dV += P^T dO.
    fn add_values(&self, weights: &WarpTile<'k>, d_out: &SharedTile<'k, T>) {
        self.accumulate(&self.dv, weights, d_out);
    }

    /// The gradients of the scores, in registers, and in shared memory for all.
    fn d_scores(
        &self,
        weights: &WarpTile<'k>,
        d_out: &SharedTile<'k, T>,
        rows: &SharedArray<'k, f32>,
        changed: Option<&Changed<'k>>,
    ) -> WarpTile<'k> {
        let d_scores = self.product(&self.values, d_out);
        self.each_column(&d_scores, rows, 1, |[a, b, c, d], delta| {
            [a - delta[0], b - delta[1], c - delta[0], d - delta[1]]
        });
        for n in 0..d_scores.shape().1 {
            let blocks = (d_scores.block(0, n), weights.block(0, n));
            if let (Some(block), Some(weights)) = blocks {
                let ([a, b, c, d], [p, q, r, s]) = (block.get(), weights.get());
                block.set([a * p, b * q, c * r, d * s]);
            }
        }
        if let Some(changed) = changed {
            changed.through(&d_scores, weights, rows);
        }
        // One address a row, with offsets: the assembler keeps one for each pair else, and spills.
        d_scores.each_row(|row, col, pairs| {
            let to = self.stage.at(self.row + row, col);
            for (n, [a, b]) in pairs.iter().enumerate() {
                let pair = Val::pack_as::<T>(*a, *b);
                to.at(8 * n).cast::<T::Pair>().store(pair);
            }
        });
        d_scores
    }

    /// dK += dS^T Q.
    fn add_keys(&self, d_scores: &WarpTile<'k>, queries: &SharedTile<'k, T>) {
        self.accumulate(&self.dk, d_scores, queries);
    }

    /// Adds the product of a warp's weights, rounded, and rows of a block of queries.
    fn accumulate(&self, sums: &WarpTile<'k>, left: &WarpTile<'k>, right: &SharedTile<'k, T>) {
        let right = right.b_columns(0);
        for step in 0..self.shape.queries() / 16 {
            let n = 2 * step as usize;
            let (Some(a), Some(b)) = (left.block(0, n), left.block(0, n + 1)) else {
                continue;
            };
            let left = FragmentA::from_accumulators(a.get(), b.get());
            for pair in 0..self.shape.head_dim / 16 {
                multiply(sums, pair, &left, &right.fragments(pair, step));
            }
        }
    }

    /// Adds the block's dS K to the sums of its rows, from `number` on. Warps with the
    /// same rows take 16 columns in turns.
    fn add_queries(&self, rows: &SharedArray<'k, f32>, number: Val<'k, u32>) {
        let k = self.k;
        let [row, turn] = self.part;
        let (all, turns) = (self.shape.head_dim / 16, self.shape.turns());
        let left = self.stage.a_columns(row);
        let left: Vec<_> = (0..KEYS / 16).map(|step| left.fragment(0, step)).collect();
        let first = self.sums.at(number.mul_wide(self.shape.head_dim));
        let to = first.at((row + Accumulator::row(&k))
            .mul_add(self.shape.head_dim, turn.mul_add(16, Accumulator::col(&k))));
        for pair in 0..all.div_ceil(turns) {
            // The last turn may be one warp's and not the other's.
            let has = k.c((pair + 1) * turns <= all) | (turn + pair * turns).lt(all);
            k.if_(has, || {
                let product = WarpTile::zero(&k, 1, 2);
                for (step, left) in left.iter().enumerate() {
                    let right = self.key_columns.fragments(pair * turns, step as u32);
                    multiply(&product, 0, left, &right);
                }
                self.add(to.at(pair * turns * 16), &product, rows, row);
            });
        }
    }

    /// Adds 16 x 16 numbers to the sums. `row` is their first row in the block.
    fn add(
        &self,
        to: Ptr<'k, Global, f32>,
        product: &WarpTile<'k>,
        rows: &SharedArray<'k, f32>,
        row: Val<'k, u32>,
    ) {
        product.each_row(|down, _, pairs| {
            let below = down - Accumulator::row(&self.k);
            let to = to.at(below * self.shape.head_dim);
            for (at, value) in pairs.iter().flatten().enumerate() {
                let to = to.at(8 * (at / 2) + at % 2);
                match self.shape.sums {
                    Sums::Float => to.reduce_add(*value),
                    Sums::Fixed => {
                        let step = rows.at(row + down + 2 * self.shape.queries()).load();
                        to.cast::<i32>().reduce_add((*value * step).nearest());
                    }
                }
            }
        });
    }

    /// Stores a gradient of the warp's keys, of which `inside` are there from the
    /// tile's first on.
    fn store(
        &self,
        (to, pitch): (Ptr<'k, Global, T>, Val<'k, u32>),
        sums: &WarpTile<'k>,
        factor: Val<'k, f32>,
        inside: Val<'k, u32>,
    ) {
        sums.each_row(|down, across, pairs| {
            let row = self.row + down;
            self.k.if_(row.lt(inside), || {
                let to = to.at(row.mul_add(pitch, across));
                for (n, [a, b]) in pairs.iter().enumerate() {
                    let pair = Val::pack_as::<T>(*a * factor, *b * factor);
                    to.at(8 * n).cast::<T::Pair>().store(pair);
                }
            });
        });
    }
}

/// Adds the product with two neighbouring right fragments.
fn multiply<'k, T: Element>(
    sums: &WarpTile<'k>,
    pair: u32,
    left: &FragmentA<'k, T>,
    right: &[FragmentB<'k, T>; 2],
) {
    for (n, right) in right.iter().enumerate() {
        if let Some(block) = sums.block(0, 2 * pair as usize + n) {
            block.mma(left, right);
        }
    }
}
