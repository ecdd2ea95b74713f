//! The main loop on Hopper's warpgroups: one thread asks the copy engine for
//! tiles, two warpgroups multiply them straight from shared memory.
//!
//! A tile of the result has 128 rows and 256 columns, a stage is 64 deep. Both
//! matrices are stored along the depth, in rows that start at multiples of 16
//! bytes; what lies past their ends is zero.

use heist_build::{
    BulkConsumer, BulkPipeline, BulkProducer, Half, Kernel, MmaInput, TensorMapRef, TileLayout,
    TileSpec, Val, WgmmaResult, WgmmaSums, f16,
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
    /// The number of this thread's warpgroup.
    group: Val<'k, u32>,
}

/// The matrices as the copy engine knows them, and where a tile begins.
#[derive(Clone, Copy)]
pub(crate) struct Source<'k> {
    pub(crate) a: TensorMapRef<'k, f16, 2>,
    pub(crate) b: TensorMapRef<'k, f16, 2>,
    /// The first row of A.
    pub(crate) a_row: Val<'k, u32>,
    /// The first row of B, which is a column of the result.
    pub(crate) b_row: Val<'k, u32>,
    pub(crate) depth: Val<'k, u32>,
}

impl<'p, 'k> Ends<'p, 'k> {
    pub(crate) fn new(k: &Kernel<'k>, ring: &'p BulkPipeline<'k, Stage>) -> Ends<'p, 'k> {
        Ends {
            k: *k,
            producer: ring.producer(),
            consumer: ring.consumer(),
            group: k.warp_uniform() / 4,
        }
    }

    /// One tile: `store` receives the sums of a warpgroup, and their first row
    /// in the tile.
    pub(crate) fn tile<H: Half + MmaInput>(
        &self,
        from: Source<'k>,
        store: impl Fn(&WgmmaResult<'k>, Val<'k, u32>),
    ) {
        let k = self.k;
        let steps = (from.depth + (DEPTH - 1)) / DEPTH;
        k.if_else(
            self.group.eq(0u32),
            || {
                k.comment("the copies");
                k.one_thread(|| {
                    k.for_range(0, steps, |step| {
                        let depth = (step * DEPTH).cast::<i32>();
                        self.producer.fill(|copies, (a, b)| {
                            copies.copy_tensor(a, from.a, [depth, from.a_row.cast()]);
                            copies.copy_tensor(b, from.b, [depth, from.b_row.cast()]);
                        });
                    });
                });
            },
            || {
                k.comment("the products");
                let row = (self.group - 1) * GROUP_ROWS;
                let sums = WgmmaSums::zero(&k, COLS);
                k.for_range(0, steps, |_| {
                    self.consumer.consume_lagging(|(a, b)| {
                        let a = a.cast::<H>().wgmma_operand(row);
                        let b = b.cast::<H>().wgmma_operand(0);
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

    /// Waits until nothing is on its way, before the block exits.
    pub(crate) fn finish(&self) {
        let k = self.k;
        k.if_(self.group.eq(0u32), || {
            k.one_thread(|| self.producer.drain())
        });
    }
}

/// The map of a matrix stored along the depth, in boxes of `rows` rows.
pub(crate) fn map(
    name: &str,
    element: TensorElement,
    rows: u64,
    depth: u32,
    pitch: u32,
    high: u32,
) -> Arg {
    let buffer = BufferRef::Named(name.to_owned());
    let dims = [u64::from(depth), rows];
    let mut map =
        TensorMap::dense(buffer, element, &dims, &[DEPTH, high]).swizzle(Swizzle::Bytes128);
    map.strides = vec![u64::from(pitch) * element.bytes()];
    map.l2 = L2Promotion::Bytes256;
    Arg::TensorMap(map)
}
