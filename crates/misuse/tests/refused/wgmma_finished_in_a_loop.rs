// A loop can't take away on each trip what there is once.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_90A, |k, args| {
        let sums = WgmmaSums::zero(k, 128);
        k.for_range(0, args.n, |_| {
            let _ = sums.finish();
        });
    });
}
