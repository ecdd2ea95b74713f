use super::{output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// Running sums of x that start anew wherever head is 1. One tile is 128 elements, and starts anew.
    struct SegmentedScan { x: Global<u32>, head: Global<u32>, y: Global<u32>, n: u32 }
}

const THREADS: u32 = 128;

fn segmented_scan(tiles: u32, arch: Arch) -> Result<TiledKernel<SegmentedScan>, BuildError> {
    Tiled::<SegmentedScan>::new("segmented_scan", tiles)
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            let (sums, heads) = (
                k.shared::<u32>("sums", THREADS),
                k.shared::<u32>("heads", THREADS),
            );
            let me = k.thread().x;
            tiles.each(|tile| {
                let at = tile.x * THREADS + me;
                let inside = at.lt(args.n);
                let sum = k.var(k.if_value(inside, || args.x.at(at).load(), || k.c(0u32)));
                let head = k.var(k.if_value(inside, || args.head.at(at).load(), || k.c(1u32)));
                // After the step of 2^s each thread has the sum of up to 2^s before it, back to its head.
                for step in [1, 2, 4, 8, 16, 32, 64] {
                    sums.at(me).store(sum.get());
                    heads.at(me).store(head.get());
                    k.sync();
                    let reaches = me.ge(step) & head.get().eq(0);
                    k.if_(reaches, || {
                        sum.update(|sum| sum + sums.at(me - step).load());
                        head.set(heads.at(me - step).load());
                    });
                    k.sync();
                }
                k.if_(inside, || args.y.at(at).store(sum.get()));
            })
        })
}
// book: end

#[test]
fn sums_start_anew_at_heads() {
    let n = 300u32;
    let x: Vec<u32> = (0..n).map(|i| i % 5 + 1).collect();
    let head: Vec<u32> = (0..n).map(|i| u32::from(i * i % 23 == 2)).collect();
    let own = SegmentedScan {
        x: Arg::input(&x),
        head: Arg::input(&head),
        y: Arg::output::<u32>(n as usize),
        n,
    };
    let mut sum = 0;
    let wanted: Vec<u32> = (0..n as usize)
        .map(|i| {
            let anew = head[i] == 1 || i % THREADS as usize == 0;
            sum = if anew { x[i] } else { sum + x[i] };
            sum
        })
        .collect();
    let run = run(|arch| segmented_scan(3, arch), own);
    assert_eq!(output::<u32>(&run, "y"), wanted);
}
