// ldmatrix reads shared memory.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let _ = args.halves.load_matrices::<4>();
        let _ = k;
    });
}
