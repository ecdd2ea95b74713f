//! The machine code of kernels written with the builder beside that of the
//! same kernels in CUDA C++, both assembled by the same ptxas.
//!
//! The twins are `bench/builder/*.cu`; their PTX, from nvcc -O3, is kept in
//! `bench/builder/nvcc` (`bench/builder/make.sh` makes it anew).

#[path = "common/examples.rs"]
mod examples;

use examples::{mma_gemm, reduction, saxpy, tcgen05_gemm, tiled_gemm, wgmma_gemm};
use heist_builder::{Arch, BuildError, BuiltKernel};
use heist_oracle::Ptxas;

/// Instructions of the machine code, without padding.
fn instructions(ptxas: &Ptxas, ptx: &str) -> Option<usize> {
    let cubin = ptxas
        .assemble(ptx, "sm_90")
        .unwrap_or_else(|refusal| panic!("{refusal}"));
    let listing = cubin.disassembly()?;
    let is_instruction = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("/*") && line.contains(';') && !line.contains("NOP")
    };
    Some(listing.lines().filter(is_instruction).count())
}

fn no_longer_than_nvcc<A>(name: &str, ours: Result<BuiltKernel<A>, BuildError>, theirs: &str) {
    let ours = ours.unwrap_or_else(|error| panic!("{name}: {error}"));
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let ours = instructions(&ptxas, &heist_ptx::print(&ours.module));
    let (Some(ours), Some(theirs)) = (ours, instructions(&ptxas, theirs)) else {
        println!("skipped: nvdisasm not found");
        return;
    };
    println!("{name}: {ours} instructions, nvcc {theirs}");
    assert!(ours > 10 && theirs > 10, "{name}: nothing was counted");
    assert!(
        ours * 100 <= theirs * 105,
        "{name}: {ours} instructions, more than 5% above nvcc's {theirs}"
    );
}

#[test]
fn saxpy() {
    let twin = include_str!("../../../bench/builder/nvcc/saxpy.ptx");
    no_longer_than_nvcc("saxpy", saxpy::saxpy(Arch::SM_90), twin);
}

#[test]
fn reduction() {
    let twin = include_str!("../../../bench/builder/nvcc/reduction.ptx");
    no_longer_than_nvcc("reduction", reduction::reduction(Arch::SM_90), twin);
}

#[test]
fn tiled_gemm() {
    let twin = include_str!("../../../bench/builder/nvcc/tiled_gemm.ptx");
    no_longer_than_nvcc("tiled_gemm", tiled_gemm::tiled_gemm(Arch::SM_90), twin);
}

#[test]
fn mma_gemm() {
    let twin = include_str!("../../../bench/builder/nvcc/mma_gemm.ptx");
    no_longer_than_nvcc("mma_gemm", mma_gemm::mma_gemm(Arch::SM_90), twin);
}

/// The tensor cores are fed as they should be: one fence a stage, and only the
/// last multiplication of a batch signals its end.
#[test]
fn wgmma_is_pipelined() {
    let kernel = wgmma_gemm::wgmma_gemm(Arch::SM_90A).expect("builds");
    let Some(listing) = listing(&kernel, "sm_90a") else {
        return;
    };
    assert_eq!(count(&listing, &["HGMMA.64x128x16.F32"]), 4);
    assert_eq!(count(&listing, &["HGMMA", "gsb0"]), 1);
    assert_eq!(count(&listing, &["WARPGROUP.ARRIVE"]), 1);
}

/// Four products a stage; a commit for the stage and one for the accumulator.
#[test]
fn tcgen05_is_committed_once_a_stage() {
    let kernel = tcgen05_gemm::tcgen05_gemm(Arch::SM_100A).expect("builds");
    let Some(listing) = listing(&kernel, "sm_100a") else {
        return;
    };
    assert_eq!(count(&listing, &["UTCHMMA"]), 4);
    assert_eq!(count(&listing, &["UTCBAR"]), 2);
    assert_eq!(count(&listing, &["LDTM"]), 4);
}

fn listing<A>(kernel: &BuiltKernel<A>, arch: &str) -> Option<String> {
    let ptxas = Ptxas::find_or_say_skipped()?;
    let cubin = ptxas
        .assemble(&heist_ptx::print(&kernel.module), arch)
        .unwrap_or_else(|refusal| panic!("{refusal}"));
    let listing = cubin.disassembly();
    if listing.is_none() {
        println!("skipped: nvdisasm not found");
    }
    listing
}

fn count(listing: &str, words: &[&str]) -> usize {
    let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
    listing.lines().filter(has_all).count()
}
