//! What the row warps do with a tile: scores become weights, and results are stored. A thread has
//! one row of both.

use super::shape::{ROW_BYTES, ROW_WARPS, TensorShape};
use crate::attention::mask::KeyRange;
use crate::attention::panels::{Rows, Spec};
use crate::attention::params::Element;
use crate::attention::problem::{Output, Weights};
use crate::attention::score::{Rules, ScoreRow, Scores, modify_row};
use crate::attention::softmax::{Raise, Row};
use crate::attention::warpgroup::WarpgroupArgs;
use heist_builder::{
    AccumulatorReader, ChangingSums, Global, Kernel, LeftRows, LeftWriter, On, OneBlock, Ptr,
    SharedTile, Storable, TensorConsumer, TensorInput, TensorSums, TileLayout, TileSpec, Val, f16,
};
use heist_sched::Position;

/// The row warps' ends of the rings, which go on from tile to tile.
pub(super) struct RowWarps<'p, 't, 'k, T> {
    pub(super) k: Kernel<'k>,
    pub(super) shape: TensorShape,
    pub(super) scores: AccumulatorReader<'t, 'k>,
    pub(super) weights: LeftWriter<'t, 'k, T>,
    pub(super) results: AccumulatorReader<'t, 'k>,
    /// The stages of values, which are looked at where sequences are packed.
    pub(super) values: TensorConsumer<'p, 'k, Spec, OneBlock>,
    /// Where a warp's results become whole lines.
    pub(super) staging: SharedTile<'k, f16>,
    /// What a model adds.
    pub(super) changes: Scores<'p, 'k>,
}

/// Shared memory for [`RowWarps::staging`].
pub(super) fn staging<'k>(k: &Kernel<'k>) -> SharedTile<'k, f16> {
    let rows = ROW_WARPS * 32;
    let spec = TileSpec::new("staging", rows, ROW_BYTES / 2, TileLayout::Swizzled);
    let own = (k.warp_uniform() & (ROW_WARPS - 1)) * 32;
    k.tile(spec).rows_from(own, 32)
}

/// A thread's row of a tile.
struct OwnRow<'k> {
    state: Row<'k>,
    seen: KeyRange<'k>,
    /// What becomes of its scores, where something does.
    rules: Option<Rules<'k>>,
    /// What scores are multiplied with, by the rules and by the softmax.
    scale: Val<'k, f32>,
    factor: Val<'k, f32>,
}

impl<'k, T: Element + TensorInput<Stored = T>> RowWarps<'_, '_, 'k, T> {
    /// Everything that becomes of a tile's scores.
    pub(super) fn tile(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>, rows: &Rows<'k>) {
        let k = self.k;
        let own = self.own_row(args, tile, rows);
        rows.blocks.each(|number, masked| {
            let scores = self.scores.read(|sums| match self.shape.keys {
                128 => sums.load::<128>(0).wait().to_vec(),
                _ => sums.load::<64>(0).wait().to_vec(),
            });
            let scores = own.admitted(scores, masked, || rows.blocks.first_key(number));
            let raise = own.state.raise(highest(&k, &scores) * own.factor);
            k.if_(number.ne(rows.blocks.begin) & raise.over.any(), || {
                k.comment("results so far to the new levels");
                self.rescale(&raise);
            });
            self.clear_past_end(rows, number);
            self.weights.write(|to| self.weigh(&own, &scores, to));
        });
        self.finish(args, tile, rows, &own.state);
    }

