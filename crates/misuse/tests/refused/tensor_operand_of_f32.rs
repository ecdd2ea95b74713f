// The tensor cores read tf32, not f32.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        let a = k.tile(TileSpec::<f32>::new("a", 128, 32, TileLayout::Swizzled));
        let _ = (a.tensor_operand::<f32>(0), args);
    });
}
