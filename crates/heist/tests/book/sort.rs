use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// Each row of y is that row of x, sorted; a row has at most 256 elements.
    struct Sort { x: Global<f32>, y: Global<f32>, columns: u32 }
}

const THREADS: u32 = 256;

fn sort(rows: u32, arch: Arch) -> Result<TiledKernel<Sort>, BuildError> {
    Tiled::<Sort>::new("sort", rows)
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            let row_of = k.shared::<f32>("row", THREADS);
            let me = k.thread().x;
            tiles.each(|row| {
                let start = row.x * args.columns;
                let (x, y) = (args.x.at(start), args.y.at(start));
                let inside = me.lt(args.columns);
                // What is past the end is larger than all, and so stays there.
                let mine = k.if_value(inside, || x.at(me).load(), || k.c(f32::INFINITY));
                row_of.at(me).store(mine);
                k.sync();
                for run in [2, 4, 8, 16, 32, 64, 128, 256] {
                    // Runs of half that length are sorted, upwards and downwards in turn.
                    let upwards = (me & run).eq(0);
                    let mut step = run / 2;
                    while step > 0 {
                        let other = me ^ step;
                        k.if_(other.gt(me), || {
                            let (a, b) = (row_of.at(me).load(), row_of.at(other).load());
                            row_of.at(me).store(upwards.select(a.min(b), a.max(b)));
                            row_of.at(other).store(upwards.select(a.max(b), a.min(b)));
                        });
                        k.sync();
                        step /= 2;
                    }
                }
                k.if_(inside, || y.at(me).store(row_of.at(me).load()));
                k.sync(); // everybody is done with the row
            })
        })
}
// book: end

#[test]
fn rows_are_sorted() {
    let (rows, columns) = (3u32, 200u32);
    let x = numbers((rows * columns) as usize);
    let own = Sort {
        x: Arg::input(&x),
        y: Arg::output::<f32>(x.len()),
        columns,
    };
    let run = run(|arch| sort(rows, arch), own);
    let mut wanted = x;
    for row in wanted.chunks_mut(columns as usize) {
        row.sort_by(f32::total_cmp);
    }
    assert_eq!(output::<f32>(&run, "y"), wanted);
}
