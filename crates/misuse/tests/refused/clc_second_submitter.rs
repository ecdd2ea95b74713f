// A request is submitted by its one owner, once.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_100, |k, args| {
        let idle = k.clc();
        let first = idle.submit();
        let second = idle.submit();
        let _ = (first, second, args);
    });
}
