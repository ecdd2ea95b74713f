// There is one owner: nobody frees it twice.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        k.tensor_memory(|memory| {
            let again = *memory;
            again.accumulators(1, 128, 4)
        });
        let _ = args;
    });
}
