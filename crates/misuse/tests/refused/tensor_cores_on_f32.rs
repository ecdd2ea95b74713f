// Tensor cores multiply f16, bf16 and tf32.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let tile = k.tile(TileSpec::<f32>::new("a", 16, 16, TileLayout::Padded(4)));
        let _ = tile.a_rows(0);
        let _ = args;
    });
}
