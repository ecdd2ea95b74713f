use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, Val, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// The k largest of each row of x, largest first, and where they were. k is at most 128, and at most columns.
    struct TopK { x: Global<f32>, values: Global<f32>, places: Global<u32>, columns: u32, k: u32 }
}

const THREADS: u32 = 256;

/// A number that is larger the earlier this value comes: NaN first, then the larger, then the one to the left.
fn key<'k>(value: Val<'k, f32>, place: Val<'k, u32>) -> Val<'k, u64> {
    let bits = value.bitcast::<u32>();
    // Floats in order, as whole numbers: the sign flips, and of negative ones everything else too.
    let negative = bits.ge(1 << 31);
    let ordered = negative.select(!bits, bits | 1 << 31);
    ordered.cast::<u64>() << 32 | (!place).cast::<u64>()
}

fn top_k(rows: u32, arch: Arch) -> Result<TiledKernel<TopK>, BuildError> {
    Tiled::<TopK>::new("top_k", rows)
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            let keys = k.shared::<u64>("keys", THREADS);
            let me = k.thread().x;
            let holds = me.lt(args.k); // these threads have the best so far, the others bring new ones
            tiles.each(|row| {
                let x = args.x.at(row.x * args.columns);
                keys.at(me).store(0);
                k.sync();
                k.for_step(0, args.columns, THREADS - args.k, |first| {
                    let column = first + me - args.k;
                    let mine = k.if_value(
                        holds | column.ge(args.columns),
                        || holds.select(keys.at(me).load(), 0),
                        || key(x.at(column).load(), column),
                    );
                    let better = !holds & mine.gt(keys.at(args.k - 1).load());
                    // Most chunks of a long row change nothing.
                    k.if_(better.block_any(), || {
                        keys.at(me).store(mine);
                        k.sync();
                        let rank = k.var(0u32);
                        k.for_range(0, THREADS, |other| {
                            rank.update(|rank| rank + keys.at(other).load().gt(mine).to_u32())
                        });
                        k.sync();
                        k.if_(rank.get().lt(args.k) & mine.ne(0), || {
                            keys.at(rank.get()).store(mine)
                        });
                        k.sync();
                    });
                });
                k.if_(holds, || {
                    let place = !keys.at(me).load().cast::<u32>();
                    let to = row.x * args.k + me;
                    args.values.at(to).store(x.at(place).load());
                    args.places.at(to).store(place);
                });
                k.sync();
            })
        })
}
// book: end

#[test]
fn the_largest_of_long_rows_come_first() {
    let (rows, columns, most) = (3u32, 1000u32, 9u32);
    let mut x = numbers((rows * columns) as usize);
    x[3] = 5.0;
    x[600] = 5.0; // a tie: the left one first
    x[2999] = f32::NAN;
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
}
