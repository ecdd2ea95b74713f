use super::{numbers, output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// y = a * x + y, for n elements.
    struct Saxpy { x: Global<f32>, y: Global<f32>, a: f32, n: u32 }
}

fn saxpy(arch: Arch) -> Result<TiledKernel<Saxpy>, BuildError> {
    Tiled::<Saxpy>::new("saxpy", 4) // four tiles
        .block(256) // of 256 threads
        .build(arch, |k, args, tiles| {
            tiles.each(|tile| {
                let i = tile.x * k.block_dim().x + k.thread().x;
                k.if_(i.lt(args.n), || {
                    let x = args.x.at(i).load();
                    args.y.at(i).update(|y| x.mul_add(args.a, y));
                });
            })
        })
}
// book: end

#[path = "first_run.rs"]
mod first_run;
#[path = "scheduled.rs"]
mod scheduled;

#[test]
fn saxpy_adds() {
    let (x, y) = (numbers(1000), vec![0.5f32; 1000]);
    let own = Saxpy {
        x: Arg::input(&x),
        y: Arg::in_out(&y),
        a: 2.0,
        n: 1000,
    };
    let wanted: Vec<f32> = x.iter().map(|x| x.mul_add(2.0, 0.5)).collect();
    assert_eq!(output::<f32>(&run(saxpy, own), "y"), wanted);
}
