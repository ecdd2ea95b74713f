// Each block of a pair has scales: their room is in memory that both have allocated together.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        let scales = |name| ArraySpec::<u32>::new(name, 128);
        let ring = k.tensor_ring::<PairOfBlocks, _>(2, (scales("rows"), scales("cols")));
        k.tensor_memory(|memory| {
            let _ = ring.scaled_consumer(memory, 128);
        });
        let _ = args;
    });
}
