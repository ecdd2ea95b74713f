//! Blocks that multiply together: one, or a pair.
//!
//! A pair is a cluster of two blocks whose tensor cores work on one product of 256 rows
//! (`cta_group::2`). Each block holds half of both operands in its shared memory and 128 rows of
//! the result in its tensor memory; one thread of the first block, the leader, issues the products
//! of both. Which of the two it is, is part of the types: memory, rings, threads and products of
//! one block don't fit those of a pair, as `tcgen05` instructions of a kernel are all of one kind.

use crate::kernel::Kernel;
use crate::value::Bool;

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

/// The two blocks of a cluster multiply together.
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

/// The rank of the block that issues the products of a pair.
pub(crate) const LEADER: u32 = 0;

impl<'k> Kernel<'k> {
    /// Whether this block is the one that issues the products of its group.
    #[track_caller]
    pub fn leads<G: BlockGroup>(&self) -> Bool<'k> {
        self.has_group::<G>();
        match G::BLOCKS {
            1 => self.c(true),
            _ => self.cluster_rank().eq(LEADER),
        }
    }

    /// Fails where the kernel's clusters are no pairs.
    #[track_caller]
    pub(crate) fn has_group<G: BlockGroup>(&self) {
        if G::BLOCKS > 1 && self.cluster_size() != G::BLOCKS {
            self.fail(format!(
                "a pair of blocks in clusters of {}: a pair is a cluster of two",
                self.cluster_size()
            ));
        }
    }
}
