// A cluster does not leave while an answer is on its way to its blocks.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        k.clc_multicast().steal_loop(|flow, idle| {
            let asked = idle.submit();
            flow.break_if(&asked, args.n.eq(1));
            asked.wait().granted_or_break(flow).release()
        });
        let _ = args;
    });
}
