//! The main loop on Hopper's warpgroups: one thread asks the copy engine for
//! tiles, two warpgroups multiply them straight from shared memory.
//!
//! A tile of the result has 128 rows and 256 columns, a stage is 64 deep. The
//! matrices are stored either way, in rows that start at multiples of 16 bytes;
//! what lies past their ends is zero.

use super::problem::Major;
use heist_builder::{
    BulkConsumer, BulkPipeline, BulkProducer, Half, Kernel, Landing, MmaInput, TensorMapRef, Tile,
    TileLayout, TileSpec, Transaction, Val, Var, WgmmaOperand, WgmmaResult, WgmmaSums, f16,
};
use heist_launch::{Arg, BufferRef, L2Promotion, Swizzle, TensorElement, TensorMap};

/// Rows of a tile.
pub(crate) const ROWS: u32 = 128;
/// Columns of a tile.
pub(crate) const COLS: u32 = 256;
/// The depth of a stage.
pub(crate) const DEPTH: u32 = 64;
/// Threads of a block: a warpgroup that copies, and two that multiply.
pub(crate) const THREADS: u32 = 3 * 128;
const STAGES: u32 = 4;
/// Rows of one warpgroup.
const GROUP_ROWS: u32 = 64;
/// Elements in the 128 bytes that are swizzled together.
const SPAN: u32 = 64;

/// What a stage holds. Halves of either kind are copied as bits.
type Stage = (TileSpec<'static, f16>, TileSpec<'static, f16>);

/// The stages of a block.
pub(crate) fn ring<'k>(k: &Kernel<'k>) -> BulkPipeline<'k, Stage> {
    let spec = (
        TileSpec::new("a", ROWS, DEPTH, TileLayout::Swizzled),
        TileSpec::new("b", COLS, DEPTH, TileLayout::Swizzled),
    );
    k.bulk_pipeline_of(STAGES, spec, 2 * 4)
}

/// Both ends of the ring. They are made once a block and go on from tile to
/// tile.
pub(crate) struct Ends<'p, 'k> {
    k: Kernel<'k>,
    producer: BulkProducer<'p, 'k, Stage>,
    consumer: BulkConsumer<'p, 'k, Stage>,
    /// Stages of the next tile that are on their way already.
    ahead: Var<'k, u32>,
    /// The number of this thread's warpgroup.
    group: Val<'k, u32>,
}

/// One of the two matrices as the copy engine knows it, and where a tile begins
/// in it.
#[derive(Clone, Copy)]
pub(crate) struct Side<'k> {
    /// Of several matrices of the same shape.
    pub(crate) map: TensorMapRef<'k, f16, 3>,
    pub(crate) major: Major,
    /// Which of them.
    pub(crate) number: Val<'k, u32>,
    /// The first row of A, or column of B.
    pub(crate) first: Val<'k, u32>,
}

impl<'k> Side<'k> {
    /// Asks for the part of a stage that is `depth` deep in the matrix. Across
    /// the depth it comes in panels as wide as the swizzle.
    fn copy(&self, copies: &Transaction<'k>, to: Landing<'k, f16>, depth: Val<'k, u32>) {
        let copy = |to, inner: Val<'k, u32>, outer: Val<'k, u32>| {
            let at = [inner, outer, self.number].map(|at| at.cast::<i32>());
            copies.copy_tensor(to, self.map, at);
        };
        match self.major {
            Major::Depth => copy(to, depth, self.first),
            Major::Outer => {
                let len = SPAN * DEPTH;
                for panel in 0..to.bytes() / 2 / len {
                    let to = to.part(panel * len, len);
                    copy(to, self.first + panel * SPAN, depth);
                }
            }
        }
    }

    /// The part of a stage from row or column `at` on, a multiple of [`SPAN`].
    fn operand<H: Half + MmaInput>(
        &self,
        tile: Tile<'k, f16>,
        at: Val<'k, u32>,
    ) -> WgmmaOperand<'k, H> {
        match self.major {
            Major::Depth => tile.cast::<H>().wgmma_operand(at),
            Major::Outer => tile.cast::<H>().wgmma_operand_across(at / SPAN, DEPTH),
        }
    }
}

