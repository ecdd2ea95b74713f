// A comparison on the GPU is not known here: use k.if_.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        if args.n.gt(5) {
            args.words.store(1);
        }
        let _ = k;
    });
}
