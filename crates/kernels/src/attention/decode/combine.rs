//! Combines the parts of tiles that several blocks had: a launch of its own, or the
//! block that is the last to write a part of a tile.
//!
//! Either way the parts are added in the order of the keys: the same bits in every run.

use super::DecodeArgs;
use super::shape::DecodeShape;
use super::work::{Part, Work};
use crate::attention::params::Element;
use crate::attention::problem::Output;
use crate::attention::score::Scores;
use crate::attention::softmax::NO_LEVEL;
use crate::overlap::wait;
use heist_builder::{Bool, Kernel, On, Val, Var};
use std::f32::consts::{LN_2, LOG2_E};

/// Warps of a block of the launch, which is one row of a tile's.
pub(super) const WARPS: u32 = 4;

/// What a block of the launch is for: a row of tile `y`, or of the tile that goes on from share `y` to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Of sequences that are alike, where there are no more tiles than shares.
    Tile,
    /// At the most one tile of many goes on.
    Share,
}

/// The launch: row `x` of tile `y`, or of the tile that goes on from share `y` to the next, if that
/// tile begins in share `y`.
pub(super) fn emit<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    scores: &Scores<'_, 'k>,
    by: By,
) {
    let work = Work::new(k, shape, args, scores);
    if shape.ragged() {
        // Lengths were there before the launch that writes the parts, which begins by itself.
        wait(k);
    }
    let block = k.block().y;
    let (begin, end) = (block * work.share, (block + 1) * work.share);
    let unit = match by {
        By::Tile => block * work.sequence(k.c(0)).blocks,
        By::Share => end,
    };
    k.if_(unit.lt(work.total), || {
        let part = work.tile(work.locate(unit), unit);
        let goes_on = match by {
            By::Tile => Parts::of(&part, work.share).count.gt(1),
            By::Share => part.tile_unit.lt(end) & part.tile_unit.ge(begin),
        };
        let each = (args.q_len * args.group).min(shape.head_rows());
        let row = part.nth(k.block().x, each);
        k.if_(goes_on & part.has(args, row), || {
            let parts = Parts::of(&part, work.share);
            let (lane, warp) = (k.lane(), k.warp());
            let sums = Sums::new(k, shape);
            parts.add_up(k, shape, args, row, (warp, WARPS), &sums);
            // Each warp has every fourth part; the first one adds up the four sums.
            let words = sums.all().count() as u32;
            let memory = k.shared::<f32>("sums", WARPS * words * 32);
            let mine = |warp: Val<'k, u32>| memory.at(warp * (words * 32) + lane);
            for (index, sum) in sums.all().enumerate() {
                mine(warp).at(32 * index).store(sum.get());
            }
            k.sync();
            k.if_(warp.eq(0), || {
                let of = |warp: u32, index: u32| mine(k.c(warp)).at(32 * index).load();
                let levels: Vec<_> = (0..WARPS).map(|warp| of(warp, 0)).collect();
                let level = levels
                    .iter()
                    .fold(k.c(NO_LEVEL), |most, one| most.max(*one));
                let weights: Vec<_> = levels.iter().map(|one| weight(*one, level)).collect();
                sums.level.set(level);
                for (index, sum) in (1..).zip(sums.added()) {
                    let none = k.c(0.0f32);
                    let each = (0..WARPS).zip(&weights);
                    sum.set(each.fold(none, |sum, (warp, weight)| {
                        of(warp, index).mul_add(*weight, sum)
                    }));
                }
                sums.store::<T>(k, shape, args, &part, row);
            });
        });
    });
}

/// How many fours of elements a thread has on their way at a time, and how many parts of each: where a tile has no more parts, and where it
/// has more than the last. A thread waits once for all of them.
const AT_ONCE: [[u32; 2]; 3] = [[4, 4], [2, 8], [1, 16]];

/// How many fours of elements a thread of such a block combines.
pub(super) fn fours(shape: &DecodeShape, rows: u32) -> u32 {
    (rows * shape.value_dim / 4).div_ceil(32 * shape.consumers())
}

