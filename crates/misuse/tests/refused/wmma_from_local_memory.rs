// A tensor-core load from local memory is undefined.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let mine = k.local::<f16>("mine", 256);
        let _ = WmmaA::load(mine.ptr(), MatrixOrder::Rows, 16);
        let _ = args;
    });
}
