// Memory of a pair is freed by both blocks at the end of its closure: it can't be kept.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        let mut kept = None;
        k.tensor_memory_of::<PairOfBlocks, _>(|memory| kept = Some(memory.accumulators(1, 128, 4)));
        let _ = kept;
        let _ = args;
    });
}
