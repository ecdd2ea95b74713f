//! The main kernel on Hopper's warpgroups.
//!
//! A tile has 128 keys. One producer thread issues the tensor copies of its keys and values, and
//! then of blocks of queries and of gradients of results, two of each in flight; two consumer
//! warpgroups have 64 keys each. Scores and gradients of weights are computed transposed, keys down
//! and queries across, so that weights and gradients of scores are in registers as left operands of
//! dV and dK. For dQ the gradients of scores of both warpgroups go through shared memory; each then
//! computes half of it, and adds it to the accumulators in memory straight from its registers:
//! those of a block lie in the order of the registers ([`layout`]), so that a warp adds to
//! neighbours.

mod block;
pub(super) mod layout;
mod shape;
mod work;

use crate::attention::problem::Dtype;
use block::Block;
use heist_builder::{Arch, BuildError, bf16, f16};
use heist_launch::Dim3;
use heist_sched::{Schedule, Tiled, TiledKernel};
pub(super) use shape::{KEYS, WarpgroupArgs, WarpgroupShape};

/// Builds the kernel: tiles of keys along x, key heads and their parts along y, sequences along z.
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
            tiles.each(|tile| match shape.dtype {
                Dtype::F16 => block.tile::<f16>(&args, &tile),
                Dtype::Bf16 => block.tile::<bf16>(&args, &tile),
            })
        })
}
