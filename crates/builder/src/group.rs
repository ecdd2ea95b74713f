//! Blocks that multiply together: one, or a pair.
//!
//! A pair is two blocks of a cluster whose tensor cores work on one product of 256 rows
//! (`cta_group::2`): those of ranks 0 and 1, of 2 and 3, and so on. Each block holds half of both operands in its shared memory and 128 rows of
//! the result in its tensor memory; one thread of the first of them, the leader, issues the products
//! of both. Which of the two it is, is part of the types: memory, rings, threads and products of
//! one block don't fit those of a pair, as `tcgen05` instructions of a kernel are all of one kind.

use crate::kernel::Kernel;
use crate::value::{Bool, Val};

mod sealed {
    #[allow(unnameable_types, reason = "nobody else makes groups")]
    pub trait Sealed {}
}

/// [`OneBlock`] or [`PairOfBlocks`].
pub trait BlockGroup: sealed::Sealed + std::fmt::Debug + 'static {
    /// How many blocks multiply together.
    const BLOCKS: u32;
    /// The modifier of its instructions.
    #[doc(hidden)]
    const MODIFIER: &'static str;
}

/// Each block multiplies for itself.
#[derive(Clone, Copy, Debug)]
pub struct OneBlock;

/// Two neighbours of a cluster multiply together.
#[derive(Clone, Copy, Debug)]
pub struct PairOfBlocks;

impl sealed::Sealed for OneBlock {}
impl sealed::Sealed for PairOfBlocks {}

impl BlockGroup for OneBlock {
    const BLOCKS: u32 = 1;
    const MODIFIER: &'static str = "cta_group::1";
}

impl BlockGroup for PairOfBlocks {
    const BLOCKS: u32 = 2;
    const MODIFIER: &'static str = "cta_group::2";
}

impl<'k> Kernel<'k> {
    /// Whether this block is the one that issues the products of its group.
    #[track_caller]
    pub fn leads<G: BlockGroup>(&self) -> Bool<'k> {
        match G::BLOCKS {
            1 => self.c(true),
            _ => self.rank_in_group::<G>().eq(0),
        }
    }

    /// Which block of its group this one is: 0 is the leader.
    #[track_caller]
    pub fn rank_in_group<G: BlockGroup>(&self) -> Val<'k, u32> {
        self.has_group::<G>();
        match self.cluster_size() {
            _ if G::BLOCKS == 1 => self.c(0),
            size if size == G::BLOCKS => self.cluster_rank(),
            _ => self.cluster_rank() & (G::BLOCKS - 1),
        }
    }

    /// The rank in the cluster of the block that issues the products of this block's group.
    #[track_caller]
    pub(crate) fn leader<G: BlockGroup>(&self) -> Val<'k, u32> {
        match self.cluster_size() {
            size if size == G::BLOCKS => self.c(0),
            _ => self.cluster_rank() & !(G::BLOCKS - 1),
        }
    }

    /// Fails where the kernel's clusters are not made of such groups.
    #[track_caller]
    pub(crate) fn has_group<G: BlockGroup>(&self) {
        if !self.cluster_size().is_multiple_of(G::BLOCKS) {
            self.fail(format!(
                "a pair of blocks in clusters of {}: a pair is two neighbours of a cluster",
                self.cluster_size()
            ));
        }
    }
}
