// A pair's product is begun by the pair's multiplying thread.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        k.tensor_memory_of::<PairOfBlocks, _>(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            k.multiplying_thread(1, |thread| writer.product(thread, |_| {}));
        });
        let _ = args;
    });
}
