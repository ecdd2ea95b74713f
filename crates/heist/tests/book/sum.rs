use super::{output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// sum += all of x.
    struct Sum { x: Global<f32>, sum: Global<f32>, n: u32 }
}

const EACH: u32 = 4; // elements of a thread, for each tile

fn sum(arch: Arch) -> Result<TiledKernel<Sum>, BuildError> {
    Tiled::<Sum>::new("sum", 8)
        .block(128)
        .build(arch, |k, args, tiles| {
            let total = k.var(0.0f32); // of this thread, over all of its tiles
            let done = tiles.each(|tile| {
                let first = (tile.x * 128 + k.thread().x) * EACH;
                k.for_range(0, EACH, |i| {
                    k.if_((first + i).lt(args.n), || {
                        total.update(|t| t + args.x.at(first + i).load())
                    });
                });
            });
            let of_block = total.get().block_sum(); // all threads of the block take part
            k.one_thread(|| args.sum.reduce_add(of_block)); // one atomic a block
            done
        })
}
// book: end

#[test]
fn all_elements_are_in_the_sum() {
    let x: Vec<f32> = (0..4000u16).map(|i| f32::from(i % 17)).collect();
    let own = Sum {
        x: Arg::input(&x),
        sum: Arg::in_out(&[1.0f32]),
        n: 4000,
    };
    let wanted = 1.0 + x.iter().sum::<f32>(); // whole numbers: exact in any order
    assert_eq!(output::<f32>(&run(sum, own), "sum"), [wanted]);
}
