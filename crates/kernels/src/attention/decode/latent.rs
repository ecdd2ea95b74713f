//! Keys and values that are one row: a stage has the keys, and its first panels are the values.
//!
//! Latent attention decodes with wide heads (576 elements of keys, of which the first 512 are the values) that all query heads share.
//! Results of 64 rows by 512 elements take two warpgroups, each with half of the columns. Stages are one's and the other's in turns: it
//! multiplies their scores, and gives the other their weights and levels through shared memory. So while one works out weights, the other
//! multiplies.

use super::DecodeArgs;
use super::block::{Copies, clear_values, combine_if_last, slot};
use super::combine::Parts;
use super::rows::{store_pairs, store_rounded};
use super::shape::{Combine, DecodeShape, PANEL, Spec};
use super::work::{Part, Work};
use crate::attention::mask::{KeyRange, TileMask, hide_masked};
use crate::attention::meeting::Meeting;
use crate::attention::params::Element;
use crate::attention::problem::Output;
use crate::attention::score::Scores;
use crate::attention::softmax::{Row, Softmax, scale_rows};
use heist_builder::{
    Accumulator, BarrierSpec, BulkConsumer, Kernel, On, Ptr, Shared, SharedTile, TileLayout,
    TileSpec, Val, Waiter, WarpTile, WgmmaLeft, WgmmaSums, f16,
};

/// Rows of a tile.
const ROWS: u32 = 64;
/// Warpgroups that multiply.
const GROUPS: u32 = 2;
/// Registers of a thread that copies, and of one that multiplies.
const REGISTERS: [u32; 2] = [56, 224];

/// The whole kernel.
pub(super) fn emit<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    scores: &Scores<'_, 'k>,
    combine: Combine,
) {
    let ring = k.bulk_pipeline_of(shape.stages, shape.stage(), shape.consumers());
    let meeting = Meeting::of(k, "met", 1, shape.consumers(), &k.c(0));
    let queries = k.tile(TileSpec::<T>::new(
        "q",
        ROWS * shape.panels(),
        PANEL,
        TileLayout::Swizzled,
    ));
    let warp = k.warp_uniform();
    let group = (warp / 4).named("group");
    let exchange = Exchange::<T>::new(k, shape, group);
    if shape.ragged() && combine == Combine::Launch {
        // All that was launched before has ended: the blocks that combine set out, and wait for the parts.
        k.launch_dependents();
    }
    let work = Work::new(k, shape, args, scores);
    let begin = (k.block().x * work.share).named("begin");
    k.if_(begin.lt(work.total), || {
        let at = work.locate(begin);
        k.if_else(
            group.eq(GROUPS),
            || {
                k.comment("the copies");
                k.give_registers(REGISTERS[0]);
                let copies = Copies {
                    k: *k,
                    shape,
                    args,
                    work: &work,
                    fill: ring.producer(),
                    only: None,
                };
                k.if_(shape.asks(warp, shape.consumers()), || {
                    work.each_part(at, begin, |part| copies.part(part));
                    copies.alone(|| copies.fill.drain());
                });
                k.sync_warp();
            },
            || {
                k.comment("the products");
                k.take_registers(REGISTERS[1]);
                let stages = ring.consumer();
                work.each_part(at, begin, |part| {
                    let parts = Parts::of(part, work.share);
                    fill_queries(k, shape, args, part, &queries);
                    k.fence_async_shared();
                    meeting.meet();
                    let half = Half::<T>::new(k, shape, args, part, &exchange);
                    half.products(part, &queries, &stages);
                    let to = slot(part, begin, k.block().x);
                    half.store(args, part, to, || meeting.meet());
                    // Nobody reads the queries that the next part's replace.
                    meeting.meet();
                    if combine == Combine::LastBlock {
                        k.if_(!part.whole(), || {
                            combine_if_last::<T>(k, shape, args, part, parts, &meeting);
                        });
                    }
                });
            },
        );
    });
}

/// Loads of queries that a thread has on their way at a time.
const AT_ONCE: u32 = 6;

