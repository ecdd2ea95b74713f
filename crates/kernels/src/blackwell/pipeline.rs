//! A tile's way through a block: copied, multiplied, and stored while the next one is multiplied.

use super::epilogue::Origin;
use super::mainloop::{Factors, Mainloop, Multiplication, Stage};
use super::tiling::{STORING_WARPS, TensorTiling};
use heist_builder::{
    AccumulatorReader, AccumulatorWriter, BlockGroup, Kernel, TensorMemory, TensorRing, TensorSums,
    Val, Var,
};

/// The warp that copies; its first thread is the scheduler as well.
const COPYING_WARP: u32 = 0;
const MULTIPLYING_WARP: u32 = 1;

/// What becomes of the sums of a tile.
pub(crate) trait TileEpilogue<'k> {
    /// Stores this warp's rows of the tile at `at`.
    fn store(&self, sums: &TensorSums<'k>, at: Origin<'k>);

    /// Waits for what is in flight, before the block exits.
    fn finish(&self);
}

/// The three roles of a block. The epilogue is a tile behind.
pub(crate) struct Pipeline<'p, 't, 'k, G: BlockGroup, E, M: Multiplication> {
    k: Kernel<'k>,
    warp: Val<'k, u32>,
    mainloop: Mainloop<'p, 't, 'k, G, M>,
    writer: AccumulatorWriter<'t, 'k, G>,
    reader: AccumulatorReader<'t, 'k, G>,
    unstored: Unstored<'k>,
    epilogue: E,
}

/// The tile whose sums are not stored yet.
#[derive(Clone, Copy)]
struct Unstored<'k> {
    there: Var<'k, bool>,
    at: [Var<'k, u32>; 3],
}

impl<'k> Unstored<'k> {
    fn none(k: &Kernel<'k>) -> Unstored<'k> {
        Unstored {
            there: k.var(false).named("unstored"),
            at: [(); 3].map(|()| k.var(0u32)),
        }
    }

    fn set(&self, at: Origin<'k>) {
        self.there.set(true);
        for (var, at) in self.at.iter().zip([at.row, at.col, at.number]) {
            var.set(at);
        }
    }

    fn origin(&self) -> Origin<'k> {
        let [row, col, number] = self.at.map(Var::get);
        Origin { row, col, number }
    }
}

impl<'p, 't, 'k, G, E, M> Pipeline<'p, 't, 'k, G, E, M>
where
    G: BlockGroup,
    E: TileEpilogue<'k>,
    M: Multiplication + 'p,
{
    pub(crate) fn new(
        k: &Kernel<'k>,
        tiling: &TensorTiling,
        ring: &'p TensorRing<'k, Stage<M>, G>,
        memory: &TensorMemory<'t, 'k, G>,
        epilogue: E,
    ) -> Self {
        let accumulators = memory.accumulators(M::accumulators(tiling), tiling.cols, STORING_WARPS);
        Pipeline {
            k: *k,
            warp: k.warp_uniform(),
            mainloop: Mainloop::new(k, tiling, ring, memory),
            writer: accumulators.writer(),
            reader: accumulators.reader(),
            unstored: Unstored::none(k),
            epilogue,
        }
    }

    /// Copies and multiplies a tile, and stores the one before.
    pub(crate) fn tile(&self, factors: Factors<'k, M::From<'k>>, at: Origin<'k>) {
        let k = self.k;
        k.if_(self.warp.eq(COPYING_WARP), || {
            k.comment("the copies");
            k.one_thread(|| self.mainloop.copy(factors));
            k.sync_warp();
        });
        k.comment("the products");
        k.multiplying_thread_of(MULTIPLYING_WARP, |thread| {
            self.mainloop.multiply(thread, &self.writer, factors);
        });
        self.store_last();
        self.unstored.set(at);
    }

    fn store_last(&self) {
        let (k, unstored) = (self.k, &self.unstored);
        k.if_(
            self.warp.gt(MULTIPLYING_WARP) & unstored.there.get(),
            || {
                k.comment("the epilogue of the tile before");
                self.reader
                    .read(|sums| self.epilogue.store(sums, unstored.origin()));
            },
        );
    }

    /// In the copying thread: begins a tile while the one before is still multiplied.
    pub(crate) fn begin(&self, factors: Factors<'k, M::From<'k>>) {
        self.mainloop.begin(factors);
    }

    /// Stores the last tile, and waits until nothing is in flight.
    pub(crate) fn finish(&self) {
        let k = self.k;
        self.store_last();
        k.if_(self.warp.eq(COPYING_WARP), || {
            k.one_thread(|| self.mainloop.finish());
            k.sync_warp();
        });
        self.epilogue.finish();
    }
}
