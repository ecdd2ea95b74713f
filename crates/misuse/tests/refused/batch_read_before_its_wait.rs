// A batch of copies gives its memory when it has been waited for.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let pending = k.copy_once(ArraySpec::<f32>::new("row", 128), |row| {
            row.copy::<16>(0, args.data);
        });
        args.data.store(pending.at(0).load());
    });
}
