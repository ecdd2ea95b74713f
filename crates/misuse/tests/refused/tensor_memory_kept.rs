// The memory itself can't be kept either.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        let mut kept = None;
        k.tensor_memory(|memory| kept = Some(memory));
        let _ = (kept, args);
    });
}
