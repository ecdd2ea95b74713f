//! How long it takes to build a kernel and print its PTX.
//!
//! `cargo bench -p heist-builder --bench build_time` prints the median of each
//! example kernel, and exits with 1 when the largest takes 20 ms or more.

#[path = "../tests/common/examples.rs"]
mod examples;

use examples::{mma_gemm, reduction, saxpy, tiled_gemm, wgmma_gemm};
use heist_builder::Arch;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_millis(20);

/// The median of 51 runs, and the bytes of PTX.
fn median(build: impl Fn() -> heist_ptx::Module) -> (Duration, usize) {
    let mut bytes = 0;
    let mut times: Vec<Duration> = (0..51)
        .map(|_| {
            let start = Instant::now();
            bytes = heist_ptx::print(&build()).len();
            start.elapsed()
        })
        .collect();
    times.sort();
    (times[times.len() / 2], bytes)
}

fn main() -> ExitCode {
    let kernels: [(&str, &dyn Fn() -> heist_ptx::Module); 5] = [
        ("saxpy", &|| {
            saxpy::saxpy(Arch::SM_80).expect("builds").module
        }),
        ("reduction", &|| {
            reduction::reduction(Arch::SM_80).expect("builds").module
        }),
        ("tiled_gemm", &|| {
            tiled_gemm::tiled_gemm(Arch::SM_80).expect("builds").module
        }),
        ("mma_gemm", &|| {
            mma_gemm::mma_gemm(Arch::SM_80).expect("builds").module
        }),
        ("wgmma_gemm", &|| {
            wgmma_gemm::wgmma_gemm(Arch::SM_90A).expect("builds").module
        }),
    ];
    let mut slowest = Duration::ZERO;
    println!("{:<12} {:>10} {:>12}", "kernel", "PTX bytes", "build, ms");
    for (name, build) in kernels {
        let (time, bytes) = median(build);
        slowest = slowest.max(time);
        println!("{name:<12} {bytes:>10} {:>12.3}", time.as_secs_f64() * 1e3);
    }
    if slowest >= LIMIT {
        println!("the largest takes {} ms or more", LIMIT.as_millis());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
