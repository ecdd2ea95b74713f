// A product that is done is read; nobody adds to it any more, and nobody changes it.
use heist_builder::*;

kernel_params! {
    pub struct Args { data: Global<f32>, halves: Global<f16>, n: u32 }
}

fn main() {
    let spec = KernelSpec::<Args>::new("k").block(192);
    let _ = spec.build(Arch::SM_100A, |k, args| {
        k.tensor_memory(|memory| {
            let sums = memory.accumulators(1, 128, 4);
            let left = memory.left_operands::<f16>(2, 64, 4);
            let (reader, writer) = (sums.reader(), left.writer());
            reader.read(|sums| sums.store(0, [k.c(0.0f32); 16]));
            let _ = (&reader, &writer, &args);
        });
    });
}
