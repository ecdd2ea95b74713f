//! The examples, assembled for every architecture they claim.

mod common;

#[allow(dead_code, unreachable_pub)]
#[path = "../examples/04_mma_gemm.rs"]
mod mma_gemm;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/02_reduction.rs"]
mod reduction;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/01_saxpy.rs"]
mod saxpy;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/03_tiled_gemm.rs"]
mod tiled_gemm;

use common::{ALL, assembles};

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
