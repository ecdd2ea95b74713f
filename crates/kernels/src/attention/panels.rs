//! Rows of heads in shared memory, as tensor cores take them and the copy engine brings them.
//!
//! A row of a head is cut into panels of 128 bytes, which lie one below the other. Kernels on
//! warpgroups and on tensor memory share this, and what they know of a tile.

use super::mask::{Blocks, MaskArgs, TileMask};
use super::problem::Layout;
use super::warpgroup::WarpgroupArgs;
use heist_builder::{
    Global, Landing, On, Ptr, TensorMapRef, TileLayout, TileSpec, Transaction, Val, f16,
};
use heist_sched::Position;

/// Halves of a row of a panel: 128 bytes.
pub(super) const PANEL: u32 = 64;

/// Halves of either kind are copied as bits.
pub(super) type Spec = TileSpec<'static, f16>;

/// How a head's elements are cut. The last panel may be part empty: copies fill it with zeros, and
/// products leave it out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panels {
    pub(super) head_dim: u32,
}

impl Panels {
    /// How many there are.
    pub(super) fn count(self) -> u32 {
        self.head_dim.div_ceil(PANEL)
    }

    /// Steps of 16 elements that a panel has.
    pub(super) fn steps(self, panel: u32) -> u32 {
        (self.head_dim - panel * PANEL).min(PANEL).div_ceil(16)
    }

    /// Rows of `height`, panel below panel.
    pub(super) fn tile(self, name: &'static str, height: u32) -> Spec {
        TileSpec::new(name, height * self.count(), PANEL, TileLayout::Swizzled)
    }

    /// Copies `height` rows of a head: from a row, head and batch on.
    pub(super) fn copy<'k>(
        self,
        copies: &Transaction<'k>,
        to: Landing<'k, f16>,
        from: TensorMapRef<'k, f16, 4>,
        (height, layout): (u32, Layout),
        [row, head, batch]: [Val<'k, u32>; 3],
    ) {
        let [row, head, batch] = [row, head, batch].map(Val::cast);
        for panel in 0..self.count() {
            let to = to.part(panel * height * PANEL, height * PANEL);
            let element = row.kernel().c((panel * PANEL) as i32);
            let [inner, outer] = match layout {
                Layout::Heads => [row, head],
                Layout::Rows => [head, row],
            };
            copies.copy_tensor(to, from, [element, inner, outer, batch]);
        }
    }
}

/// A sequence: where its rows are, and how many.
#[derive(Clone, Copy)]
pub(super) struct Sequence<'k> {
    pub(super) q_start: Val<'k, u32>,
    pub(super) queries: Val<'k, u32>,
    pub(super) k_start: Val<'k, u32>,
    pub(super) keys: Val<'k, u32>,
    /// Which it is, where all have a place of their own in the maps.
    pub(super) batch: Val<'k, u32>,
    /// The number of its first key among the keys of all sequences.
    pub(super) first_key: Val<'k, u32>,
}

impl<'k> Sequence<'k> {
    /// That of a tile; `ragged` where sequences are packed.
    pub(super) fn of(
        args: &WarpgroupArgs<On<'k>>,
        tile: &Position<'k>,
        ragged: bool,
    ) -> Sequence<'k> {
        let k = tile.z.kernel();
        if !ragged {
            return Sequence {
                q_start: k.c(0),
                queries: args.q_len,
                k_start: k.c(0),
                keys: args.k_len,
                batch: tile.z,
                first_key: tile.z * args.k_len,
            };
        }
        let (q, kv) = (args.q_starts.at(tile.z), args.k_starts.at(tile.z));
        let (q_start, k_start) = (q.load_readonly(), kv.load_readonly());
        Sequence {
            q_start,
            queries: q.at(1).load_readonly() - q_start,
            k_start,
            keys: kv.at(1).load_readonly() - k_start,
            batch: k.c(0),
            first_key: k_start,
        }
    }
}

/// A tile of rows, and the keys that they see.
#[derive(Clone, Copy)]
pub(super) struct Rows<'k> {
    pub(super) sequence: Sequence<'k>,
    /// The first, in the sequence.
    pub(super) first: Val<'k, u32>,
    pub(super) mask: TileMask<'k>,
    pub(super) blocks: Blocks<'k>,
    /// How many blocks before these are done, where tiles can be left half done.
    pub(super) done: Option<Val<'k, u32>>,
}

impl<'k> Rows<'k> {
    /// Of tile `number` of a sequence: so many rows and blocks of so many keys.
    pub(super) fn of(
        sequence: Sequence<'k>,
        number: Val<'k, u32>,
        shape: (u32, u32),
        mask: MaskArgs<'k>,
    ) -> Rows<'k> {
        let all = number.kernel().c(0);
        Rows::of_share(sequence, number, shape, mask, (all, 1))
    }

    /// The same with one of so many shares of the keys.
    pub(super) fn of_share(
        sequence: Sequence<'k>,
        number: Val<'k, u32>,
        (height, keys): (u32, u32),
        mask: MaskArgs<'k>,
        (share, shares): (Val<'k, u32>, u32),
    ) -> Rows<'k> {
        let first = number * height;
        let mask = TileMask::new(first, sequence.queries, sequence.keys, share, mask);
        Rows {
            sequence,
            first,
            mask,
            blocks: mask.blocks(height, keys, shares),
            done: None,
        }
    }

    /// The same with the blocks of keys that a list has of it, of so many keys.
    pub(super) fn listed(self, line: Ptr<'k, Global, u32>, keys: u32) -> Rows<'k> {
        Rows {
            blocks: Blocks::listed(line, keys),
            ..self
        }
    }

    /// What is left of it, once the first `done` blocks were gone through.
    pub(super) fn after(self, done: Val<'k, u32>) -> Rows<'k> {
        Rows {
            blocks: self.blocks.after(done),
            done: Some(done),
            ..self
        }
    }
}
