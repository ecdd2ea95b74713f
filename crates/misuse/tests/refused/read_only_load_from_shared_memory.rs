// The read-only path is for global memory.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let tile = k.shared::<f32>("tile", 4);
        args.data.store(tile.at(0).load_readonly());
    });
}
