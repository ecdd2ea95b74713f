// Tensor memory is freed at the end of the closure that has it.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        let kept = k.tensor_memory(|memory| memory.accumulators(1, 128, 4));
        let _ = (kept, args);
    });
}
