// A predicate lives in a register.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let flags = k.shared::<bool>("flags", 32);
        let _ = (flags, args);
    });
}
