//! The number of a basic block.

/// A basic block of a [`Graph`](super::Graph).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(u32);

impl BlockId {
    pub(super) fn new(index: usize) -> BlockId {
        BlockId(index as u32)
    }

    /// Its number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
