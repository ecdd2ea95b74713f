//! The work of a block on a tile: a producer thread issues copies, and consumer warpgroups process
//! the blocks of queries as they arrive.

use super::layout::{self, Way};
use super::shape::{
    GROUPS, HalfTile, KEYS, PANEL, REGISTERS, RowArray, STAGES, WarpgroupArgs, WarpgroupShape,
};
use super::work::Work;
use crate::attention::backward::numbers::{Sequence, Sequences};
use crate::attention::backward::problem::Sums;
use crate::attention::backward::reach::{QueryBlocks, Reach};
use crate::attention::mask::MaskArgs;
use crate::attention::params::Element;
use crate::attention::problem::Layout;
use heist_builder::{
    Bool, BulkConsumer, BulkPipeline, BulkProducer, Global, Kernel, Landing, NamedBarrier, On, Ptr,
    SharedArray, SharedTile, TensorMapRef, TileLayout, TileSpec, Transaction, Val, Var, f16,
};

/// Queries, and their log-sum-exps.
type QueryStage = (HalfTile, RowArray);
/// Gradients of results, and of their rows the products with the results, and the steps
/// of fixed-point sums.
type GradientStage = (HalfTile, RowArray, RowArray);

/// The shared memory that copies land in.
pub(super) struct Rings<'k> {
    kv: BulkPipeline<'k, (HalfTile, HalfTile)>,
    queries: BulkPipeline<'k, QueryStage>,
    gradients: BulkPipeline<'k, GradientStage>,
}

impl<'k> Rings<'k> {
    pub(super) fn new(k: &Kernel<'k>, shape: &WarpgroupShape) -> Rings<'k> {
        let (warps, height) = (4 * GROUPS, shape.queries());
        Rings {
            kv: k.bulk_pipeline_of(1, (shape.tile("k", KEYS), shape.tile("v", KEYS)), warps),
            // Every lane gives these back: racecheck takes the numbers of the next rows, which threads read, for a race otherwise.
            queries: k.bulk_pipeline_by_lanes(
                STAGES,
                (shape.tile("q", height), shape.numbers("level")),
                warps,
                1,
            ),
            gradients: k.bulk_pipeline_by_lanes(
                STAGES,
                (
                    shape.tile("d_out", height),
                    shape.numbers("delta"),
                    shape.numbers("step"),
                ),
                warps,
                1,
            ),
        }
    }
}

/// The ends of the rings, which go on from tile to tile.
pub(super) struct Block<'p, 'k> {
    k: Kernel<'k>,
    shape: WarpgroupShape,
    fill_kv: BulkProducer<'p, 'k, (HalfTile, HalfTile)>,
    fill_queries: BulkProducer<'p, 'k, QueryStage>,
    fill_gradients: BulkProducer<'p, 'k, GradientStage>,
    kv: BulkConsumer<'p, 'k, (HalfTile, HalfTile)>,
    queries: BulkConsumer<'p, 'k, QueryStage>,
    gradients: BulkConsumer<'p, 'k, GradientStage>,
    /// Gradients of scores: keys down, queries across, panel below panel; twice, for
    /// one warpgroup may still read the last block's while the other writes the next.
    stage: SharedTile<'k, f16>,
    /// What the copy engine adds to the sums, until it has read it.
    outbox: Option<SharedArray<'k, i32>>,
    /// The number of this thread's warpgroup; the last one copies.
    group: Val<'k, u32>,
    /// Where both warpgroups wait until all gradients of scores are there.
    met: NamedBarrier<'k>,
}

/// A tile of keys: where it is, and who sees it.
pub(super) struct KeyTile<'k> {
    pub(super) sequence: Sequence<'k>,
    pub(super) reach: Reach<'k>,
    blocks: QueryBlocks<'k>,
    /// The key head, and the number of the sequence.
    head: Val<'k, u32>,
    batch: Val<'k, u32>,
    /// The tile's number in its head, and of its parts this one, where tiles are cut.
    part: Option<[Val<'k, u32>; 2]>,
}

impl<'k> KeyTile<'k> {
    /// The first element of the tile's keys.
    pub(super) fn first_element(&self, args: &WarpgroupArgs<On<'k>>) -> Val<'k, u64> {
        self.batch.mul_wide(args.k_batch)
            + (self.sequence.k_start + self.reach.first_key).mul_wide(args.k_row)
            + self.head.mul_wide(args.k_head)
    }

    /// Where the part of a warpgroup lies, of dK and of dV.
    pub(super) fn partials(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        shape: &WarpgroupShape,
        group: Val<'k, u32>,
    ) -> Option<[Ptr<'k, Global, f32>; 2]> {
        self.part.map(|[tile, part]| {
            let tile = (self.batch * args.kv_heads + self.head) * args.key_tiles + tile;
            let own = part.mul_wide(layout::ROWS * shape.head_dim);
            [0, 1].map(|which| {
                let which = group.kernel().c(which);
                let piece = layout::part(shape.head_dim, [tile, which, group], args.parts);
                args.partials.at(piece).at(own)
            })
        })
    }
}

/// A block of queries.
#[derive(Clone, Copy)]
pub(super) struct QueryBlock<'k> {
    /// The query head.
    head: Val<'k, u32>,
    /// Its first query, in the sequence.
    pub(super) first: Val<'k, u32>,
    /// The number of its first row.
    pub(super) number: Val<'k, u32>,
}

/// What a warpgroup works with while it goes through blocks of queries.
struct Pass<'a, 'p, 'k, T: Element> {
    block: &'a Block<'p, 'k>,
    work: &'a Work<'k, T>,
    keys: &'a SharedTile<'k, T>,
    values: &'a SharedTile<'k, T>,
    place: &'a KeyTile<'k>,
    /// Which half of the stage of gradients of scores is next.
    second: Var<'k, u32>,
}

