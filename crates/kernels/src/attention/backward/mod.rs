//! Attention backward: from the gradient of the results to those of queries, keys
//! and values.
//!
//! With `S` the scaled scores and `P = exp(S - lse)` the weights, which are worked
//! out again from the log-sum-exps that the forward kernel stored:
//!
//! ```text
//! dV = P^T dO      dP = dO V^T      dS = P * (dP - delta)      delta = rowsum(dO * O)
//! dK = scale * dS^T Q               dQ = scale * dS K
//! ```
//!
//! A tile is some keys of one key head of one sequence. It goes through the query
//! blocks that see them, of all query heads that share the key head, so dK and dV
//! stay in registers and are added up in one order. dQ is the sum over tiles: they
//! add to a buffer of 32-bit sums ([`Sums`]), which a last kernel scales and
//! rounds. Where tiles are few, `wgmma` cuts each into parts, whose dK and dV the
//! last kernel adds. Memory besides the results is linear in the sequence.

mod accuracy;
mod changed;
mod data;
mod entry;
mod key_gradients;
mod largest;
mod numbers;
mod parts;
mod prepare;
mod problem;
mod query_gradient;
mod reach;
mod reference;
mod tensor;
mod variant;
mod warpgroup;

pub use accuracy::{
    Accuracy as BackwardAccuracy, bound as backward_bound, verify as verify_backward,
};
pub use data::fill as fill_backward;
pub use entry::AttentionBackward;
pub use problem::{Backward, Sums};
pub use reference::{Gradients, gradients};
pub use variant::{BACKWARD, backward_in_parts};

use heist_builder::{Global, kernel_params};

kernel_params! {
    /// What the main kernel works on. Halves are passed as their bits; strides count
    /// elements. Gradients lie as what they are gradients of.
    pub(crate) struct BackwardArgs {
        /// Queries.
        q: Global<u16>,
        /// Keys.
        k: Global<u16>,
        /// Values.
        v: Global<u16>,
        /// The gradient of the results.
        d_out: Global<u16>,
        /// The gradient of the keys.
        dk: Global<u16>,
        /// The gradient of the values.
        dv: Global<u16>,
        /// Of each query row, its log-sum-exp to base 2.
        level: Global<f32>,
        /// Of each query row, the product of its result and its gradient.
        delta: Global<f32>,
        /// Of each query row, how many units of a fixed-point sum are one.
        step: Global<f32>,
        /// The gradient of the queries, before it is scaled, row after row.
        sums: Global<f32>,
        /// First query row of each sequence, and one past the last.
        q_starts: Global<u32>,
        /// First key row of each sequence, and one past the last.
        k_starts: Global<u32>,
        /// Query rows of every sequence, where all are alike.
        q_len: u32,
        /// Key rows of every sequence, where all are alike.
        k_len: u32,
        /// From one sequence of queries to the next.
        q_batch: u32,
        /// From one query row to the next.
        q_row: u32,
        /// From one query head to the next.
        q_head: u32,
        /// From one sequence of keys to the next.
        k_batch: u32,
        /// From one key row to the next.
        k_row: u32,
        /// From one key head to the next.
        k_head: u32,
        /// Numbers of rows from one sequence to the next.
        number_batch: u32,
        /// From one head to the next.
        number_head: u32,
        /// Query heads that share a key head.
        group: u32,
        /// Keys before its own that a query sees, in a window.
        left: i32,
        /// Keys after its own that a query sees.
        right: i32,
        /// The factor of the scores.
        scale: f32,
        /// A slope for each query head, where scores have ALiBi's.
        slopes: Global<f32>,
        /// A number for each query and key, where there is a mask of pairs.
        pairs: Global<u8>,
        /// How many of them from one sequence to the next.
        pairs_sequence: u32,
        /// From one query head to the next.
        pairs_head: u32,
        /// From one query to the next.
        pairs_row: u32,
    }
}