/// The block that is the last to write a part: each of its threads that multiply combines fours of elements of rows, and has all that it
/// reads on its way at a time.
pub(super) fn by_last_block<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    level: &Level<'k>,
) {
    let parts = &level.parts;
    let rows = part.rows(args.group).min(shape.head_rows());
    let total = rows * (shape.heads * (shape.value_dim / 4));
    let threads = 32 * shape.consumers();
    let most = fours(shape, shape.rows());
    let all = |[fours, at_once]: [u32; 2], looped: bool| {
        let fours = fours.min(most);
        k.for_step(k.thread_index(), total, threads * fours, |first| {
            let places: Vec<_> = (0..fours)
                .map(|at| Four::place(shape, part, (first + at * threads).min(total - 1), rows))
                .collect();
            let load = |first: Val<'k, u32>| -> Vec<_> {
                let load = |place| Four::load(shape, args, parts, place, (first, at_once));
                places.iter().map(|&place| load(place)).collect()
            };
            let sums: Vec<Four<'k>> = match looped {
                false => load(k.c(0)).iter().map(|four| Four::of(four)).collect(),
                true => {
                    let vars: Vec<_> = places.iter().map(|_| Four::vars(k)).collect();
                    k.for_step(0u32, parts.count, at_once, |first| {
                        for (vars, four) in vars.iter().zip(load(first)) {
                            Four::get(vars).and(&Four::of(&four)).set(vars);
                        }
                    });
                    vars.iter().map(Four::get).collect()
                }
            };
            for (at, four) in (0..).zip(&sums) {
                // Its place is found anew: registers are for what is on its way.
                let index = first + at * threads;
                k.if_(index.lt(total), || {
                    let place = Four::place(shape, part, index, rows);
                    match level.to {
                        None => four.store::<T>(shape, args, part, place),
                        Some(to) => k.if_else(
                            level.is_last,
                            || four.store::<T>(shape, args, part, place),
                            || four.keep(shape, args, to, place),
                        ),
                    }
                });
            }
        });
    };
    let [few, some, many] = AT_ONCE;
    k.if_else(
        parts.count.le(few[1]),
        || all(few, false),
        || {
            k.if_else(
                parts.count.le(some[1]),
                || all(some, false),
                || all(many, true),
            );
        },
    );
}

/// Four elements of a row, added up over parts.
struct Four<'k> {
    level: Val<'k, f32>,
    total: Val<'k, f32>,
    sums: [Val<'k, f32>; 4],
}

impl<'k> Four<'k> {
    /// The row in the tile and the first element of number `index`, of a tile whose heads have so many rows each.
    fn place(
        shape: &DecodeShape,
        part: &Part<'k>,
        index: Val<'k, u32>,
        rows: Val<'k, u32>,
    ) -> [Val<'k, u32>; 2] {
        let each = shape.value_dim / 4;
        [part.nth(index / each, rows), index % each * 4]
    }

