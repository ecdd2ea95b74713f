//! Attention on Blackwell's tensor cores (sm_100a and its kin).
//!
//! A block has six warps and three roles ([`block`]). One thread has the copy engine bring queries,
//! keys and values; one thread multiplies ([`products`]); in four warps each thread has a row of 128
//! ([`softmax`]). Everything between two products is in tensor memory:
//!
//! ```text
//!   Q K^T --> scores (two, f32) --> softmax --> weights (two, halves) --> times V --> results
//!                                      |                                                ^
//!                                      +---------- rescale, where a level rises --------+
//! ```
//!
//! While a block's weights are made, the scores of the next one are multiplied, and the values of
//! the one before are weighed. Rows past the end of the last sequence are zero. A packed sequence is
//! followed by the next one: its keys are masked, results of its queries are not stored, and its
//! values are set to zero.

mod block;
mod products;
mod shape;
mod softmax;
mod variant;

pub use shape::TensorShape;
pub(super) use variant::Tcgen05;
pub use variant::{tensor_plan, tensor_schedule};
