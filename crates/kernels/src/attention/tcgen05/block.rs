//! The work of a block: who does what with a tile.

use super::products::Products;
use super::shape::{BUFFERS, COPYING_WARP, MULTIPLYING_WARP, ROW_WARPS, ROWS, TensorShape};
use super::softmax::{RowWarps, staging};
use crate::attention::mask::MaskArgs;
use crate::attention::panels::{Rows, Sequence, Spec};
use crate::attention::params::Element;
use crate::attention::score::Scores;
use crate::attention::warpgroup::WarpgroupArgs;
use heist_builder::{
    Kernel, On, OneBlock, TensorInput, TensorMapRef, TensorMemory, TensorProducer, TensorRing, Val,
    Var, f16,
};
use heist_sched::Position;

/// The shared memory of a block: queries, and the stages of keys and values.
pub(super) struct Rings<'k> {
    queries: TensorRing<'k, Spec, OneBlock>,
    keys: TensorRing<'k, Spec, OneBlock>,
    values: TensorRing<'k, Spec, OneBlock>,
}

impl<'k> Rings<'k> {
    pub(super) fn new(k: &Kernel<'k>, shape: &TensorShape) -> Rings<'k> {
        let panels = shape.panels();
        Rings {
            queries: k.tensor_ring(1, panels.tile("q", ROWS)),
            keys: k.tensor_ring(shape.stages, panels.tile("k", shape.keys)),
            values: k.tensor_ring(shape.stages, panels.tile("v", shape.keys)),
        }
    }
}

/// The three roles of a block.
pub(super) struct Roles<'p, 't, 'k, T> {
    k: Kernel<'k>,
    shape: TensorShape,
    copies: Copies<'p, 'k>,
    products: Products<'p, 't, 'k, T>,
    rows: RowWarps<'p, 't, 'k, T>,
    changes: Scores<'p, 'k>,
}

/// The copying thread's ends of the rings.
struct Copies<'p, 'k> {
    shape: TensorShape,
    queries: TensorProducer<'p, 'k, Spec, OneBlock>,
    keys: TensorProducer<'p, 'k, Spec, OneBlock>,
    values: TensorProducer<'p, 'k, Spec, OneBlock>,
    /// Whether the next tile's queries are on their way, and how many blocks of its keys.
    begun: Var<'k, bool>,
    ahead: Var<'k, u32>,
}

impl<'p, 't, 'k, T: Element + TensorInput<Stored = T>> Roles<'p, 't, 'k, T> {
    pub(super) fn new(
        k: &Kernel<'k>,
        shape: TensorShape,
        changes: Scores<'p, 'k>,
        rings: &'p Rings<'k>,
        memory: &TensorMemory<'t, 'k>,
    ) -> Self {
        let scores = memory.accumulators(BUFFERS, shape.keys, ROW_WARPS);
        let weights = memory.left_operands(BUFFERS, shape.terms() * shape.keys, ROW_WARPS);
        let results = memory.accumulators(1, shape.head_dim, ROW_WARPS);
        Roles {
            k: *k,
            shape,
            copies: Copies {
                shape,
                queries: rings.queries.producer(),
                keys: rings.keys.producer(),
                values: rings.values.producer(),
                begun: k.var(false).named("begun"),
                ahead: k.var(0u32).named("ahead"),
            },
            products: Products {
                k: *k,
                shape,
                queries: rings.queries.consumer(),
                keys: rings.keys.consumer(),
                values: rings.values.consumer(),
                scores: scores.writer(),
                weights: weights.reader(),
                results: results.writer(),
            },
            rows: RowWarps {
                k: *k,
                shape,
                scores: scores.reader(),
                weights: weights.writer(),
                results: results.reader(),
                values: rings.values.consumer(),
                staging: staging(k),
                changes,
            },
            changes,
        }
    }

