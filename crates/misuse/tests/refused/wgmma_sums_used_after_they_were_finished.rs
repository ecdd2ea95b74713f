// `finish` takes the sums away from the tensor cores.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_90A, |k, args| {
        let sums = WgmmaSums::zero(k, 128);
        let result = sums.finish();
        sums.wait_for_older(0);
        let _ = (result, args);
    });
}
