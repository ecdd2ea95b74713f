use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// y[i] is the largest of x[i] and the window - 1 elements behind it; x ends at n.
    struct WindowMax { x: Global<f32>, y: Global<f32>, n: u32 }
}

const TILE: u32 = 128;

fn window_max(window: u32, tiles: u32, arch: Arch) -> Result<TiledKernel<WindowMax>, BuildError> {
    Tiled::<WindowMax>::new("window_max", tiles)
        .block(TILE)
        .build(arch, |k, args, tiles| {
            let span = TILE + window - 1; // what the windows of a tile see
            let even = k.shared::<f32>("even", span);
            let odd = k.shared::<f32>("odd", span);
            let me = k.thread().x;
            let none = k.c(f32::NEG_INFINITY);
            tiles.each(|tile| {
                let first = tile.x * TILE;
                k.for_step(me, span, TILE, |j| {
                    let inside = (first + j).lt(args.n);
                    let value = k.if_value(inside, || args.x.at(first + j).load(), || none);
                    even.at(j).store(value);
                });
                k.sync();
                // from[j] is the largest of `reach` elements; two that touch make one of twice as many.
                let (mut from, mut to, mut reach) = (&even, &odd, 1);
                while 2 * reach <= window {
                    k.for_step(me, span, TILE, |j| {
                        let right = j + reach;
                        let other = k.if_value(right.lt(span), || from.at(right).load(), || none);
                        to.at(j).store(from.at(j).load().max(other));
                    });
                    k.sync();
                    (from, to, reach) = (to, from, 2 * reach);
                }
                // Two that overlap make the window.
                let i = first + me;
                k.if_(i.lt(args.n), || {
                    let right = from.at(me + (window - reach)).load();
                    args.y.at(i).store(from.at(me).load().max(right));
                });
                k.sync();
            })
        })
}
// book: end

#[test]
fn the_largest_of_every_window() {
    let x = numbers(500);
    for window in [1, 2, 7, 32, 100] {
        let own = WindowMax {
            x: Arg::input(&x),
            y: Arg::output::<f32>(x.len()),
            n: 500,
        };
        let run = run(|arch| window_max(window, 4, arch), own);
        let wanted: Vec<f32> = (0..x.len())
            .map(|i| x[i..x.len().min(i + window as usize)].iter().copied())
            .map(|seen| seen.fold(f32::NEG_INFINITY, f32::max))
            .collect();
        assert_eq!(output::<f32>(&run, "y"), wanted, "{window}");
    }
}
