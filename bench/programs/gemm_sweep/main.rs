//! Tile shapes of the multiplication beside each other on the GPU: each checked
//! against the others' result, then timed over rotated buffers.
//!
//! ```text
//! cargo run --release -p heist-bench --bin gemm_sweep -- [SIZE...] [--layout nt] [--dtype bf16] [--shapes A,B]
//!     [--sources direct,static:1x2] [--groups 8,16] [--submit late]
//! cargo run --release -p heist-bench --bin gemm_sweep -- --emit DIR      the PTX of each, without a GPU
//! ```
//! The exit status is 1 when a result is wrong, and 2 without a GPU.

use heist::gpu::{Gpu, Spread};
use heist::job::OnGpu;
use heist::kernels::gemm::{Config, FAMILY, Gemm, Input, Layout, Output, job_with, prepared};
use heist::kernels::reference::{Difference, numbers};
use heist::kernels::{Job, Target};
use heist::launch::{Buffer, Dim3};
use heist_builder::Arch;
use heist_sched::{AnyOrder, Grouped, Schedule, Submit};
use std::process::ExitCode;

const SHAPES: &[&str] = &[
    "128x256x32/64x64/3",
    "128x256x32/64x64/4",
    "128x256x32/64x64/5",
    "128x256x64/64x64/3",
    "256x128x32/64x64/4",
    "256x128x64/64x64/3",
    "128x128x32/64x64/3*2",
    "128x128x32/64x64/4*2",
    "128x128x64/64x64/3*2",
    "128x128x32/64x64/5*2",
    "256x192x32/64x96/3",
    "256x192x32/64x96/4",
    "128x192x32/64x96/4",
    "192x256x32/96x64/4",
    "128x96x32/64x48/4*2",
    "128x128x32/64x32/4*2",
    "256x128x32/64x32/3",
    "64x256x32/64x64/4*2",
    "128x64x64/64x32/4*3",
];

type Problem = Box<dyn std::error::Error>;

struct Words {
    sizes: Vec<u32>,
    layout: Layout,
    input: Input,
    shapes: Vec<String>,
    sources: Vec<String>,
    groups: Vec<u32>,
    submit: Submit,
    emit: Option<std::path::PathBuf>,
}

fn words() -> Result<Words, Problem> {
    let mut words = Words {
        sizes: Vec::new(),
        layout: Layout::Nt,
        input: Input::Bf16,
        shapes: SHAPES.iter().map(|shape| (*shape).to_owned()).collect(),
        sources: vec!["direct".into()],
        groups: vec![8],
        submit: Submit::Early,
        emit: None,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--layout" => words.layout = value()?.parse()?,
            "--dtype" => words.input = value()?.parse()?,
            "--shapes" => words.shapes = value()?.split(',').map(str::to_owned).collect(),
            "--sources" => words.sources = value()?.split(',').map(str::to_owned).collect(),
            "--groups" => {
                words.groups = value()?
                    .split(',')
                    .map(str::parse)
                    .collect::<Result<_, _>>()?;
            }
            "--submit" => words.submit = value()?.parse()?,
            "--emit" => words.emit = Some(value()?.into()),
            size => words.sizes.push(size.parse()?),
        }
    }
    if words.sizes.is_empty() {
        words.sizes.push(4096);
    }
    Ok(words)
}

/// A source, with a cluster behind it if there is one; in bands of `rows` tiles.
fn schedule(text: &str, submit: Submit, rows: u32) -> Result<Schedule, Problem> {
    let (source, cluster) = text.split_once(':').unwrap_or((text, "1x1"));
    let mut schedule = Schedule::new(source.parse()?).submit(submit);
    schedule.cluster = cluster.parse::<Dim3>()?;
    let rows = (rows / schedule.cluster.y.max(1)).max(1);
    schedule.order = AnyOrder::new(Grouped { rows });
    Ok(schedule)
}

/// A job of a tile shape, or of the variant of that name.
fn job(problem: &Gemm, shape: &str, schedule: &Schedule, target: Target) -> Result<Job, Problem> {
    Ok(match shape.parse::<Config>() {
        Ok(config) => job_with(problem, config, schedule, target)?,
        Err(_) => {
            FAMILY
                .choose(Some(shape), problem, target)?
                .job(problem, Some(schedule), target)?
        }
    })
}

fn emit(words: &Words, folder: &std::path::Path) -> Result<(), Problem> {
    std::fs::create_dir_all(folder)?;
    let target = Target {
        arch: Arch::SM_90A,
        sms: 132,
    };
    for shape in &words.shapes {
        let output = match words.input {
            Input::Tf32 => Output::F32,
            Input::F16 => Output::F16,
            _ => Output::Bf16,
        };
        for source in &words.sources {
            let n = words.sizes[0];
            let problem = Gemm::new(n, n, n, words.input, output, words.layout);
            let job = job(&problem, shape, &schedule(source, words.submit, 8)?, target)?;
            let name = format!("{}-{source}.ptx", shape.replace(['/', '*'], "_"));
            std::fs::write(folder.join(name), job.steps[0].ptx())?;
        }
    }
    Ok(())
}