impl<'p, 'k> Ends<'p, 'k> {
    /// Both ends, for matrices of these maps.
    pub(crate) fn new(
        k: &Kernel<'k>,
        ring: &'p BulkPipeline<'k, Stage>,
        maps: [TensorMapRef<'k, f16, 3>; 2],
    ) -> Ends<'p, 'k> {
        k.one_thread(|| maps.iter().for_each(TensorMapRef::prefetch));
        Ends {
            k: *k,
            producer: ring.producer(),
            consumer: ring.consumer(),
            ahead: k.var(0u32).named("ahead"),
            group: k.warp_uniform() / 4,
        }
    }

    /// One tile: `store` receives the sums of a warpgroup, and their first row
    /// in the tile.
    pub(crate) fn tile<H: Half + MmaInput>(
        &self,
        (left, right): (Side<'k>, Side<'k>),
        depth: Val<'k, u32>,
        store: impl Fn(&WgmmaResult<'k>, Val<'k, u32>),
    ) {
        let k = self.k;
        let steps = (depth + (DEPTH - 1)) / DEPTH;
        k.if_else(
            self.group.eq(0u32),
            || {
                k.comment("the copies");
                k.one_thread(|| {
                    self.fill((left, right), self.ahead.get(), steps);
                    self.ahead.set(0u32);
                });
                k.sync_warp();
            },
            || {
                k.comment("the products");
                let row = (self.group - 1) * GROUP_ROWS;
                let sums = WgmmaSums::zero(&k, COLS);
                k.for_range(0, steps, |_| {
                    self.consumer.consume_lagging(|(a, b)| {
                        let a = left.operand::<H>(a, row);
                        let b = right.operand::<H>(b, k.c(0));
                        sums.accumulate(|batch| {
                            for step in 0..DEPTH / 16 {
                                batch.mma(a.step(step), b.step(step));
                            }
                        });
                        // The batch before has ended: its stage may go.
                        sums.wait_for_older(1);
                    });
                });
                let sums = sums.finish();
                self.consumer.release_last();
                store(&sums, row);
            },
        );
    }

    /// Fills the stages from `first` to `last` of a tile.
    fn fill(&self, (left, right): (Side<'k>, Side<'k>), first: Val<'k, u32>, last: Val<'k, u32>) {
        self.k.for_range(first, last, |step| {
            let depth = step * DEPTH;
            self.producer.fill(|copies, (a, b)| {
                left.copy(copies, a, depth);
                right.copy(copies, b, depth);
            });
        });
    }

    /// Begins a tile while the one before is still worked on: thread 0 asks for as
    /// many stages as there are.
    pub(crate) fn begin(&self, sides: (Side<'k>, Side<'k>), depth: Val<'k, u32>) {
        let steps = ((depth + (DEPTH - 1)) / DEPTH).min(STAGES);
        self.fill(sides, self.k.c(0), steps);
        self.ahead.set(steps);
    }

    /// Waits until nothing is on its way, before the block exits.
    pub(crate) fn finish(&self) {
        let k = self.k;
        k.if_(self.group.eq(0u32), || {
            k.one_thread(|| self.producer.drain())
        });
    }
}

/// A matrix in memory, or several of the same shape one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Matrices {
    pub(crate) element: TensorElement,
    pub(crate) major: Major,
    /// Rows of A, or columns of B.
    pub(crate) outer: u64,
    pub(crate) depth: u32,
    /// Elements from one stored row to the next.
    pub(crate) pitch: u32,
    pub(crate) count: u32,
}

impl Matrices {
    /// Its map, for tiles of `high` rows of A or columns of B.
    pub(crate) fn map(&self, name: &str, high: u32) -> Arg {
        let (depth, count) = (u64::from(self.depth), u64::from(self.count));
        let (dims, boxed) = match self.major {
            Major::Depth => ([depth, self.outer, count], [DEPTH, high, 1]),
            Major::Outer => ([self.outer, depth, count], [SPAN, DEPTH, 1]),
        };
        let buffer = BufferRef::Named(name.to_owned());
        let mut map = TensorMap::dense(buffer, self.element, &dims, &boxed);
        let row = u64::from(self.pitch) * self.element.bytes();
        map.strides = vec![row, row * dims[1]];
        map.l2 = L2Promotion::Bytes256;
        Arg::TensorMap(map.swizzle(Swizzle::Bytes128))
    }
}
