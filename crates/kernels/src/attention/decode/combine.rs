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
use heist_builder::{Group, Kernel, On, Val, Var};
use std::f32::consts::{LN_2, LOG2_E};

/// Warps of a block of the launch, which is one row of a tile's.
pub(super) const WARPS: u32 = 4;

/// The launch: row `x` of the tile that goes on from share `y` to the next, if that
/// tile begins in share `y`.
pub(super) fn emit<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    scores: &Scores<'_, 'k>,
) {
    let work = Work::new(k, shape, args, scores);
    if shape.ragged() {
        // Lengths were there before the launch that writes the parts, which begins by itself.
        wait(k);
    }
    let block = k.block().y;
    let (begin, end) = (block * work.share, (block + 1) * work.share);
    k.if_(end.lt(work.total), || {
        let part = work.tile(work.locate(end), end);
        let goes_on = part.tile_unit.lt(end) & part.tile_unit.ge(begin);
        let each = (args.q_len * args.group).min(shape.head_rows());
        let row = part.nth(k.block().x, each);
        k.if_(goes_on & part.has(args, row), || {
            let parts = Parts::of(&part, work.share);
            let (lane, warp) = (k.lane(), k.warp());
            let highest = parts.highest(k, shape, args, row);
            let sums = Sums::new(k, shape);
            parts.add_up(k, shape, args, row, highest, (warp, WARPS), &sums);
            // Each warp has every fourth part; the first one adds up the four sums.
            let words = sums.all().count() as u32;
            let memory = k.shared::<f32>("sums", WARPS * words * 32);
            let mine = |warp: Val<'k, u32>| memory.at(warp * (words * 32) + lane);
            for (index, sum) in sums.all().enumerate() {
                mine(warp).at(32 * index).store(sum.get());
            }
            k.sync();
            k.if_(warp.eq(0), || {
                for (index, sum) in sums.all().enumerate() {
                    let each = (0..WARPS).map(|warp| mine(k.c(warp)).at(32 * index).load());
                    sum.set(each.reduce(|a, b| a + b).unwrap_or(k.c(0.0)));
                }
                sums.store::<T>(k, shape, args, &part, row, highest);
            });
        });
    });
}

/// Parts of a row that a thread has on their way at a time: where a tile has no more, and where it has more.
const AT_ONCE: [u32; 2] = [8, 16];

/// How many elements a thread of such a block combines, four at a time, and how many parts of each it loads, those counted that
/// it loads in vain.
pub(super) fn loads(shape: &DecodeShape, rows: u32, parts: u64) -> (u64, u64) {
    let each = (rows * shape.value_dim / 4).div_ceil(32 * shape.consumers());
    let [few, many] = AT_ONCE.map(u64::from);
    let at_once = if parts <= few { few } else { many };
    (each.into(), parts.next_multiple_of(at_once))
}

/// The block that is the last to write a part: each of its threads that multiply combines four elements of a row, and has all that it
/// reads on its way at a time.
pub(super) fn by_last_block<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    share: Val<'k, u32>,
) {
    let parts = Parts::of(part, share);
    let each = shape.value_dim / 4;
    let rows = part.rows(args.group).min(shape.head_rows());
    let threads = 32 * shape.consumers();
    k.for_step(
        k.thread_index(),
        rows * (shape.heads * each),
        threads,
        |index| {
            let (row, col) = (part.nth(index / each, rows), index % each * 4);
            let zero = || k.var(0.0f32);
            let (level, total, sums) = (k.var(NO_LEVEL), zero(), [(); 4].map(|()| zero()));
            let add = |first: Val<'k, u32>, at_once: u32| {
                let some = (0..at_once).map(|at| {
                    let here = first + at;
                    let number = parts.number(shape, here.min(parts.count - 1), row);
                    let lse = args.partial_lse.at(number).load();
                    let from = args.partial.at(number.mul_wide(shape.value_dim)).at(col);
                    let lse = here.lt(parts.count).select(lse, f32::NEG_INFINITY);
                    (lse, from.load_vec::<4>())
                });
                let some: Vec<_> = some.collect();
                let highest = some
                    .iter()
                    .fold(level.get(), |most, (lse, _)| most.max(*lse));
                let weight = |lse: Val<'k, f32>| ((lse - highest) * LOG2_E).exp2_approx();
                let earlier = weight(level.get());
                level.set(highest);
                for sum in sums.iter().chain([&total]) {
                    sum.update(|sum| sum * earlier);
                }
                for (lse, four) in some {
                    let weight = weight(lse);
                    total.update(|total| total + weight);
                    for (sum, value) in sums.iter().zip(four) {
                        sum.update(|sum| value.mul_add(weight, sum));
                    }
                }
            };
            let [few, many] = AT_ONCE;
            k.if_else(
                parts.count.le(few),
                || add(k.c(0), few),
                || k.for_step(0u32, parts.count, many, |first| add(first, many)),
            );
            let (to, lse) = part.result(args, row);
            let total = total.get();
            let factor = total.gt(0.0).select(total.recip_approx(), 0.0);
            k.if_(col.eq(0), || {
                args.lse
                    .at(lse)
                    .store(level.get() + total.log2_approx() * LN_2);
            });
            let four = sums.map(|sum| sum.get() * factor);
            match shape.output {
                Output::Same => {
                    let pairs = [(0, 1), (2, 3)].map(|(a, b)| Val::pack_as::<T>(four[a], four[b]));
                    let to = args.out.cast::<T>().at(to).at(col);
                    to.cast::<T::Pair>().store_vec(pairs);
                }
                Output::F32 => args.out.cast::<f32>().at(to).at(col).store_vec(four),
            }
        },
    );
}

