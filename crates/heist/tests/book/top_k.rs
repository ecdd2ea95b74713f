use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// The k largest of each row of x, largest first, and where they were; a row has at most 256.
    struct TopK { x: Global<f32>, values: Global<f32>, places: Global<u32>, columns: u32, k: u32 }
}

const THREADS: u32 = 256;

fn top_k(rows: u32, arch: Arch) -> Result<TiledKernel<TopK>, BuildError> {
    Tiled::<TopK>::new("top_k", rows)
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            let row_of = k.shared::<f32>("row", THREADS);
            let me = k.thread().x;
            tiles.each(|row| {
                let x = args.x.at(row.x * args.columns);
                let inside = me.lt(args.columns);
                let mine = k.if_value(inside, || x.at(me).load(), || k.c(f32::NEG_INFINITY));
                row_of.at(me).store(mine);
                k.sync();
                // My rank is how many are before me: larger, or equal and to the left.
                let rank = k.var(0u32);
                k.for_range(0, args.columns, |other| {
                    let value = row_of.at(other).load();
                    let before = value.gt(mine) | (value.eq(mine) & other.lt(me));
                    rank.update(|rank| rank + before.to_u32());
                });
                k.if_(inside & rank.get().lt(args.k), || {
                    let to = row.x * args.k + rank.get();
                    args.values.at(to).store(mine);
                    args.places.at(to).store(me);
                });
                k.sync(); // everybody is done with the row
            })
        })
}
// book: end

#[test]
fn the_largest_come_first() {
    let (rows, columns, most) = (4u32, 100u32, 7u32);
    let mut x = numbers((rows * columns) as usize);
    x[3] = 5.0;
    x[60] = 5.0; // a tie: the left one first
    let room = (rows * most) as usize;
    let own = TopK {
        x: Arg::input(&x),
        values: Arg::output::<f32>(room),
        places: Arg::output::<u32>(room),
        columns,
        k: most,
    };
    let run = run(|arch| top_k(rows, arch), own);
    let mut wanted = Vec::new();
    for row in x.chunks(columns as usize) {
        let mut order: Vec<u32> = (0..columns).collect();
        order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
        wanted.extend_from_slice(&order[..most as usize]);
    }
    assert_eq!(output::<u32>(&run, "places"), wanted);
    let values = output::<f32>(&run, "values");
    assert_eq!(values[..2], [5.0, 5.0]);
}