/// Fills the tile of queries, panel below panel, by all warps that multiply. Rows past the last are zeros.
fn fill_queries<'k, T: Element>(
    k: &Kernel<'k>,
    shape: &DecodeShape,
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    queries: &SharedTile<'k, T>,
) {
    let (chunks, threads) = (shape.head_dim / 8, 32 * shape.consumers());
    let rows = part.rows(args.group);
    let all = ROWS * chunks;
    k.for_step(k.thread_index(), all, AT_ONCE * threads, |first| {
        let places: Vec<_> = (0..AT_ONCE)
            .map(|trip| {
                let index = first + trip * threads;
                (index, index / chunks, index % chunks)
            })
            .collect();
        let loaded: Vec<_> = places
            .iter()
            .map(|&(_, row, chunk)| {
                let words = [(); 4].map(|()| k.var(0u32));
                // Rows past the tile's are past the last, too.
                k.if_(row.lt(rows.min(ROWS)), || {
                    let from = args.q.cast::<T>().at(part.query(args, row)).at(chunk * 8);
                    let values = from.cast::<u32>().load_vec_readonly::<4>();
                    for (word, value) in words.iter().zip(values) {
                        word.set(value);
                    }
                });
                words
            })
            .collect();
        for ((index, row, chunk), words) in places.into_iter().zip(loaded) {
            k.if_(index.lt(all), || {
                let to = queries.chunk((chunk / 8) * ROWS + row, chunk % 8);
                to.cast::<u32>()
                    .store_vec(words.map(heist_builder::Var::get));
            });
        }
    });
}

/// What the warpgroups give each other.
struct Exchange<'k, T: Element> {
    shape: DecodeShape,
    /// The number of this warpgroup.
    group: Val<'k, u32>,
    /// The weights of the stage that each had last, next to each other in panels of 64 keys.
    weights: SharedTile<'k, T>,
    /// The levels that these are above, a row each, and in the end the sums of all that each had.
    levels: Ptr<'k, Shared, f32>,
    sums: Ptr<'k, Shared, f32>,
    /// Where this one says that its weights are there, and where the other does.
    own: Waiter<'k>,
    other: Waiter<'k>,
}

impl<'k, T: Element> Exchange<'k, T> {
    /// The whole block takes part in making it.
    fn new(k: &Kernel<'k>, shape: &DecodeShape, group: Val<'k, u32>) -> Self {
        let weights = TileSpec::new(
            "weights",
            ROWS * shape.weight_panels(),
            PANEL,
            TileLayout::Swizzled,
        );
        let [weighed] = k.mbarriers([BarrierSpec {
            name: "weighed",
            count: GROUPS,
            arrivals: 128,
        }]);
        // Warps that copy have no number here that is asked for.
        let other = (group + 1) % GROUPS;
        Exchange {
            shape: *shape,
            group,
            weights: k.tile(weights),
            levels: k.shared::<f32>("levels", GROUPS * ROWS).ptr(),
            sums: k.shared::<f32>("group_sums", GROUPS * ROWS).ptr(),
            own: weighed.at(group % GROUPS).waiter(),
            other: weighed.at(other).waiter(),
        }
    }

    /// The other warpgroup.
    fn another(&self) -> Val<'k, u32> {
        (self.group + 1) % GROUPS
    }

    /// The panel that has the weights of a warpgroup, and the first of its steps of 16 keys.
    fn place(&self, group: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        let step = group * (self.shape.keys / 16);
        [step / 4, step % 4]
    }
}

/// What one warpgroup has of a tile: all rows, half of the columns of the results.
struct Half<'a, 'k, T: Element> {
    k: Kernel<'k>,
    shape: DecodeShape,
    exchange: &'a Exchange<'k, T>,
    group: Val<'k, u32>,
    mask: TileMask<'k>,
    seen: [KeyRange<'k>; 2],
    softmax: Softmax<'k>,
    scores: WgmmaSums<'k>,
    /// The weights of a stage in halves, 16 keys each.
    weights: Vec<WgmmaLeft<'k, T>>,
    results: WgmmaSums<'k>,
}

impl<'a, 'k, T: Element> Half<'a, 'k, T> {
    fn new(
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        exchange: &'a Exchange<'k, T>,
    ) -> Self {
        let mask = part.sequence.mask(shape, args);
        let own = part.first_row + ((k.warp() & 3) << 4) + Accumulator::row(k);
        Half {
            k: *k,
            shape: *shape,
            exchange,
            group: exchange.group,
            mask,
            seen: [0, 8].map(|down| mask.seen_by(part.query_number(args, own + down))),
            softmax: Softmax::new(k, args.scale, 1),
            scores: WgmmaSums::zero(k, shape.keys),
            weights: (0..shape.keys / 16).map(|_| WgmmaLeft::new(k)).collect(),
            results: WgmmaSums::zero(k, shape.value_dim / GROUPS),
        }
    }

