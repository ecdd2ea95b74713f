// Half of a stage lies in the other block: only a product of the pair reads it.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        let tile = TileSpec::<f16>::new("a", 128, 64, TileLayout::Swizzled);
        let ring = k.tensor_ring::<PairOfBlocks, _>(2, tile);
        let consumer = ring.consumer();
        k.tensor_memory(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            k.multiplying_thread(1, |thread| {
                writer.product(thread, |product| consumer.multiply(product, |_| {}));
            });
        });
        let _ = args;
    });
}
