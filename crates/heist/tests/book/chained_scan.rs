use super::{output, run};
// book: begin
use heist::builder::{Arch, Bool, BuildError, Global, Kernel, Scope, Val, kernel_params};
use heist::launch::Arg;
use heist::sched::{TileSource, Tiled, TiledKernel};

kernel_params! {
    /// Running sums of x that start anew wherever head is 1. `carry` and `ready` have an element a tile;
    /// `ready` is zero before the launch.
    struct ChainedScan {
        x: Global<u32>, head: Global<u32>, y: Global<u32>, carry: Global<u32>, ready: Global<u32>, n: u32,
    }
}

const THREADS: u32 = 128;

/// The sum back to the last head, and whether there is none: then what comes before the block is missing.
fn block_scan<'k>(k: &Kernel<'k>, value: Val<'k, u32>, head: Bool<'k>) -> (Val<'k, u32>, Bool<'k>) {
    let heads = head.ballot(); // a bit for each lane
    let up_to_me = heads & (k.c(u32::MAX) >> (31 - k.lane()));
    // How many lanes back my segment goes: to the last head, or to lane 0.
    let back = (k.lane() + up_to_me.leading_zeros() - 31).min(k.lane());
    let sum = k.var(value);
    for step in [1, 2, 4, 8, 16] {
        let below = sum.get().shuffle_up(step);
        k.if_(back.ge(step), || sum.update(|sum| sum + below));
    }
    let sums = k.shared::<u32>("sums", THREADS / 32);
    let closed = k.shared::<u32>("closed", THREADS / 32);
    k.if_(k.lane().eq(31), || {
        sums.at(k.warp()).store(sum.get());
        closed.at(k.warp()).store(heads);
    });
    k.sync();
    let (before, open) = (k.var(0u32), k.var(1u32));
    k.for_range(0, k.warp(), |warp| {
        let has_head = closed.at(warp).load().ne(0);
        let sum = sums.at(warp).load();
        before.update(|before| has_head.select(sum, before + sum));
        open.update(|open| has_head.select(0, open));
    });
    k.sync();
    let reaches = up_to_me.eq(0);
    (
        sum.get() + reaches.select(before.get(), 0),
        reaches & open.get().eq(1),
    )
}

fn chained_scan(tiles: u32, arch: Arch) -> Result<TiledKernel<ChainedScan>, BuildError> {
    Tiled::<ChainedScan>::new("chained_scan", tiles)
        .source(TileSource::Ticket) // tiles are taken in their order: see below
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            let carried = k.shared::<u32>("carried", 1);
            let me = k.thread().x;
            tiles.each(|tile| {
                let at = tile.x * THREADS + me;
                let inside = at.lt(args.n);
                let value = k.if_value(inside, || args.x.at(at).load(), || k.c(0u32));
                let head = k
                    .if_value(inside, || args.head.at(at).load(), || k.c(0u32))
                    .ne(0);
                let (sum, open) = block_scan(k, value, head);
                k.if_(me.eq(THREADS - 1), || {
                    let publish = |sum| {
                        args.carry.at(tile.x).store(sum);
                        args.ready.at(tile.x).store_release(Scope::Gpu, 1);
                    };
                    k.if_(!open, || publish(sum)); // a head is in this tile: its last sum is known
                    let before = k.if_value(
                        tile.x.gt(0),
                        || {
                            let last = tile.x - 1;
                            k.while_(|| args.ready.at(last).load_acquire(Scope::Gpu).eq(0), || {});
                            args.carry.at(last).load()
                        },
                        || k.c(0u32),
                    );
                    k.if_(open, || publish(sum + before));
                    carried.at(0).store(before);
                });
                k.sync();
                let before = open.select(carried.at(0).load(), 0);
                k.if_(inside, || args.y.at(at).store(sum + before));
                k.sync(); // `carried` is read, before the next tile writes it
            })
        })
}
// book: end

#[test]
fn sums_go_on_from_tile_to_tile() {
    let n = 1500u32;
    let tiles = n.div_ceil(THREADS);
    let x: Vec<u32> = (0..n).map(|i| i % 5 + 1).collect();
    let head: Vec<u32> = (0..n)
        .map(|i| u32::from([0, 3, 4, 90, 700, 701, 1030].contains(&i)))
        .collect();
    let own = ChainedScan {
        x: Arg::input(&x),
        head: Arg::input(&head),
        y: Arg::output::<u32>(n as usize),
        carry: Arg::output::<u32>(tiles as usize),
        ready: Arg::in_out(&vec![0u32; tiles as usize]),
        n,
    };
    let mut sum = 0;
    let wanted: Vec<u32> = (0..n as usize)
        .map(|i| {
            sum = if head[i] == 1 { x[i] } else { sum + x[i] };
            sum
        })
        .collect();
    let run = run(|arch| chained_scan(tiles, arch), own);
    assert_eq!(output::<u32>(&run, "y"), wanted);
}
