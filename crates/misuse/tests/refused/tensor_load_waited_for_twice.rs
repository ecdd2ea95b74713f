// A load is waited for once.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        k.tensor_memory(|memory| {
            let reader = memory.accumulators(1, 128, 4).reader();
            reader.read(|sums| {
                let row = sums.load::<32>(0);
                args.data.at(0).store(row.wait()[0]);
                args.data.at(1).store(row.wait()[1]);
            });
        });
    });
}
