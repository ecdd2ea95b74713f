//! Masks of blocks: which blocks of keys a block of queries sees.

use crate::KernelError;
use std::fmt;

/// Which blocks of keys a block of queries sees, whatever the keys are: a byte on the device for each pair of blocks
/// (`block_mask`: sequence, query head, block of queries, block of keys), zero for what is hidden. Hidden blocks are
/// neither copied nor multiplied. The other masks hide keys besides. Blocks of packed sequences are counted from the
/// first row of each, and the mask is as large as the longest ones need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockMask {
    /// Queries of a block, counted from the first: a multiple of 128.
    pub rows: u32,
    /// Keys of a block: a multiple of 64.
    pub keys: u32,
    /// Whether each sequence has a mask of its own; else one is for all.
    pub by_sequence: bool,
    /// The same of query heads.
    pub by_head: bool,
}

/// How large what is masked is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Sequences.
    pub sequences: usize,
    /// Query heads.
    pub heads: usize,
    /// Queries of the longest sequence.
    pub queries: usize,
    /// Keys of the longest sequence.
    pub keys: usize,
}

impl BlockMask {
    /// Fails where blocks have sizes that no kernel has, with the reason.
    pub(super) fn check(self) -> Result<(), KernelError> {
        let BlockMask { rows, keys, .. } = self;
        let whole = |size: u32, of: u32| size > 0 && size.is_multiple_of(of);
        if whole(rows, 128) && whole(keys, 64) {
            return Ok(());
        }
        Err(KernelError::unfit(format!(
            "a mask of blocks of {rows} queries and {keys} keys: multiples of 128 queries and of 64 keys can be had"
        )))
    }

    /// Blocks of queries, and of keys.
    pub fn blocks(self, of: Extents) -> [usize; 2] {
        [
            of.queries.div_ceil(self.rows as usize),
            of.keys.div_ceil(self.keys as usize),
        ]
    }

    /// Bytes from one sequence to the next, from one head to the next, and in all.
    pub(in crate::attention) fn strides(self, of: Extents) -> [usize; 3] {
        let one: usize = self.blocks(of).into_iter().product();
        let heads = if self.by_head { of.heads } else { 1 };
        let sequences = if self.by_sequence { of.sequences } else { 1 };
        [
            if self.by_sequence { heads * one } else { 0 },
            if self.by_head { one } else { 0 },
            sequences * heads * one,
        ]
    }

    /// Bytes of the mask.
    pub fn bytes(self, of: Extents) -> usize {
        self.strides(of)[2]
    }

    /// The byte of a query and a key.
    pub(in crate::attention) fn at(
        self,
        of: Extents,
        [sequence, head]: [usize; 2],
        [row, key]: [usize; 2],
    ) -> usize {
        let [by_sequence, by_head, _] = self.strides(of);
        let [_, across] = self.blocks(of);
        let (down, right) = (row / self.rows as usize, key / self.keys as usize);
        sequence * by_sequence + head * by_head + down * across + right
    }

    /// A mask to try kernels with: some blocks of queries see few blocks of keys, and some none.
    pub(super) fn example(self, of: Extents) -> Vec<u8> {
        let [.., all] = self.strides(of);
        let [_, across] = self.blocks(of);
        (0..all)
            .map(|at| {
                let (line, block) = (at / across, at % across);
                let chosen = ((at * 2_654_435_761) >> 7) % 3 == 0 || block == line % across;
                u8::from(chosen && line % 5 != 3)
            })
            .collect()
    }
}

impl fmt::Display for BlockMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.keys)?;
        f.write_str(if self.by_sequence { " by sequence" } else { "" })?;
        f.write_str(if self.by_head { " by head" } else { "" })
    }
}