    fn own_row(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        tile: &Position<'k>,
        rows: &Rows<'k>,
    ) -> OwnRow<'k> {
        let (k, mask) = (self.k, &rows.mask);
        let number = self.first_row() + k.lane();
        OwnRow {
            state: Row::new(&k),
            seen: mask.seen_by(number),
            rules: self.changes.rules(|tables| ScoreRow {
                sequence: tile.z,
                head: tile.y,
                position: mask.position(number),
                keys: mask.keys(),
                shift: mask.shift(),
                first_key: rows.sequence.first_key,
                tables,
            }),
            scale: args.scale,
            factor: self.changes.factor(args.scale),
        }
    }

    /// The warp's first row in a tile.
    fn first_row(&self) -> Val<'k, u32> {
        (self.k.warp_uniform() & (ROW_WARPS - 1)) * 32
    }

    /// Brings results to a level that was raised. Every earlier block's values have been weighed
    /// by then, and this block's come after.
    fn rescale(&self, raise: &Raise<'k>) {
        self.weights.when_multiplied(|done| {
            self.results.change(done, |sums| {
                let factor = raise.factor;
                match self.shape.head_dim.is_multiple_of(32) {
                    true => scale::<32>(sums, factor),
                    false => scale::<16>(sums, factor),
                }
            });
        });
    }

    /// Stores the weights of a block, in halves, and adds them to the row's sum.
    fn weigh(&self, own: &OwnRow<'k>, scores: &[Val<'k, f32>], to: &LeftRows<'_, 'k>) {
        let level = -own.state.level.get();
        let weight = |score: Val<'k, f32>| score.mul_add(own.factor, level).exp2_approx();
        let mut sums: Vec<Val<'k, f32>> = Vec::new();
        for (at, scores) in scores.as_chunks::<64>().0.iter().enumerate() {
            let weights = scores.map(weight);
            add_up(&mut sums, &weights);
            let first = 32 * at as u32;
            match self.shape.weights {
                Weights::Rounded => {
                    let words = pairs(&weights, |a, b| Val::pack_as::<T>(a, b).bitcast());
                    to.store(first, words);
                }
                Weights::Split => {
                    let terms = pairs(&weights, |a, b| Val::split_as::<T>(a, b));
                    to.store(first, terms.map(|[rounded, _]| rounded.bitcast()));
                    let rest = self.shape.keys / 2 + first;
                    to.store(rest, terms.map(|[_, rest]| rest.bitcast()));
                }
            }
        }
        for sum in sums {
            own.state.sum.update(|all| all + sum);
        }
    }

    /// Clears what the first block, which is the one with the last keys, has of the next
    /// sequence's values: a weight of zero times an infinity is NaN.
    fn clear_past_end(&self, rows: &Rows<'k>, number: Val<'k, i32>) {
        if !self.shape.ragged {
            return;
        }
        let (k, keys) = (self.k, self.shape.keys);
        let own = rows.mask.keys_from(rows.blocks.first_key(number));
        k.if_(number.eq(rows.blocks.begin) & own.lt(keys), || {
            self.values.peek(|values| {
                let chunks = (k.c(keys) - own) * values.chunks();
                let thread = self.first_row() + k.lane();
                k.for_step(thread, chunks, 32 * ROW_WARPS, |index| {
                    let row = own + index / values.chunks();
                    for panel in 0..self.shape.panels().count() {
                        let chunk = values.chunk(row + panel * keys, index % values.chunks());
                        chunk.cast::<u32>().store_vec([k.c(0u32); 4]);
                    }
                });
            });
            // The weights that are handed over next say that it is done.
            k.fence_async_shared();
        });
        self.values.pass();
    }

    /// Writes the results and the log-sum-exp.
    fn finish(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        tile: &Position<'k>,
        rows: &Rows<'k>,
        state: &Row<'k>,
    ) {
        let k = self.k;
        k.comment("normalise and store");
        let sunk = self.changes.sink(tile.y).map(|sink| state.add_sink(sink));
        let first = rows.sequence.q_start + rows.first;
        let line = tile.z * args.lse_batch + tile.y * args.lse_head + first;
        let number = self.first_row() + k.lane();
        k.if_(number.lt(rows.mask.rows), || {
            args.lse.at(line + number).store(state.log_sum());
        });
        let factor = state.normaliser();
        let factor = sunk.map_or(factor, |sunk| factor * sunk);
        let out = tile.z.mul_wide(args.q_batch)
            + tile.y.mul_wide(args.q_head)
            + (first + self.first_row()).mul_wide(args.q_row);
        let to = Lines {
            staging: self.staging,
            head_dim: self.shape.head_dim,
            first: out,
            pitch: args.q_row,
            rows: rows.mask.rows.max(self.first_row()) - self.first_row(),
        };
        let store = |panel: &dyn Fn(u32, u32) -> Vec<Val<'k, f32>>| match self.shape.output {
            Output::F32 => to.store(args.out.cast::<f32>(), panel, |[a, b]| {
                vec![a.bitcast(), b.bitcast()]
            }),
            Output::Same => to.store(args.out.cast::<T>(), panel, |[a, b]| {
                vec![Val::pack_as::<T>(a, b).bitcast()]
            }),
        };
        k.if_else(
            rows.blocks.any(),
            || {
                self.results.read(|sums| {
                    store(&|col, width| {
                        let sums = loaded(sums, col, width);
                        sums.into_iter().map(|sum| sum * factor).collect()
                    });
                });
            },
            // No row of the tile sees a key.
            || store(&|_, width| vec![k.c(0.0); width as usize]),
        );
    }
}

