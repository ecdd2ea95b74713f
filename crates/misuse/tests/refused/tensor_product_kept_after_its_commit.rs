// After the commit the readers have the accumulator.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        k.tensor_memory(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            k.multiplying_thread(1, |thread| {
                let kept = std::cell::Cell::new(None);
                writer.product(thread, |product| kept.set(Some(product)));
            });
        });
        let _ = args;
    });
}
