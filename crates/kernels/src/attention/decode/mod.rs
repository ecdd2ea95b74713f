//! Decoding: a few queries a sequence over many keys. Memory bounds it, so every
//! key is read once and all multiprocessors read.
//!
//! * The query heads that share a key head, times the queries of a sequence, are
//!   the rows of one tile (GQA packing): a key is copied once for all of them.
//! * The key blocks of all tiles of all sequences are numbered and dealt evenly to the blocks of
//!   the grid ([`work`]): one share may end inside a tile and the next begin there, whatever the
//!   lengths are. Lengths are read on the device.
//! * One producer thread of a block issues the copies of key blocks, as far ahead as shared memory
//!   has room; four or eight warps multiply with `mma.sync` ([`block`]), and share the columns at the end ([`merge`]).
//! * A tile that several blocks share is combined by the block that ends last or by a
//!   second launch, in the order of the keys: the same bits in every run ([`combine`]).
//! * Keys and values may be 8-bit floats ([`tiny`]): half the bytes, and each warp turns them into halves.
//! * Keys and values may be one row ([`latent`]): two warpgroups multiply both products from one stage.
//! * New keys and values may be put into the cache by the same launch ([`append`]).
//! * Keys and values may lie in pages ([`Problem::page_size`](super::Problem)): a page
//!   is one more coordinate of the copy.

mod append;
mod block;
mod combine;
mod heuristics;
mod latent;
mod merge;
mod phase;
mod rows;
mod shape;
mod tiny;
mod variant;
mod work;

pub use heuristics::{decode_grid, decode_shape};
pub use shape::{Appended, Appender, Combine, DecodeShape, Grid, Storage};
pub(super) use variant::Decode;
pub use variant::decode_plan;

use heist_builder::{Global, TensorMap, f16, kernel_params};

kernel_params! {
    /// What a decoding kernel works on. Keys and values have four axes: elements,
    /// then rows, heads and sequences in the order of their strides, or heads, rows of
    /// a page, pages.
    pub(crate) struct DecodeArgs {
        /// Queries.
        q: Global<u16>,
        /// Keys.
        k: TensorMap<f16, 4>,
        /// Values.
        v: TensorMap<f16, 4>,
        /// Results, laid out as the queries; halves or f32.
        out: Global<u16>,
        /// The log-sum-exp of each query row.
        lse: Global<f32>,
        /// Results of parts of tiles, normalised.
        partial: Global<f32>,
        /// Log-sum-exps of parts of tiles.
        partial_lse: Global<f32>,
        /// How many parts of a tile are written; zeros before and after a launch.
        counters: Global<u32>,
        /// The first query row of each sequence, and one past the last.
        q_starts: Global<u32>,
        /// The same for keys, or the number of keys of each where they are paged.
        k_starts: Global<u32>,
        /// The pages of each sequence, in order.
        pages: Global<u32>,
        /// The factor of the keys of each key head, where they have 8 bits.
        k_scale: Global<f32>,
        /// The same of the values.
        v_scale: Global<f32>,
        /// The bytes of the keys in pages, where new ones come.
        k_cache: Global<u32>,
        /// The same of the values.
        v_cache: Global<u32>,
        /// New keys: sequence, row, head, element.
        k_new: Global<u32>,
        /// New values.
        v_new: Global<u32>,
        /// How many sequences.
        sequences: u32,
        /// Query rows of a sequence, where all are alike.
        q_len: u32,
        /// Key rows of a sequence, where all are alike.
        k_len: u32,
        /// Elements from one sequence of queries to the next.
        q_batch: u32,
        /// From one row to the next.
        q_row: u32,
        /// From one head to the next.
        q_head: u32,
        /// Elements from one sequence of results to the next.
        out_batch: u32,
        /// From one row to the next.
        out_row: u32,
        /// From one head to the next.
        out_head: u32,
        /// Log-sum-exps from one sequence to the next.
        lse_batch: u32,
        /// From one head to the next.
        lse_head: u32,
        /// Entries of the page table from one sequence to the next.
        table_row: u32,
        /// New key rows of a sequence.
        new: u32,
        /// Key heads.
        kv_heads: u32,
        /// Query heads that share a key head.
        group: u32,
        /// Keys before its own that a query sees, in a window.
        left: i32,
        /// Keys after its own that a query sees.
        right: i32,
        /// The factor of the scores, times the logarithm of e to base 2.
        scale: f32,
        /// Blocks among which the work is dealt.
        blocks: u32,
        /// The fewest key blocks of a share.
        least: u32,
    }
}
