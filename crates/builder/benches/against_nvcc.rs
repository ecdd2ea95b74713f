//! Kernels written with the builder against the same kernels in CUDA C++
//! through nvcc -O3, on the GPU, in turns.
//!
//! ```text
//! cargo run --release -p heist-builder --example against_nvcc [-- --twins DIR] [--rounds N] [--small] [--only NAME]
//! ```
//! The twins' PTX is built in (`bench/builder/nvcc`); `--twins` takes other
//! files of the same names. With `--small` the problems are small and each
//! kernel runs once or twice, for a sanitizer, and no ratio counts. Both sides go through the driver's assembler and
//! the same runtime. Results are compared with each other and with the host.
//! The exit status is 1 when a result is wrong or a ratio is above 1.02, and 2
//! without a GPU.

#[path = "../tests/common/examples.rs"]
mod examples;

use examples::{mma_gemm, reduction, saxpy, tiled_gemm};
use half::f16;
use heist_builder::{Arch, BuiltKernel};
use heist_gpu::{Arm, Array, Gpu, GpuError, JitOptions, Kernel, KernelArg, Protocol, PtxText};
use heist_launch::{Buffer, ElementType, Launch};
use heist_oracle::Ptxas;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A kernel and its twin, both loaded, and what they are launched with.
struct Pair {
    name: &'static str,
    ours: Kernel,
    twin: Kernel,
    texts: [PtxText; 2],
    launch: Launch,
}

/// What the command line said.
struct Options {
    twins: Option<PathBuf>,
    rounds: u32,
    small: bool,
    only: Option<String>,
}

impl Options {
    /// A size, or a small one.
    fn size(&self, large: usize, small: usize) -> usize {
        if self.small { small } else { large }
    }
}

const BUILT_IN: [(&str, &str); 4] = [
    (
        "saxpy",
        include_str!("../../../bench/builder/nvcc/saxpy.ptx"),
    ),
    (
        "reduction",
        include_str!("../../../bench/builder/nvcc/reduction.ptx"),
    ),
    (
        "tiled_gemm",
        include_str!("../../../bench/builder/nvcc/tiled_gemm.ptx"),
    ),
    (
        "mma_gemm",
        include_str!("../../../bench/builder/nvcc/mma_gemm.ptx"),
    ),
];

type Problem = Box<dyn std::error::Error>;

fn pair<A>(
    gpu: &Gpu,
    options: &Options,
    name: &'static str,
    built: BuiltKernel<A>,
    grid: [u32; 3],
) -> Result<Pair, Problem> {
    let twin = match &options.twins {
        Some(folder) => std::fs::read_to_string(folder.join(name).with_extension("ptx"))?,
        None => BUILT_IN
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, text)| (*text).to_string())
            .ok_or("no such twin")?,
    };
    // nvcc may be newer than the driver and still use nothing new.
    let newest = heist_ptx::Version::new(9, 0);
    let twin = PtxText::new(format!("{name}.cu"), twin)
        .clamped(newest)
        .into_owned();
    let ours = PtxText::from_module(name, &built.module);
    let load = |text: &PtxText| -> Result<Kernel, GpuError> {
        gpu.load(text, &JitOptions::default())?
            .kernel(&built.launch.entry)
    };
    Ok(Pair {
        name,
        ours: load(&ours)?,
        twin: load(&twin)?,
        texts: [ours, twin],
        launch: Launch::new(grid, built.launch.block).dynamic_shared(built.launch.dynamic_shared),
    })
}

/// Measures, prints the row, and says whether the ratio is within 1.02.
fn compare(
    gpu: &Gpu,
    options: &Options,
    pair: &Pair,
    arguments: [&[KernelArg]; 2],
) -> Result<bool, Problem> {
    let mut arms = [
        Arm::new("ours", |stream| {
            pair.ours.launch(stream, &pair.launch, arguments[0])
        }),
        Arm::new("nvcc", |stream| {
            pair.twin.launch(stream, &pair.launch, arguments[1])
        }),
    ];
    let mut protocol = Protocol {
        rounds: options.rounds,
        ..Protocol::default()
    };
    if options.small {
        (protocol.rounds, protocol.warm_up) = (1, Duration::ZERO);
    }
    let figures = gpu.measure(&mut arms, &protocol)?;
    let (Some(ours), Some(nvcc), Some(ratio)) = (
        figures[0].nanoseconds(),
        figures[1].nanoseconds(),
        figures[0].times_as_long_as(&figures[1]),
    ) else {
        return Err("nothing was measured".into());
    };
    let [our_count, twin_count] = pair
        .texts
        .each_ref()
        .map(|text| machine_instructions(&text.text));
    let count = |count: Option<usize>| count.map_or("-".into(), |count| count.to_string());
    println!(
        "{:<11} {:>10.2} {:>10.2} {:>7.3} [{:.3}, {:.3}] {:>8} {:>8} {:>6} {:>6}",
        pair.name,
        ours.median / 1e3,
        nvcc.median / 1e3,
        ratio.median,
        ratio.p10,
        ratio.p90,
        count(our_count),
        count(twin_count),
        pair.ours.info().registers,
        pair.twin.info().registers,
    );
    Ok(options.small || ratio.median <= 1.02)
}

