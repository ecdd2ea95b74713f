//! The main kernel on Hopper's warpgroups.
//!
//! A tile has 128 keys. One thread asks the copy engine for its keys and values, and
//! then for blocks of queries and of gradients of results, two of each on their way; two
//! warpgroups have 64 keys each. Scores and gradients of weights are worked out
//! transposed, keys down and queries across, so that weights and gradients of scores are
//! in registers as left operands of dV and dK. For dQ the gradients of scores of both
//! warpgroups go through shared memory; each then works out half of it, and adds it to
//! the sums straight from its registers: the sums of a block lie in the order of the
//! registers ([`layout`]), so that a warp adds to neighbours.

mod block;
pub(super) mod layout;
mod work;

use super::problem::Sums;
use crate::attention::problem::{Dtype, Layout, MaskKind};
use block::Block;
use heist_builder::{
    Arch, ArraySpec, BuildError, Global, TensorMap, TileLayout, TileSpec, bf16, f16, kernel_params,
};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tiled, TiledKernel};

kernel_params! {
    /// What the kernel works on. Tensors have four axes: elements, rows and heads or
    /// heads and rows, sequences.
    pub(crate) struct WarpgroupArgs {
        /// Queries.
        q: TensorMap<f16, 4>,
        /// Keys.
        k: TensorMap<f16, 4>,
        /// Values.
        v: TensorMap<f16, 4>,
        /// The gradient of the results.
        d_out: TensorMap<f16, 4>,
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
        /// The gradient of the queries, before it is scaled.
        sums: Global<f32>,
        /// First query row of each sequence, and one past the last.
        q_starts: Global<u32>,
        /// First key row of each sequence, and one past the last.
        k_starts: Global<u32>,
        /// Query rows of every sequence, where all are alike.
        q_len: u32,
        /// Key rows of every sequence, where all are alike.
        k_len: u32,
        /// Elements from one sequence of keys to the next.
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
    }
}

/// Warpgroups that multiply.
const GROUPS: u32 = 2;
/// Keys of a tile: 64 to a warpgroup.
pub(super) const KEYS: u32 = 64 * GROUPS;
/// Halves of a row of an operand: 128 bytes.
const PANEL: u32 = 64;
/// Blocks of queries, and of gradients of results, that are on their way or in use.
const STAGES: u32 = 2;
/// Registers of a thread: between tiles, of those that multiply, of those that copy.
const REGISTERS: [u32; 3] = [168, 240, 24];

/// What a kernel is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WarpgroupShape {
    /// 64 or 128.
    pub(super) head_dim: u32,
    pub(super) dtype: Dtype,
    pub(super) mask: MaskKind,
    pub(super) ragged: bool,
    pub(super) layout: Layout,
    pub(super) sums: Sums,
}

type HalfTile = TileSpec<'static, f16>;
type RowArray = ArraySpec<'static, f32>;

impl WarpgroupShape {
    /// Queries of a block: as many as leave registers for the gradients.
    pub(super) fn queries(&self) -> u32 {
        if self.head_dim <= 64 { 128 } else { 64 }
    }

    /// Panels of a head's elements.
    fn panels(&self) -> u32 {
        self.head_dim / PANEL
    }

    /// Rows of `height`, panel below panel. Halves of either kind are copied as bits.
    fn tile(&self, name: &'static str, height: u32) -> HalfTile {
        TileSpec::new(name, height * self.panels(), PANEL, TileLayout::Swizzled)
    }

    /// Numbers of the rows of a block.
    fn numbers(&self, name: &'static str) -> RowArray {
        ArraySpec::new(name, self.queries())
    }

    pub(super) fn threads() -> u32 {
        128 * (GROUPS + 1)
    }

    pub(super) fn registers() -> u32 {
        REGISTERS[0]
    }
}

/// Builds the kernel: tiles of keys along x, key heads along y, sequences along z.
pub(super) fn build(
    shape: WarpgroupShape,
    schedule: &Schedule,
    arch: Arch,
) -> Result<TiledKernel<WarpgroupArgs>, BuildError> {
    // Some grid with three axes: the launch has the real one.
    Tiled::<WarpgroupArgs>::new("attention_backward_wgmma", Dim3::new(2, 2, 2))
        .schedule(schedule)
        .block(WarpgroupShape::threads())
        .min_blocks(1)
        .build(arch, |k, args, tiles| {
            k.keep_arithmetic_in_loops();
            let rings = block::Rings::new(k, &shape);
            let block = Block::new(k, shape, &rings);
            let done = tiles.each(|tile| match shape.dtype {
                Dtype::F16 => block.tile::<f16>(&args, &tile),
                Dtype::Bf16 => block.tile::<bf16>(&args, &tile),
            });
            block.finish();
            done
        })
}
