// A loop is not left while a request is on its way.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_100, |k, args| {
        k.clc().steal_loop(|flow, idle| {
            let in_flight = idle.submit();
            flow.break_if(&in_flight, args.n.eq(1));
            in_flight.wait().granted_or_break(flow).release()
        });
    });
}
