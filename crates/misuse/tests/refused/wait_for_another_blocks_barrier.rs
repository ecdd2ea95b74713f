// A barrier is waited for by the block that has it.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_90, |k, args| {
        let barrier = k.mbarrier("ready", 1);
        barrier.on(1).wait(0);
        let _ = args;
    });
}