    /// All stages of a part. Those of this warpgroup are every second one; behind the scores of each come the other's values of the stage before.
    fn products(
        &self,
        part: &Part<'k>,
        queries: &SharedTile<'k, T>,
        stages: &BulkConsumer<'_, 'k, Spec>,
    ) {
        let (k, count) = (self.k, part.count);
        let number = k.var(self.group);
        // The first one has none before it.
        k.if_(self.group.eq(0), || {
            stages.peek(|stage| self.ask_scores(queries, &stage.cast()));
            let scores = self.scores.settled(0);
            stages.peek(|stage| self.weigh(part, k.c(0), &scores, &stage, || {}));
            stages.give_back();
            number.set(GROUPS);
        });
        k.loop_(|flow| {
            flow.break_unless(number.get().lt(count));
            stages.peek_second(|stage| self.ask_scores(queries, &stage.cast()));
            stages.peek(|stage| self.ask_values_of_other(&stage.cast()));
            let scores = self.scores.settled(1);
            let done = || {
                self.results.wait_for_older(0);
                stages.give_back();
            };
            stages.peek_second(|stage| self.weigh(part, number.get(), &scores, &stage, done));
            stages.give_back();
            number.update(|number| number + GROUPS);
        });
        // The last one may be the other's.
        k.if_(number.get().le(count), || {
            stages.peek(|stage| self.ask_values_of_other(&stage.cast()));
            self.results.wait_for_older(0);
            stages.give_back();
        });
    }

    /// Starts the products of the queries with the keys of a stage.
    fn ask_scores(&self, queries: &SharedTile<'k, T>, stage: &SharedTile<'k, T>) {
        let shape = &self.shape;
        self.scores.accumulate(|batch| {
            for panel in 0..shape.panels() {
                let left = queries.wgmma_operand(panel * ROWS);
                let right = stage.wgmma_operand(panel * shape.keys);
                for step in 0..shape.steps(panel) {
                    let (left, right) = (left.step(step), right.step(step));
                    match (panel, step) {
                        (0, 0) => batch.mma_fresh(left, right),
                        _ => batch.mma(left, right),
                    }
                }
            }
        });
    }

    /// Waits for the weights of a stage of the other warpgroup, and starts to add the values of this half.
    fn ask_values_of_other(&self, stage: &SharedTile<'k, T>) {
        let (k, Exchange { other, weights, .. }) = (self.k, self.exchange);
        other.wait();
        let from = self.exchange.another();
        let factors = [0, 1].map(|half| {
            let row = &self.softmax.rows[0][half];
            let level = self.state(self.exchange.levels, from, half).load();
            let factor = (row.level.get() - level).exp2_approx();
            let over = level.gt(row.level.get());
            row.level.set(level);
            row.sum.update(|sum| sum * factor);
            (factor, over)
        });
        let [(upper, raised), (lower, also)] = factors;
        k.if_((raised | also).any(), || {
            scale_rows(&self.results.held(), 0, [upper, lower]);
        });
        let [panel, first] = self.exchange.place(from);
        let left = weights.wgmma_operand(panel * ROWS).step_at(first);
        let values = self.values(stage);
        self.results.accumulate(|batch| {
            for step in 0..self.shape.keys / 16 {
                batch.mma(left.step(step), values.step(step));
            }
        });
    }

    /// The values of a stage that are this half's.
    fn values(&self, stage: &SharedTile<'k, T>) -> heist_builder::WgmmaOperand<'k, T> {
        let panel = self.group * (self.shape.value_dim / GROUPS / PANEL);
        stage.wgmma_operand_across(panel, self.shape.keys)
    }

    /// Where a level or a sum of a warpgroup is for one of this lane's two rows.
    fn state(
        &self,
        all: Ptr<'k, Shared, f32>,
        group: Val<'k, u32>,
        half: usize,
    ) -> Ptr<'k, Shared, f32> {
        let row = ((self.k.warp() & 3) << 4) + Accumulator::row(&self.k) + 8 * half as u32;
        all.at(group * ROWS + row)
    }

