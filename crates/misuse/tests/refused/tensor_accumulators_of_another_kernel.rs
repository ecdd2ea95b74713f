// A writer of one kernel's accumulators is no other's.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        k.tensor_memory(|memory| {
            let sums = memory.accumulators(1, 128, 4);
            let writer = sums.writer();
            let _ = KernelSpec::<Args>::new("other").block(192).build(Arch::SM_100A, |other, _| {
                other.multiplying_thread(0, |thread| writer.product(thread, |_| {}));
            });
        });
        let _ = args;
    });
}
