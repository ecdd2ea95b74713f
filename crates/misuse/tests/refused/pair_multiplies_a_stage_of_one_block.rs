// A pair gives stages back to both blocks, and this ring is one block's.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        let tile = TileSpec::<f16>::new("a", 128, 64, TileLayout::Swizzled);
        let ring = k.bulk_pipeline::<2, _>(tile, 1);
        let consumer = ring.consumer();
        k.tensor_memory_of::<PairOfBlocks, _>(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            k.multiplying_thread_of(1, |thread| {
                writer.product(thread, |product| consumer.multiply(product, |_| {}));
            });
        });
        let _ = args;
    });
}
