// A descriptor of Hopper's is no descriptor of Blackwell's.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        let a = k.tile(TileSpec::<f16>::new("a", 128, 64, TileLayout::Swizzled));
        k.tensor_memory(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            k.multiplying_thread(1, |thread| {
                writer.product(thread, |product| product.mma(a.wgmma_operand(0), a.wgmma_operand(0)));
            });
        });
        let _ = args;
    });
}
