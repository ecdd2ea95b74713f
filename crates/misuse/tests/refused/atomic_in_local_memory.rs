// Nobody else sees a thread's own memory.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let mine = k.local::<u32>("mine", 4);
        mine.at(0).atomic_add(args.n);
    });
}
