use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// y is x with rows and columns exchanged; x is rows x columns.
    struct Transpose { x: Global<f32>, y: Global<f32>, rows: u32, columns: u32 }
}

const SIDE: u32 = 32;
const PITCH: u32 = SIDE + 1; // one more: a column lies in 32 different banks

fn transpose(tiles: [u32; 2], arch: Arch) -> Result<TiledKernel<Transpose>, BuildError> {
    Tiled::<Transpose>::new("transpose", tiles)
        .block3([SIDE, 8, 1])
        .build(arch, |k, args, tiles| {
            let square = k.shared::<f32>("square", SIDE * PITCH);
            let (tx, ty) = (k.thread().x, k.thread().y);
            tiles.each(|tile| {
                k.for_step(ty, SIDE, 8u32, |y| {
                    let (row, column) = (tile.y * SIDE + y, tile.x * SIDE + tx);
                    k.if_(row.lt(args.rows) & column.lt(args.columns), || {
                        let from = args.x.at(row * args.columns + column);
                        square.at(y * PITCH + tx).store(from.load());
                    });
                });
                k.sync(); // all of the square is there
                k.for_step(ty, SIDE, 8u32, |y| {
                    let (row, column) = (tile.x * SIDE + y, tile.y * SIDE + tx);
                    k.if_(row.lt(args.columns) & column.lt(args.rows), || {
                        args.y
                            .at(row * args.rows + column)
                            .store(square.at(tx * PITCH + y).load());
                    });
                });
                k.sync(); // and read, before the next tile fills it
            })
        })
}
// book: end

#[test]
fn rows_become_columns() {
    let (rows, columns) = (50usize, 70usize);
    let x = numbers(rows * columns);
    let own = Transpose {
        x: Arg::input(&x),
        y: Arg::output::<f32>(x.len()),
        rows: rows as u32,
        columns: columns as u32,
    };
    let run = run(|arch| transpose([3, 2], arch), own);
    let at = |i: usize| x[i % rows * columns + i / rows];
    let wanted: Vec<f32> = (0..x.len()).map(at).collect();
    assert_eq!(output::<f32>(&run, "y"), wanted);
}