impl<'k, T: Element> Pass<'_, '_, 'k, T> {
    /// What lies past the end of a packed sequence is the next, and anything at all.
    fn clear_past_end(&self, tile: &SharedTile<'k, T>, of: QueryBlock<'k>) {
        let Block { k, shape, met, .. } = self.block;
        if shape.ragged {
            let inside = self.place.reach.queries - of.first;
            self.block.clear(tile, shape.queries(), inside);
            k.if_(inside.lt(shape.queries()), || {
                k.fence_async_shared();
                met.sync();
            });
        }
    }

    /// One block. While threads turn scores into weights, weights into gradients, and add
    /// dQ to the sums, the products that come next are on their way: gradients of weights,
    /// dV, dK.
    fn run(&self, args: &WarpgroupArgs<On<'k>>, of: QueryBlock<'k>) {
        let Block { k, shape, met, .. } = self.block;
        let work = self.work;
        let rows = KEYS * shape.queries() / PANEL;
        let stage = self.block.stage.cast::<T>();
        let stage = stage.rows_from(self.second.get() * rows, rows);
        self.second.update(|second| second ^ 1);
        self.block.queries.consume(|(queries, levels)| {
            let queries = queries.cast();
            self.clear_past_end(&queries, of);
            work.score(self.keys, &queries);
            self.block.gradients.consume(|(d_out, deltas, steps)| {
                let d_out = d_out.cast();
                self.clear_past_end(&d_out, of);
                work.d_weigh(self.values, &d_out);
                let after = || self.place.reach.after(work.row(), of.first);
                let changed = shape
                    .change
                    .map(|change| change.of_head(args.scale, args.slopes, of.head, after));
                let changed = changed.as_ref();
                work.weigh(self.place, of, &levels, changed);
                if work.rounds_first() {
                    work.add_values(&d_out);
                    work.d_score([&levels, &deltas], &stage, 1, changed);
                } else {
                    work.d_score([&levels, &deltas], &stage, 0, changed);
                    work.add_values(&d_out);
                }
                let steps = work.steps(&steps);
                // Of the gradients of scores for the products, and of the rows' numbers,
                // which have been read, for the next copies.
                k.fence_async_shared();
                met.sync();
                work.ask_queries(&stage, self.keys);
                let newer = 1 + work.add_late_values(&d_out);
                work.add_keys(&queries);
                work.add_queries(args.sums, of.number, steps, self.block.outbox, newer);
                work.wait();
            });
        });
    }
}

