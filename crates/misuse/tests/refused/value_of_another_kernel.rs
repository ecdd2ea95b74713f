// Every value carries the brand of its kernel.
use heist_builder::*;

kernel_params! { pub struct Args { words: Global<u32>, n: u32 } }

fn main() {
    let _ = KernelSpec::<Args>::new("outer").build(Arch::SM_80, |_, outer| {
        let _ = KernelSpec::<Args>::new("inner").build(Arch::SM_80, |_, inner| {
            inner.words.store(inner.n + outer.n);
        });
    });
}
