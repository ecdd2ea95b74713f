// A stage is given back by the commit of a product that has read it.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        let tile = |name| TileSpec::<f16>::new(name, 128, 64, TileLayout::Swizzled);
        let ring = k.bulk_pipeline::<2, _>((tile("a"), tile("b")), 1);
        let consumer = ring.consumer();
        k.multiplying_thread(1, |thread| consumer.multiply(thread, |_| {}));
        let _ = args;
    });
}