/// Times a job: medians over rounds, the job's buffers rotated so that no
/// input is in L2 from the time before.
fn time(gpu: &Gpu, copies: &[OnGpu], rounds: usize) -> Result<Spread, Problem> {
    let stream = gpu.untracked_stream()?;
    let (start, end) = (gpu.event()?, gpu.event()?);
    let mut samples = Vec::new();
    for copy in copies.iter().cycle().take(5) {
        copy.launch(&stream)?;
    }
    stream.synchronize()?;
    for round in 0..rounds {
        start.record(&stream)?;
        for copy in copies.iter().cycle().skip(round % copies.len()).take(4) {
            copy.launch(&stream)?;
        }
        end.record(&stream)?;
        stream.synchronize()?;
        samples.push(end.since(&start)?.ns() / 4.0);
    }
    Spread::of(samples).ok_or_else(|| "nothing was measured".into())
}

/// How many copies of the buffers it takes to be twice as large as L2.
fn copies(gpu: &Gpu, job: &Job) -> usize {
    let bytes: usize = job
        .buffers
        .iter()
        .map(|buffer| buffer.data.bytes().len())
        .sum();
    (gpu.info().l2 as usize * 2)
        .div_ceil(bytes.max(1))
        .clamp(2, 8)
}

fn sweep(gpu: &Gpu, words: &Words, size: u32) -> Result<bool, Problem> {
    let target = heist::job::target(&heist::run::Device::Gpu(gpu.clone()))?;
    let output = match words.input {
        Input::Tf32 => Output::F32,
        Input::F16 => Output::F16,
        _ => Output::Bf16,
    };
    let problem = Gemm::new(size, size, size, words.input, output, words.layout);
    println!("{problem}");
    println!(
        "{:<24} {:<8} {:>6} {:>5} {:>6} {:>9} {:>9} {:>8} {:>9}",
        "shape", "source", "group", "regs", "local", "us", "TFLOP/s", "p10-p90", "norm"
    );
    let mut first: Option<Buffer> = None;
    let mut fine = true;
    let data = prepared(Job::default(), problem, 1).job.buffers;
    for shape in &words.shapes {
        for source in &words.sources {
            for &rows in &words.groups {
                let mut job = match job(
                    &problem,
                    shape,
                    &schedule(source, words.submit, rows)?,
                    target,
                ) {
                    Ok(job) => job,
                    Err(error) => {
                        println!("{shape:<24} {error}");
                        continue;
                    }
                };
                job.buffers.clone_from(&data);
                let many = copies(gpu, &job);
                let on_gpu: Vec<OnGpu> = (0..many)
                    .map(|_| OnGpu::new(gpu, &job))
                    .collect::<Result<_, _>>()?;
                let stream = gpu.stream()?;
                on_gpu[0].launch(&stream)?;
                stream.synchronize()?;
                on_gpu[0].read_back(&mut job)?;
                let found = job.data("d").ok_or("no result")?;
                let expected = first.get_or_insert_with(|| found.clone());
                let norm = if found == expected {
                    0.0
                } else {
                    Difference::between(&numbers(found), &numbers(expected)).norm
                };
                fine &= norm <= 2e-3;
                let spread = time(gpu, &on_gpu, 12)?;
                let info = on_gpu[0].kernels().next().ok_or("no kernel")?.clone();
                println!(
                    "{shape:<24} {:<8} {rows:>6} {:>5} {:>6} {:>9.2} {:>9.1} {:>4.0}-{:<4.0} {:>8.1e}",
                    source.to_string(),
                    info.registers,
                    info.local,
                    spread.median / 1e3,
                    job.work.flops / spread.median / 1e3,
                    job.work.flops / spread.p90 / 1e3,
                    job.work.flops / spread.p10 / 1e3,
                    norm,
                );
            }
        }
    }
    Ok(fine)
}

/// A small problem against f64, every shape.
fn small(gpu: &Gpu, words: &Words) -> Result<bool, Problem> {
    let target = heist::job::target(&heist::run::Device::Gpu(gpu.clone()))?;
    let mut fine = true;
    for shape in &words.shapes {
        let problem = Gemm::new(520, 391, 264, words.input, Output::F32, words.layout);
        let schedule = schedule("ticket", words.submit, 4)?;
        let job = match job(&problem, shape, &schedule, target) {
            Ok(job) => job,
            Err(error) => {
                println!("not here: {shape}: {error}");
                continue;
            }
        };
        let mut ready = prepared(job, problem, 2);
        let on_gpu = OnGpu::new(gpu, &ready.job)?;
        let stream = gpu.stream()?;
        on_gpu.launch(&stream)?;
        stream.synchronize()?;
        on_gpu.read_back(&mut ready.job)?;
        let difference = (ready.verify)(&ready.job)?;
        if !difference.within(ready.bound) {
            println!("{shape}: WRONG: {difference}");
            fine = false;
        }
    }
    println!(
        "{} shapes against f64: {}",
        words.shapes.len(),
        if fine { "right" } else { "WRONG" }
    );
    Ok(fine)
}

fn run() -> Result<bool, Problem> {
    let words = words()?;
    if let Some(folder) = &words.emit {
        emit(&words, folder)?;
        return Ok(true);
    }
    let gpu = Gpu::open(0)?;
    println!("{}", gpu.info().name);
    let mut fine = small(&gpu, &words)?;
    for &size in &words.sizes {
        fine &= sweep(&gpu, &words, size)?;
    }
    Ok(fine)
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
