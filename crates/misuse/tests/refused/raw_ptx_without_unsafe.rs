// Raw PTX is vouched for with `unsafe`.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        k.raw("sleep", "nanosleep.u32", [args.n.into()]);
    });
}
