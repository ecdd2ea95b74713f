//! The examples, assembled for every architecture they claim.

mod common;

#[path = "common/examples.rs"]
mod examples;

use common::{ALL, HOPPER, assembles};
use examples::{
    cluster_sum, mma_gemm, reduction, saxpy, steal, tcgen05_gemm, tiled_gemm, wgmma_gemm,
};
use heist_builder::Arch;

#[test]
fn saxpy_assembles() {
    assembles(ALL, saxpy::saxpy);
}

#[test]
fn reduction_assembles() {
    assembles(ALL, reduction::reduction);
}

#[test]
fn tiled_gemm_assembles() {
    assembles(ALL, tiled_gemm::tiled_gemm);
}

#[test]
fn mma_gemm_assembles() {
    for usage in assembles(ALL, mma_gemm::mma_gemm) {
        assert!(usage.registers <= 168, "{usage:?}");
    }
}

#[test]
fn cluster_sum_assembles() {
    assembles(HOPPER, cluster_sum::cluster_sum);
}

#[test]
fn steal_assembles() {
    assembles(
        &[Arch::SM_100, Arch::SM_100A, Arch::SM_103, Arch::SM_120],
        steal::steal,
    );
}

#[test]
fn wgmma_gemm_assembles() {
    assembles(&[Arch::SM_90A], wgmma_gemm::wgmma_gemm);
}

#[test]
fn tcgen05_gemm_assembles() {
    assembles(
        &[Arch::SM_100A, Arch::SM_100F, Arch::SM_103A, Arch::SM_110A],
        tcgen05_gemm::tcgen05_gemm,
    );
}
