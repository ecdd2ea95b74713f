//! `C = A * B` in f32: tiles in shared memory, a 8 x 8 block of sums per thread.
//!
//! A is m x k, B is k x n, C is m x n, all row after row; m and n are multiples
//! of 128, k of 8.

use heist_builder::*;

kernel_params! {
    /// What `tiled_gemm` works on.
    pub struct Gemm { a: Global<f32>, b: Global<f32>, c: Global<f32>, n: u32, k: u32 }
}

const TILE: u32 = 128;
const DEPTH: u32 = 8;

/// The kernel for one architecture; one block per 128 x 128 of C, n along x.
pub fn tiled_gemm(arch: Arch) -> Result<BuiltKernel<Gemm>, BuildError> {
    KernelSpec::<Gemm>::new("tiled_gemm")
        .block(256)
        .min_blocks(2)
        .build(arch, |k, args| {
            // A is stored transposed, so that both operands are read along rows.
            let a_tile = k.shared::<f32>("a_tile", DEPTH * TILE);
            let b_tile = k.shared::<f32>("b_tile", DEPTH * TILE);
            let t = k.thread().x;
            let (row0, col0) = (k.block().y * TILE, k.block().x * TILE);
            let sums: [[Var<'_, f32>; 8]; 8] = [(); 8].map(|()| [(); 8].map(|()| k.var(0.0)));

            // Each thread brings four neighbours of A and four of B.
            let (a_row, a_col) = (t / 2, t % 2 * 4);
            let (b_row, b_col) = (t / 32, t % 32 * 4);
            let a_from = args.a.at((row0 + a_row).mul_add(args.k, a_col));
            let b_from = args.b.at(b_row.mul_add(args.n, col0 + b_col));
            let a_to = a_tile.at(a_col.mul_add(TILE, a_row));
            let b_to = b_tile.at(b_row.mul_add(TILE, b_col));
            // Each thread's sums: two groups of four rows and of four columns.
            let (my_row, my_col) = (t / 16 * 4, t % 16 * 4);
            let (a_mine, b_mine) = (a_tile.at(my_row), b_tile.at(my_col));

            k.for_step(0, args.k, DEPTH, |depth| {
                let a_new = a_from.at(depth).load_vec_readonly::<4>();
                let b_new = b_from.at(depth * args.n).load_vec_readonly::<4>();
                k.sync();
                for (i, value) in a_new.into_iter().enumerate() {
                    a_to.at(i as u32 * TILE).store(value);
                }
                b_to.store_vec(b_new);
                k.sync();
                for d in 0..DEPTH {
                    let (a, b) = (row_of_eight(a_mine, d), row_of_eight(b_mine, d));
                    for (i, sums) in sums.iter().enumerate() {
                        for (j, sum) in sums.iter().enumerate() {
                            sum.set(a[i].mul_add(b[j], sum.get()));
                        }
                    }
                }
            });

            for (i, sums) in sums.iter().enumerate() {
                let i = i as u32;
                let row = row0 + my_row + (i / 4 * (TILE / 2) + i % 4);
                let to = args.c.at(row.mul_add(args.n, col0 + my_col));
                for half in 0..2 {
                    let values = std::array::from_fn(|j| sums[half * 4 + j].get());
                    to.at(half as u32 * (TILE / 2)).store_vec::<4>(values);
                }
            }
        })
}

/// Two groups of four neighbours, half a tile apart, of row `d`.
fn row_of_eight<'k>(from: Ptr<'k, Shared, f32>, d: u32) -> Vec<Val<'k, f32>> {
    let low = from.at(d * TILE).load_vec::<4>();
    let high = from.at(d * TILE + TILE / 2).load_vec::<4>();
    [low, high].concat()
}

fn main() -> Result<(), BuildError> {
    print!("{}", heist_ptx::print(&tiled_gemm(Arch::SM_80)?.module));
    Ok(())
}
