// A value belongs to the build that made it.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        thread_local! { static KEPT: std::cell::Cell<Option<Val<'static, u32>>> = const { std::cell::Cell::new(None) } }
        KEPT.with(|kept| kept.set(Some(args.n)));
        let _ = k;
    });
}
