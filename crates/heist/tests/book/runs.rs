use super::{output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, Scope, kernel_params};
use heist::launch::Arg;
use heist::sched::{TileSource, Tiled, TiledKernel};

kernel_params! {
    /// Runs of equal elements of x: the value of each and where it begins; behind the last, `begins` has n.
    /// `upto` has an element a tile, zero before the launch: one more than the runs that begin up to its end.
    struct Runs { x: Global<u32>, values: Global<u32>, begins: Global<u32>, upto: Global<u32>, n: u32 }
}

const THREADS: u32 = 128;

fn runs(tiles: u32, arch: Arch) -> Result<TiledKernel<Runs>, BuildError> {
    Tiled::<Runs>::new("runs", tiles)
        .source(TileSource::Ticket) // a tile waits for the one before it
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            let counts = k.shared::<u32>("counts", THREADS / 32);
            let earlier = k.shared::<u32>("earlier", 1);
            tiles.each(|tile| {
                let at = tile.x * THREADS + k.thread().x;
                let inside = at.lt(args.n);
                let value = k.if_value(inside, || args.x.at(at).load(), || k.c(0u32));
                let has_left = inside & at.gt(0);
                let left = k.if_value(has_left, || args.x.at(at - 1).load(), || k.c(0u32));
                let begins = inside & (at.eq(0) | left.ne(value));
                // How many runs begin before me: in my warp, in the warps before, in the tiles before.
                let in_warp = begins.ballot();
                k.if_(k.lane().eq(0), || {
                    counts.at(k.warp()).store(in_warp.count_ones())
                });
                k.sync();
                let (before, all) = (k.var(0u32), k.var(0u32));
                for warp in 0..THREADS / 32 {
                    let count = counts.at(warp).load();
                    all.update(|all| all + count);
                    k.if_(k.warp().gt(warp), || before.update(|before| before + count));
                }
                k.one_thread(|| {
                    let told = k.var(1u32); // before the first tile there are none
                    k.if_(tile.x.gt(0), || {
                        k.loop_(|flow| {
                            told.set(args.upto.at(tile.x - 1).load_acquire(Scope::Gpu));
                            flow.break_if(told.get().ne(0));
                        })
                    });
                    let upto = told.get() + all.get();
                    args.upto.at(tile.x).store_release(Scope::Gpu, upto);
                    earlier.at(0).store(told.get() - 1);
                });
                k.sync();
                let lanes_before = in_warp & !(k.c(u32::MAX) << k.lane());
                let to = earlier.at(0).load() + before.get() + lanes_before.count_ones();
                k.if_(begins, || {
                    args.values.at(to).store(value);
                    args.begins.at(to).store(at);
                });
                k.if_(inside & (at + 1).eq(args.n), || {
                    args.begins.at(to + begins.to_u32()).store(args.n);
                });
                k.sync(); // `earlier` is read, before the next tile writes it
            })
        })
}
// book: end

#[test]
fn runs_are_in_their_order_across_tiles() {
    let mut random = fastrand::Rng::with_seed(3);
    // Short runs, one longer than two tiles, one that ends with its tile, and one at the very end.
    let lengths = [1, 3, 2, 122, 300, 1, 83, 40, 1, 1, 64, 70, 5];
    assert_eq!(lengths[..4].iter().sum::<usize>(), THREADS as usize);
    let (mut x, mut values, mut begins) = (Vec::new(), Vec::new(), Vec::new());
    for length in lengths {
        let other = values.last().map_or(5, |last| last ^ (1 + random.u32(..7)));
        begins.push(x.len() as u32);
        values.push(other);
        x.extend(vec![other; length]);
    }
    begins.push(x.len() as u32);
    let tiles = (x.len() as u32).div_ceil(THREADS);
    let own = Runs {
        x: Arg::input(&x),
        values: Arg::output::<u32>(values.len()),
        begins: Arg::output::<u32>(begins.len()),
        upto: Arg::in_out(&vec![0u32; tiles as usize]),
        n: x.len() as u32,
    };
    let run = run(|arch| runs(tiles, arch), own);
    assert_eq!(output::<u32>(&run, "values"), values);
    assert_eq!(output::<u32>(&run, "begins"), begins);
    let upto = output::<u32>(&run, "upto");
    assert_eq!(upto.last(), Some(&(values.len() as u32 + 1)));
}
