use super::{assert_close, numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, Val, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// Each row of y is the softmax of that row of x.
    struct Softmax { x: Global<f32>, y: Global<f32>, columns: u32 }
}

/// e to the power of x, which the hardware has for base 2.
fn exp(x: Val<'_, f32>) -> Val<'_, f32> {
    (x * std::f32::consts::LOG2_E).exp2_approx()
}

fn softmax(rows: u32, arch: Arch) -> Result<TiledKernel<Softmax>, BuildError> {
    Tiled::<Softmax>::new("softmax", rows)
        .block(128)
        .build(arch, |k, args, tiles| {
            tiles.each(|row| {
                let (x, y) = (
                    args.x.at(row.x * args.columns),
                    args.y.at(row.x * args.columns),
                );
                let most = k.var(f32::NEG_INFINITY);
                k.for_step(k.thread().x, args.columns, 128u32, |i| {
                    most.update(|m| m.max(x.at(i).load()))
                });
                let most = most.get().block_max();
                let sum = k.var(0.0f32);
                k.for_step(k.thread().x, args.columns, 128u32, |i| {
                    sum.update(|s| s + exp(x.at(i).load() - most));
                });
                let scale = k.c(1.0f32) / sum.get().block_sum();
                k.for_step(k.thread().x, args.columns, 128u32, |i| {
                    y.at(i).store(exp(x.at(i).load() - most) * scale);
                });
            })
        })
}
// book: end

/// The softmax of one row, on the host.
pub(super) fn softmax_of(row: &[f32]) -> Vec<f32> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = row.iter().map(|x| f64::from(x - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| (power / sum) as f32).collect()
}

#[test]
fn rows_add_up_to_one() {
    let (rows, columns) = (5u32, 333u32);
    let x = numbers((rows * columns) as usize);
    let own = Softmax {
        x: Arg::input(&x),
        y: Arg::output::<f32>(x.len()),
        columns,
    };
    let wanted: Vec<f32> = x.chunks(columns as usize).flat_map(softmax_of).collect();
    assert_close(&output(&run(|arch| softmax(rows, arch), own), "y"), &wanted);
}