    /// The weights of a stage of this warpgroup, which the other one gets, and the values of this half. Between them, when the weights are known,
    /// `done` waits for the products before.
    fn weigh(
        &self,
        part: &Part<'k>,
        number: Val<'k, u32>,
        scores: &WarpTile<'k>,
        stage: &SharedTile<'k, f16>,
        done: impl Fn(),
    ) {
        let (k, shape) = (self.k, &self.shape);
        let at = part.first_key(shape.keys) + number * shape.keys;
        let first = part.sequence.key(at, shape.keys);
        let by_all = self.mask.seen_by_all(part.sequence.queries);
        let masked = !by_all.has_all(first, shape.keys);
        k.if_(masked, || hide_masked(scores, &[self.seen], first));
        let raised = self.softmax.raise(scores);
        self.softmax.weigh(scores);
        for (index, weights) in self.weights.iter().enumerate() {
            let blocks = [2 * index, 2 * index + 1].map(|col| scores.block(0, col));
            if let [Some(left), Some(right)] = blocks {
                weights.set(left.get(), right.get());
            }
        }
        done();
        self.give_weights();
        // Values after the last key belong to another sequence, or to none, and are set to zero: a weight of zero times an infinity is NaN.
        let cleared = match shape.ragged() {
            false => k.c(false),
            true => {
                let inside = part.sequence.keys.max(first) - first;
                k.if_(inside.lt(shape.keys), || {
                    let thread = k.thread_index() % 128;
                    clear_values(&k, shape, stage, inside, (thread, 128));
                });
                inside.lt(shape.keys)
            }
        };
        k.fence_async_shared();
        let Exchange { own, .. } = self.exchange;
        own.barrier().arrive();
        k.if_(cleared, || own.barrier().wait(own.parity()));
        own.advance();
        raised.apply(&self.results.held());
        let values = self.values(&stage.cast());
        self.results.accumulate(|batch| {
            for (step, weights) in (0..).zip(&self.weights) {
                batch.mma_left(weights, values.step(step));
            }
        });
        self.results.wait_for_older(0);
    }

    /// Puts weights and levels where the other warpgroup finds them.
    fn give_weights(&self) {
        let (k, Exchange { weights, .. }) = (self.k, self.exchange);
        let row = ((k.warp() & 3) << 4) + (k.lane() & 15);
        let [panel, first] = self.exchange.place(self.group);
        for (step, own) in (0u32..).zip(&self.weights) {
            let chunk = (first + step) * 2 + (k.lane() >> 4);
            let to = weights.chunk(panel * ROWS + row, chunk);
            to.store_matrices(own.matrices());
        }
        self.give_states(self.exchange.levels, |row| row.level.get());
    }

    fn give_states(&self, to: Ptr<'k, Shared, f32>, what: impl Fn(&Row<'k>) -> Val<'k, f32>) {
        self.k.if_((self.k.lane() & 3).eq(0), || {
            for (half, row) in self.softmax.rows[0].iter().enumerate() {
                self.state(to, self.group, half).store(what(row));
            }
        });
    }

    /// Adds up the sums of both warpgroups, whose levels are the same when all stages are done with.
    fn join(&self, meet: impl Fn()) {
        self.softmax.finish();
        self.give_states(self.exchange.sums, |row| row.sum.get());
        meet();
        for (half, row) in self.softmax.rows[0].iter().enumerate() {
            let other = self.state(self.exchange.sums, self.exchange.another(), half);
            let other = other.load();
            row.sum.update(|own| own + other);
        }
    }

    /// Normalises, and writes half of the results of a tile, or of a part of one to a slot; the first warpgroup writes the
    /// log-sum-exps, too. `meet` is where both meet.
    fn store(
        &self,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        slot: Val<'k, u32>,
        meet: impl Fn(),
    ) {
        let (k, shape) = (self.k, &self.shape);
        k.comment("normalise and store");
        self.join(meet);
        let results = self.results.settled(0);
        for rows in &self.softmax.rows {
            scale_rows(&results, 0, rows.map(|row| row.normaliser()));
        }
        let cols = results.shape().1;
        let blocks: Vec<_> = (0..cols).filter_map(|n| results.block(0, n)).collect();
        let (own, rows) = ((k.warp() & 3) << 4, part.rows(args.group));
        let col = self.group * (shape.value_dim / GROUPS) + Accumulator::col(&k);
        let writes_sums = self.group.eq(0) & (k.lane() & 3).eq(0);
        for (half, state) in self.softmax.rows.iter().flatten().enumerate() {
            let row = own + Accumulator::row(&k) + 8 * half as u32;
            let sums = blocks.iter().map(|block| block.get());
            let pairs: Vec<_> = sums
                .map(|sums| [sums[2 * half], sums[2 * half + 1]])
                .collect();
            let whole = || {
                let (at, lse) = part.result(args, row);
                k.if_(writes_sums, || args.lse.at(lse).store(state.log_sum()));
                match shape.output {
                    Output::Same => store_rounded(args.out.cast::<T>().at(at).at(col), &pairs),
                    Output::F32 => store_pairs(args.out.cast::<f32>().at(at).at(col), &pairs),
                }
            };
            let apart = || {
                let number = slot * ROWS + row;
                k.if_(writes_sums, || {
                    args.partial_lse.at(number).store(state.log_sum());
                });
                let to = args.partial.at(number.mul_wide(shape.value_dim));
                store_pairs(to.at(col), &pairs);
            };
            k.if_(row.lt(rows), || k.if_else(part.whole(), whole, apart));
        }
    }
}
