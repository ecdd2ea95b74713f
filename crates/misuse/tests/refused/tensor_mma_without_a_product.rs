// Multiplications without a commit would never be told to anybody.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
        let a = k.tile(TileSpec::<f16>::new("a", 128, 64, TileLayout::Swizzled));
        k.tensor_memory(|memory| {
            let writer = memory.accumulators(1, 128, 4).writer();
            writer.mma(a.tensor_operand::<f16>(0), a.tensor_operand::<f16>(0));
        });
        let _ = args;
    });
}
