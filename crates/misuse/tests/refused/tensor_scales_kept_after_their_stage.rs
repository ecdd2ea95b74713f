// The room of scales is written again with the next stage: they belong to theirs.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        let tile = |name| TileSpec::<u8>::new(name, 128, 128 / u8::BYTES, TileLayout::Swizzled);
        let scales = |name| ArraySpec::<u32>::new(name, 128);
        let stage = (tile("a"), tile("b"), scales("rows"), scales("cols"));
        let ring = k.tensor_ring::<OneBlock, _>(2, stage);
        k.tensor_memory(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            let consumer = ring.scaled_consumer(memory, 128);
            let kept = std::cell::Cell::new(None);
            k.multiplying_thread_of(1, |thread| {
                writer.product(thread, |product| {
                    consumer.multiply(product, |(a, b, rows, cols), to| {
                        let (a, b) = (a.tensor_operand::<E4m3>(0), b.tensor_operand(0));
                        let scales = to.load(rows, cols, 0);
                        product.mma_scaled(a, b, &scales, 0);
                        kept.set(Some(scales));
                    });
                });
            });
        });
        let _ = args;
    });
}
