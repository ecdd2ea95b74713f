// The twin of the refused ones: the right way round compiles and builds.
use heist_builder::*;

kernel_params! { pub struct Args { words: Global<u32>, n: u32 } }

fn main() {
    let kernel = KernelSpec::<Args>::new("k").build(Arch::SM_100, |k, args| {
        let sum = k.var(0u32);
        k.for_range(0, args.n, |i| sum.set(sum + i));
        k.one_thread(|| {
            k.clc().steal_loop(|flow, idle| {
                let granted = idle.submit().wait().granted_or_break(flow);
                args.words.at(granted.first_block().x).store(sum);
                granted.release()
            });
        });
    });
    assert!(kernel.is_ok());
}
