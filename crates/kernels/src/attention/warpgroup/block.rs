//! The work of a block: a producer thread issues copies, and consumer warpgroups process the blocks
//! of keys and values as they arrive.

use super::WarpgroupArgs;
use super::exchange::Exchange;
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
use heist_sched::{Extent, Pause, Position, TileOrder};

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
            queries: ring(shape.query_stages(), shape.cut().tile("q", shape.rows())),
            keys: ring(shape.stages, shape.cut().tile("k", shape.keys)),
            values: ring(shape.stages, shape.value_cut().tile("v", shape.keys)),
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
    /// The other blocks with the same rows, where there are some.
    exchange: Option<Exchange<'k>>,
    /// How a tile is left half done, where it can be.
    pause: Option<Pause<'k>>,
    /// What a model adds.
    scores: Scores<'p, 'k>,
}

impl<'p, 'k> Ends<'p, 'k> {
    pub(super) fn new(
        k: &Kernel<'k>,
        shape: WarpgroupShape,
        scores: Scores<'p, 'k>,
        rings: &'p Rings<'k>,
        pause: Option<Pause<'k>>,
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
            exchange: Exchange::new(k, &shape),
            all: shape
                .ragged
                .then(|| Meeting::of(k, "all_met", 1, 4 * shape.groups, &k.c(0))),
            turns: shape
                .turns
                .then(|| [k.named_barrier(256), k.named_barrier(256)]),
            pause,
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
            if self.shape.sharing.is_some() {
                let index = k.cluster_position().x;
                // Those that do not run at once are the light ones of all heads.
                let tile = HeaviestFirst { heads: u32::MAX }.emit(&k, index, &extent);
                return self.each_tile(args, &tile, None, |rows| body(&tile, rows));
            }
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
                            self.each_tile(args, &tile, None, |rows| body(&tile, rows));
                        });
                    } else {
                        let tile = HeaviestFirst { heads: 1 }.emit(&k, index, &extent);
                        self.each_tile(args, &tile, None, |rows| body(&tile, rows));
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
                    let from = self.pause.map(|pause| pause.from());
                    self.each_tile(args, tile, from, |rows| self.copy(args, tile, rows));
                });
                k.sync_warp();
            },
            || {
                k.comment("the products");
                k.take_registers(registers.multiplying);
                // All lanes agree, and the assembler knows it.
                let from = self.pause.map(|pause| pause.from().shuffle_from(0u32));
                self.each_tile(args, tile, from, |rows| {
                    self.multiply::<T>(args, tile, rows);
                });
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
        if let (Some(pause), Some(done)) = (&self.pause, rows.done) {
            k.if_(done.ne(0), || work.restore(pause.saved()));
        }
        self.queries.consume(|queries| {
            let queries = queries.cast();
            k.if_(rows.blocks.any(), || {
                self.clear_past_end(rows);
                self.attend(&work, &queries, &rows.blocks);
            });
            // All of the warpgroup's products have read them.
            self.own.meet();
            let part = self.exchange.as_ref().map(|others| work.exchange(others));
            let sink = self.scores.sink(tile.y);
            let store = || work.store(args, (tile, rows), sink, &queries, part.as_ref());
            match &self.pause {
                Some(pause) => k.if_else(pause.left(), || work.save(pause.room()), store),
                None => store(),
            }
            k.fence_async_shared();
        });
    }

    /// Calls `body` with each tile of a strip that has rows. The first `from` blocks of keys are
    /// done, where tiles can be left half done.
    fn each_tile(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        tile: &Position<'k>,
        from: Option<Val<'k, u32>>,
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
        let one = |number: Val<'k, u32>| {
            let share = (k.cluster_rank(), k.cluster_size());
            let mut rows = Rows::of_share(sequence, number, shape, mask, share);
            if self.shape.seen {
                let line = tile.z * args.line_batch + tile.y * args.line_head + number;
                rows = rows.listed(args.lines.at(line.mul_wide(args.line)), self.shape.keys);
            }
            body(&match from {
                None => rows,
                Some(from) => rows.after(from),
            });
        };
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
        let (cut, value_cut) = (self.shape.cut(), self.shape.value_cut());
        let cuts = [cut, cut, value_cut];
        let layout = self.shape.layout;
        let one = |which: usize, from: TensorMapRef<'k, f16, 4>, height, row, head| {
            self.fill[which].fill(|copies, to: Landing<'k, f16>| {
                cuts[which].copy(copies, to, from, (height, layout), [row, head, batch]);
            });
        };
        let (height, keys) = (self.shape.rows(), self.shape.keys);
        one(0, args.q, height, q_start + rows.first, tile.y);
        let blocks = &rows.blocks;
        let both = |key: Val<'k, u32>, between: &dyn Fn()| {
            let first = k_start + key;
            one(1, args.k, keys, first, kv_head);
            between();
            one(2, args.v, keys, first, kv_head);
        };
        match (&self.pause, rows.done) {
            (Some(pause), Some(done)) => {
                self.copy_until_asked(pause, (done, blocks), |number, between| {
                    both(blocks.first_key(number), between);
                });
            }
            _ => blocks.each_first_key(|key| both(key, &|| {})),
        }
    }

    /// Asks for blocks until the bell is rung, if it is.
    ///
    /// Whether a piece is the last one is decided before its last block is copied, so that the
    /// warpgroups know it once that block has arrived. The bell is loaded a block earlier, between the
    /// copies of its keys and its values, and arrives while room for the values is waited for: to wait
    /// for the bell would hold up the copies, which are only two blocks ahead.
    fn copy_until_asked(
        &self,
        pause: &Pause<'k>,
        (done, blocks): (Val<'k, u32>, &Blocks<'k>),
        copy: impl Fn(Val<'k, i32>, &dyn Fn()),
    ) {
        let k = self.k;
        let number = k.var(blocks.begin).named("number");
        let (last, heard) = (k.var(false).named("last"), k.var(0u32).named("heard"));
        let before = k.var(0u32).named("heard_before");
        k.while_(
            || blocks.has(number.get()) & !last.get(),
            || {
                let next = number.get() + 1;
                k.if_(blocks.ends_piece(self.shape.piece(), number.get()), || {
                    let done = done + (next - blocks.begin).cast::<u32>();
                    last.set(pause.look_twice(heard.get(), before, done));
                });
                copy(number.get(), &|| heard.set(pause.listen()));
                number.set(next);
            },
        );
    }

    /// Clears what the first block, which is the one with the last keys, has of the
    /// next sequence's values.
    fn clear_past_end(&self, rows: &Rows<'k>) {
        let Some(all) = self.all.as_ref().filter(|_| self.shape.ragged) else {
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
                    for panel in 0..self.shape.value_cut().count() {
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
        let first = blocks.first_key(blocks.begin);
        let resumes = self.pause.is_some();
        let raised = work.begin(&scores, first, blocks.at_edge(blocks.begin), resumes);
        // Else there are no results yet that would have to be brought to the levels.
        if resumes {
            raised.apply(&work.results.held());
        }
        // The first warpgroup has the first turn.
        if let Some([first, _]) = self.turns {
            k.if_(self.group.eq(1u32), || first.arrive());
        }
        let next = |number: Val<'k, i32>, masked: bool| {
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
            work.turn(&scores);
        };
        match &self.pause {
            None => blocks.each_after_first(next),
            Some(pause) => blocks.each_piece_after_first(self.shape.piece(), next, || pause.left()),
        }
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
