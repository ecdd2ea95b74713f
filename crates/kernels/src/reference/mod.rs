//! References in f64 on the host, blocked and threaded so that tests stay short, and the difference
//! between a result and its reference.

mod difference;
mod gemm;
mod numbers;

pub use difference::Difference;
pub use gemm::{Matrix, matmul};
pub(crate) use numbers::each_part;
pub use numbers::{numbers, numbers_in};
