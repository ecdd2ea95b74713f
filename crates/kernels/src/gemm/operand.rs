//! The loads of an operand: from global memory into a stage, and from there into fragments.
//!
//! Elements past the edge of a matrix are zero in a stage; global memory there is not read.

use super::problem::Major;
use heist_builder::{
    FillTile, FragmentA, FragmentB, Global, Half, IntoVal, MmaInput, Piece, Ptr, SharedTile,
    Storable, Tf32, TileLayout, TileSpec, Val, bf16, f16,
};
use std::cell::Cell;

/// How many bytes are copied at once: as many as the alignment of rows allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// One element, through a register.
    Element,
    /// Four bytes.
    Four,
    /// Eight bytes.
    Eight,
    /// Sixteen bytes, past L1.
    Sixteen,
}

impl Width {
    /// For rows that start `pitch` elements apart, at an aligned address.
    pub fn of(pitch: u32, bytes: u32) -> Width {
        let pitch = u64::from(pitch) * u64::from(bytes);
        match pitch {
            _ if pitch.is_multiple_of(16) => Width::Sixteen,
            _ if pitch.is_multiple_of(8) => Width::Eight,
            _ if pitch.is_multiple_of(4) => Width::Four,
            _ => Width::Element,
        }
    }
}

/// What tensor cores multiply, with fragments from either layout.
pub(crate) trait Element: MmaInput {
    /// Left fragments, `count` blocks of 16 rows from row `outer`, of the part
    /// `part` of a K x M tile.
    fn left_columns<'k>(
        tile: SharedTile<'k, Self>,
        outer: Val<'k, u32>,
        count: u32,
        part: u32,
    ) -> Vec<FragmentA<'k, Self>>;
    /// Right fragments, `count` blocks of 16 columns from column `outer`, of
    /// the part `part` of a K x N tile.
    fn right_rows<'k>(
        tile: SharedTile<'k, Self>,
        outer: Val<'k, u32>,
        count: u32,
        part: u32,
    ) -> Vec<FragmentB<'k, Self>>;
    /// Zero.
    fn zero() -> Self;
}

fn left_halves<'k, T: MmaInput + Half>(
    tile: SharedTile<'k, T>,
    outer: Val<'k, u32>,
    count: u32,
    part: u32,
) -> Vec<FragmentA<'k, T>> {
    let source = tile.a_columns(outer);
    (0..count)
        .map(|block| source.fragment(block, part))
        .collect()
}

fn right_halves<'k, T: MmaInput + Half>(
    tile: SharedTile<'k, T>,
    outer: Val<'k, u32>,
    count: u32,
    part: u32,
) -> Vec<FragmentB<'k, T>> {
    let source = tile.b_columns(outer);
    let pairs = (0..count).flat_map(|block| source.fragments(block, part));
    pairs.collect()
}

macro_rules! halves {
    ($($ty:ty),*) => {$(
        impl Element for $ty {
            fn left_columns<'k>(tile: SharedTile<'k, $ty>, outer: Val<'k, u32>, count: u32, part: u32) -> Vec<FragmentA<'k, $ty>> {
                left_halves(tile, outer, count, part)
            }
            fn right_rows<'k>(tile: SharedTile<'k, $ty>, outer: Val<'k, u32>, count: u32, part: u32) -> Vec<FragmentB<'k, $ty>> {
                right_halves(tile, outer, count, part)
            }
            fn zero() -> $ty {
                <$ty>::from_bits(0)
            }
        }
    )*};
}
halves!(f16, bf16);

impl Element for Tf32 {
    fn left_columns<'k>(
        tile: SharedTile<'k, Tf32>,
        outer: Val<'k, u32>,
        count: u32,
        part: u32,
    ) -> Vec<FragmentA<'k, Tf32>> {
        let at = tile.at(part * Tf32::K, outer);
        let fragment = |block: u32| FragmentA::load_columns(at.at(block * 16), tile.pitch());
        (0..count).map(fragment).collect()
    }
    fn right_rows<'k>(
        tile: SharedTile<'k, Tf32>,
        outer: Val<'k, u32>,
        count: u32,
        part: u32,
    ) -> Vec<FragmentB<'k, Tf32>> {
        let at = tile.at(part * Tf32::K, outer);
        let fragment = |block: u32| FragmentB::load_rows(at.at(block * 8), tile.pitch());
        (0..count * 2).map(fragment).collect()
    }
    fn zero() -> Tf32 {
        Tf32(0)
    }
}

/// An operand's shape while building.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    /// Its name in the PTX.
    pub(crate) name: &'static str,
    /// How it is stored.
    pub(crate) major: Major,
    /// Rows of A or columns of B in a tile.
    pub(crate) outer: u32,
    /// The depth of a stage, in elements.
    pub(crate) depth: u32,
    /// Bytes of a copy.
    pub(crate) width: Width,
    /// Whether whole tiles cover the outer axis.
    pub(crate) even_outer: bool,
    /// Whether whole stages cover the depth.
    pub(crate) even_depth: bool,
}

/// Where an operand's tiles come from, in one tile of the result.
#[derive(Clone, Copy)]
pub(crate) struct From<'k, T> {
    /// The first element of the tile at depth zero.
    pub(crate) at: Ptr<'k, Global, T>,
    /// Elements from one stored row to the next.
    pub(crate) pitch: Val<'k, u32>,
    /// How many rows of A, or columns of B, there are from there on: at least
    /// one.
    pub(crate) outer: Val<'k, u32>,
    /// The whole depth.
    pub(crate) depth: Val<'k, u32>,
}

