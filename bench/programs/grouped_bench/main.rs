//! Grouped multiplications on the GPU: the cases that `docs/measurements/groups.md` lists,
//! each with several tile shapes and schedules, checked and timed in turns over the
//! same memory; and a soak of thousands of launches in clusters.
//!
//! A hot sample is three launches one after the other, a cold one a single launch
//! after the L2 cache was overwritten.
//!
//! ```text
//! cargo run --release -p heist-bench --bin grouped_bench -- [--cases 1,3] [--shapes A,B] [--schedules S,T]
//! cargo run --release -p heist-bench --bin grouped_bench -- --soak 3000
//! cargo run --release -p heist-bench --bin grouped_bench -- --emit DIR     the PTX of each, without a GPU
//! ```
//! A schedule is a source, with an order and a cluster behind it: `ticket-late`,
//! `static@hilbert`, `ticket@grouped(4):1x2`; the order is linear unless given.
//! The exit status is 1 when a result is wrong, and 2 without a GPU.

use half::bf16;
use heist::gpu::{DeviceMemory, Gpu, Spread};
use heist::job::OnGpu;
use heist::kernels::gemm::{Config, Input, Output};
use heist::kernels::grouped::{BadTile, FAMILY, Group, Grouped, Shapes, job_with, prepared};
use heist::kernels::random::uniform;
use heist::kernels::{Job, Target};
use heist::launch::{Buffer, Dim3, ElementType, NamedBuffer, Role};
use heist_sched::{Schedule, Submit};
use std::collections::BTreeMap;
use std::process::ExitCode;

type Problem = Box<dyn std::error::Error>;

/// One period of the data: a prime, so that no row repeats another.
const PERIOD: usize = 16_777_213;

fn cases() -> Vec<(&'static str, Grouped)> {
    let case = |rows: Vec<u32>, n, k| Grouped::rows(rows, n, k, Input::Bf16, Output::Bf16);
    let falling = (0..64u32)
        .map(|i| (8192 / (i + 1) / 8 * 8).max(16))
        .collect();
    let small = (0..256u32).map(|i| 8 + (i * 37) % 113).collect();
    vec![
        (
            "8 x 1024 rows, n 4096, k 4096",
            case(vec![1024; 8], 4096, 4096),
        ),
        ("8 x 40 rows, n 4096, k 7168", case(vec![40; 8], 4096, 7168)),
        (
            "40,2048,96,40,512,1536,168,3752 rows, n 4096, k 7168",
            case(vec![40, 2048, 96, 40, 512, 1536, 168, 3752], 4096, 7168),
        ),
        (
            "64 groups, 8192/(i+1) rows, n 2048, k 2048",
            case(falling, 2048, 2048),
        ),
        (
            "256 groups, 8-120 rows, n 2048, k 7168",
            case(small, 2048, 7168),
        ),
    ]
}

/// Memory filled with the period over and over.
fn filled(gpu: &Gpu, block: &[u8], bytes: usize) -> Result<DeviceMemory, Problem> {
    let memory = gpu.allocate(bytes)?;
    for from in (0..bytes).step_by(block.len()) {
        memory.write(from, &block[..block.len().min(bytes - from)])?;
    }
    Ok(memory)
}

/// A job of a tile shape, or of the variant of that name.
fn job(
    problem: &Grouped,
    shape: &str,
    schedule: &Schedule,
    target: Target,
) -> Result<Job, Problem> {
    Ok(match shape.parse::<Config>() {
        Ok(config) => job_with(problem, config, schedule, target)?,
        Err(_) => {
            FAMILY
                .choose(Some(shape), problem, target)?
                .job(problem, Some(schedule), target)?
        }
    })
}

