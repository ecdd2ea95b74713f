// A stage is readable after its wait, in the second closure.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        k.copy_pipeline::<2, _>(ArraySpec::<f32>::new("row", 128)).run(
            args.n,
            |_, row| args.data.store(row.at(0).load()),
            |_, _| (),
        );
    });
}
