// One request of the cluster is in flight at a time: its slot is the same in every block.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        let idle = k.clc_multicast();
        let first = idle.submit();
        let second = idle.submit();
        let _ = (first, second);
        let _ = args;
    });
}