impl<'p, 'k> Block<'p, 'k> {
    pub(super) fn new(k: &Kernel<'k>, shape: WarpgroupShape, rings: &'p Rings<'k>) -> Self {
        let panels = shape.queries() / PANEL;
        let stage = TileSpec::new("d_scores", 2 * KEYS * panels, PANEL, TileLayout::Swizzled);
        Block {
            k: *k,
            shape,
            fill_kv: rings.kv.producer(),
            fill_queries: rings.queries.producer(),
            fill_gradients: rings.gradients.producer(),
            kv: rings.kv.consumer(),
            queries: rings.queries.consumer(),
            gradients: rings.gradients.consumer(),
            stage: k.tile(stage),
            outbox: (Way::of(shape.sums, shape.head_dim) == Way::Bulk)
                .then(|| k.shared_aligned("outbox", layout::numbers(shape.head_dim), 128)),
            group: k.warp_uniform() / 4,
            met: k.named_barrier(128 * GROUPS),
        }
    }

    /// One tile.
    pub(super) fn tile<T: Element>(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        tile: &heist_sched::Tile<'k>,
    ) {
        let k = self.k;
        let [even, multiplying, copying] = REGISTERS;
        let place = self.place(args, tile);
        let some = place.reach.first_key.lt(place.reach.keys);
        let copies = self.group.eq(GROUPS);
        k.if_else(
            copies,
            || {
                k.comment("the copies");
                k.give_registers(copying);
                k.if_(some & self.copies(), || self.copy(args, &place));
                k.sync_warp();
            },
            || {
                k.comment("the products");
                k.take_registers(multiplying);
                k.if_(some, || self.multiply::<T>(args, &place));
                k.give_registers(even);
            },
        );
        // Not before they have been given back: idle warps would take what the others
        // are about to ask for.
        k.sync();
        k.if_(copies, || k.take_registers(even));
    }

