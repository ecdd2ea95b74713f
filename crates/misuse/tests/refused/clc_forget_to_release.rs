// The loop gets its request back, idle.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_100, |k, args| {
        k.clc().steal_loop(|flow, idle| {
            let granted = idle.submit().wait().granted_or_break(flow);
            args.words.store(granted.first_block().x);
        });
    });
}