/// The buffers of a case: shapes as they are, matrices still empty.
fn shapes_of(problem: &Grouped) -> Vec<NamedBuffer> {
    let mut job = Job::default();
    if let Shapes::Rows { rows, .. } = &problem.shapes {
        let ends: Vec<u32> = rows
            .iter()
            .scan(0, |end, &m| {
                *end += m;
                Some(*end)
            })
            .collect();
        job = job.buffer("shapes", Role::In, Buffer::from_slice(&ends));
    }
    for name in ["a", "b", "d"] {
        job = job.buffer(name, Role::In, Buffer::zeros(ElementType::Bf16, 0));
    }
    job.buffer("places", Role::In, Buffer::zeros(ElementType::U64, 0))
        .buffer("record", Role::InOut, Buffer::zeros(ElementType::U32, 8))
        .buffers
}

/// A few elements against f64.
fn sample(problem: &Grouped, block: &[bf16], d: &[u8]) -> Result<f64, Problem> {
    let groups = problem.groups();
    let total: usize = groups.iter().map(|g| g.m as usize).sum();
    let value = |index: usize| block[index % PERIOD].to_f64();
    let (mut error, mut size) = (0.0, 0.0);
    let mut state = 1u64;
    for _ in 0..300 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let row = (state >> 33) as usize % total;
        let (mut first, mut group) = (0, 0);
        while row >= first + groups[group].m as usize {
            first += groups[group].m as usize;
            group += 1;
        }
        let (n, k) = (groups[group].n as usize, groups[group].k as usize);
        let col = (state >> 13) as usize % n;
        let exact: f64 = (0..k)
            .map(|i| value(row * k + i) * value((group * n + col) * k + i))
            .sum();
        let at = 2 * (row * n + col);
        let found = bf16::from_le_bytes([d[at], d[at + 1]]).to_f64();
        error += (found - exact).powi(2);
        size += exact.powi(2);
    }
    Ok((error / size).sqrt())
}

fn schedule(text: &str) -> Result<Schedule, Problem> {
    let (text, cluster) = text.split_once(':').unwrap_or((text, "1x1"));
    let (source, order) = text.split_once('@').unwrap_or((text, "linear"));
    let (source, late) = match source.strip_suffix("-late") {
        Some(source) => (source, true),
        None => (source, false),
    };
    let mut schedule = Schedule::new(source.parse()?);
    if late {
        schedule.submit = Submit::Late;
    }
    schedule.cluster = cluster.parse::<Dim3>()?;
    schedule.order = order.parse()?;
    Ok(schedule)
}

/// One way to solve a case: a step of the job of all.
struct Way {
    name: String,
    norm: f64,
    right: bool,
    hot: Vec<f64>,
    cold: Vec<f64>,
}

/// Samples of every way, in turns.
fn time(gpu: &Gpu, job: &OnGpu, ways: &mut [Way], rounds: usize) -> Result<(), Problem> {
    let sampler = gpu.sampler()?;
    let (start, end) = (gpu.event()?, gpu.event()?);
    let hot = |index: usize| -> Result<f64, Problem> {
        let stream = sampler.stream();
        start.record(stream)?;
        for _ in 0..3 {
            job.launch_step(index, stream)?;
        }
        end.record(stream)?;
        stream.synchronize()?;
        Ok(end.since(&start)?.ns() / 3.0)
    };
    let count = ways.len();
    for round in 0..rounds + 2 {
        for turn in 0..count {
            let index = (round + turn) % count;
            let hot = hot(index)?;
            let cold = sampler.sample(1, |stream| job.launch_step(index, stream))?;
            // The first rounds warm up.
            if round >= 2 {
                ways[index].hot.push(hot);
                ways[index].cold.push(cold.ns());
            }
        }
    }
    Ok(())
}

struct Words {
    cases: Vec<usize>,
    shapes: Vec<String>,
    schedules: Vec<String>,
    rounds: usize,
    soak: Option<u32>,
    emit: Option<std::path::PathBuf>,
}

