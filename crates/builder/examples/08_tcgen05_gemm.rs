//! `C = A * B` on Blackwell's tensor cores: one thread asks the copy engine for tiles, one thread
//! multiplies them straight from shared memory into tensor memory, and four warps store the sums.
//!
//! A is m x k and B is n x k (each column of B is a row here), f16; C is m x n,
//! f32. m and n are multiples of 128, k of 64. The tensor maps have boxes of
//! 128 rows by 64 halves with the 128-byte swizzle.

use heist_builder::*;

kernel_params! {
    /// What `tcgen05_gemm` works on.
    pub struct Gemm { a: TensorMap<f16, 2>, b: TensorMap<f16, 2>, c: Global<f32>, n: u32, k: u32 }
}

const TILE: u32 = 128;
const DEPTH: u32 = 64;
const STAGES: usize = 4;
const MULTIPLYING_WARP: u32 = 1;
const READERS: u32 = 4;

/// The kernel, for Blackwell; one block per 128 x 128 of C, n along x.
pub fn tcgen05_gemm(arch: Arch) -> Result<BuiltKernel<Gemm>, BuildError> {
    KernelSpec::<Gemm>::new("tcgen05_gemm")
        .block((2 + READERS) * 32)
        .build(arch, |k, args| {
            let (row0, col0) = (k.block().y * TILE, k.block().x * TILE);
            let steps = args.k / DEPTH;
            let tile = |name| TileSpec::<f16>::new(name, TILE, DEPTH, TileLayout::Swizzled);
            let pipeline = k.bulk_pipeline::<STAGES, _>((tile("a"), tile("b")), 1);
            k.tensor_memory(|memory| {
                let accumulators = memory.accumulators(1, TILE, READERS);
                k.comment("the copies");
                k.one_thread(|| {
                    let producer = pipeline.producer();
                    k.for_range(0, steps, |step| {
                        let depth = (step * DEPTH).cast::<i32>();
                        producer.fill(|copies, (a, b)| {
                            copies.copy_tensor(a, args.a, [depth, row0.cast()]);
                            copies.copy_tensor(b, args.b, [depth, col0.cast()]);
                        });
                    });
                    producer.drain();
                });
                k.sync_warp();
                k.comment("the products");
                let (consumer, writer) = (pipeline.consumer(), accumulators.writer());
                k.multiplying_thread(MULTIPLYING_WARP, |thread| {
                    writer.product(thread, |product| {
                        k.for_range(0, steps, |_| {
                            consumer.multiply(product, |(a, b)| {
                                let (a, b) = (a.tensor_operand::<f16>(0), b.tensor_operand(0));
                                for step in 0..DEPTH / 16 {
                                    product.mma(a.step(step), b.step(step));
                                }
                            });
                        });
                    });
                });
                k.comment("the epilogue");
                let reader = accumulators.reader();
                k.if_(k.warp_uniform().gt(MULTIPLYING_WARP), || {
                    reader.read(|sums| {
                        let row = args.c.at((row0 + sums.row()).mul_add(args.n, col0));
                        for col in (0..TILE).step_by(32) {
                            let values = sums.load::<32>(col).wait();
                            for (at, four) in values.chunks_exact(4).enumerate() {
                                let four = [four[0], four[1], four[2], four[3]];
                                row.at(col + at as u32 * 4).store_vec(four);
                            }
                        }
                    });
                });
            });
        })
}

fn main() -> Result<(), BuildError> {
    print!("{}", heist_ptx::print(&tcgen05_gemm(Arch::SM_100A)?.module));
    Ok(())
}