/// Instructions of the machine code, where ptxas and nvdisasm are installed.
fn machine_instructions(ptx: &str) -> Option<usize> {
    let cubin = Ptxas::find()?.assemble(ptx, "sm_90").ok()?;
    let listing = cubin.disassembly()?;
    let is_instruction = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("/*") && line.contains(';') && !line.contains("NOP")
    };
    Some(listing.lines().filter(is_instruction).count())
}

fn random(seed: u64, count: usize) -> Vec<f32> {
    Buffer::random(ElementType::F32, seed, count)
        .to_vec()
        .unwrap_or_default()
}

/// Fails unless the two sides agree within `tolerance`, relative to the largest.
fn agree(name: &str, ours: &[f32], theirs: &[f32], tolerance: f32) -> Result<(), Problem> {
    let largest = theirs.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    for (index, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let difference = (a - b).abs();
        if difference.is_nan() || difference > tolerance * largest {
            return Err(
                format!("{name}: element {index} is {a}, and {b} on the other side").into(),
            );
        }
    }
    Ok(())
}

fn launch_once(gpu: &Gpu, pair: &Pair, arguments: [&[KernelArg]; 2]) -> Result<(), GpuError> {
    let stream = gpu.stream()?;
    pair.ours.launch(&stream, &pair.launch, arguments[0])?;
    pair.twin.launch(&stream, &pair.launch, arguments[1])?;
    stream.synchronize()
}

fn saxpy_case(gpu: &Gpu, options: &Options) -> Result<bool, Problem> {
    let n = options.size(1 << 26, 1 << 14);
    let built = saxpy::saxpy(Arch::SM_90)?;
    let pair = pair(
        gpu,
        options,
        "saxpy",
        built,
        [(n as u32).div_ceil(256), 1, 1],
    )?;
    let (x, y) = (random(1, n), random(2, n));
    let x_device = gpu.upload(&x)?;
    let y_device = [gpu.upload(&y)?, gpu.upload(&y)?];
    let arguments = y_device.each_ref().map(|y: &Array<f32>| {
        vec![
            KernelArg::pointer(&x_device),
            KernelArg::pointer(y),
            KernelArg::scalar(0.5f32),
            KernelArg::scalar(n as u32),
        ]
    });
    let arguments = arguments.each_ref().map(Vec::as_slice);
    launch_once(gpu, &pair, arguments)?;
    let [ours, theirs] = [y_device[0].read()?, y_device[1].read()?];
    agree("saxpy", &ours, &theirs, 0.0)?;
    let host: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x.mul_add(0.5, *y)).collect();
    agree("saxpy, host", &ours, &host, 0.0)?;
    compare(gpu, options, &pair, arguments)
}

fn reduction_case(gpu: &Gpu, options: &Options) -> Result<bool, Problem> {
    let n = options.size(1 << 26, 1 << 14);
    let built = reduction::reduction(Arch::SM_90)?;
    let pair = pair(gpu, options, "reduction", built, [132 * 8, 1, 1])?;
    let x: Vec<f32> = random(3, n).iter().map(|v| v.abs()).collect();
    let x_device = gpu.upload(&x)?;
    let sums = [gpu.zeros::<f32>(1)?, gpu.zeros::<f32>(1)?];
    let arguments = sums.each_ref().map(|sum: &Array<f32>| {
        vec![
            KernelArg::pointer(&x_device),
            KernelArg::pointer(sum),
            KernelArg::scalar(n as u32),
        ]
    });
    let arguments = arguments.each_ref().map(Vec::as_slice);
    launch_once(gpu, &pair, arguments)?;
    let [ours, theirs] = [sums[0].read()?, sums[1].read()?];
    agree("reduction", &ours, &theirs, 1e-5)?;
    let host = x.iter().map(|&v| f64::from(v)).sum::<f64>() as f32;
    agree("reduction, host", &ours, &[host], 1e-5)?;
    compare(gpu, options, &pair, arguments)
}

/// C = A * B with B given row by row (`by_rows`) or column by column; a few
/// elements are checked against the host in f64.
fn check_gemm(
    name: &str,
    a: &[f32],
    b: &[f32],
    c: &[f32],
    n: usize,
    by_rows: bool,
) -> Result<(), Problem> {
    let mut index = 12345usize;
    for _ in 0..200 {
        index = index
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let (row, col) = ((index >> 33) % n, (index >> 13) % n);
        let exact: f64 = (0..n)
            .map(|d| {
                let b = if by_rows {
                    b[d * n + col]
                } else {
                    b[col * n + d]
                };
                f64::from(a[row * n + d]) * f64::from(b)
            })
            .sum();
        let found = f64::from(c[row * n + col]);
        if (found - exact).abs() > 1e-3 * (n as f64).sqrt() {
            return Err(format!("{name}: C[{row}][{col}] is {found}, exactly {exact}").into());
        }
    }
    Ok(())
}

