// There are no other groups than one block and a pair.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

#[derive(Debug)]
struct Three;

impl BlockGroup for Three {
    const BLOCKS: u32 = 3;
    const MODIFIER: &'static str = "cta_group::3";
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        k.tensor_memory_of::<Three, _>(|_| {});
        let _ = args;
    });
}
