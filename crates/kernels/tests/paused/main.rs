//! Kernels whose tiles are left half done when the bell is rung, on the simulated GPU, with all
//! checks on: against references, and to the bit against the same kernel that nobody rang for.

mod attention;
mod gemm;
mod ringer;
