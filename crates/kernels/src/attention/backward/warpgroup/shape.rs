//! The parameters and the shape of the kernel on warpgroups.

use crate::attention::backward::changed::Change;
use crate::attention::backward::problem::{Backward, Sums};
use crate::attention::problem::{Dtype, Layout, MaskKind};
use heist_builder::{ArraySpec, Global, TensorMap, TileLayout, TileSpec, f16, kernel_params};

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
        /// Parts of dK and dV, where tiles are cut.
        partials: Global<f32>,
        /// Key heads.
        kv_heads: u32,
        /// Tiles of a key head.
        key_tiles: u32,
        /// Parts of a tile.
        parts: u32,
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
    }
}

/// Warpgroups that multiply.
pub(super) const GROUPS: u32 = 2;
/// Keys of a tile: 64 to a warpgroup.
pub(in crate::attention::backward) const KEYS: u32 = 64 * GROUPS;
/// Halves of a row of an operand: 128 bytes.
pub(super) const PANEL: u32 = 64;
/// Blocks of queries, and of gradients of results, that are on their way or in use.
pub(super) const STAGES: u32 = 2;
/// Registers of a thread: between tiles, of those that multiply, of those that copy.
pub(super) const REGISTERS: [u32; 3] = [168, 240, 24];

/// What a kernel is built for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::attention::backward) struct WarpgroupShape {
    /// A multiple of 16 up to 128.
    pub(in crate::attention::backward) head_dim: u32,
    pub(in crate::attention::backward) dtype: Dtype,
    pub(in crate::attention::backward) mask: MaskKind,
    pub(in crate::attention::backward) ragged: bool,
    pub(in crate::attention::backward) layout: Layout,
    pub(in crate::attention::backward) sums: Sums,
    /// Whether tiles are cut into parts, which are added by the last launch.
    pub(in crate::attention::backward) cut: bool,
    pub(in crate::attention::backward) change: Option<Change>,
}

pub(super) type HalfTile = TileSpec<'static, f16>;
pub(super) type RowArray = ArraySpec<'static, f32>;

impl WarpgroupShape {
    /// For a problem, with whole tiles.
    pub(in crate::attention::backward) fn of(problem: &Backward) -> WarpgroupShape {
        let attention = &problem.attention;
        WarpgroupShape {
            head_dim: attention.head_dim,
            dtype: attention.dtype,
            mask: attention.mask.kind(),
            ragged: attention.is_ragged(),
            layout: attention.layout,
            sums: problem.sums,
            cut: false,
            change: problem.change(),
        }
    }

    /// Queries of a block: as many as leave registers for the gradients.
    pub(in crate::attention::backward) fn queries(&self) -> u32 {
        if self.head_dim <= 64 { 128 } else { 64 }
    }

    /// Panels of a head's elements.
    pub(super) fn panels(&self) -> u32 {
        self.head_dim.div_ceil(PANEL)
    }

    /// Steps of 16 elements of a head in panel `panel`: columns behind the last element,
    /// which copies fill with zeros, are not multiplied.
    pub(super) fn steps(&self, panel: u32) -> u32 {
        (self.head_dim - panel * PANEL).min(PANEL) / 16
    }

    /// Rows of `height`, panel below panel. Halves of either kind are copied as bits.
    pub(super) fn tile(&self, name: &'static str, height: u32) -> HalfTile {
        TileSpec::new(name, height * self.panels(), PANEL, TileLayout::Swizzled)
    }

    /// Numbers of the rows of a block.
    pub(super) fn numbers(&self, name: &'static str) -> RowArray {
        ArraySpec::new(name, self.queries())
    }

    pub(in crate::attention::backward) fn threads() -> u32 {
        128 * (GROUPS + 1)
    }

    pub(in crate::attention::backward) fn registers() -> u32 {
        REGISTERS[0]
    }
}
