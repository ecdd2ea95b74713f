//! The list of a packed batch's tiles, made on the device before the tiles are worked on.
//!
//! Sequences have lengths of their own, which the host does not know. A grid for the longest sequence
//! would have mostly empty tiles where one sequence is long; a search in every block would take its
//! time before every tile. So a launch of one block writes which tile of which sequence is the next
//! one: those with the most keys first, by counting. The rows of all sequences bound their number.

use crate::attention::mask::{MaskArgs, TileMask};
use crate::attention::problem::MaskKind;
use heist_builder::{
    Arch, Bool, BuildError, BuiltKernel, Global, Kernel, KernelSpec, On, Ptr, SharedArray, Val,
    kernel_params,
};
use heist_sched::Position;

kernel_params! {
    /// What the kernel works on.
    pub(super) struct ListArgs {
        /// The first query row of each sequence, and one past the last.
        q_starts: Global<u32>,
        /// The same for keys.
        k_starts: Global<u32>,
        /// The tiles: sequence and number.
        list: Global<u32>,
        /// How many sequences.
        sequences: u32,
        /// Entries of the list.
        entries: u32,
        /// Keys before its own that a query sees, in a window.
        left: i32,
        /// Keys after its own that a query sees.
        right: i32,
    }
}

/// A tile in the list, as its two words.
pub(super) const WORDS: u32 = 2;

/// The entries behind the last tile.
const NONE: u32 = u32::MAX;

const WARPS: u32 = 16;

/// How many numbers of key blocks are told apart.
const CLASSES: u32 = 256;

/// The most tiles that so many rows in so many sequences make.
pub(super) fn most_tiles(rows: u64, sequences: u64, longest: u32, height: u32) -> u64 {
    let height = u64::from(height);
    let whole = (rows + sequences * (height - 1)) / height;
    whole.min(sequences * u64::from(longest).div_ceil(height))
}

/// What tiles are, and how they are told apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileList {
    /// Rows of a tile.
    pub(super) height: u32,
    /// Keys of a block.
    pub(super) keys: u32,
    pub(super) mask: MaskKind,
    /// Blocks of keys of the longest sequence.
    pub(super) most_blocks: u32,
}

impl TileList {
    /// Builds the kernel, for one block.
    pub(super) fn build(self, arch: Arch) -> Result<BuiltKernel<ListArgs>, BuildError> {
        KernelSpec::<ListArgs>::new("attention_tiles")
            .block(32 * WARPS)
            .build(arch, |k, args| self.emit(k, &args))
    }

    fn emit<'k>(self, k: &Kernel<'k>, args: &ListArgs<On<'k>>) {
        let next = k.shared::<u32>("next", CLASSES);
        let total = k.shared::<u32>("total", 1);
        let threads = 32 * WARPS;
        k.for_step(k.thread_index(), CLASSES, threads, |class| {
            next.at(class).store(0u32);
        });
        k.sync();
        k.comment("how many tiles each class has");
        self.each_tile(k, args, |_, _, class| next.at(class).reduce_add(1u32));
        k.sync();
        k.comment("where each class begins");
        k.if_(k.warp().eq(0u32), || begin_classes(k, next, total));
        k.sync();
        k.comment("every tile to its place");
        self.each_tile(k, args, |sequence, number, class| {
            let place = next.at(class).atomic_add(1u32);
            let entry = args.list.at(place * WORDS);
            entry.store_vec([sequence, number]);
        });
        k.for_step(
            total.at(0).load() + k.thread_index(),
            args.entries,
            threads,
            |place| {
                let none = k.c(NONE);
                args.list.at(place * WORDS).store_vec([none, none]);
            },
        );
    }

    /// Calls `body` with the sequence, number and class of every tile: a warp has a sequence.
    fn each_tile<'k>(
        self,
        k: &Kernel<'k>,
        args: &ListArgs<On<'k>>,
        body: impl Fn(Val<'k, u32>, Val<'k, u32>, Val<'k, u32>),
    ) {
        let mask = MaskArgs {
            kind: self.mask,
            left: args.left,
            right: args.right,
            // It changes the order, and nothing else.
            prefix: None,
        };
        // As many classes as there may be blocks, or so many that they suffice.
        let shift = (self.most_blocks / CLASSES)
            .checked_ilog2()
            .map_or(0, |bits| bits + 1);
        k.for_step(k.warp(), args.sequences, WARPS, |sequence| {
            let length = |starts: Ptr<'k, Global, u32>| {
                let from = starts.at(sequence);
                from.at(1).load_readonly() - from.load_readonly()
            };
            let (queries, keys) = (length(args.q_starts), length(args.k_starts));
            let tiles = queries.div_ceil(self.height);
            k.for_step(k.lane(), tiles, 32u32, |number| {
                let mask = TileMask::new(number * self.height, queries, keys, k.c(0), mask);
                let blocks = mask.blocks(self.height, self.keys, 1).count();
                let class = (blocks >> shift).min(CLASSES - 1);
                body(sequence, number, k.c(CLASSES - 1) - class);
            });
        });
    }
}

/// Turns the numbers of tiles into where each class begins, by one warp.
fn begin_classes<'k>(k: &Kernel<'k>, next: SharedArray<'k, u32>, total: SharedArray<'k, u32>) {
    let (before, lane) = (k.var(0u32), k.lane());
    k.for_step(0u32, CLASSES, 32u32, |from| {
        let own = next.at(from + lane).load();
        let sum = k.var(own);
        for distance in [1u32, 2, 4, 8, 16] {
            let other = sum.get().shuffle_up(distance);
            sum.set(sum.get() + lane.ge(distance).select(other, 0u32));
        }
        next.at(from + lane).store(before.get() + sum.get() - own);
        before.set(before.get() + sum.get().shuffle_from(31u32));
    });
    k.if_(lane.eq(0u32), || total.at(0).store(before.get()));
}

/// Entry `place` of the list, for a head: its tile, and whether there is one.
pub(super) fn entry<'k>(
    list: Ptr<'k, Global, u32>,
    place: Val<'k, u32>,
    head: Val<'k, u32>,
) -> (Position<'k>, Bool<'k>) {
    let [sequence, number] = list.at(place * WORDS).load_vec_readonly::<2>();
    let tile = Position {
        x: number,
        y: head,
        z: sequence,
    };
    (tile, sequence.ne(NONE))
}

#[cfg(test)]
mod tests {
    use super::most_tiles;

    #[test]
    fn as_many_entries_as_any_batch_needs() {
        for (lengths, height) in [
            (vec![1, 1, 1], 128),
            (vec![128, 128], 128),
            (vec![129, 1, 0, 300], 128),
            (vec![4096, 1, 1, 1], 192),
        ] {
            let tiles: u64 = lengths
                .iter()
                .map(|length: &u32| u64::from(length.div_ceil(height)))
                .sum();
            let rows = lengths.iter().map(|&length| u64::from(length)).sum();
            let longest = lengths.iter().copied().max().unwrap_or(0);
            let most = most_tiles(rows, lengths.len() as u64, longest, height);
            assert!(most >= tiles, "{lengths:?}");
            // At most one tile of a sequence is not full.
            assert!(most <= tiles + lengths.len() as u64, "{lengths:?}: {most}");
        }
    }
}