    /// A tile: rows along x, heads along y, sequences along z.
    pub(super) fn tile(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>) {
        let (k, warp) = (self.k, self.k.warp_uniform());
        self.rows_of(args, tile, |rows| {
            k.if_(warp.eq(COPYING_WARP), || {
                k.comment("the copies");
                k.one_thread(|| self.copies.tile(args, tile, rows));
                k.sync_warp();
            });
            k.comment("the products");
            k.multiplying_thread(MULTIPLYING_WARP, |thread| {
                k.if_(rows.blocks.any(), || {
                    self.products.tile(thread, rows.blocks.count());
                });
            });
            k.if_(warp.gt(MULTIPLYING_WARP), || {
                k.comment("the softmax");
                self.rows.tile(args, tile, rows);
            });
        });
    }

    /// In the copying thread: begins a tile while the one before is still worked on.
    pub(super) fn begin(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>) {
        self.rows_of(args, tile, |rows| self.copies.begin(args, tile, rows));
    }

    /// Waits until nothing is on its way, before the block exits.
    pub(super) fn finish(&self) {
        let k = self.k;
        k.if_(k.warp_uniform().eq(COPYING_WARP), || {
            k.one_thread(|| self.copies.finish());
            k.sync_warp();
        });
    }

    /// Calls `body` with the rows of a tile, where there are some.
    fn rows_of(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>, body: impl Fn(&Rows<'k>)) {
        let sequence = Sequence::of(args, tile, self.shape.ragged);
        let mask = MaskArgs {
            kind: self.shape.mask,
            left: args.left,
            right: args.right,
            prefix: self.changes.prefix(tile.z),
        };
        let one = || body(&Rows::of(sequence, tile.x, (ROWS, self.shape.keys), mask));
        match self.shape.ragged {
            false => one(),
            // The sequence may be shorter than the longest.
            true => self.k.if_(tile.x.lt(sequence.queries.div_ceil(ROWS)), one),
        }
    }
}

impl<'k> Copies<'_, 'k> {
    /// Asks for the queries, and for every block of keys and values, that are not on their way.
    fn tile(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>, rows: &Rows<'k>) {
        let k = args.scale.kernel();
        k.if_(!self.begun.get() & rows.blocks.any(), || {
            self.queries(args, tile, rows);
        });
        self.blocks(args, tile, rows, [self.ahead.get(), rows.blocks.count()]);
        self.begun.set(false);
        self.ahead.set(0u32);
    }

    /// Asks for the queries, and for as many blocks as there are stages.
    fn begin(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>, rows: &Rows<'k>) {
        let k = args.scale.kernel();
        k.if_(rows.blocks.any(), || self.queries(args, tile, rows));
        let ahead = rows.blocks.count().min(self.shape.stages);
        self.blocks(args, tile, rows, [k.c(0), ahead]);
        self.begun.set(true);
        self.ahead.set(ahead);
    }

    fn finish(&self) {
        for producer in [&self.queries, &self.keys, &self.values] {
            producer.drain();
        }
    }

    fn queries(&self, args: &WarpgroupArgs<On<'k>>, tile: &Position<'k>, rows: &Rows<'k>) {
        let row = rows.sequence.q_start + rows.first;
        let at = [row, tile.y, rows.sequence.batch];
        self.fill(&self.queries, args.q, ROWS, at);
    }

    /// Keys and values of the blocks from one on up to another.
    fn blocks(
        &self,
        args: &WarpgroupArgs<On<'k>>,
        tile: &Position<'k>,
        rows: &Rows<'k>,
        [from, to]: [Val<'k, u32>; 2],
    ) {
        let (head, sequence) = (tile.y / args.group, &rows.sequence);
        args.scale.kernel().for_range(from, to, |index| {
            let number = rows.blocks.begin + index.cast::<i32>();
            let first = sequence.k_start + rows.blocks.first_key(number);
            let at = [first, head, sequence.batch];
            self.fill(&self.keys, args.k, self.shape.keys, at);
            self.fill(&self.values, args.v, self.shape.keys, at);
        });
    }

    fn fill(
        &self,
        ring: &TensorProducer<'_, 'k, Spec, OneBlock>,
        from: TensorMapRef<'k, f16, 4>,
        height: u32,
        at: [Val<'k, u32>; 3],
    ) {
        let shape = (height, self.shape.layout);
        ring.fill(|copies, to| self.shape.panels().copy(copies, to, from, shape, at));
    }
}