impl Operand {
    /// A stage's part.
    pub(crate) fn spec<T: Storable>(&self) -> TileSpec<'static, T> {
        let (rows, cols) = match self.major {
            Major::Depth => (self.outer, self.depth),
            Major::Outer => (self.depth, self.outer),
        };
        let bytes = cols * T::BYTES;
        let words = self.major == Major::Outer && T::BYTES == 4;
        let layout = if bytes.is_power_of_two() && bytes >= 32 && !words {
            TileLayout::Swizzled
        } else if words {
            // Padded by eight words a row, so that accesses along rows and along columns have no
            // bank conflicts.
            TileLayout::Padded(8)
        } else {
            TileLayout::Padded(16 / T::BYTES)
        };
        TileSpec::new(self.name, rows, cols, layout)
    }

    /// Copies the operand's part of stage `step`.
    pub(crate) fn fill<'k, T: Element>(
        &self,
        step: Val<'k, u32>,
        from: From<'k, T>,
        to: FillTile<'k, T>,
    ) {
        match self.width {
            Width::Sixteen => self.copy::<T, 16>(step, from, to),
            Width::Eight => self.copy::<T, 8>(step, from, to),
            Width::Four if T::BYTES < 4 => self.copy::<T, 4>(step, from, to),
            Width::Four | Width::Element => self.load(step, from, to),
        }
    }

    fn copy<'k, T: Element, const BYTES: u32>(
        &self,
        step: Val<'k, u32>,
        from: From<'k, T>,
        to: FillTile<'k, T>,
    ) {
        let stage = self.stage(step, from);
        let per = BYTES / T::BYTES;
        // The address of each piece is computed from the one before: separate addresses would take
        // registers that the accumulators need.
        let above: Cell<Option<Ptr<'k, Global, T>>> = Cell::new(None);
        to.each_piece::<BYTES>(|piece| {
            let at = match above.get().filter(|_| piece.below > 0) {
                Some(above) => above.byte_offset(from.pitch.mul_wide(piece.below * T::BYTES)),
                None => stage.at(piece.row.mul_add(from.pitch, piece.col)),
            };
            above.set(Some(at));
            let inside = self.inside(step, from, &piece, per);
            piece.copy(at, inside.map(|elements| elements * T::BYTES));
        });
    }

    fn load<'k, T: Element>(&self, step: Val<'k, u32>, from: From<'k, T>, to: FillTile<'k, T>) {
        let stage = self.stage(step, from);
        to.each_element(|piece| {
            let at = piece.row.mul_add(from.pitch, piece.col);
            match self.inside(step, from, piece, 1) {
                None => stage.at(at).load(),
                Some(elements) => {
                    let inside = elements.gt(0u32);
                    // The stage's first element is there where any is, so that no load waits for a branch.
                    let value = stage.at(inside.select(at, 0u32)).load();
                    inside.select(value, T::zero())
                }
            }
        });
    }

    /// The first element of a stage.
    fn stage<'k, T: Element>(&self, step: Val<'k, u32>, from: From<'k, T>) -> Ptr<'k, Global, T> {
        let depth = step * self.depth;
        match self.major {
            Major::Depth => from.at.at(depth),
            Major::Outer => from.at.at(depth.cast::<u64>() * from.pitch.cast::<u64>()),
        }
    }

    /// How many of a piece's elements are inside of the matrix, where that is
    /// not all. The rest is zero and is not read.
    fn inside<'k, T: Element, const BYTES: u32>(
        &self,
        step: Val<'k, u32>,
        from: From<'k, T>,
        piece: &Piece<'k, T, BYTES>,
        per: u32,
    ) -> Option<Val<'k, u32>> {
        let k = step.kernel();
        let start = step * self.depth;
        // Along the row of the piece, and across.
        let (along, across) = match self.major {
            Major::Depth => (
                (!self.even_depth).then_some((from.depth, start + piece.col)),
                (!self.even_outer).then_some((from.outer, piece.row)),
            ),
            Major::Outer => (
                (!self.even_outer).then_some((from.outer, piece.col)),
                (!self.even_depth).then_some((from.depth, start + piece.row)),
            ),
        };
        let elements = along.map(|(all, at)| (all.max(at) - at).min(per));
        match across {
            None => elements,
            Some((all, at)) => {
                let elements = elements.unwrap_or(per.into_val(&k));
                Some(at.lt(all).select(elements, 0u32))
            }
        }
    }

    /// The left fragments of a warp whose tile starts at row `outer`.
    pub(crate) fn left<'k, T: Element>(
        &self,
        tile: SharedTile<'k, T>,
        outer: Val<'k, u32>,
        rows: u32,
        part: u32,
    ) -> Vec<FragmentA<'k, T>> {
        match self.major {
            Major::Depth => {
                let source = tile.a_rows(outer);
                let blocks = 0..rows / 16;
                blocks.map(|block| source.fragment(block, part)).collect()
            }
            Major::Outer => T::left_columns(tile, outer, rows / 16, part),
        }
    }

    /// The right fragments of a warp whose tile starts at column `outer`.
    pub(crate) fn right<'k, T: Element>(
        &self,
        tile: SharedTile<'k, T>,
        outer: Val<'k, u32>,
        cols: u32,
        part: u32,
    ) -> Vec<FragmentB<'k, T>> {
        match self.major {
            Major::Depth => {
                let source = tile.b_rows(outer);
                let blocks = 0..cols / 16;
                let pairs = blocks.flat_map(|block| source.fragments(block, part));
                pairs.collect()
            }
            Major::Outer => T::right_rows(tile, outer, cols / 16, part),
        }
    }
}
