use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// y[i] = x[i - 1] / 4 + x[i] / 2 + x[i + 1] / 4; outside of x is zero.
    struct Blur { x: Global<f32>, y: Global<f32>, n: u32 }
}

const TILE: u32 = 128;

fn blur(tiles: u32, arch: Arch) -> Result<TiledKernel<Blur>, BuildError> {
    Tiled::<Blur>::new("blur", tiles)
        .block(TILE)
        .build(arch, |k, args, tiles| {
            let near = k.shared::<f32>("near", TILE + 2); // a tile, and a neighbour on each side
            tiles.each(|tile| {
                let me = k.thread().x;
                let first = tile.x * TILE;
                // Element j of `near` is element first + j - 1 of x: one thread brings two for some j.
                k.for_step(me, TILE + 2, TILE, |j| {
                    let at = first + j; // one more than the place in x, so that it is never negative
                    let inside = at.gt(0) & at.le(args.n);
                    let value = k.if_value(inside, || args.x.at(at - 1).load(), || k.c(0.0f32));
                    near.at(j).store(value);
                });
                k.sync();
                let i = first + me;
                k.if_(i.lt(args.n), || {
                    let [left, middle, right] = [0, 1, 2].map(|j| near.at(me).at(j).load());
                    args.y.at(i).store(middle * 0.5 + (left + right) * 0.25);
                });
                k.sync();
            })
        })
}
// book: end

#[test]
fn neighbours_are_mixed() {
    let x = numbers(300);
    let own = Blur {
        x: Arg::input(&x),
        y: Arg::output::<f32>(x.len()),
        n: 300,
    };
    let at = |i: usize| x.get(i).copied().unwrap_or(0.0);
    let wanted: Vec<f32> = (0..300)
        .map(|i| at(i) * 0.5 + (at(i.wrapping_sub(1)) + at(i + 1)) * 0.25)
        .collect();
    assert_eq!(output::<f32>(&run(|arch| blur(3, arch), own), "y"), wanted);
}
