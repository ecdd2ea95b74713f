use super::{assert_close, numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// Rows of x with mean 0 and variance 1, times weight, plus bias.
    struct LayerNorm { x: Global<f32>, weight: Global<f32>, bias: Global<f32>, y: Global<f32>, columns: u32 }
}

fn layer_norm(rows: u32, arch: Arch) -> Result<TiledKernel<LayerNorm>, BuildError> {
    Tiled::<LayerNorm>::new("layer_norm", rows)
        .block(128)
        .build(arch, |k, args, tiles| {
            tiles.each(|row| {
                let (x, y) = (
                    args.x.at(row.x * args.columns),
                    args.y.at(row.x * args.columns),
                );
                let columns = args.columns.cast::<f32>();
                let sum = k.var(0.0f32);
                k.for_step(k.thread().x, args.columns, 128u32, |i| {
                    sum.update(|s| s + x.at(i).load())
                });
                let mean = sum.get().block_sum() / columns;
                // The squares of the differences: the mean is subtracted first, for precision.
                let squares = k.var(0.0f32);
                k.for_step(k.thread().x, args.columns, 128u32, |i| {
                    let far = x.at(i).load() - mean;
                    squares.update(|s| far.mul_add(far, s));
                });
                let variance = squares.get().block_sum() / columns;
                let scale = (variance + 1e-5).rsqrt_approx();
                k.for_step(k.thread().x, args.columns, 128u32, |i| {
                    let normal = (x.at(i).load() - mean) * scale;
                    y.at(i)
                        .store(normal.mul_add(args.weight.at(i).load(), args.bias.at(i).load()));
                });
            })
        })
}
// book: end

#[test]
fn rows_have_mean_and_variance() {
    let (rows, columns) = (3usize, 200usize);
    let x = numbers(rows * columns);
    let (weight, bias) = (vec![2.0f32; columns], vec![0.25f32; columns]);
    let own = LayerNorm {
        x: Arg::input(&x),
        weight: Arg::input(&weight),
        bias: Arg::input(&bias),
        y: Arg::output::<f32>(x.len()),
        columns: columns as u32,
    };
    let normal = |row: &[f32]| {
        let mean = row.iter().map(|x| f64::from(*x)).sum::<f64>() / columns as f64;
        let square = |x: &f32| (f64::from(*x) - mean).powi(2);
        let scale = (row.iter().map(square).sum::<f64>() / columns as f64 + 1e-5)
            .sqrt()
            .recip();
        row.iter()
            .map(|x| ((f64::from(*x) - mean) * scale * 2.0 + 0.25) as f32)
            .collect::<Vec<f32>>()
    };
    let wanted: Vec<f32> = x.chunks(columns).flat_map(normal).collect();
    let run = run(|arch| layer_norm(rows as u32, arch), own);
    assert_close(&output(&run, "y"), &wanted);
}
