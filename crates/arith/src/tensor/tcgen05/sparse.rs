//! Sparse products: half of the elements of A are zero and not stored, and metadata in tensor memory says which.
//!
//! Four bits are about one group of elements: two of four are stored, one of two of `tf32`, and two
//! pairs of four pairs of [`super::Format::PackedE2m1`]. Where a row's bits lie is as CUTLASS lays
//! them out for 128 rows a block.

use super::form::{Form, MmaKind};
use crate::tensor::wgmma::Numbers;

/// Bits of metadata that no group can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadGroup {
    /// The row of A.
    pub row: usize,
    /// The first element of the group, counted as if all were stored.
    pub k: usize,
    /// The four bits.
    pub bits: u8,
}

impl MmaKind {
    /// Whether a row's metadata are one column, which the descriptor's selector chooses.
    pub const fn selects_metadata(self) -> bool {
        matches!(self, MmaKind::F16 | MmaKind::Tf32)
    }

    /// Columns of tensor memory that the metadata of a product take.
    pub const fn metadata_columns(self) -> usize {
        if self.selects_metadata() { 1 } else { 2 }
    }

    /// The lane, the column from the first one, and the lowest bit of a group's metadata.
    pub const fn metadata_place(self, row: usize, group: usize) -> (usize, usize, usize) {
        if self.selects_metadata() {
            let lane = row % 8 + row / 16 * 16 + group / 4 * 8;
            (lane, 0, row / 8 % 2 * 16 + group % 4 * 4)
        } else {
            (row, group / 8, group % 8 * 4)
        }
    }

    /// Elements of a group.
    const fn group(self) -> usize {
        match self {
            MmaKind::Tf32 => 2,
            MmaKind::Mxf4 | MmaKind::Mxf4nvf4 { .. } => 8,
            _ => 4,
        }
    }

    /// The places in its group of the elements that are stored, in their order; none for bits
    /// that mean nothing.
    fn stored(self, bits: u8) -> Option<Vec<usize>> {
        let [low, high] = [bits & 3, bits >> 2].map(usize::from);
        let known = match self {
            MmaKind::Tf32 => matches!(bits, 0b0100 | 0b1110),
            _ => matches!(bits, 0x4 | 0x6 | 0x8 | 0x9 | 0xc | 0xd | 0xe),
        };
        known.then(|| match self {
            // Both halves of one element.
            MmaKind::Tf32 => vec![low / 2],
            MmaKind::Mxf4 | MmaKind::Mxf4nvf4 { .. } => {
                vec![2 * low, 2 * low + 1, 2 * high, 2 * high + 1]
            }
            _ => vec![low, high],
        })
    }
}

impl Form {
    /// Elements of a row of A that are stored.
    pub const fn stored(&self) -> usize {
        if self.sparse { self.k / 2 } else { self.k }
    }

    /// Elements along k that share a scale factor: a sparse product is twice as deep, with as many
    /// factors.
    pub const fn block(&self) -> usize {
        self.kind.block() * if self.sparse { 2 } else { 1 }
    }

    /// A with all its elements, from those that are stored; `metadata(row, group)` are four bits.
    pub fn expand(
        &self,
        stored: &Numbers,
        mut metadata: impl FnMut(usize, usize) -> u8,
    ) -> Result<Numbers, BadGroup> {
        let group = self.kind.group();
        let mut places = Vec::with_capacity(self.m * self.stored());
        for row in 0..self.m {
            for at in 0..self.k / group {
                let (k, bits) = (at * group, metadata(row, at));
                let chosen = self.kind.stored(bits);
                let chosen = chosen.ok_or(BadGroup { row, k, bits })?;
                places.extend(chosen.into_iter().map(|one| row * self.k + k + one));
            }
        }
        let len = self.m * self.k;
        Ok(match stored {
            Numbers::Floats(all) => Numbers::Floats(spread(all, &places, len)),
            Numbers::Integers(all) => Numbers::Integers(spread(all, &places, len)),
        })
    }
}

/// As many numbers as `len`, zero but for those that have a place.
fn spread<T: Copy + Default>(numbers: &[T], places: &[usize], len: usize) -> Vec<T> {
    let mut all = vec![T::default(); len];
    for (&number, &place) in numbers.iter().zip(places) {
        all[place] = number;
    }
    all
}
