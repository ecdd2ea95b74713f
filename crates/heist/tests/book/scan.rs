use super::{output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, Kernel, Val, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// Each row of y is the running sum of that row of x.
    struct Scan { x: Global<u32>, y: Global<u32>, columns: u32 }
}

const THREADS: u32 = 128;

/// The sum of this thread's value and of all threads before it in the block.
fn block_scan<'k>(k: &Kernel<'k>, value: Val<'k, u32>) -> Val<'k, u32> {
    let in_warp = k.var(value);
    for step in [1, 2, 4, 8, 16] {
        // Every lane takes part in the shuffle; only then is decided who adds.
        let below = in_warp.get().shuffle_up(step);
        k.if_(k.lane().ge(step), || in_warp.update(|sum| sum + below));
    }
    let warps = k.shared::<u32>("warps", THREADS / 32);
    k.if_(k.lane().eq(31), || warps.at(k.warp()).store(in_warp.get()));
    k.sync();
    let before = k.var(0u32);
    k.for_range(0, k.warp(), |warp| {
        before.update(|sum| sum + warps.at(warp).load())
    });
    k.sync(); // `warps` may be written again after this
    in_warp.get() + before.get()
}

fn scan(rows: u32, arch: Arch) -> Result<TiledKernel<Scan>, BuildError> {
    Tiled::<Scan>::new("scan", rows)
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            let last = k.shared::<u32>("last", 1);
            tiles.each(|row| {
                let carried = k.var(0u32); // the sum of all chunks before
                k.for_step(0, args.columns, THREADS, |first| {
                    let column = first + k.thread().x;
                    let at = row.x * args.columns + column;
                    let inside = column.lt(args.columns);
                    let value = k.if_value(inside, || args.x.at(at).load(), || k.c(0u32));
                    let sum = block_scan(k, value) + carried.get();
                    k.if_(inside, || args.y.at(at).store(sum));
                    k.if_(k.thread().x.eq(THREADS - 1), || last.at(0).store(sum));
                    k.sync();
                    carried.set(last.at(0).load());
                    k.sync();
                });
            })
        })
}
// book: end

#[test]
fn rows_are_summed_as_they_go() {
    let (rows, columns) = (3, 300);
    let x: Vec<u32> = (0..rows * columns).map(|i| i * 7 % 11).collect();
    let own = Scan {
        x: Arg::input(&x),
        y: Arg::output::<u32>(x.len()),
        columns,
    };
    let sums = |row: &[u32]| {
        let mut sum = 0;
        row.iter()
            .map(|x| {
                sum += x;
                sum
            })
            .collect::<Vec<u32>>()
    };
    let wanted: Vec<u32> = x.chunks(columns as usize).flat_map(sums).collect();
    assert_eq!(
        output::<u32>(&run(|arch| scan(rows, arch), own), "y"),
        wanted
    );
}
