// One stage can't be filled while it is read.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        k.copy_pipeline::<1, _>(ArraySpec::<f32>::new("row", 128)).run(args.n, |_, _| (), |_, _| ());
    });
}
