// A stage is readable after its wait, in the second closure.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        k.copy_pipeline::<2, _>(TileSpec::<f16>::new("a", 128, 32, TileLayout::Swizzled)).run(
            args.n,
            |_, a| {
                let _ = a.a_rows(0);
            },
            |_, _| (),
        );
    });
}
