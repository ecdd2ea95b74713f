use super::{assert_close, numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, Group, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// y = a * x, where row r of a has the elements from starts[r] to starts[r + 1]: their columns and values.
    struct Sparse {
        starts: Global<u32>, columns: Global<u32>, values: Global<f32>, x: Global<f32>, y: Global<f32>, rows: u32,
    }
}

const WARPS: u32 = 4;

fn sparse(tiles: u32, arch: Arch) -> Result<TiledKernel<Sparse>, BuildError> {
    Tiled::<Sparse>::new("sparse", tiles)
        .block(WARPS * 32)
        .build(arch, |k, args, tiles| {
            tiles.each(|tile| {
                let row = tile.x * WARPS + k.warp(); // a row for each warp
                k.if_(row.lt(args.rows), || {
                    let start = args.starts.at(row);
                    let sum = k.var(0.0f32);
                    k.for_step(start.load() + k.lane(), start.at(1).load(), 32, |i| {
                        let x = args.x.at(args.columns.at(i).load()).load();
                        sum.update(|sum| args.values.at(i).load().mul_add(x, sum));
                    });
                    let sum = sum.get().sum(Group::Warp);
                    k.if_(k.lane().eq(0), || args.y.at(row).store(sum));
                });
            })
        })
}
// book: end

#[test]
fn a_sparse_matrix_times_a_vector() {
    let (rows, width) = (37usize, 50usize);
    let mut random = fastrand::Rng::with_seed(3);
    let (mut starts, mut columns, mut values) = (vec![0u32], Vec::new(), Vec::new());
    let x = numbers(width);
    let mut wanted = Vec::new();
    for row in 0..rows {
        // Rows of very different lengths, and some without elements.
        let count = [0, 1, 31, 32, 33, 200][row % 6];
        let mut sum = 0.0;
        for _ in 0..count {
            let (column, value) = (random.usize(0..width), random.f32() - 0.5);
            columns.push(column as u32);
            values.push(value);
            sum += f64::from(value) * f64::from(x[column]);
        }
        starts.push(columns.len() as u32);
        wanted.push(sum as f32);
    }
    let own = Sparse {
        starts: Arg::input(&starts),
        columns: Arg::input(&columns),
        values: Arg::input(&values),
        x: Arg::input(&x),
        y: Arg::output::<f32>(rows),
        rows: rows as u32,
    };
    let run = run(|arch| sparse((rows as u32).div_ceil(WARPS), arch), own);
    assert_close(&output::<f32>(&run, "y"), &wanted);
}
