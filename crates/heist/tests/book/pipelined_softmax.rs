use super::softmax::softmax_of;
use super::{assert_close, numbers, output, run};
// book: begin
use heist::builder::{Arch, ArraySpec, BuildError, Global, Val, kernel_params};
use heist::launch::Arg;
use heist::sched::{Tiled, TiledKernel};

kernel_params! {
    /// Each row of y is the softmax of that row of x; columns is a multiple of 512.
    struct Softmax { x: Global<f32>, y: Global<f32>, columns: u32 }
}

const THREADS: u32 = 128;
const EACH: u32 = 4; // elements of a thread in a chunk: 16 bytes, one copy
const CHUNK: u32 = THREADS * EACH;

fn exp(x: Val<'_, f32>) -> Val<'_, f32> {
    (x * std::f32::consts::LOG2_E).exp2_approx()
}

fn softmax(rows: u32, arch: Arch) -> Result<TiledKernel<Softmax>, BuildError> {
    Tiled::<Softmax>::new("softmax", rows)
        .block(THREADS)
        .build(arch, |k, args, tiles| {
            // Three stages of a chunk each: two are on their way while one is worked on.
            let pipeline = k.copy_pipeline::<3, _>(ArraySpec::<f32>::new("chunk", CHUNK));
            let mine = k.thread().x * EACH;
            tiles.each(|row| {
                let (x, y) = (
                    args.x.at(row.x * args.columns),
                    args.y.at(row.x * args.columns),
                );
                let chunks = args.columns / CHUNK;
                // One pass finds the largest and the sum: when a larger one comes, the sum so
                // far is scaled down to it.
                let (most, sum) = (k.var(f32::NEG_INFINITY), k.var(0.0f32));
                pipeline.again().run(
                    chunks,
                    |step, chunk| chunk.copy::<16>(mine, x.at(step * CHUNK + mine)),
                    |_, chunk| {
                        let values = chunk.at(mine).load_vec::<4>();
                        let larger = values
                            .iter()
                            .fold(most.get(), |most, value| most.max(*value));
                        let scaled = sum.get() * exp(most.get() - larger);
                        sum.set(
                            values
                                .iter()
                                .fold(scaled, |sum, value| sum + exp(*value - larger)),
                        );
                        most.set(larger);
                    },
                );
                let all = most.get().block_max();
                let scale = k.c(1.0f32) / (sum.get() * exp(most.get() - all)).block_sum();
                pipeline.again().run(
                    chunks,
                    |step, chunk| chunk.copy::<16>(mine, x.at(step * CHUNK + mine)),
                    |step, chunk| {
                        let values = chunk.at(mine).load_vec::<4>();
                        let weights = values.map(|value| exp(value - all) * scale);
                        y.at(step * CHUNK + mine).store_vec(weights);
                    },
                );
            })
        })
}
// book: end

#[test]
fn a_pipeline_gives_the_same_softmax() {
    let (rows, columns) = (3u32, 2048u32);
    let x = numbers((rows * columns) as usize);
    let own = Softmax {
        x: Arg::input(&x),
        y: Arg::output::<f32>(x.len()),
        columns,
    };
    let wanted: Vec<f32> = x.chunks(columns as usize).flat_map(softmax_of).collect();
    assert_close(&output(&run(|arch| softmax(rows, arch), own), "y"), &wanted);
}
