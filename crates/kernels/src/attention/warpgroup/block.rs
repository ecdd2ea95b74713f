//! The work of a block: a producer thread issues copies, and consumer warpgroups process the blocks
//! of keys and values as they arrive.

use super::WarpgroupArgs;
use super::group::Work;
use super::list::entry;
use super::shape::WarpgroupShape;
use crate::attention::mask::{Blocks, MaskArgs};
use crate::attention::meeting::Meeting;
use crate::attention::order::HeaviestFirst;
use crate::attention::panels::{Rows, Sequence, Spec};
use crate::attention::params::Element;
use crate::attention::score::Scores;
use heist_builder::{
    Bool, BulkConsumer, BulkPipeline, BulkProducer, Kernel, Landing, NamedBarrier, On,
    TensorMapRef, Val, f16,
};
use heist_sched::{Extent, Position, TileOrder};

/// The shared memory of a block: queries, and the stages of keys and values.
pub(super) struct Rings<'k> {
    queries: BulkPipeline<'k, Spec>,
    keys: BulkPipeline<'k, Spec>,
    values: BulkPipeline<'k, Spec>,
}

impl<'k> Rings<'k> {
    pub(super) fn new(k: &Kernel<'k>, shape: &WarpgroupShape) -> Rings<'k> {
        let ring = |stages, spec| k.bulk_pipeline_of(stages, spec, 4 * shape.groups);
        Rings {
            queries: ring(shape.query_stages(), shape.tile("q", shape.rows())),
            keys: ring(shape.stages, shape.tile("k", shape.keys)),
            values: ring(shape.stages, shape.tile("v", shape.keys)),
        }
    }
}

/// The ends of the rings, which go on from tile to tile.
pub(super) struct Ends<'p, 'k> {
    k: Kernel<'k>,
    shape: WarpgroupShape,
    fill: [BulkProducer<'p, 'k, Spec>; 3],
    queries: BulkConsumer<'p, 'k, Spec>,
    keys: BulkConsumer<'p, 'k, Spec>,
    values: BulkConsumer<'p, 'k, Spec>,
    /// The number of this thread's warpgroup; the last one copies.
    group: Val<'k, u32>,
    /// Where this thread's warpgroup meets by itself.
    own: Meeting<'k>,
    /// Where all warpgroups that multiply meet.
    all: Option<Meeting<'k>>,
    /// Where one warpgroup waits for its turn, and the other says that it comes.
    turns: Option<[NamedBarrier<'k>; 2]>,
    /// What a model adds.
    scores: Scores<'p, 'k>,
}

impl<'p, 'k> Ends<'p, 'k> {
    pub(super) fn new(
        k: &Kernel<'k>,
        shape: WarpgroupShape,
        scores: Scores<'p, 'k>,
        rings: &'p Rings<'k>,
    ) -> Ends<'p, 'k> {
        let group = k.warp_uniform() / 4;
        Ends {
            k: *k,
            shape,
            fill: [&rings.queries, &rings.keys, &rings.values].map(BulkPipeline::producer),
            queries: rings.queries.consumer(),
            keys: rings.keys.consumer(),
            values: rings.values.consumer(),
            group,
            own: Meeting::of(k, "met", shape.groups, 4, &group),
            all: shape
                .ragged
                .then(|| Meeting::of(k, "all_met", 1, 4 * shape.groups, &k.c(0))),
            turns: shape
                .turns
                .then(|| [k.named_barrier(256), k.named_barrier(256)]),
            scores,
        }
    }

