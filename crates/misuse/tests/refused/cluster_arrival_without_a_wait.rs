// An arrival is half a barrier.
#![deny(unused_must_use)]
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_90, |k, args| {
        k.cluster_arrive();
        let _ = args;
    });
}
