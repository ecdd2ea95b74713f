use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// The elements of x above `least`, side by side in y, in no order. How many is added to `count`.
    struct Compact { x: Global<f32>, y: Global<f32>, count: Global<u32>, least: f32, n: u32 }
}

const THREADS: u32 = 128;

fn compact(tiles: u32, arch: Arch) -> Result<TiledKernel<Compact>, BuildError> {
    Tiled::<Compact>::new("compact", tiles)
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            tiles.each(|tile| {
                let at = tile.x * THREADS + k.thread().x;
                let inside = at.lt(args.n);
                let value = k.if_value(inside, || args.x.at(at).load(), || k.c(0.0f32));
                let keep = inside & value.gt(args.least);
                let kept = keep.ballot(); // a bit for each lane that keeps its element
                let room = k.var(0u32);
                k.if_(k.lane().eq(0), || {
                    room.set(args.count.atomic_add(kept.count_ones()));
                });
                let first = room.get().shuffle_from(0);
                let before = (kept & !(k.c(u32::MAX) << k.lane())).count_ones();
                k.if_(keep, || args.y.at(first + before).store(value));
            })
        })
}
// book: end

#[test]
fn what_is_kept_is_side_by_side() {
    let (tiles, n) = (5u32, 600u32);
    let x = numbers(n as usize);
    let own = Compact {
        x: Arg::input(&x),
        y: Arg::output::<f32>(x.len()),
        count: Arg::in_out(&[0u32]),
        least: 0.25,
        n,
    };
    let run = run(|arch| compact(tiles, arch), own);
    let mut wanted: Vec<f32> = x.into_iter().filter(|x| *x > 0.25).collect();
    let count = output::<u32>(&run, "count")[0] as usize;
    assert_eq!(count, wanted.len());
    let mut found = output::<f32>(&run, "y");
    found.truncate(count);
    found.sort_by(f32::total_cmp);
    wanted.sort_by(f32::total_cmp);
    assert_eq!(found, wanted);
}
