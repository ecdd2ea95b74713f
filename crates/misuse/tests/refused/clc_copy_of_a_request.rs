// A request has one owner.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_100, |k, args| {
        let idle = k.clc();
        let copy = idle.clone();
        let _ = (idle, copy, args);
    });
}
