//! Tile shapes and orders of attention on warpgroups beside each other on the
//! GPU: a sample of each result against f64, then timed over rotated buffers.
//!
//! ```text
//! cargo run --release -p heist-bench --bin attention_warpgroups -- [WORD...]
//! ```
//! Only problems whose name has all the words, and none of those that follow a
//! minus, as in `-split`. The exit status is 1 when a result is wrong.

use heist::gpu::{Gpu, Spread};
use heist::job::OnGpu;
use heist::kernels::attention::{
    Config, Dtype, HeaviestFirst, Mask, Problem, Rung, Sample, WarpgroupShape, Weights, job,
    randomise, schedule, verify, warpgroup_job, warpgroup_shape,
};
use heist::kernels::{Job, KernelError, Target};
use heist_sched::{AnyOrder, Schedule, TileSource};

type Failure = Box<dyn std::error::Error>;

/// Times a job whose buffers are rotated, so that no input is in L2 from the
/// time before.
fn time(gpu: &Gpu, copies: &[OnGpu], rounds: usize) -> Result<Spread, Failure> {
    let stream = gpu.untracked_stream()?;
    let (start, end) = (gpu.event()?, gpu.event()?);
    let mut samples = Vec::new();
    for copy in copies.iter().cycle().take(3) {
        copy.launch(&stream)?;
    }
    stream.synchronize()?;
    for copy in copies.iter().cycle().take(rounds) {
        start.record(&stream)?;
        copy.launch(&stream)?;
        end.record(&stream)?;
        stream.synchronize()?;
        samples.push(end.since(&start)?.ns());
    }
    Spread::of(samples).ok_or_else(|| "nothing was measured".into())
}

/// A name, and the job or why there is none.
type Arm = (String, Result<Job, KernelError>);

fn arms(problem: &Problem, target: Target) -> Vec<Arm> {
    let config = Config::suited(Rung::Large, problem, target);
    let mut arms: Vec<Arm> = Vec::new();
    let causal = problem.mask == Mask::Causal;
    let with = |source, order: &Option<AnyOrder>| {
        let mut schedule = Schedule::new(source);
        if let Some(order) = order {
            schedule.order = order.clone();
        }
        schedule
    };
    let own = schedule(&config, problem, target);
    arms.push(("large".into(), job(problem, &config, &own, target)));
    // As large as registers and shared memory have room for, and smaller. Split
    // weights are as many registers again.
    let tiles: &[(u32, u32)] = match (problem.head_dim, problem.weights) {
        (..=64, Weights::Rounded) => &[(3, 128), (2, 128)],
        (..=64, Weights::Split) => &[(3, 64), (3, 80), (3, 96), (2, 128), (2, 160), (2, 176)],
        (65..=112, Weights::Rounded) => &[(3, 96), (3, 112), (2, 128), (2, 160)],
        (65..=112, Weights::Split) => &[(3, 80), (2, 128), (2, 160)],
        (113..=128, Weights::Rounded) => &[(2, 128)],
        (113..=128, Weights::Split) => &[(2, 80), (2, 96), (2, 112), (2, 128), (2, 144)],
        (129..=192, _) => &[(2, 80), (2, 96), (2, 112)],
        _ => &[(2, 48), (2, 64), (2, 80)],
    };
    let strips: &[u32] = if problem.head_dim > 128 {
        &[1]
    } else {
        &[1, 2, 4]
    };
    for &(groups, keys) in tiles {
        for &strip in strips {
            let shape = WarpgroupShape {
                groups,
                keys,
                strip,
                ..warpgroup_shape(problem, target).scheduled()
            };
            // Where strips even out the work, no order does it besides.
            let order = (causal && strip == 1).then(|| AnyOrder::new(HeaviestFirst { heads: 16 }));
            let sources: &[TileSource] = match (problem.weights, problem.head_dim) {
                (Weights::Rounded, 64 | 128) => &[TileSource::Direct, TileSource::Ticket],
                _ => &[TileSource::Direct],
            };
            for &source in sources {
                let made = warpgroup_job(problem, shape, &with(source, &order), target);
                arms.push((format!("{shape} {source}"), made));
            }
        }
    }
    arms
}

fn compare(gpu: &Gpu, problem: &Problem, target: Target) -> Result<bool, Failure> {
    println!("{problem}");
    let mut fine = true;
    let sample = Sample::Some { random: 2, seed: 1 };
    for (name, job) in arms(problem, target) {
        let mut job = match job {
            Ok(job) => job,
            Err(error) => {
                println!("  {name:<48} {error}");
                continue;
            }
        };
        randomise(&mut job, problem, 7);
        let copies: Vec<OnGpu> = (0..2)
            .map(|_| OnGpu::new(gpu, &job))
            .collect::<Result<_, _>>()?;
        let stream = gpu.stream()?;
        copies[0].launch(&stream)?;
        stream.synchronize()?;
        copies[0].read_back(&mut job)?;
        let verdict = verify(&job, problem, sample)?;
        let told = match verdict.judge(problem) {
            Ok(()) => format!("{:.2e}", verdict.out.norm),
            Err(wrong) => {
                fine = false;
                format!("WRONG: {wrong}")
            }
        };
        let spread = time(gpu, &copies, 9)?;
        let info = copies[0].kernels().next().ok_or("no kernel")?.clone();
        println!(
            "  {name:<48} {:>8.1} us {:>6.1} TFLOP/s  {} registers, {} local, error {told}",
            spread.median / 1e3,
            job.work.flops / spread.median / 1e3,
            info.registers,
            info.local,
        );
    }
    Ok(fine)
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let gpu = Gpu::open(0)?;
    let target = heist::job::target(&heist::run::Device::Gpu(gpu.clone()))?;
    let mut problems = Vec::new();
    for (dim, length, dtype) in [
        (128, 4096, Dtype::Bf16),
        (64, 4096, Dtype::Bf16),
        (128, 1024, Dtype::F16),
        (64, 1024, Dtype::F16),
        (128, 16384, Dtype::Bf16),
        (64, 16384, Dtype::Bf16),
    ] {
        problems.push((16384 / length, 2048 / dim, length, dim, dtype));
    }
    for dim in [32, 80, 96, 160, 192, 256] {
        problems.push((8, 2048 / dim, 2048, dim, Dtype::F16));
    }
    // Fewer tiles: where keys shared out among warps begin to win.
    for dim in [64, 128] {
        for (batch, length) in [
            (1, 512),
            (1, 1024),
            (4, 512),
            (1, 2048),
            (2, 2048),
            (4, 2048),
        ] {
            problems.push((batch, 8, length, dim, Dtype::Bf16));
        }
    }
    let mut fine = true;
    for (batch, heads, length, dim, dtype) in problems {
        for mask in [Mask::Full, Mask::Causal] {
            // In f16 rounding weights is nothing to mend.
            let weights: &[Weights] = match dtype {
                Dtype::F16 => &[Weights::Rounded],
                Dtype::Bf16 => &Weights::ALL,
            };
            for &weights in weights {
                let mut problem = Problem::new(batch, heads, length, dim);
                (problem.dtype, problem.mask, problem.weights) = (dtype, mask, weights);
                let name = problem.to_string();
                let fits = |word: &String| match word.strip_prefix('-') {
                    Some(word) => !name.contains(word),
                    None => name.contains(word.as_str()),
                };
                if words.iter().all(fits) {
                    fine &= compare(&gpu, &problem, target)?;
                }
            }
        }
    }
    match fine {
        true => Ok(()),
        false => Err("wrong results".into()),
    }
}