fn words() -> Result<Words, Problem> {
    let split = |text: String| -> Vec<String> { text.split(',').map(str::to_owned).collect() };
    let mut words = Words {
        cases: (1..=5).collect(),
        shapes: split("128x256x64/64x64/3,128x128x64/64x64/3*2,64x256x32/64x64/4*2".into()),
        schedules: split("ticket-late,static".into()),
        rounds: 12,
        soak: None,
        emit: None,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(word) = rest.next() {
        let value = rest.next().ok_or(format!("{word} needs a value"))?;
        match word.as_str() {
            "--cases" => {
                words.cases = split(value)
                    .iter()
                    .map(|c| c.parse())
                    .collect::<Result<_, _>>()?
            }
            "--shapes" => words.shapes = split(value),
            "--schedules" => words.schedules = split(value),
            "--emit" => words.emit = Some(value.into()),
            "--rounds" => words.rounds = value.parse()?,
            "--soak" => words.soak = Some(value.parse()?),
            _ => return Err(format!("`{word}` is unknown").into()),
        }
    }
    Ok(words)
}

fn bench(gpu: &Gpu, target: Target, words: &Words) -> Result<bool, Problem> {
    let block = uniform(ElementType::Bf16, 1, PERIOD);
    let values: Vec<bf16> = block.to_vec().ok_or("no values")?;
    let mut fine = true;
    for (number, (name, problem)) in cases().into_iter().enumerate() {
        if !words.cases.contains(&(number + 1)) {
            continue;
        }
        println!("case {}: {name}", number + 1);
        let groups = problem.groups();
        let bytes = |size: &dyn Fn(&Group) -> u64| -> usize {
            groups.iter().map(size).sum::<u64>() as usize * 2
        };
        let sizes = [
            bytes(&|g| u64::from(g.m) * u64::from(g.k)),
            bytes(&|g| u64::from(g.n) * u64::from(g.k)),
            bytes(&|g| u64::from(g.m) * u64::from(g.n)),
        ];
        let mut memory = BTreeMap::new();
        for (name, bytes) in ["a", "b", "d"].into_iter().zip(sizes) {
            memory.insert(name.to_owned(), filled(gpu, block.bytes(), bytes)?);
        }
        let mut all = Job {
            buffers: shapes_of(&problem),
            ..Job::default()
        };
        let mut ways = Vec::new();
        for shape in &words.shapes {
            for text in &words.schedules {
                match job(&problem, shape, &schedule(text)?, target) {
                    Ok(job) => {
                        let grid = job.steps[0].launch.grid;
                        println!("  {shape} {text}: {} on {} blocks", job.name, grid.count());
                        all.work = job.work;
                        all.steps.extend(job.steps);
                        ways.push(Way {
                            name: format!("{shape} {text}"),
                            norm: 0.0,
                            right: false,
                            hot: Vec::new(),
                            cold: Vec::new(),
                        });
                    }
                    Err(error) => println!("  {shape} {text}: {error}"),
                }
            }
        }
        let on_gpu = OnGpu::over(gpu, &all, memory)?;
        let stream = gpu.stream()?;
        let result = on_gpu.memory("d").ok_or("no result")?;
        let mut d = vec![0; sizes[2]];
        for (index, way) in ways.iter_mut().enumerate() {
            result.fill(0xFF, &stream)?;
            on_gpu.launch_step(index, &stream)?;
            stream.synchronize()?;
            result.read(0, &mut d)?;
            way.norm = sample(&problem, &values, &d)?;
            // What was not written is still all ones.
            let whole = !d.chunks_exact(2).any(|pair| pair == [0xFF, 0xFF]);
            way.right = way.norm <= 4e-3 && whole;
            fine &= way.right;
        }
        time(gpu, &on_gpu, &mut ways, words.rounds)?;
        println!(
            "  {:<40} regs local   hot us [p10, p90] TFLOP/s    cold us [p10, p90] TFLOP/s  norm",
            "way"
        );
        for (way, info) in ways.into_iter().zip(on_gpu.kernels()) {
            let figure = |samples: Vec<f64>| -> Result<String, Problem> {
                let spread = Spread::of(samples).ok_or("nothing was measured")?;
                let [median, low, high] =
                    [spread.median, spread.p10, spread.p90].map(|ns| ns / 1e3);
                let speed = all.work.flops / spread.median / 1e3;
                Ok(format!("{median:>8.1} [{low:.1}, {high:.1}] {speed:>6.1}"))
            };
            println!(
                "  {:<40} {:>4} {:>5} {} {}  {:.1e}{}",
                way.name,
                info.registers,
                info.local,
                figure(way.hot)?,
                figure(way.cold)?,
                way.norm,
                if way.right { "" } else { "  WRONG" },
            );
        }
    }
    Ok(fine)
}

/// Thousands of launches of small groups among large ones in clusters, with the
/// check of every tile on.
fn soak(gpu: &Gpu, target: Target, launches: u32) -> Result<bool, Problem> {
    let mut fine = true;
    for (shape, text) in ["64x128x32/64x32/3", "wgmma-128x256"]
        .into_iter()
        .flat_map(|shape| ["1x2", "2x1", "2x2"].map(|cluster| (shape, format!("ticket:{cluster}"))))
    {
        let rows = vec![40, 600, 40, 96, 0, 40, 1000, 168];
        let mut problem = Grouped::rows(rows, 512, 256, Input::Bf16, Output::Bf16);
        problem.check = true;
        let job = job(&problem, shape, &schedule(&text)?, target)?;
        let mut ready = prepared(job, problem, 7);
        let on_gpu = OnGpu::new(gpu, &ready.job)?;
        let stream = gpu.stream()?;
        let (mut first, mut bad) = (None, 0);
        for launch in 0..launches {
            if launch % 100 == 0 {
                on_gpu.memory("d").ok_or("no result")?.fill(0xFF, &stream)?;
            }
            on_gpu.launch(&stream)?;
            if launch % 100 == 99 || launch + 1 == launches {
                stream.synchronize()?;
                on_gpu.read_back(&mut ready.job)?;
                let d = ready.job.data("d").ok_or("no result")?.clone();
                if let Some(record) = ready.job.data("record").and_then(BadTile::read) {
                    println!("  {record}");
                    bad += 1;
                }
                bad += u32::from(first.get_or_insert_with(|| d.clone()) != &d);
            }
        }
        let difference = (ready.verify)(&ready.job)?;
        let right = bad == 0 && difference.within(ready.bound);
        fine &= right;
        println!(
            "{shape} {text}: {launches} launches, {} ({difference})",
            if right { "all right" } else { "WRONG" }
        );
    }
    Ok(fine)
}

/// The PTX of each, without a GPU.
fn emit(words: &Words, folder: &std::path::Path) -> Result<(), Problem> {
    std::fs::create_dir_all(folder)?;
    let arch = heist_builder::Arch::SM_90A;
    let target = Target { arch, sms: 132 };
    for (number, (_, problem)) in cases().into_iter().enumerate() {
        if !words.cases.contains(&(number + 1)) {
            continue;
        }
        for shape in &words.shapes {
            for text in &words.schedules {
                let job = job(&problem, shape, &schedule(text)?, target)?;
                let name = format!("{number}-{}-{text}.ptx", shape.replace(['/', '*'], "_"));
                std::fs::write(folder.join(name), job.steps[0].ptx())?;
            }
        }
    }
    Ok(())
}

fn run() -> Result<bool, Problem> {
    let words = words()?;
    if let Some(folder) = &words.emit {
        emit(&words, folder)?;
        return Ok(true);
    }
    let gpu = Gpu::open(0)?;
    println!("{}", gpu.info().name);
    let target = heist::job::target(&heist::run::Device::Gpu(gpu.clone()))?;
    match words.soak {
        Some(launches) => soak(&gpu, target, launches),
        None => bench(&gpu, target, &words),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}
