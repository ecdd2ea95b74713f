//! The examples as modules, for tests and benchmarks; each uses some of them.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "examples are programs, and each test uses some of them"
)]

#[path = "../../examples/05_cluster_sum.rs"]
pub(crate) mod cluster_sum;
#[path = "../../examples/04_mma_gemm.rs"]
pub(crate) mod mma_gemm;
#[path = "../../examples/02_reduction.rs"]
pub(crate) mod reduction;
#[path = "../../examples/01_saxpy.rs"]
pub(crate) mod saxpy;
#[path = "../../examples/06_steal.rs"]
pub(crate) mod steal;
#[path = "../../examples/08_tcgen05_gemm.rs"]
pub(crate) mod tcgen05_gemm;
#[path = "../../examples/03_tiled_gemm.rs"]
pub(crate) mod tiled_gemm;
#[path = "../../examples/07_wgmma_gemm.rs"]
pub(crate) mod wgmma_gemm;