impl<'k> OwnRow<'k> {
    /// Scores as the softmax takes them: changed, and hidden where the row does not see the key.
    /// `first` gives the block's first key, and some rows may not see all of it where it is
    /// `masked`.
    fn admitted(
        &self,
        mut scores: Vec<Val<'k, f32>>,
        masked: bool,
        first: impl FnOnce() -> Val<'k, u32>,
    ) -> Vec<Val<'k, f32>> {
        let first = (masked || self.rules.is_some()).then(first);
        if let (Some(first), Some(rules)) = (first, &self.rules) {
            modify_row(&mut scores, rules, self.scale, first);
        }
        if let (Some(first), true) = (first, masked) {
            self.seen.hide(&mut scores, first);
        }
        scores
    }
}

/// Numbers of a row that are added up, or compared, side by side.
const STRANDS: usize = 4;

/// The largest of a row's scores.
fn highest<'k>(k: &Kernel<'k>, scores: &[Val<'k, f32>]) -> Val<'k, f32> {
    scores
        .chunks(STRANDS)
        .map(<[_]>::to_vec)
        .reduce(|most, next| {
            most.iter()
                .zip(next)
                .map(|(most, next)| most.max(next))
                .collect()
        })
        .into_iter()
        .flatten()
        .reduce(Val::max)
        .unwrap_or_else(|| k.c(f32::NEG_INFINITY))
}

/// Adds weights to several sums in turns, so that they need not wait for each other.
fn add_up<'k>(sums: &mut Vec<Val<'k, f32>>, weights: &[Val<'k, f32>]) {
    for (at, &weight) in weights.iter().enumerate() {
        match sums.get_mut(at % STRANDS) {
            Some(sum) => *sum = *sum + weight,
            None => sums.push(weight),
        }
    }
}

/// Something of each two neighbours.
fn pairs<'k, R>(
    weights: &[Val<'k, f32>; 64],
    of: impl Fn(Val<'k, f32>, Val<'k, f32>) -> R,
) -> [R; 32] {
    std::array::from_fn(|at| of(weights[2 * at], weights[2 * at + 1]))
}

/// Multiplies a row of sums.
fn scale<'k, const N: usize>(sums: &ChangingSums<'k>, factor: Val<'k, f32>) {
    for col in (0..sums.columns()).step_by(N) {
        let own = sums.load::<N>(col).wait();
        sums.store(col, own.map(|sum| sum * factor));
    }
}

/// `width` columns of a row of sums, a multiple of 16.
fn loaded<'k>(sums: &TensorSums<'k>, col: u32, width: u32) -> Vec<Val<'k, f32>> {
    let loads: Vec<_> = (0..width / 16)
        .map(|at| sums.load::<16>(col + 16 * at))
        .collect();
    loads.into_iter().flat_map(|load| load.wait()).collect()
}

/// Where the results of a warp's rows go, by way of shared memory, so that the stores are whole
/// lines.
struct Lines<'k> {
    staging: SharedTile<'k, f16>,
    head_dim: u32,
    /// The first row's first element.
    first: Val<'k, u64>,
    /// Elements from row to row.
    pitch: Val<'k, u32>,
    /// Rows that there are.
    rows: Val<'k, u32>,
}

impl<'k> Lines<'k> {
    /// Stores a head, 128 bytes at a time: `panel` gives this thread's row from a column on, and
    /// `words` the words of two neighbours.
    fn store<O: Storable>(
        &self,
        out: Ptr<'k, Global, O>,
        panel: &dyn Fn(u32, u32) -> Vec<Val<'k, f32>>,
        words: impl Fn([Val<'k, f32>; 2]) -> Vec<Val<'k, u32>>,
    ) {
        let (k, out) = (self.first.kernel(), out.at(self.first));
        let (wide, per) = (ROW_BYTES / O::BYTES, 16 / O::BYTES);
        for col in (0..self.head_dim).step_by(wide as usize) {
            let width = wide.min(self.head_dim - col);
            let row = panel(col, width);
            let row: Vec<_> = row
                .chunks_exact(2)
                .flat_map(|pair| words([pair[0], pair[1]]))
                .collect();
            // The lines before have been read.
            k.sync_warp();
            for (at, words) in row.chunks_exact(4).enumerate() {
                let to = self.staging.chunk(k.lane(), at as u32).cast::<u32>();
                to.store_vec([words[0], words[1], words[2], words[3]]);
            }
            k.sync_warp();
            let chunks = width / per;
            for trip in 0..chunks {
                let index = k.lane() + trip * 32;
                let (row, chunk) = (index / chunks, index % chunks);
                k.if_(row.lt(self.rows), || {
                    let words = self.staging.chunk(row, chunk).cast::<u32>().load_vec::<4>();
                    let to = out.at(row.mul_add(self.pitch, chunk * per + col));
                    to.cast::<u32>().store_vec(words);
                });
            }
        }
    }
}
