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
use heist_builder::{Bool, Global, Kernel, On, Ptr, Val, Var};
use std::f32::consts::{LN_2, LOG2_E};

/// Warps of a block of the launch.
pub(super) const WARPS: u32 = 8;
/// Blocks of the launch that a multiprocessor has at a time: 80 registers a thread. With 64 a word is spilled.
pub(super) const RESIDENT: u32 = 3;
/// Elements of a row that a warp has at a time: four a lane.
const STRIP: u32 = 128;
/// Parts of a tile up to which a thread adds up all of its elements, with all that it reads on its way at a time. Of more the warps of a block have
/// some each.
const FEW: u32 = WARPS;
/// How many fours of elements a thread of the launch has on their way at a time, and how many parts of each.
const LAUNCH_AT_ONCE: [[u32; 2]; 3] = [[4, 2], [2, 4], [1, FEW]];

/// What a block of the launch is for: a share of the rows of tile `y`, or of the tile that goes on from share `y` to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Where there are no more tiles than shares.
    Tile,
    /// At the most one tile of many goes on.
    Share,
}

/// Strips of the rows of a tile: no more blocks can have something to do.
pub(super) fn strips(shape: &DecodeShape, rows: u32) -> u32 {
    rows * shape.value_dim.div_ceil(STRIP)
}

/// The launch: share `x` of the rows of tile `y`, or of the tile that goes on from share `y` to the next, if that
/// tile begins in share `y`.
pub(super) fn emit<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    scores: &Scores<'_, 'k>,
    by: By,
) {
    let block = k.block().y;
    let (work, at) = match by {
        By::Tile => Work::with_tile(k, shape, args, scores, block),
        By::Share => (Work::new(k, shape, args, scores), None),
    };
    if shape.ragged() {
        // Lengths were there before the launch that writes the parts, which begins by itself.
        wait(k);
    }
    let (begin, end) = (block * work.share, (block + 1) * work.share);
    let combine = |part: &Part<'k>, goes_on: Bool<'k>| {
        k.if_(goes_on, || {
            let parts = Parts::of(part, work.share);
            k.if_else(
                parts.count.le(FEW),
                || few::<T>(k, shape, args, part, &parts),
                || many::<T>(k, shape, args, part, &parts),
            );
        });
    };
    match (by, at) {
        (By::Tile, Some(at)) => k.if_(at.is_there, || {
            let part = work.tile_at(&at, block);
            combine(&part, Parts::of(&part, work.share).count.gt(1));
        }),
        (By::Tile, None) => {
            let unit = block * work.sequence(k.c(0)).blocks;
            k.if_(unit.lt(work.total), || {
                let part = work.tile(work.locate(unit), unit);
                combine(&part, Parts::of(&part, work.share).count.gt(1));
            });
        }
        (By::Share, _) => k.if_(end.lt(work.total), || {
            let part = work.tile(work.locate(end), end);
            combine(&part, part.tile_unit.lt(end) & part.tile_unit.ge(begin));
        }),
    }
}

/// All elements of few parts, shared out among the threads of the blocks that have a tile.
fn few<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    parts: &Parts<'k>,
) {
    let threads = k.grid_dim().x * (32 * WARPS);
    let first = k.block().x * (32 * WARPS) + k.thread_index();
    let share = Share { first, threads };
    let store = |four: &Four<'k>, place| four.store::<T>(shape, args, part, place);
    let all = |at_once: [u32; 2]| {
        share.add_up(k, shape, args, part, parts, (at_once, false), &store);
    };
    let [two, four, most] = LAUNCH_AT_ONCE;
    k.if_else(
        parts.count.le(two[1]),
        || all(two),
        || k.if_else(parts.count.le(four[1]), || all(four), || all(most)),
    );
}

