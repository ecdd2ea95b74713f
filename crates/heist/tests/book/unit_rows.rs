use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, f16, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// Rows of x with length 1: each is divided by the root of the sum of its squares. columns is a multiple of 16.
    struct UnitRows { x: Global<f16>, y: Global<f16>, columns: u32 }
}

const THREADS: u32 = 128;
const BLOCKS: u32 = 4; // of a cluster: they have a row together

fn unit_rows(rows: u32, arch: Arch) -> Result<TiledKernel<UnitRows>, BuildError> {
    Tiled::<UnitRows>::new("unit_rows", [BLOCKS, rows]) // a tile is a quarter of a row
        .cluster([BLOCKS, 1, 1])
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            let parts = k.shared::<f32>("parts", BLOCKS); // every block has the four sums
            k.cluster_sync(); // all four have begun
            tiles.each(|tile| {
                let quarter = args.columns / BLOCKS;
                let from = tile.y * args.columns + tile.x * quarter;
                let (x, y) = (args.x.at(from), args.y.at(from));
                let sum = k.var(0.0f32);
                k.for_step(k.thread().x * 4, quarter, THREADS * 4, |i| {
                    for value in x.at(i).load_vec::<4>() {
                        let value = value.cast::<f32>();
                        sum.update(|sum| value.mul_add(value, sum));
                    }
                });
                let sum = sum.get().block_sum();
                // The first four threads give it to a block each.
                k.if_(k.thread().x.lt(BLOCKS), || {
                    parts.at(k.cluster_rank()).on(k.thread().x).store(sum)
                });
                k.cluster_sync(); // all sums are everywhere
                let all = (0..BLOCKS).fold(k.c(0.0f32), |all, rank| all + parts.at(rank).load());
                let scale = k.c(1.0f32) / all.sqrt();
                k.for_step(k.thread().x * 4, quarter, THREADS * 4, |i| {
                    let values = x.at(i).load_vec::<4>();
                    y.at(i)
                        .store_vec(values.map(|v| (v.cast::<f32>() * scale).cast::<f16>()));
                });
                k.cluster_sync(); // and read, before those of the next row come
            })
        })
}
// book: end

#[test]
fn rows_have_length_one() {
    let (rows, columns) = (3usize, 2048usize);
    let x: Vec<f16> = numbers(rows * columns)
        .into_iter()
        .map(f16::from_f32)
        .collect();
    let own = UnitRows {
        x: Arg::input(&x),
        y: Arg::output::<f16>(x.len()),
        columns: columns as u32,
    };
    let run = run(|arch| unit_rows(rows as u32, arch), own);
    let y = output::<f16>(&run, "y");
    for (x, y) in x.chunks(columns).zip(y.chunks(columns)) {
        let length = x.iter().map(|x| x.to_f64().powi(2)).sum::<f64>().sqrt();
        for (at, (x, y)) in x.iter().zip(y).enumerate() {
            let wanted = x.to_f64() / length;
            let far = (y.to_f64() - wanted).abs();
            assert!(
                far <= wanted.abs() / 1000.0 + 1e-6,
                "{at}: {y} for {wanted}"
            );
        }
    }
}
