// Pointers of different spaces are different types.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        fn sum<'k>(from: Ptr<'k, Global, f32>) -> Val<'k, f32> {
            from.load() + from.at(1).load()
        }
        let tile = k.shared::<f32>("tile", 4);
        args.data.store(sum(tile.ptr()));
    });
}
