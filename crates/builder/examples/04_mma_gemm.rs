//! `C = A * B` on tensor cores: a pipeline of asynchronous copies, fragments
//! through ldmatrix, sums in registers.
//!
//! A is m x k and B is n x k (each column of B is a row here), f16; C is m x n,
//! f32. m and n are multiples of 128, k of 32.

use heist_builder::*;

kernel_params! {
    /// What `mma_gemm` works on.
    pub struct Gemm { a: Global<f16>, b: Global<f16>, c: Global<f32>, n: u32, k: u32 }
}

const TILE: u32 = 128;
const DEPTH: u32 = 32;
const STAGES: usize = 4;

/// The kernel for one architecture; one block per 128 x 128 of C, n along x.
pub fn mma_gemm(arch: Arch) -> Result<BuiltKernel<Gemm>, BuildError> {
    KernelSpec::<Gemm>::new("mma_gemm")
        .block(256)
        .build(arch, |k, args| {
            let (row0, col0) = (k.block().y * TILE, k.block().x * TILE);
            // Two by four warps, each 64 x 32.
            let warp = k.warp();
            let (warp_row, warp_col) = (warp / 4 * 64, warp % 4 * 32);
            let sums = WarpTile::zero(k, 4, 4);
            let (a_from, b_from) = (args.a.at(row0 * args.k), args.b.at(col0 * args.k));

            k.copy_pipeline::<STAGES, _>((
                TileSpec::<f16>::new("a", TILE, DEPTH, TileLayout::Swizzled),
                TileSpec::<f16>::new("b", TILE, DEPTH, TileLayout::Swizzled),
            ))
            .run_ahead(
                args.k / DEPTH,
                DEPTH / 16,
                |step, (a, b)| {
                    a.copy_all(a_from.at(step * DEPTH), args.k);
                    b.copy_all(b_from.at(step * DEPTH), args.k);
                },
                |(a, b), step| {
                    let (a, b) = (a.a_rows(warp_row), b.b_rows(warp_col));
                    let left = (0..4).map(|block| a.fragment(block, step)).collect();
                    let right = (0..2).flat_map(|block| b.fragments(block, step)).collect();
                    (left, right)
                },
                |(left, right): &(Vec<_>, Vec<_>)| sums.mma(left, right),
            );

            k.comment("store the sums");
            let to = args
                .c
                .at((row0 + warp_row).mul_add(args.n, col0 + warp_col));
            sums.each_pair(|row, col, pair| to.at(row.mul_add(args.n, col)).store_vec(pair));
        })
}

fn main() -> Result<(), BuildError> {
    print!("{}", heist_ptx::print(&mma_gemm(Arch::SM_80)?.module));
    Ok(())
}
