// Code outside of it runs in other threads.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        let mut kept = None;
        k.multiplying_thread(1, |thread| kept = Some(thread));
        let _ = (kept, args);
    });
}
