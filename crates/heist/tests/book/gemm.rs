use super::{output, run};
// book: begin
use heist::builder::{
    Arch, BuildError, Global, TileLayout, TileSpec, WarpTile, f16, kernel_params,
};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// c = a * b: a is m x k, b is n x k (columns as rows), c is m x n.
    struct Gemm { a: Global<f16>, b: Global<f16>, c: Global<f32>, n: u32, k: u32 }
}

const SIDE: u32 = 64; // m and n are multiples of it
const DEPTH: u32 = 32; // and k of this

fn gemm(tiles: [u32; 2], arch: Arch) -> Result<TiledKernel<Gemm>, BuildError> {
    Tiled::<Gemm>::new("gemm", tiles)
        .block(128)
        .build(arch, |k, args, tiles| {
            let pipeline = k.copy_pipeline::<3, _>((
                TileSpec::<f16>::new("a", SIDE, DEPTH, TileLayout::Swizzled),
                TileSpec::<f16>::new("b", SIDE, DEPTH, TileLayout::Swizzled),
            ));
            let (warp_row, warp_col) = (k.warp() / 2 * 32, k.warp() % 2 * 32); // four warps, 32 x 32 each
            let sums = WarpTile::zero(k, 2, 4); // blocks of 16 rows and of 8 columns
            tiles.each(|tile| {
                let (row0, col0) = (tile.y * SIDE, tile.x * SIDE);
                let (a_from, b_from) = (args.a.at(row0 * args.k), args.b.at(col0 * args.k));
                sums.clear();
                pipeline.again().run(
                    args.k / DEPTH,
                    |step, (a, b)| {
                        a.copy_all(a_from.at(step * DEPTH), args.k);
                        b.copy_all(b_from.at(step * DEPTH), args.k);
                    },
                    |_, (a, b)| {
                        let (a, b) = (a.a_rows(warp_row), b.b_rows(warp_col));
                        for step in 0..DEPTH / 16 {
                            let left: Vec<_> =
                                (0..2).map(|block| a.fragment(block, step)).collect();
                            let right: Vec<_> =
                                (0..2).flat_map(|block| b.fragments(block, step)).collect();
                            sums.mma(&left, &right);
                        }
                    },
                );
                let to = args.c.at((row0 + warp_row) * args.n + col0 + warp_col);
                sums.each_pair(|row, col, pair| to.at(row * args.n + col).store_vec(pair));
            })
        })
}
// book: end

#[test]
fn products_add_up() {
    let (m, n, depth) = (128usize, 64usize, 96usize);
    let small = |i: usize| f16::from_f32(((i * 7 % 13) as f32 - 6.0) / 8.0);
    let a: Vec<f16> = (0..m * depth).map(small).collect();
    let b: Vec<f16> = (0..n * depth).map(|i| small(i + 5)).collect();
    let own = Gemm {
        a: Arg::input(&a),
        b: Arg::input(&b),
        c: Arg::output::<f32>(m * n),
        n: n as u32,
        k: depth as u32,
    };
    let run = run(|arch| gemm([1, 2], arch), own);
    let dot = |i: usize| {
        let (row, col) = (&a[i / n * depth..], &b[i % n * depth..]);
        let pairs = row[..depth].iter().zip(&col[..depth]);
        pairs.map(|(a, b)| a.to_f32() * b.to_f32()).sum::<f32>()
    };
    let wanted: Vec<f32> = (0..m * n).map(dot).collect();
    assert_eq!(output::<f32>(&run, "c"), wanted); // small eighths: exact in any order
}