    /// All tiles of a block that stays: the thread that copies goes through them by
    /// itself, ahead of the warpgroups as far as the rings have room, so that the next
    /// tile's queries and first keys come while this tile is multiplied and stored.
    ///
    /// Head by head, so that blocks that run at a time share keys. Blocks take turns, in
    /// each round in the other direction.
    pub(super) fn stay<T: Element>(&self, args: &WarpgroupArgs<On<'k>>) {
        let k = self.k;
        let registers = self.shape.registers();
        let (block, blocks) = (k.block().x, k.grid_dim().x);
        let extent = Extent {
            x: args.tiles,
            y: args.heads,
            count: args.count,
            rank: 3,
            table: args.q_starts,
        };
        let each = |body: &dyn Fn(&Position<'k>, &Rows<'k>)| {
            let forth = k.var(true);
            k.for_step(0u32, args.count, blocks, |first| {
                let place = forth.get().select(block, blocks - 1 - block);
                forth.set(!forth.get());
                let index = first + place;
                k.if_(index.lt(args.count), || {
                    if let Some(heads) = self.shape.listed {
                        let line = index / heads;
                        let section = line / args.tiles;
                        let head = section * heads + (index - line * heads);
                        let (tile, there) = entry(args.list, line - section * args.tiles, head);
                        k.if_(there, || {
                            self.each_tile(args, &tile, |rows| body(&tile, rows));
                        });
                    } else {
                        let tile = HeaviestFirst { heads: 1 }.emit(&k, index, &extent);
                        self.each_tile(args, &tile, |rows| body(&tile, rows));
                    }
                });
            });
        };
        k.if_else(
            self.group.eq(self.shape.groups),
            || {
                k.comment("the copies");
                k.give_registers(registers.copying);
                k.if_(self.copies(), || {
                    each(&|tile, rows| self.copy(args, tile, rows));
                });
                k.sync_warp();
            },
            || {
                k.comment("the products");
                k.take_registers(registers.multiplying);
                each(&|tile, rows| self.multiply::<T>(args, tile, rows));
            },
        );
    }

    /// A tile of the list: some heads along x, entries along y, the other heads along z.
    pub(super) fn listed<T: Element>(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        at: &Position<'k>,
        heads: u32,
    ) {
        let (tile, there) = entry(args.list, at.y, at.z * heads + at.x);
        self.k.if_(there, || self.strip::<T>(args, &tile));
    }

    /// A strip of tiles: strips along x, heads along y, sequences along z.
    pub(super) fn strip<T: Element>(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>) {
        let k = self.k;
        let registers = self.shape.registers();
        let copying = self.group.eq(self.shape.groups);
        k.if_else(
            copying,
            || {
                k.comment("the copies");
                k.give_registers(registers.copying);
                k.if_(self.copies(), || {
                    self.each_tile(args, tile, |rows| self.copy(args, tile, rows));
                });
                k.sync_warp();
            },
            || {
                k.comment("the products");
                k.take_registers(registers.multiplying);
                self.each_tile(args, tile, |rows| self.multiply::<T>(args, tile, rows));
                k.give_registers(registers.even);
            },
        );
        // Not before they have been given back: idle warps would take what the others
        // are about to ask for.
        k.sync();
        k.if_(copying, || k.take_registers(registers.even));
    }

    /// What a warpgroup does with a tile.
    fn multiply<T: Element>(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        tile: &Position<'k>,
        rows: &Rows<'k>,
    ) {
        let k = self.k;
        let at = (tile, rows);
        let work = Work::<T>::new(&k, &self.shape, args, &self.scores, self.group, at);
        self.queries.consume(|queries| {
            let queries = queries.cast();
            k.if_(rows.blocks.any(), || {
                self.clear_past_end(rows);
                self.attend(&work, &queries, &rows.blocks);
            });
            // All of the warpgroup's products have read them.
            self.own.meet();
            work.store(args, tile, rows, self.scores.sink(tile.y), &queries);
            k.fence_async_shared();
        });
    }

    /// Calls `body` with each tile of a strip that has rows.
    fn each_tile(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        tile: &Position<'k>,
        body: impl Fn(&Rows<'k>),
    ) {
        let (k, height, strip) = (self.k, self.shape.rows(), self.shape.strip);
        let sequence = Sequence::of(args, tile, self.shape.ragged);
        let mask = MaskArgs {
            kind: self.shape.mask,
            left: args.left,
            right: args.right,
            prefix: self.scores.prefix(tile.z),
        };
        let shape = (height, self.shape.keys);
        let one = |number: Val<'k, u32>| body(&Rows::of(sequence, number, shape, mask));
        let all = sequence.queries.div_ceil(height);
        match (strip, self.shape.ragged) {
            (1, false) => one(tile.x),
            // The sequence may be shorter than the longest.
            (1, true) => k.if_(tile.x.lt(all), || one(tile.x)),
            // The last tile, the first, the last but one, the second, and so on.
            _ => {
                let first = tile.x * strip;
                k.for_range(first, (first + strip).min(all), |place| {
                    let half = place >> 1;
                    one((place & 1).eq(0).select(all - 1 - half, half));
                });
            }
        }
    }

    /// Holds in the thread that asks for copies.
    fn copies(&self) -> Bool<'k> {
        self.k.thread_index().eq(128 * self.shape.groups)
    }

