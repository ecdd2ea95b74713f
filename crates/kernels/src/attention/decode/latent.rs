//! Keys and values that are one row: a stage has the keys, and its first panels are the values.
//!
//! Latent attention decodes with wide heads (576 elements of keys, of which the first 512 are the values) that all query heads share.
//! Results of 64 rows by 512 elements take two warpgroups, each with half of the columns. Both have the scores of all keys:
//! they multiply them twice and exchange nothing, so that one's softmax falls into the other's products.

use super::DecodeArgs;
use super::block::{Copies, combine_if_last, products, slot};
use super::rows::{store_pairs, store_rounded};
use super::shape::{Combine, DecodeShape, PANEL};
use super::work::{Part, Work};
use crate::attention::mask::{KeyRange, hide_masked};
use crate::attention::meeting::Meeting;
use crate::attention::params::Element;
use crate::attention::problem::Output;
use crate::attention::score::Scores;
use crate::attention::softmax::{Softmax, scale_rows};
use heist_builder::{
    Accumulator, Bool, Kernel, On, SharedTile, TileLayout, TileSpec, Val, WgmmaLeft, WgmmaSums, f16,
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
    if shape.ragged() && combine == Combine::Launch {
        // All that was launched before has ended: the blocks that combine set out, and wait for the parts.
        k.launch_dependents();
    }
    let work = Work::new(k, shape, args, scores);
    let begin = (k.block().x * work.share).named("begin");
    let warp = k.warp_uniform();
    let group = (warp / 4).named("group");
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
                    fill_queries(k, shape, args, part, &queries);
                    k.fence_async_shared();
                    meeting.meet();
                    let half = Half::<T>::new(k, shape, args, part, group);
                    let on_stage = |stage: &SharedTile<'k, f16>, first, masked| {
                        half.stage(&queries, &stage.cast(), first, masked);
                    };
                    let none_new = |_: &SharedTile<'k, f16>, _| {};
                    products(
                        k,
                        shape,
                        args,
                        part,
                        &stages,
                        (&on_stage, &none_new),
                        &meeting,
                    );
                    let to = slot(part, begin, k.block().x);
                    half.store(args, part, to);
                    // Nobody reads the queries that the next part's replace.
                    meeting.meet();
                    if combine == Combine::LastBlock {
                        k.if_(!part.whole(), || {
                            combine_if_last::<T>(k, shape, args, part, work.share, &meeting);
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

/// What one warpgroup has of a tile: all rows, half of the columns of the results.
struct Half<'k, T: Element> {
    k: Kernel<'k>,
    shape: DecodeShape,
    group: Val<'k, u32>,
    seen: [KeyRange<'k>; 2],
    softmax: Softmax<'k>,
    scores: WgmmaSums<'k>,
    /// The weights of a stage in halves, 16 keys each.
    weights: Vec<WgmmaLeft<'k, T>>,
    results: WgmmaSums<'k>,
}

impl<'k, T: Element> Half<'k, T> {
    fn new(
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        part: &Part<'k>,
        group: Val<'k, u32>,
    ) -> Self {
        let mask = part.sequence.mask(shape, args);
        let own = part.first_row + ((k.warp() & 3) << 4) + Accumulator::row(k);
        Half {
            k: *k,
            shape: *shape,
            group,
            seen: [0, 8].map(|down| mask.seen_by((own + down) / args.group)),
            softmax: Softmax::new(k, args.scale, 1),
            scores: WgmmaSums::zero(k, shape.keys),
            weights: (0..shape.keys / 16).map(|_| WgmmaLeft::new(k)).collect(),
            results: WgmmaSums::zero(k, shape.value_dim / GROUPS),
        }
    }

    /// One stage: the scores of its keys, and half of the columns of its values weighed by them.
    fn stage(
        &self,
        queries: &SharedTile<'k, T>,
        stage: &SharedTile<'k, T>,
        first: Val<'k, u32>,
        masked: Bool<'k>,
    ) {
        let (k, shape) = (self.k, &self.shape);
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
        let scores = self.scores.settled(0);
        k.if_(masked, || hide_masked(&scores, &[self.seen], first));
        let raised = self.softmax.raise(&scores);
        self.softmax.weigh(&scores);
        raised.apply(&self.results.held());
        for (index, weights) in self.weights.iter().enumerate() {
            let blocks = [2 * index, 2 * index + 1].map(|col| scores.block(0, col));
            if let [Some(left), Some(right)] = blocks {
                weights.set(left.get(), right.get());
            }
        }
        let panel = self.group * (shape.value_dim / GROUPS / PANEL);
        let values = stage.wgmma_operand_across(panel, shape.keys);
        self.results.accumulate(|batch| {
            for (step, weights) in (0..).zip(&self.weights) {
                batch.mma_left(weights, values.step(step));
            }
        });
        self.results.wait_for_older(0);
    }

    /// Normalises, and writes half of the results of a tile, or of a part of one to a slot; the first warpgroup writes the
    /// log-sum-exps, too.
    fn store(&self, args: &DecodeArgs<On<'k>>, part: &Part<'k>, slot: Val<'k, u32>) {
        let (k, shape) = (self.k, &self.shape);
        k.comment("normalise and store");
        self.softmax.finish();
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
