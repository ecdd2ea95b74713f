//! `C = A * B` on Hopper's warpgroups: one warp asks the copy engine for tiles,
//! two warpgroups multiply them straight from shared memory.
//!
//! A is m x k and B is n x k (each column of B is a row here), f16; C is m x n,
//! f32. m and n are multiples of 128, k of 64. The tensor maps have boxes of
//! 128 rows by 64 halves with the 128-byte swizzle.

use heist_builder::*;

kernel_params! {
    /// What `wgmma_gemm` works on.
    pub struct Gemm { a: TensorMap<f16, 2>, b: TensorMap<f16, 2>, c: Global<f32>, n: u32, k: u32 }
}

const TILE: u32 = 128;
const DEPTH: u32 = 64;
const STAGES: usize = 4;
const CONSUMERS: u32 = 2 * 4;

/// The kernel, for Hopper; one block per 128 x 128 of C, n along x.
pub fn wgmma_gemm(arch: Arch) -> Result<BuiltKernel<Gemm>, BuildError> {
    KernelSpec::<Gemm>::new("wgmma_gemm")
        .block(3 * 128)
        .min_blocks(1)
        .build(arch, |k, args| {
            let (row0, col0) = (k.block().y * TILE, k.block().x * TILE);
            let steps = args.k / DEPTH;
            let pipeline = k.bulk_pipeline::<STAGES, _>(
                (
                    TileSpec::<f16>::new("a", TILE, DEPTH, TileLayout::Swizzled),
                    TileSpec::<f16>::new("b", TILE, DEPTH, TileLayout::Swizzled),
                ),
                CONSUMERS,
            );
            let group = k.warp_uniform() / 4;
            k.if_else(
                group.eq(0),
                || {
                    k.comment("producer");
                    k.give_registers(40);
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
                },
                || {
                    k.comment("consumers");
                    k.take_registers(232);
                    let row_in_tile = (group - 1) * 64;
                    let consumer = pipeline.consumer();
                    let sums = WgmmaSums::zero(k, 128);
                    k.for_range(0, steps, |_| {
                        consumer.consume_lagging(|(a, b)| {
                            let (a, b) = (a.wgmma_operand(row_in_tile), b.wgmma_operand(0));
                            sums.accumulate(|batch| {
                                for step in 0..DEPTH / 16 {
                                    batch.mma(a.step(step), b.step(step));
                                }
                            });
                            // The batch before has ended: its stage may go.
                            sums.wait_for_older(1);
                        });
                    });
                    let sums = sums.finish();
                    consumer.release_last();
                    let to = args.c.at((row0 + row_in_tile).mul_add(args.n, col0));
                    sums.each_pair(|row, col, pair| {
                        to.at(row.mul_add(args.n, col)).store_vec(pair);
                    });
                },
            );
        })
}

fn main() -> Result<(), BuildError> {
    print!("{}", heist_ptx::print(&wgmma_gemm(Arch::SM_90A)?.module));
    Ok(())
}