    fn place(&self, args: &WarpgroupArgs<On<'k>>, tile: &heist_sched::Tile<'k>) -> KeyTile<'k> {
        let sequence = Sequences {
            ragged: self.shape.ragged,
            height: self.shape.queries(),
            q_starts: args.q_starts,
            k_starts: args.k_starts,
            q_len: args.q_len,
            k_len: args.k_len,
            number_batch: args.number_batch,
        }
        .get(tile.z);
        let mask = MaskArgs {
            kind: self.shape.mask,
            left: args.left,
            right: args.right,
            prefix: None,
        };
        let lengths = [sequence.queries, sequence.keys];
        let reach = Reach::new(tile.x * KEYS, KEYS, lengths, mask);
        KeyTile {
            sequence,
            reach,
            blocks: reach.blocks(self.shape.queries()),
            head: if self.shape.cut {
                tile.y / args.parts
            } else {
                tile.y
            },
            batch: tile.z,
            part: self.shape.cut.then(|| [tile.x, tile.y % args.parts]),
        }
    }

    /// Calls `body` with every block of queries that sees the tile, of each head that
    /// shares its keys: from that of the tile's own rows on, and around. So tiles that begin together
    /// are at different queries, and do not wait for each other where they add to dQ.
    fn each_block(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        place: &KeyTile<'k>,
        body: impl Fn(QueryBlock<'k>),
    ) {
        let height = self.shape.queries();
        let QueryBlocks { begin, count } = place.blocks;
        let head = place.head * args.group;
        let own = (place.reach.first_key / height).max(begin) - begin;
        let skipped = (own % count.max(1)).named("skipped");
        let blocks = |head: Val<'k, u32>, from: Val<'k, u32>, to: Val<'k, u32>| {
            self.k.for_range(from, to, |block| {
                let block = block.lt(count).select(block, block - count);
                let first = (begin + block) * height;
                body(QueryBlock {
                    head,
                    first,
                    number: place.sequence.number + head * args.number_head + first,
                });
            });
        };
        let Some([_, part]) = place.part else {
            self.k.for_range(head, head + args.group, |head| {
                blocks(head, skipped, skipped + count);
            });
            return;
        };
        // Of the blocks of all heads, in their order, those that are the part's.
        let all = count * args.group;
        let [from, to] = [part, part + 1].map(|part| part * all / args.parts);
        let some = count.max(1);
        self.k
            .for_range(from / some, (to + some - 1) / some, |own| {
                let before = own * count;
                let [from, to] = [from, to].map(|at| at.max(before).min(before + count) - before);
                blocks(head + own, skipped + from, skipped + to);
            });
    }

    /// Holds in the thread that asks for copies.
    fn copies(&self) -> Bool<'k> {
        self.k.thread_index().eq(128 * GROUPS)
    }

    /// Asks for the tile's keys and values, and for every block of queries, and waits until all have been used.
    fn copy(&self, args: &WarpgroupArgs<On<'k>>, place: &KeyTile<'k>) {
        let Sequence {
            q_start, k_start, ..
        } = place.sequence;
        let height = self.shape.queries();
        let first = k_start + place.reach.first_key;
        self.fill_kv.fill(|copies, (to_k, to_v)| {
            let at = (first, place.head, place.batch);
            self.copy_rows(copies, to_k, args.k, KEYS, at);
            self.copy_rows(copies, to_v, args.v, KEYS, at);
        });
        self.each_block(args, place, |block| {
            let at = (q_start + block.first, block.head, place.batch);
            self.fill_queries.fill(|copies, (to, levels)| {
                self.copy_rows(copies, to, args.q, height, at);
                copies.copy(levels, args.level.at(block.number));
            });
            self.fill_gradients.fill(|copies, (to, deltas, steps)| {
                self.copy_rows(copies, to, args.d_out, height, at);
                copies.copy(deltas, args.delta.at(block.number));
                if self.shape.sums == Sums::Fixed {
                    copies.copy(steps, args.step.at(block.number));
                }
            });
        });
        // Not at the end of the kernel: threads that multiply would keep registers for these.
        self.fill_kv.settle();
        self.fill_queries.settle();
        self.fill_gradients.settle();
    }

    /// Asks for rows of one head of one sequence.
    fn copy_rows(
        &self,
        copies: &Transaction<'k>,
        to: Landing<'k, f16>,
        from: TensorMapRef<'k, f16, 4>,
        height: u32,
        (row, head, batch): (Val<'k, u32>, Val<'k, u32>, Val<'k, u32>),
    ) {
        let k = self.k;
        let batch = match self.shape.ragged {
            true => k.c(0),
            false => batch.cast(),
        };
        for panel in 0..self.shape.panels() {
            let to = to.part(panel * height * PANEL, height * PANEL);
            let element = k.c((panel * PANEL) as i32);
            let [inner, outer] = match self.shape.layout {
                Layout::Heads => [row.cast(), head.cast()],
                Layout::Rows => [head.cast(), row.cast()],
            };
            copies.copy_tensor(to, from, [element, inner, outer, batch]);
        }
    }

    /// What a warpgroup does with a tile.
    fn multiply<T: Element>(&self, args: &WarpgroupArgs<On<'k>>, place: &KeyTile<'k>) {
        let k = self.k;
        let work = Work::<T>::new(&k, self.shape, args, self.group);
        self.kv.consume(|(keys, values)| {
            let pass = Pass {
                block: self,
                work: &work,
                keys: &keys.cast(),
                values: &values.cast(),
                place,
                second: k.var(0u32),
            };
            if self.shape.ragged {
                // What lies past the end may be the next sequence, and anything at all.
                let inside = place.reach.keys - place.reach.first_key;
                self.clear(pass.keys, KEYS, inside);
                self.clear(pass.values, KEYS, inside);
                k.fence_async_shared();
                self.met.sync();
            }
            self.each_block(args, place, |of| pass.run(args, of));
        });
        k.comment("store");
        work.store(args, place);
        if self.outbox.is_some() {
            k.if_(k.lane().eq(0), || k.wait_stores_written());
        }
    }

    /// Both warpgroups clear the rows of a tile that are not `inside`.
    fn clear<T: Element>(&self, tile: &SharedTile<'k, T>, height: u32, inside: Val<'k, u32>) {
        let k = self.k;
        k.if_(inside.lt(height), || {
            let chunks = (k.c(height) - inside) * tile.chunks();
            k.for_step(k.thread_index(), chunks, 128 * GROUPS, |index| {
                let row = inside + index / tile.chunks();
                for panel in 0..self.shape.panels() {
                    let chunk = tile.chunk(row + panel * height, index % tile.chunks());
                    chunk.cast::<u32>().store_vec([k.c(0u32); 4]);
                }
            });
        });
    }
}
