// A product is read after its commit was waited for, which a reader does.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        k.tensor_memory(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            writer.load(0);
        });
        let _ = args;
    });
}
