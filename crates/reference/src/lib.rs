//! What kernels are compared with: references in f64 on the host, blocked and threaded so that tests
//! stay short, random data, and the error of a result.
//!
//! A crate of its own, because these loops run for long and a release is compiled for speed only
//! where that counts: the kernels' builders run once.

mod difference;
mod gemm;
mod numbers;
pub mod parallel;
pub mod random;
mod vector;

pub use difference::Difference;
pub use gemm::{Matrix, matmul};
pub use numbers::{decode, numbers, numbers_in};
pub use vector::{add, dot};
