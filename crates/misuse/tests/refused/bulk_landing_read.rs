// What bulk copies land in is readable after the consumer's wait.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, words: Global<u32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let _ = KernelSpec::<Args>::new("k").build(Arch::SM_90, |k, args| {
        let pipeline = k.bulk_pipeline::<2, _>(ArraySpec::<f32>::new("row", 128), 1);
        pipeline.producer().fill(|copies, row| {
            copies.copy(row, args.data);
            args.data.store(row.at(0).load());
        });
    });
}
