// After a refusal there is nothing left to ask with.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_100, |k, args| {
        k.clc().submit().wait().decide(
            |_| (),
            |refused| {
                refused.submit();
            },
        );
        let _ = args;
    });
}
