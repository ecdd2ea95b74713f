// The other path would have no value: use k.var or k.if_value.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let mut value = k.c(0u32);
        k.if_(args.n.gt(5), || {
            value = args.n;
        });
        args.words.store(value);
    });
}
