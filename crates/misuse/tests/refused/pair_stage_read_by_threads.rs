// A stage of a pair is multiplied, not read: its bytes are counted in the leader alone.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        let tile = TileSpec::<f16>::new("a", 128, 64, TileLayout::Swizzled);
        let ring = k.tensor_ring::<PairOfBlocks, _>(2, tile);
        ring.consumer().consume(|_| {});
        let _ = args;
    });
}
