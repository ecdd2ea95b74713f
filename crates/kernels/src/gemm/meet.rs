//! Split-K inside of a cluster: the blocks that share a tile's depth add their sums up through each
//! other's shared memory.
//!
//! Each block sends those that add up its sums of their columns; they add up what all have sent: in the
//! order of the shares, so that a result does not depend on which was done first. All blocks add up where
//! the tile has columns for all ([`Tiling::adders`]). There is no second launch, and no partial sum goes to memory.

use super::tiling::{GROUP_ROWS, Tiling};
use heist_builder::{Kernel, SharedArray, Val, Var, WgmmaResult};

/// Words that the threads of a warpgroup have of 8 columns.
const WORDS: u32 = 4 * 128;

/// What the blocks of a cluster send each other.
pub(crate) struct Meet<'k> {
    k: Kernel<'k>,
    /// For each other share, or each, and each 64 rows: this block's columns, eight after eight, as threads have them.
    sent: SharedArray<'k, f32>,
    /// This thread's own sums of this block's columns, where it keeps them.
    kept: Vec<Var<'k, f32>>,
    tiling: Tiling,
}

impl<'k> Meet<'k> {
    pub(crate) fn new(k: &Kernel<'k>, tiling: &Tiling) -> Meet<'k> {
        let kept = if tiling.keeps() {
            tiling.added_cols() / 2
        } else {
            0
        };
        Meet {
            k: *k,
            sent: k.shared("sent", tiling.sent_bytes() / 4),
            kept: (0..kept).map(|_| k.var(0.0f32)).collect(),
            tiling: *tiling,
        }
    }

    /// Columns of the tile that a block adds up, if it does.
    fn cols(&self) -> u32 {
        self.tiling.added_cols()
    }

    /// Calls `body` in the blocks that add up: the first ones of the cluster.
    pub(crate) fn if_adds(&self, body: impl Fn()) {
        match self.tiling.adders() {
            all if all == self.tiling.split => body(),
            some => self.k.if_(self.k.cluster_rank().lt(some), body),
        }
    }

    /// How many columns the tile has from this block's first one on, where the last block has fewer than the others.
    pub(crate) fn left(&self) -> Option<Val<'k, u32>> {
        let even = self.tiling.cols.is_multiple_of(self.cols());
        (!even).then(|| self.k.c(self.tiling.cols) - self.first_col())
    }

    /// The first of this block's columns in the tile.
    pub(crate) fn first_col(&self) -> Val<'k, u32> {
        self.k.cluster_rank() * self.cols()
    }

    /// Where this thread's words are of what was sent in this turn of the 64 rows from `row` on.
    fn place(&self, turn: Val<'k, u32>, row: Val<'k, u32>) -> Val<'k, u32> {
        let piece = turn * (self.tiling.rows / GROUP_ROWS) + row / GROUP_ROWS;
        let thread = self.k.thread_index() % 128;
        piece * (self.cols() / 8 * WORDS) + thread * 4
    }

    /// The turn of a share among those that are sent to a block: its own is not.
    fn turn(&self, share: Val<'k, u32>, to: Val<'k, u32>) -> Val<'k, u32> {
        match self.tiling.keeps() {
            true => share.gt(to).select(share - 1, share),
            false => share,
        }
    }

    /// Sends the sums of 64 rows of the tile to the blocks that add up their columns.
    pub(crate) fn send(&self, row: Val<'k, u32>, sums: &WgmmaResult<'k>) {
        let k = self.k;
        let rank = k.cluster_rank();
        let each = self.cols() / 8;
        // The last one adds up zeros where it has fewer columns.
        let block = |adder: u32, at: u32| {
            let found = sums.block((adder * each + at) as usize);
            found.unwrap_or([k.c(0.0); 4])
        };
        for adder in 0..self.tiling.adders() {
            let put = || {
                let place = self.place(self.turn(rank, k.c(adder)), row);
                let there = self.sent.ptr().at(place).on(adder);
                for at in 0..each {
                    there.at(at * WORDS).store_vec(block(adder, at));
                }
            };
            match self.tiling.keeps() {
                true => k.if_(rank.ne(adder), put),
                false => put(),
            }
        }
        for (number, kept) in self.kept.iter().enumerate() {
            let (at, word) = (number as u32 / 4, number % 4);
            let others = 1..self.tiling.adders();
            let own = others.fold(block(0, at)[word], |own, adder| {
                rank.eq(adder).select(block(adder, at)[word], own)
            });
            kept.set(own);
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
        let rank = k.cluster_rank();
        let total = WgmmaResult::zero(&k, self.cols());
        let sums: Vec<_> = total.vars().collect();
        for share in 0..self.tiling.split {
            let last = self.tiling.split - 1 - u32::from(self.tiling.keeps());
            let turn = self.turn(k.c(share), rank).min(last);
            let from = self.sent.ptr().at(self.place(turn, row));
            let own = rank.eq(share);
            for (at, block) in sums.chunks(4).enumerate() {
                let sent = from.at(at as u32 * WORDS).load_vec::<4>();
                for (word, (sum, value)) in block.iter().zip(sent).enumerate() {
                    let kept = self.kept.get(at * 4 + word);
                    let value = kept.map_or(value, |kept| own.select(kept.get(), value));
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