/// The parts of a tile.
pub(super) struct Parts<'k> {
    /// The first block that has one.
    pub(super) block: Val<'k, u32>,
    /// The slot of the first part; every other is the one that its share begins with.
    first: Val<'k, u32>,
    pub(super) count: Val<'k, u32>,
}

impl<'k> Parts<'k> {
    pub(super) fn of(part: &Part<'k>, share: Val<'k, u32>) -> Parts<'k> {
        let block = part.tile_unit / share;
        let last = (part.tile_unit + part.sequence.blocks - 1) / share;
        Parts {
            block,
            first: block * 2 + part.tile_unit.ne(block * share).to_u32(),
            count: last - block + 1,
        }
    }

    /// The number of a part's row among all partial rows.
    fn number(&self, shape: &DecodeShape, part: Val<'k, u32>, row: Val<'k, u32>) -> Val<'k, u32> {
        let later = (self.block + part) * 2;
        part.eq(0).select(self.first, later) * shape.rows() + row
    }

    /// The largest log-sum-exp of a row's parts.
    fn highest(
        &self,
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        row: Val<'k, u32>,
    ) -> Val<'k, f32> {
        let highest = k.var(NO_LEVEL);
        k.for_step(k.lane(), self.count, 32u32, |part| {
            let lse = args.partial_lse.at(self.number(shape, part, row)).load();
            highest.update(|highest| highest.max(lse));
        });
        highest.get().group_max(Group::Warp)
    }

    /// Adds up parts `from`, `from + step` and so on of a row, in this order.
    #[allow(clippy::too_many_arguments)] // a row and a share of its parts
    fn add_up(
        &self,
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        row: Val<'k, u32>,
        highest: Val<'k, f32>,
        (from, step): (Val<'k, u32>, u32),
        sums: &Sums<'k>,
    ) {
        let own = (self.count + (step - 1) - from) / step;
        k.for_unrolled::<4>(0u32, own, |index| {
            let number = self.number(shape, index * step + from, row);
            let lse = args.partial_lse.at(number).load();
            let weight = ((lse - highest) * LOG2_E).exp2_approx();
            sums.total.update(|total| total + weight);
            let from = args
                .partial
                .at(number.mul_wide(shape.value_dim))
                .at(k.lane() * 2);
            for (trip, pair) in (0..).zip(&sums.pairs) {
                k.if_(inside(k, shape, trip), || {
                    for (sum, value) in pair.iter().zip(from.at(64 * trip).load_vec::<2>()) {
                        sum.update(|sum| value.mul_add(weight, sum));
                    }
                });
            }
        });
    }
}

/// Whether this lane's elements of a trip over a row, 64 each, are inside of it.
fn inside<'k>(k: &Kernel<'k>, shape: &DecodeShape, trip: u32) -> heist_builder::Bool<'k> {
    k.c(64 * (trip + 1) <= shape.value_dim) | (k.lane() * 2 + 64 * trip).lt(shape.value_dim)
}

/// A row that is added up: two elements of every 64 a lane, and the weights.
struct Sums<'k> {
    pairs: Vec<[Var<'k, f32>; 2]>,
    total: Var<'k, f32>,
}

impl<'k> Sums<'k> {
    fn new(k: &Kernel<'k>, shape: &DecodeShape) -> Sums<'k> {
        let zero = || k.var(0.0f32);
        let trips = shape.value_dim.div_ceil(64);
        Sums {
            pairs: (0..trips).map(|_| [zero(), zero()]).collect(),
            total: zero(),
        }
    }

    fn all(&self) -> impl Iterator<Item = Var<'k, f32>> {
        self.pairs.iter().flatten().copied().chain([self.total])
    }

    /// Normalises, and writes the row's results and its log-sum-exp.
    fn store<T: Element>(
        &self,
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        row: Val<'k, u32>,
        highest: Val<'k, f32>,
    ) {
        let (to, lse) = part.result(args, row);
        let total = self.total.get();
        let factor = total.gt(0.0).select(total.recip_approx(), 0.0);
        k.if_(k.lane().eq(0), || {
            let log_sum = highest + total.log2_approx() * LN_2;
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
