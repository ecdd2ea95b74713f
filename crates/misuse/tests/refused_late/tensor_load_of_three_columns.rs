// A load takes a power of two of columns.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        k.tensor_memory(|memory| {
            let reader = memory.accumulators(1, 128, 4).reader();
            reader.read(|sums| {
                args.data.at(0).store(sums.load::<3>(0).wait()[0]);
            });
        });
    });
}