    /// Asks for the queries, and for every block of keys and values.
    fn copy(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>, rows: &Rows<'k>) {
        let kv_head = tile.y / args.group;
        let Sequence {
            q_start,
            k_start,
            batch,
            ..
        } = rows.sequence;
        let (cut, layout) = (self.shape.cut(), self.shape.layout);
        let one = |which: usize, from: TensorMapRef<'k, f16, 4>, height, row, head| {
            self.fill[which].fill(|copies, to: Landing<'k, f16>| {
                cut.copy(copies, to, from, (height, layout), [row, head, batch]);
            });
        };
        let (height, keys) = (self.shape.rows(), self.shape.keys);
        one(0, args.q, height, q_start + rows.first, tile.y);
        rows.blocks.each_number(|number| {
            let first = k_start + rows.blocks.first_key(number);
            one(1, args.k, keys, first, kv_head);
            one(2, args.v, keys, first, kv_head);
        });
    }

    /// Clears what the first block, which is the one with the last keys, has of the
    /// next sequence's values.
    fn clear_past_end(&self, rows: &Rows<'k>) {
        let Some(all) = &self.all else {
            return;
        };
        let k = self.k;
        let (keys, threads) = (self.shape.keys, 128 * self.shape.groups);
        let own = rows
            .mask
            .keys_from(rows.blocks.first_key(rows.blocks.begin));
        k.if_(own.lt(keys), || {
            self.values.peek(|values| {
                let chunks = (k.c(keys) - own) * values.chunks();
                k.for_step(k.thread_index(), chunks, threads, |index| {
                    let row = own + index / values.chunks();
                    for panel in 0..self.shape.panels() {
                        let chunk = values.chunk(row + panel * keys, index % values.chunks());
                        chunk.cast::<u32>().store_vec([k.c(0u32); 4]);
                    }
                });
            });
            k.fence_async_shared();
            all.meet();
        });
    }

    /// Goes through the blocks. Each pass asks for the scores of its own block
    /// and weighs the values of the one before.
    fn attend<T: Element>(
        &self,
        work: &Work<'k, T>,
        queries: &heist_builder::SharedTile<'k, T>,
        blocks: &Blocks<'k>,
    ) {
        let k = self.k;
        let scores = self.keys.consume(|keys| {
            work.score(queries, &keys.cast());
            work.scores.settled(0)
        });
        // There are no results yet that would have to be brought to the levels.
        let _ = work.admit(&scores, true, || blocks.first_key(blocks.begin));
        work.round(&scores);
        // The first warpgroup has the first turn.
        if let Some([first, _]) = self.turns {
            k.if_(self.group.eq(1u32), || first.arrive());
        }
        blocks.each_after_first(|number, masked| {
            let (scores, raised, results) = self.values.consume(|values| {
                let scores = self.keys.consume(|keys| {
                    self.in_turn(|| {
                        work.score(queries, &keys.cast());
                        work.weigh(&values.cast());
                    });
                    work.scores.settled(1)
                });
                let raised = work.admit(&scores, masked, || blocks.first_key(number));
                (scores, raised, work.results.settled(0))
            });
            raised.apply(&results);
            work.round(&scores);
        });
        // And the last: every arrival has been waited for.
        if let Some([first, _]) = self.turns {
            k.if_(self.group.eq(0u32), || first.sync());
        }
        self.values.consume(|values| {
            work.weigh(&values.cast());
            work.results.wait_for_older(0);
        });
    }

    /// Waits for this warpgroup's turn, asks for products, and gives the turn to
    /// the other.
    fn in_turn(&self, ask: impl FnOnce()) {
        let Some([first, second]) = self.turns else {
            return ask();
        };
        let k = self.k;
        k.if_else(self.group.eq(0u32), || first.sync(), || second.sync());
        ask();
        k.if_else(self.group.eq(0u32), || second.arrive(), || first.arrive());
    }

    /// Waits until nothing is on its way, before the block exits.
    pub(super) fn finish(&self) {
        let k = self.k;
        k.if_(self.copies(), || {
            self.fill.iter().for_each(BulkProducer::drain);
        });
    }
}
