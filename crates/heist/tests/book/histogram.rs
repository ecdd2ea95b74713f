use super::{output, run};
// book: begin
use heist::builder::{Arch, BuildError, Global, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// bins[v] += how often v is in x; values are below 64.
    struct Histogram { x: Global<u32>, bins: Global<u32>, n: u32 }
}

const BINS: u32 = 64;
const CHUNK: u32 = 1024; // elements of a tile

fn histogram(tiles: u32, arch: Arch) -> Result<TiledKernel<Histogram>, BuildError> {
    Tiled::<Histogram>::new("histogram", tiles)
        .block(128)
        .build(arch, |k, args, tiles| {
            let counts = k.shared::<u32>("counts", BINS); // of this block
            k.for_step(k.thread().x, BINS, 128u32, |bin| counts.at(bin).store(0));
            k.sync(); // all are zero before anybody counts
            let done = tiles.each(|tile| {
                k.for_step(k.thread().x, CHUNK, 128u32, |i| {
                    let at = tile.x * CHUNK + i;
                    k.if_(at.lt(args.n), || {
                        counts.at(args.x.at(at).load()).reduce_add(1)
                    });
                });
            });
            k.sync(); // all have counted
            k.for_step(k.thread().x, BINS, 128u32, |bin| {
                args.bins.at(bin).reduce_add(counts.at(bin).load());
            });
            done
        })
}
// book: end

#[test]
fn every_value_is_counted() {
    let x: Vec<u32> = (0..5000u32).map(|i| i * i % 61).collect();
    let own = Histogram {
        x: Arg::input(&x),
        bins: Arg::in_out(&[0u32; BINS as usize]),
        n: 5000,
    };
    let mut wanted = vec![0u32; BINS as usize];
    x.iter().for_each(|v| wanted[*v as usize] += 1);
    let run = run(|arch| histogram(5, arch), own);
    assert_eq!(output::<u32>(&run, "bins"), wanted);
}