/// Strips of rows of many parts: each warp of a block has every so manieth part, and the first one adds up what they have.
fn many<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    parts: &Parts<'k>,
) {
    const WORDS: u32 = 6;
    let (lane, warp) = (k.lane(), k.warp());
    let rows = part.rows(args.group).min(shape.head_rows());
    let each = shape.value_dim.div_ceil(STRIP);
    let strips = rows * (shape.heads * each);
    let memory = k.shared::<f32>("sums", WARPS * WORDS * 32);
    let word =
        |warp: Val<'k, u32>, word: usize| memory.at(warp * (WORDS * 32) + lane).at(32 * word);
    k.for_step(k.block().x, strips, k.grid_dim().x, |strip| {
        let row = part.nth(strip / each, rows);
        let col = strip % each * STRIP + lane * 4;
        // Past a row's end the last elements, which nobody stores.
        let place = [row, col.min(shape.value_dim - 4)];
        let vars = Four::vars(k);
        let by = |at_once: u32| {
            k.for_step(warp, parts.count, at_once * WARPS, |first| {
                let sources = parts.sources(shape, args, (first, WARPS), at_once);
                let loaded = Four::load(shape, &sources, place);
                Four::get(&vars).and(&Four::of(&loaded)).set(&vars);
            });
        };
        k.if_else(
            parts.count.le(2 * WARPS),
            || by(2),
            || k.if_else(parts.count.le(4 * WARPS), || by(4), || by(8)),
        );
        for (index, var) in vars.iter().enumerate() {
            word(warp, index).store(var.get());
        }
        k.sync();
        k.if_(warp.eq(0), || {
            let of = |warp: u32| {
                let [level, total, sums @ ..] =
                    [0, 1, 2, 3, 4, 5].map(|index| word(k.c(warp), index).load());
                Four { level, total, sums }
            };
            let all: Vec<Four<'k>> = (0..WARPS).map(of).collect();
            let sum = all[1..].iter().fold(all[0], |sum, other| sum.and(other));
            k.if_(col.lt(shape.value_dim), || {
                sum.store::<T>(shape, args, part, place);
            });
        });
        k.sync();
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
    let threads = 32 * shape.consumers();
    let share = Share {
        first: k.thread_index(),
        threads: k.c(threads),
    };
    let most = fours(shape, shape.rows());
    let store = |four: &Four<'k>, place| match level.to {
        None => four.store::<T>(shape, args, part, place),
        Some(to) => k.if_else(
            level.is_last,
            || four.store::<T>(shape, args, part, place),
            || four.keep(shape, args, to, place),
        ),
    };
    let all = |[fours, at_once]: [u32; 2], looped: bool| {
        let at_once = [fours.min(most), at_once];
        share.add_up(k, shape, args, part, parts, (at_once, looped), &store);
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

/// The fours of elements of a tile that are one thread's: its first one, and how many threads there are.
struct Share<'k> {
    first: Val<'k, u32>,
    threads: Val<'k, u32>,
}

impl<'k> Share<'k> {
    /// Adds up these elements, so many at a time of so many parts each, which are all parts or as many as a thread has registers for. `store` takes the
    /// sums, with their place.
    #[allow(clippy::too_many_arguments)] // a tile, its parts, and how
    fn add_up(
        &self,
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        parts: &Parts<'k>,
        ([fours, at_once], looped): ([u32; 2], bool),
        store: &dyn Fn(&Four<'k>, [Val<'k, u32>; 2]),
    ) {
        let rows = part.rows(args.group).min(shape.head_rows());
        let total = rows * (shape.heads * (shape.value_dim / 4));
        k.for_step(self.first, total, self.threads * fours, |first| {
            let places: Vec<_> = (0..fours)
                .map(|at| {
                    let index = (first + self.threads * at).min(total - 1);
                    Four::place(shape, part, index, rows)
                })
                .collect();
            let load = |first: Val<'k, u32>| -> Vec<_> {
                let sources = parts.sources(shape, args, (first, 1), at_once);
                let load = |&place| Four::load(shape, &sources, place);
                places.iter().map(load).collect()
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
                let index = first + self.threads * at;
                k.if_(index.lt(total), || {
                    store(four, Four::place(shape, part, index, rows));
                });
            }
        });
    }
}

/// Where a part of a tile is.
struct Source<'k> {
    is_there: Bool<'k>,
    log_sums: Ptr<'k, Global, f32>,
    elements: Ptr<'k, Global, f32>,
}

/// Four elements of a row, added up over parts.
#[derive(Clone, Copy)]
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

    /// The log-sum-exps and elements of some parts; of parts that there are not the weight is none.
    fn load(
        shape: &DecodeShape,
        sources: &[Source<'k>],
        [row, col]: [Val<'k, u32>; 2],
    ) -> Vec<(Val<'k, f32>, [Val<'k, f32>; 4])> {
        let element = row * shape.value_dim + col;
        let one = |source: &Source<'k>| {
            let lse = source.log_sums.at(row).load();
            let lse = source.is_there.select(lse, f32::NEG_INFINITY);
            (lse, source.elements.at(element).load_vec::<4>())
        };
        sources.iter().map(one).collect()
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
#[derive(Clone, Copy)]
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

    /// Where so many parts are, of which `first` is the first and `step` are from each to the next; the last one for those that there are not.
    fn sources(
        &self,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        (first, step): (Val<'k, u32>, u32),
        at_once: u32,
    ) -> Vec<Source<'k>> {
        let one = |at| {
            let here = first + at * step;
            let part = here.min(self.count - 1);
            let later = match self.apart {
                None => (self.block + part) * SLOTS,
                Some([blocks, from]) => (self.block + part * blocks) * SLOTS + from,
            };
            let row = part.eq(0).select(self.first, later) * shape.rows();
            Source {
                is_there: here.lt(self.count),
                log_sums: args.partial_lse.at(row),
                elements: args.partial.at(row.mul_wide(shape.value_dim)),
            }
        };
        (0..at_once).map(one).collect()
    }
}

/// What numbers above one level count above another.
fn weight<'k>(from: Val<'k, f32>, to: Val<'k, f32>) -> Val<'k, f32> {
    ((from - to) * LOG2_E).exp2_approx()
}
