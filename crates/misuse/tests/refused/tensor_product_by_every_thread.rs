// A product is begun by the multiplying thread, not by all threads of a block.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        k.tensor_memory(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            writer.product(k, |_| {});
        });
        let _ = args;
    });
}
