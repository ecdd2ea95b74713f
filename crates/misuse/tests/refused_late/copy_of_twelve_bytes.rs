// cp.async copies 4, 8 or 16 bytes.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_80, |k, args| {
        let _ = k.copy_once(ArraySpec::<f32>::new("row", 128), |row| {
            row.copy::<12>(0, args.data);
        });
    });
}
