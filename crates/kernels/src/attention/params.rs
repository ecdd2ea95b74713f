//! The parameters of an attention kernel.

use heist_builder::{Global, Half, MmaInput, bf16, f16, kernel_params};

kernel_params! {
    /// What an attention kernel works on.
    ///
    /// Halves are passed as their bits: one struct serves f16 and bf16. Strides
    /// count elements. A ragged batch has batch strides of zero and sequences
    /// that start at rows `q_starts` and `k_starts`.
    pub struct AttentionArgs {
        /// Queries.
        q: Global<u16>,
        /// Keys.
        k: Global<u16>,
        /// Values.
        v: Global<u16>,
        /// Results, laid out as the queries; halves or f32.
        out: Global<u16>,
        /// The log-sum-exp of each query row.
        lse: Global<f32>,
        /// Results of each part of the keys, where they are split.
        partial: Global<f32>,
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
        /// From one sequence's log-sum-exps to the next.
        lse_batch: u32,
        /// From one head's log-sum-exps to the next.
        lse_head: u32,
        /// Log-sum-exps in all.
        lse_count: u32,
        /// Query heads that share a key head.
        group: u32,
        /// Keys before its own that a query sees, in a window.
        left: i32,
        /// Keys after its own that a query sees.
        right: i32,
        /// The factor of the scores, times the logarithm of e to base 2.
        scale: f32,
    }
}

/// f16 or bf16.
pub(crate) trait Element: MmaInput<Reg = <Self as Half>::Pair> + Half {}
impl Element for f16 {}
impl Element for bf16 {}