fn tiled_gemm_case(gpu: &Gpu, options: &Options) -> Result<bool, Problem> {
    let n = options.size(4096, 256);
    let built = tiled_gemm::tiled_gemm(Arch::SM_90)?;
    let tiles = n as u32 / 128;
    let pair = pair(gpu, options, "tiled_gemm", built, [tiles, tiles, 1])?;
    let (a, b) = (random(4, n * n), random(5, n * n));
    let (a_device, b_device) = (gpu.upload(&a)?, gpu.upload(&b)?);
    let c = [gpu.output::<f32>(n * n)?, gpu.output::<f32>(n * n)?];
    let arguments = c.each_ref().map(|c: &Array<f32>| {
        vec![
            KernelArg::pointer(&a_device),
            KernelArg::pointer(&b_device),
            KernelArg::pointer(c),
            KernelArg::scalar(n as u32),
            KernelArg::scalar(n as u32),
        ]
    });
    let arguments = arguments.each_ref().map(Vec::as_slice);
    launch_once(gpu, &pair, arguments)?;
    let [ours, theirs] = [c[0].read()?, c[1].read()?];
    agree("tiled_gemm", &ours, &theirs, 0.0)?;
    check_gemm("tiled_gemm", &a, &b, &ours, n, true)?;
    compare(gpu, options, &pair, arguments)
}

fn mma_gemm_case(gpu: &Gpu, options: &Options) -> Result<bool, Problem> {
    let n = options.size(4096, 256);
    let built = mma_gemm::mma_gemm(Arch::SM_90)?;
    let tiles = n as u32 / 128;
    let pair = pair(gpu, options, "mma_gemm", built, [tiles, tiles, 1])?;
    let half = |seed| -> Vec<f16> { random(seed, n * n).into_iter().map(f16::from_f32).collect() };
    let (a, b) = (half(6), half(7));
    let (a_device, b_device) = (gpu.upload(&a)?, gpu.upload(&b)?);
    let c = [gpu.output::<f32>(n * n)?, gpu.output::<f32>(n * n)?];
    let arguments = c.each_ref().map(|c: &Array<f32>| {
        vec![
            KernelArg::pointer(&a_device),
            KernelArg::pointer(&b_device),
            KernelArg::pointer(c),
            KernelArg::scalar(n as u32),
            KernelArg::scalar(n as u32),
        ]
    });
    let arguments = arguments.each_ref().map(Vec::as_slice);
    launch_once(gpu, &pair, arguments)?;
    let [ours, theirs] = [c[0].read()?, c[1].read()?];
    agree("mma_gemm", &ours, &theirs, 0.0)?;
    let wide = |halves: &[f16]| halves.iter().map(|v| v.to_f32()).collect::<Vec<_>>();
    check_gemm("mma_gemm", &wide(&a), &wide(&b), &ours, n, false)?;
    compare(gpu, options, &pair, arguments)
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        twins: None,
        rounds: 50,
        small: false,
        only: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--small" => options.small = true,
            "--only" => {
                let name = value()?;
                if !BUILT_IN.iter().any(|(known, _)| *known == name) {
                    return Err(format!("there is no kernel `{name}`"));
                }
                options.only = Some(name);
            }
            "--twins" => options.twins = Some(value()?.into()),
            "--rounds" => {
                let text = value()?;
                options.rounds = text
                    .parse()
                    .map_err(|_| format!("`{text}` is not a number"))?;
            }
            _ => {
                return Err(format!(
                    "`{word}` is unknown; there are --twins DIR, --rounds N, --only NAME and --small"
                ));
            }
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!(
        "{}, {} rounds in turns; medians, ratios within a round",
        gpu.info().name,
        if options.small { 1 } else { options.rounds }
    );
    println!(
        "{:<11} {:>10} {:>10} {:>7} {:>14} {:>8} {:>8} {:>6} {:>6}",
        "kernel", "ours, us", "nvcc, us", "ratio", "[p10, p90]", "SASS", "nvcc", "regs", "nvcc"
    );
    type Case = fn(&Gpu, &Options) -> Result<bool, Problem>;
    let cases: [(&str, Case); 4] = [
        ("saxpy", saxpy_case),
        ("reduction", reduction_case),
        ("tiled_gemm", tiled_gemm_case),
        ("mma_gemm", mma_gemm_case),
    ];
    let mut fine = true;
    for (name, case) in cases {
        if options.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        match case(&gpu, &options) {
            Ok(within) => fine &= within,
            Err(problem) => {
                println!("{problem}");
                fine = false;
            }
        }
    }
    if fine {
        if options.small {
            println!("every result agrees");
        } else {
            println!("every result agrees, every ratio is at most 1.02");
        }
        ExitCode::SUCCESS
    } else {
        println!("a result is wrong, or a ratio is above 1.02");
        ExitCode::FAILURE
    }
}
