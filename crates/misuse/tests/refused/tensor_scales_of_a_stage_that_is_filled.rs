// Scales are copied from a stage that has arrived, not from one that is filled.
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
            k.multiplying_thread_of(1, |thread| {
                writer.product(thread, |product| {
                    consumer.multiply(product, |(a, b, rows, cols), to| {
                        let (a, b) = (a.tensor_operand::<E4m3>(0), b.tensor_operand(0));
                        ring.producer().fill(|_, (_, _, rows, _)| {
                            product.mma_scaled(a, b, &to.load(rows, cols, 0), 0);
                        });
                    });
                });
            });
        });
        let _ = args;
    });
}
