//! Attention on Hopper's warpgroups, warp-specialised: a producer warp issues the tensor copies of
//! queries, keys and values, and each consumer warpgroup works on 64 query rows, with products
//! straight from shared memory.
//!
//! The products of a block's weights and values overlap the scores and the softmax of the next
//! block: a warpgroup waits only for its scores. Rows past the end of the last sequence are zero. A
//! packed sequence is followed by the next one: its keys are masked, results of its queries are not
//! stored, and its values are set to zero, because a weight of zero times an infinity is NaN.

mod block;
mod causal;
mod clusters;
mod exchange;
mod full;
mod group;
mod heuristics;
mod list;
mod seen;
mod shape;
mod staying;
#[cfg(test)]
mod timed;
mod variant;
mod wide;

pub use heuristics::{clustered_keys, warpgroup_schedule, warpgroup_shape};
pub use shape::{Sharing, Stay, WarpgroupShape};
pub use staying::{staying, with_levels};
pub(super) use variant::{Wgmma, arguments, map};
pub use variant::{warpgroup_job, warpgroup_plan};

use heist_builder::{Global, TensorMap, f16, kernel_params};

kernel_params! {
    /// What attention that the copy engine feeds works on. Tensors have four axes: elements,
    /// rows and heads or heads and rows, sequences.
    pub(crate) struct WarpgroupArgs {
        /// Queries.
        q: TensorMap<f16, 4>,
        /// Keys.
        k: TensorMap<f16, 4>,
        /// Values.
        v: TensorMap<f16, 4>,
        /// Results, laid out as the queries; halves or f32.
        out: Global<u16>,
        /// The log-sum-exp of each query row.
        lse: Global<f32>,
        /// The first query row of each packed sequence, and one past the last.
        q_starts: Global<u32>,
        /// The same for keys.
        k_starts: Global<u32>,
        /// The tiles of packed sequences, where they are listed.
        list: Global<u32>,
        /// The blocks of keys that each tile sees, where they are listed.
        lines: Global<u32>,
        /// Query rows of a sequence, where all are alike.
        q_len: u32,
        /// Key rows of a sequence, where all are alike.
        k_len: u32,
        /// Elements from one sequence of results to the next.
        q_batch: u32,
        /// From one row to the next.
        q_row: u32,
        /// From one head to the next.
        q_head: u32,
        /// Log-sum-exps from one sequence to the next.
        lse_batch: u32,
        /// From one head to the next.
        lse_head: u32,
        /// Query heads that share a key head.
        group: u32,
        /// Keys before its own that a query sees, in a window.
        left: i32,
        /// Keys after its own that a query sees.
        right: i32,
        /// The factor of the scores, times the logarithm of e to base 2.
        scale: f32,
        /// Tiles of a head, for blocks that stay; entries of the list, where there is one.
        tiles: u32,
        /// Query heads.
        heads: u32,
        /// Tiles in all.
        count: u32,
        /// Lines of listed blocks from one sequence to the next.
        line_batch: u32,
        /// From one head to the next.
        line_head: u32,
        /// Words of such a line.
        line: u32,
    }
}
