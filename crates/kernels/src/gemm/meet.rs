//! Split-K inside of a cluster: the blocks that share a tile's depth add their sums up through each
//! other's shared memory.
//!
//! Each block sends every other one its sums of some of the tile's columns, and adds up its own columns
//! from what all have sent: in the order of the shares, so that a result does not depend on which was
//! done first. There is no second launch, and no partial sum goes to memory.

use super::tiling::{GROUP_ROWS, Tiling};
use heist_builder::{Kernel, SharedArray, Val, WgmmaResult};

/// Words that the threads of a warpgroup have of 8 columns.
const WORDS: u32 = 4 * 128;

/// What the blocks of a cluster send each other.
#[derive(Clone, Copy)]
pub(crate) struct Meet<'k> {
    k: Kernel<'k>,
    /// For each share and each 64 rows: this block's columns, eight after eight, as threads have them.
    sent: SharedArray<'k, f32>,
    tiling: Tiling,
}

impl<'k> Meet<'k> {
    pub(crate) fn new(k: &Kernel<'k>, tiling: &Tiling) -> Meet<'k> {
        Meet {
            k: *k,
            sent: k.shared("sent", tiling.rows * tiling.cols),
            tiling: *tiling,
        }
    }

    /// Columns of the tile that a block adds up.
    pub(crate) fn cols(&self) -> u32 {
        self.tiling.cols / self.tiling.split
    }

    /// The first of this block's columns in the tile.
    pub(crate) fn first_col(&self) -> Val<'k, u32> {
        self.k.cluster_rank() * self.cols()
    }

    /// Where this thread's words are of what a share sent of the 64 rows from `row` on.
    fn place(&self, share: Val<'k, u32>, row: Val<'k, u32>) -> Val<'k, u32> {
        let piece = share * (self.tiling.rows / GROUP_ROWS) + row / GROUP_ROWS;
        let thread = self.k.thread_index() % 128;
        piece * (self.cols() / 8 * WORDS) + thread * 4
    }

    /// Sends the sums of 64 rows of the tile to the blocks whose columns they are of.
    pub(crate) fn send(&self, row: Val<'k, u32>, sums: &WgmmaResult<'k>) {
        let place = self.place(self.k.cluster_rank(), row);
        let each = (self.cols() / 8) as usize;
        for share in 0..self.tiling.split {
            let there = self.sent.ptr().at(place).on(share);
            let first = share as usize * each;
            let blocks = (first..first + each).filter_map(|index| sums.block(index));
            for (at, block) in blocks.enumerate() {
                there.at(at as u32 * WORDS).store_vec(block);
            }
        }
    }

    /// All threads of the cluster wait until everything has been sent.
    pub(crate) fn all(&self) {
        self.k.comment("the shares of a tile meet");
        self.k.cluster_sync();
    }

    /// The sums of this block's columns of the 64 rows from `row` on.
    pub(crate) fn added(&self, row: Val<'k, u32>) -> WgmmaResult<'k> {
        let k = self.k;
        let total = WgmmaResult::zero(&k, self.cols());
        for share in 0..self.tiling.split {
            let from = self.sent.ptr().at(self.place(k.c(share), row));
            let sums: Vec<_> = total.vars().collect();
            for (at, block) in sums.chunks(4).enumerate() {
                let sent = from.at(at as u32 * WORDS).load_vec::<4>();
                for (sum, value) in block.iter().zip(sent) {
                    match share {
                        0 => sum.set(value),
                        _ => sum.set(sum.get() + value),
                    }
                }
            }
        }
        total
    }
}
