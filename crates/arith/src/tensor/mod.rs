//! Tensor cores: fragment layouts and products.
//!
//! Registers come as arrays over the 32 lanes of a warp, one array a register
//! ([`crate::lanes::Lanes`]). [`mma`] is `mma.sync`, with [`quad_pair`] for its
//! oldest shape; [`sparse`] is `mma.sp`; [`matrix`] is `ldmatrix`, `stmatrix` and `movmatrix`; [`wmma`]
//! the fragments and products of that family; [`wgmma`] the descriptors, operands
//! and products of warpgroups; [`tcgen05`] those with tensor memory; [`swizzle`] the permutation of shared memory that
//! they and tensor copies use.
//!
//! # Numbers
//!
//! Products of the small formats are exact. They are added to the accumulator in
//! double precision, in the order of k, and the sum is rounded once, to nearest,
//! into the accumulator's type. Hardware adds in an order and with a number of
//! digits of its own, which NVIDIA does not document: results agree exactly where
//! every partial sum is representable, as in a well-made test, and otherwise to
//! within the accumulator's precision. `f64` is a chain of fused multiply-adds in
//! the order of k. Integers are exact; their accumulators wrap, or clamp with
//! `.satfinite`. `tf32` operands lose their low 13 bits. A NaN that comes out is
//! the canonical one of its type.

pub(crate) mod element;
mod gemm;
pub mod layout;
pub mod matrix;
pub mod mma;
pub mod quad_pair;
pub mod sparse;
pub mod swizzle;
pub mod tcgen05;
pub mod wgmma;
pub mod wmma;

pub use element::{Accumulator, Element};
pub use layout::Layout;
