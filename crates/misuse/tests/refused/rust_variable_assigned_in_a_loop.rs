// The body runs once here and many times there: use k.var.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let mut sum = k.c(0.0f32);
        k.for_range(0, args.n, |i| {
            sum = sum + args.data.at(i).load();
        });
        args.data.store(sum);
    });
}