    /// The log-sum-exps and elements of so many parts from `first` on; of parts that there are not the weight is none.
    fn load(
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        parts: &Parts<'k>,
        [row, col]: [Val<'k, u32>; 2],
        (first, at_once): (Val<'k, u32>, u32),
    ) -> Vec<(Val<'k, f32>, [Val<'k, f32>; 4])> {
        let one = |at| {
            let here = first + at;
            let number = parts.number(shape, here.min(parts.count - 1), row);
            let lse = args.partial_lse.at(number).load();
            let from = args.partial.at(number.mul_wide(shape.value_dim));
            let lse = here.lt(parts.count).select(lse, f32::NEG_INFINITY);
            (lse, from.at(col).load_vec::<4>())
        };
        (0..at_once).map(one).collect()
    }

    /// The sums of what was loaded.
    fn of(loaded: &[(Val<'k, f32>, [Val<'k, f32>; 4])]) -> Four<'k> {
        let k = loaded[0].0.kernel();
        let none = || k.c(0.0f32);
        let level = loaded
            .iter()
            .fold(k.c(NO_LEVEL), |most, (lse, _)| most.max(*lse));
        let (mut total, mut sums) = (none(), [(); 4].map(|()| none()));
        for (lse, four) in loaded {
            let weight = weight(*lse, level);
            total = total + weight;
            for (sum, value) in sums.iter_mut().zip(four) {
                *sum = value.mul_add(weight, *sum);
            }
        }
        Four { level, total, sums }
    }

    /// The sums of both.
    fn and(&self, other: &Four<'k>) -> Four<'k> {
        let level = self.level.max(other.level);
        let [own, others] = [self, other].map(|four| weight(four.level, level));
        let join = |a: Val<'k, f32>, b: Val<'k, f32>| b.mul_add(others, a * own);
        Four {
            level,
            total: join(self.total, other.total),
            sums: [0, 1, 2, 3].map(|at| join(self.sums[at], other.sums[at])),
        }
    }

    /// No sums yet: the level, the total and the four.
    fn vars(k: &Kernel<'k>) -> [Var<'k, f32>; 6] {
        [NO_LEVEL, 0.0, 0.0, 0.0, 0.0, 0.0].map(|value| k.var(value))
    }

    fn get(vars: &[Var<'k, f32>; 6]) -> Four<'k> {
        let [level, total, sums @ ..] = vars.map(Var::get);
        Four { level, total, sums }
    }

    fn set(&self, vars: &[Var<'k, f32>; 6]) {
        let [a, b, c, d] = self.sums;
        for (var, value) in vars.iter().zip([self.level, self.total, a, b, c, d]) {
            var.set(value);
        }
    }

    /// What the weights are divided by, and the log-sum-exp.
    fn normalised(&self) -> ([Val<'k, f32>; 4], Val<'k, f32>) {
        let total = self.total;
        let factor = total.gt(0.0).select(total.recip_approx(), 0.0);
        let log_sum = self.level + total.log2_approx() * LN_2;
        (self.sums.map(|sum| sum * factor), log_sum)
    }

    /// Writes them as a part, in slot `to`.
    fn keep(
        &self,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        to: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
    ) {
        let (four, log_sum) = self.normalised();
        let number = to * shape.rows() + row;
        row.kernel().if_(col.eq(0), || {
            args.partial_lse.at(number).store(log_sum);
        });
        let to = args.partial.at(number.mul_wide(shape.value_dim)).at(col);
        to.store_vec(four);
    }

    /// Writes the results, and the row's log-sum-exp with its first ones.
    fn store<T: Element>(
        &self,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        [row, col]: [Val<'k, u32>; 2],
    ) {
        let (to, lse) = part.result(args, row);
        let (four, log_sum) = self.normalised();
        row.kernel().if_(col.eq(0), || {
            args.lse.at(lse).store(log_sum);
        });
        match shape.output {
            Output::Same => {
                let pairs = [(0, 1), (2, 3)].map(|(a, b)| Val::pack_as::<T>(four[a], four[b]));
                let to = args.out.cast::<T>().at(to).at(col);
                to.cast::<T::Pair>().store_vec(pairs);
            }
            Output::F32 => args.out.cast::<f32>().at(to).at(col).store_vec(four),
        }
    }
}

/// Parts of a tile that a block combines by itself at the most, where lengths are on the device.
pub(super) const TOGETHER: u32 = 8;

/// Slots of a block for its parts, and counters, in the numbers of blocks: of the first parts of a tile, of what is combined of many, and of
/// parts behind the first ones.
pub(super) const SLOTS: u32 = 2;
pub(super) const COUNTERS: u32 = 3;

/// What a block combines when it is the last of those that count it.
pub(super) struct Level<'k> {
    pub(super) parts: Parts<'k>,
    pub(super) counter: Val<'k, u32>,
    /// Whether that is the whole tile.
    pub(super) is_last: Bool<'k>,
    /// The slot that it goes to else.
    to: Option<Val<'k, u32>>,
}

impl<'k> Level<'k> {
    /// All parts of a tile.
    pub(super) fn only(parts: Parts<'k>) -> Level<'k> {
        Level {
            counter: parts.block,
            is_last: parts.block.kernel().c(true),
            to: None,
            parts,
        }
    }
}

/// The parts of a tile.
pub(super) struct Parts<'k> {
    /// The first block that has one.
    pub(super) block: Val<'k, u32>,
    /// The slot of the first part; every other is the one that its share begins with.
    first: Val<'k, u32>,
    pub(super) count: Val<'k, u32>,
    /// Where parts are several blocks apart: how many, and the slot of a part in the first block.
    apart: Option<[Val<'k, u32>; 2]>,
}

impl<'k> Parts<'k> {
    pub(super) fn of(part: &Part<'k>, share: Val<'k, u32>) -> Parts<'k> {
        let block = part.tile_unit / share;
        let last = (part.tile_unit + part.sequence.blocks - 1) / share;
        Parts {
            block,
            first: block * SLOTS + part.tile_unit.ne(block * share).to_u32(),
            count: last - block + 1,
            apart: None,
        }
    }

    /// What block `own` combines when it is the last: of many parts its [`TOGETHER`] first, and then what comes of all of these, in slots behind those
    /// of all parts.
    pub(super) fn level(
        &self,
        second: Bool<'k>,
        own: Val<'k, u32>,
        blocks: Val<'k, u32>,
    ) -> Level<'k> {
        let many = self.count.gt(TOGETHER);
        let before = (own - self.block) / TOGETHER * TOGETHER;
        let before = many.select(before, 0);
        let some = (self.count - before).min(TOGETHER);
        let ahead = before.ne(0);
        let (block, all) = (self.block + before, self.count.div_ceil(TOGETHER));
        let first = ahead.select(block * SLOTS, self.first);
        let behind = blocks * SLOTS;
        Level {
            counter: second.select(self.block + blocks, block + ahead.select(blocks * 2, 0)),
            is_last: second | !many,
            to: Some(first + behind),
            parts: Parts {
                block: second.select(self.block, block),
                first: second.select(self.first + behind, first),
                count: second.select(all, some),
                apart: Some([second.select(TOGETHER, 1), second.select(behind, 0)]),
            },
        }
    }

    /// The number of a part's row among all partial rows.
    fn number(&self, shape: &DecodeShape, part: Val<'k, u32>, row: Val<'k, u32>) -> Val<'k, u32> {
        let later = match self.apart {
            None => (self.block + part) * SLOTS,
            Some([blocks, from]) => (self.block + part * blocks) * SLOTS + from,
        };
        part.eq(0).select(self.first, later) * shape.rows() + row
    }

    /// Adds up parts `from`, `from + step` and so on of a row, in this order. As many as there are, or as there are registers for, are on their way at
    /// a time, with their log-sum-exps.
    fn add_up(
        &self,
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        row: Val<'k, u32>,
        (from, step): (Val<'k, u32>, u32),
        sums: &Sums<'k>,
    ) {
        let most = (16 / sums.pairs.len() as u32).clamp(2, 8);
        let by = |at_once| self.add_up_by(k, shape, args, row, (from, step), sums, at_once);
        k.if_else(
            self.count.le(step),
            || by(1),
            || {
                k.if_else(
                    self.count.le(step * (most / 2)),
                    || by(most / 2),
                    || by(most),
                )
            },
        );
    }

    #[allow(clippy::too_many_arguments)] // a row and a share of its parts
    fn add_up_by(
        &self,
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        row: Val<'k, u32>,
        (from, step): (Val<'k, u32>, u32),
        sums: &Sums<'k>,
        at_once: u32,
    ) {
        let own = (self.count + (step - 1) - from) / step;
        k.for_step(0u32, own, at_once, |first| {
            let load = |at: u32| {
                let here = first + at;
                let number = self.number(shape, here.min(own - 1) * step + from, row);
                let lse = args.partial_lse.at(number).load();
                let lse = here.lt(own).select(lse, f32::NEG_INFINITY);
                let from = args.partial.at(number.mul_wide(shape.value_dim));
                let trips = 0..sums.pairs.len() as u32;
                let pairs = trips.map(|trip| from.at(Sums::col(k, shape, trip)).load_vec::<2>());
                (lse, pairs.collect::<Vec<_>>())
            };
            let loaded: Vec<_> = (0..at_once).map(load).collect();
            let before = sums.level.get();
            let level = loaded.iter().fold(before, |most, (lse, _)| most.max(*lse));
            sums.level.set(level);
            let kept = weight(before, level);
            for sum in sums.added() {
                sum.update(|sum| sum * kept);
            }
            for (lse, pairs) in &loaded {
                let weight = weight(*lse, level);
                sums.total.update(|total| total + weight);
                for (sum, value) in sums.pairs.iter().flatten().zip(pairs.iter().flatten()) {
                    sum.update(|sum| value.mul_add(weight, sum));
                }
            }
        });
    }
}

/// What numbers above one level count above another.
fn weight<'k>(from: Val<'k, f32>, to: Val<'k, f32>) -> Val<'k, f32> {
    ((from - to) * LOG2_E).exp2_approx()
}

/// Whether this lane's elements of a trip over a row, 64 each, are inside of it.
fn inside<'k>(k: &Kernel<'k>, shape: &DecodeShape, trip: u32) -> Bool<'k> {
    k.c(64 * (trip + 1) <= shape.value_dim) | (k.lane() * 2 + 64 * trip).lt(shape.value_dim)
}

/// A row that is added up: two elements of every 64 a lane, and the weights, above a level.
struct Sums<'k> {
    level: Var<'k, f32>,
    pairs: Vec<[Var<'k, f32>; 2]>,
    total: Var<'k, f32>,
}

impl<'k> Sums<'k> {
    fn new(k: &Kernel<'k>, shape: &DecodeShape) -> Sums<'k> {
        let zero = || k.var(0.0f32);
        let trips = shape.value_dim.div_ceil(64);
        Sums {
            level: k.var(NO_LEVEL),
            pairs: (0..trips).map(|_| [zero(), zero()]).collect(),
            total: zero(),
        }
    }

    /// This lane's first element of a trip over a row; past its end the last ones, which nobody stores.
    fn col(k: &Kernel<'k>, shape: &DecodeShape, trip: u32) -> Val<'k, u32> {
        let col = k.lane() * 2 + 64 * trip;
        match 64 * (trip + 1) <= shape.value_dim {
            true => col,
            false => col.min(shape.value_dim - 2),
        }
    }

    /// What is added: all but the level.
    fn added(&self) -> impl Iterator<Item = Var<'k, f32>> {
        self.pairs.iter().flatten().copied().chain([self.total])
    }

    fn all(&self) -> impl Iterator<Item = Var<'k, f32>> {
        [self.level].into_iter().chain(self.added())
    }

    /// Normalises, and writes the row's results and its log-sum-exp.
    fn store<T: Element>(
        &self,
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        row: Val<'k, u32>,
    ) {
        let (to, lse) = part.result(args, row);
        let total = self.total.get();
        let factor = total.gt(0.0).select(total.recip_approx(), 0.0);
        k.if_(k.lane().eq(0), || {
            let log_sum = self.level.get() + total.log2_approx() * LN_2;
            args.lse.at(lse).store(log_sum);
        });
        for (trip, pair) in (0..).zip(&self.pairs) {
            k.if_(inside(k, shape, trip), || {
                let pair = pair.map(|sum| sum.get() * factor);
                let col = k.lane() * 2;
                match shape.output {
                    Output::Same => {
                        let to = args.out.cast::<T>().at(to).at(col).at(64 * trip);
                        let packed = Val::pack_as::<T>(pair[0], pair[1]);
                        to.cast::<T::Pair>().store(packed);
                    }
                    Output::F32 => {
                        let to = args.out.cast::<f32>().at(to).at(col).at(64 * trip);
                        to.store_vec(pair);
                    }
                }
            });
        }
    }
}
