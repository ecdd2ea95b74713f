//! The loads of an operand: from global memory into a stage, and from there into fragments.
//!
//! Elements past the edge of a matrix are zero in a stage; global memory there is not read.
//!
//! Rows that begin anywhere are copied as the others are, 16 bytes at a time from multiples of 16 bytes on, and lie in a stage as far behind the beginning
//! of its row as in global memory ([`RowShifts`]). Where a row begins in the middle of 16 bytes, these are read element by element: what lies before them is
//! not the operand's.

use super::problem::Major;
use heist_builder::{
    Bool, FillTile, FragmentA, FragmentB, Global, Half, IntoVal, Kernel, MmaInput, Piece, Ptr,
    RowShifts, SharedTile, Storable, Tf32, TileLayout, TileSpec, Val, bf16, f16,
};
use std::cell::{Cell, RefCell};

/// How many bytes are copied at once: as many as the alignment of rows allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// Sixteen bytes from the multiple of 16 below on: rows start anywhere.
    Shifted,
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
            _ if pitch.is_multiple_of(4) && bytes < 4 => Width::Four,
            _ => Width::Shifted,
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
    /// Whether copies of unaligned rows go through L1. Where many blocks read the same short rows, they ask a few lines of L2 for everything: tiles took up to four times
    /// as long. An operand that is read once loses up to a third by it.
    pub(crate) kept: bool,
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
    /// Whether there are elements of the operand before the first one in each of its rows.
    pub(crate) follows: Bool<'k>,
    /// The number of its first row among those that are stored.
    pub(crate) row: Val<'k, u32>,
    /// Whether what lies between these may be read, so that only the first of them begins alone.
    pub(crate) joined: Bool<'k>,
}

/// Bytes of global memory.
#[derive(Clone, Copy)]
pub(crate) struct Span<'k> {
    first: Val<'k, u64>,
    end: Val<'k, u64>,
}

impl<'k> Span<'k> {
    /// Those of rows that start so many elements apart.
    pub(crate) fn of<T: Storable>(
        at: Ptr<'k, Global, u8>,
        rows: Val<'k, u64>,
        pitch: Val<'k, u32>,
    ) -> Span<'k> {
        let first = at.address();
        let end = first + rows * (pitch.cast::<u64>() * u64::from(T::BYTES));
        Span { first, end }
    }

    fn is_apart(&self, other: &Span<'k>) -> Bool<'k> {
        self.end.le(other.first) | other.end.le(self.first)
    }
}

/// Where the 16 bytes begin that an element is in, and how many elements are before it in them.
fn aligned<'k, T: Storable>(at: Ptr<'k, Global, T>) -> (Ptr<'k, Global, T>, Val<'k, u32>) {
    let address = at.address();
    let bytes = address.cast::<u32>() & (CHUNK - 1);
    let below = Ptr::<Global, T>::from_address(address & !u64::from(CHUNK - 1));
    (below, bytes / T::BYTES)
}

/// From row to row in a stage, in 16 bytes, where rows have so many and shifts: one more for these. Lanes read single elements, of eight rows along
/// the depth, or of four rows (every other one of halves) across it: in different banks where that is an odd number, or twice one for words across the depth.
fn shifted_chunks(chunks: u32, words_across: bool) -> u32 {
    match words_across {
        false => (chunks + 1) | 1,
        true => 2 * ((chunks + 1).div_ceil(2) | 1),
    }
}

/// Bytes of the part that a stage has of an operand with shifts.
pub(crate) fn shifted_bytes(major: Major, [outer, depth]: [u32; 2], bytes: u32) -> u32 {
    let (rows, row) = match major {
        Major::Depth => (outer, depth),
        Major::Outer => (depth, outer),
    };
    let words_across = major == Major::Outer && bytes == 4;
    rows * CHUNK * shifted_chunks(row * bytes / CHUNK, words_across)
}

/// Bytes of the widest copy.
pub(crate) const CHUNK: u32 = 16;

/// A stage's part of an operand whose rows have shifts.
struct Shifted<'k, T> {
    /// Its first element.
    at: Ptr<'k, Global, T>,
    pitch: Val<'k, u32>,
    /// Elements inside of a row, and rows inside.
    row: Val<'k, u32>,
    rows: Val<'k, u32>,
    kept: bool,
}

/// Sixteen bytes of a row of it.
#[derive(Clone, Copy)]
struct Chunk<'k, T> {
    at: Ptr<'k, Global, T>,
    /// Elements before the row in its first chunk.
    shift: Val<'k, u32>,
    /// Elements up to the last one inside of the row.
    count: Val<'k, u32>,
}

impl<'k, T: Element> Shifted<'k, T> {
    /// Copies the columns from one on. Rows that are `alone` begin there, and what is before them may not be the operand's.
    fn copy(
        &self,
        first: u32,
        to: FillTile<'k, T>,
        alone: Option<&dyn Fn(Val<'k, u32>) -> Bool<'k>>,
    ) {
        let per = CHUNK / T::BYTES;
        // Rows have the same shift again a few rows on, and then a thread's address is the one before and a constant.
        let known: RefCell<Vec<Chunk<'k, T>>> = RefCell::default();
        to.each_piece::<CHUNK>(|piece| {
            let apart = (per / piece.below.max(1)).max(1);
            let repeats = (apart * piece.below).is_multiple_of(per) && piece.below > 0;
            let turn = (piece.trip % apart) as usize;
            let before = known.borrow().get(turn).copied().filter(|_| repeats);
            let chunk = match before {
                Some(chunk) => {
                    let bytes = self.pitch.mul_wide(apart * piece.below * T::BYTES);
                    Chunk {
                        at: chunk.at.byte_offset(bytes),
                        ..chunk
                    }
                }
                None => self.chunk(piece.row, piece.col + first),
            };
            match before {
                Some(_) => known.borrow_mut()[turn] = chunk,
                None => known.borrow_mut().push(chunk),
            }
            let count = piece.row.lt(self.rows).select(chunk.count, 0u32);
            let bytes = Some(count * T::BYTES);
            let copy = || match self.kept {
                true => piece.copy_kept(chunk.at, bytes),
                false => piece.copy(chunk.at, bytes),
            };
            match alone {
                None => copy(),
                Some(alone) => {
                    let shifted = count.gt(chunk.shift) & chunk.shift.gt(0u32);
                    let single = || self.load(&piece, Chunk { count, ..chunk });
                    let alone = alone(piece.row) & shifted;
                    piece.row.kernel().if_else(alone, single, copy);
                }
            }
        });
    }

    /// Those of a row that lie at this column of the stage.
    fn chunk(&self, row: Val<'k, u32>, col: Val<'k, u32>) -> Chunk<'k, T> {
        let (at, shift) = aligned(self.at.at(row.mul_add(self.pitch, col)));
        // Counted from the beginning of the row's first chunk.
        let end = self.row + shift;
        let count = (end.max(col) - col).min(CHUNK / T::BYTES);
        Chunk { at, shift, count }
    }

    /// Loads a row's first chunk element by element: those before the row are not the operand's.
    fn load(&self, piece: &Piece<'k, T, CHUNK>, chunk: Chunk<'k, T>) {
        let all = 0..CHUNK / T::BYTES;
        let read: Vec<_> = all
            .clone()
            .map(|index| {
                let inside = chunk.shift.le(index) & chunk.count.gt(index);
                // The row's first element is there, so that no load waits for a branch.
                let value = chunk.at.at(inside.select(index, chunk.shift)).load();
                inside.select(value, T::zero())
            })
            .collect();
        for (index, value) in all.zip(read) {
            piece.store(index, value);
        }
    }
}

impl Operand {
    /// The first row of a tile among those that are stored, where it has the depth from an element on.
    pub(crate) fn stored_row<'k>(&self, outer: Val<'k, u32>, depth: Val<'k, u32>) -> Val<'k, u32> {
        match self.major {
            Major::Depth => outer,
            Major::Outer => depth,
        }
    }

    /// Whether all that lies between the first and the last element of an operand, which begins there, may be read: it has no gaps between rows, or what is
    /// `written` meanwhile lies elsewhere.
    pub(crate) fn joined<'k, T: Element>(
        &self,
        at: Ptr<'k, Global, u8>,
        pitch: Val<'k, u32>,
        [outer, depth, batch]: [Val<'k, u32>; 3],
        written: impl Fn() -> Span<'k>,
    ) -> Bool<'k> {
        if self.width != Width::Shifted {
            return pitch.kernel().c(true);
        }
        let (rows, row) = match self.major {
            Major::Depth => (outer, depth),
            Major::Outer => (depth, outer),
        };
        let own = Span::of::<T>(at, rows.mul_wide(batch), pitch);
        pitch.eq(row) | own.is_apart(&written())
    }

    /// Whether rows of a tile have elements of the operand before their first one, in tiles of the whole depth that begin there.
    pub(crate) fn follows<'k>(&self, outer: Val<'k, u32>) -> Bool<'k> {
        match self.major {
            Major::Depth => outer.kernel().c(false),
            Major::Outer => outer.gt(0u32),
        }
    }

    /// A stage's part.
    pub(crate) fn spec<T: Storable>(&self) -> TileSpec<'static, T> {
        let (rows, cols) = match self.major {
            Major::Depth => (self.outer, self.depth),
            Major::Outer => (self.depth, self.outer),
        };
        let (bytes, per) = (cols * T::BYTES, CHUNK / T::BYTES);
        let words = self.major == Major::Outer && T::BYTES == 4;
        if self.width == Width::Shifted {
            let chunks = cols / per + 1;
            let gap = shifted_chunks(cols / per, words) - chunks;
            return TileSpec::new(self.name, rows, chunks * per, TileLayout::Padded(gap * per));
        }
        let layout = if bytes.is_power_of_two() && bytes >= 32 && !words {
            TileLayout::Swizzled
        } else if words {
            // Padded by eight words a row, so that accesses along rows and along columns have no
            // bank conflicts.
            TileLayout::Padded(8)
        } else {
            TileLayout::Padded(per)
        };
        TileSpec::new(self.name, rows, cols, layout)
    }

    /// Bytes of a stage's part, for elements of so many.
    pub(crate) fn stage_bytes(&self, element: u32) -> u32 {
        match element {
            4 => self.spec::<Tf32>().bytes(),
            _ => self.spec::<f16>().bytes(),
        }
    }

    /// The shifts of the rows that this lane's elements are in, where rows have any.
    pub(crate) fn shifts<'k, T: Element>(
        &self,
        k: &Kernel<'k>,
        from: From<'k, T>,
    ) -> Option<RowShifts<'k>> {
        (self.width == Width::Shifted).then(|| self.row_shifts(k, from))
    }

    /// The same where they have.
    pub(crate) fn row_shifts<'k, T: Element>(
        &self,
        k: &Kernel<'k>,
        from: From<'k, T>,
    ) -> RowShifts<'k> {
        // A stage and a warp's part of it begin a multiple of 16 bytes further on.
        let of = |row| aligned(from.at.at(from.pitch * row)).1;
        match self.major {
            Major::Depth => RowShifts::along(k, of),
            Major::Outer => RowShifts::across::<T>(k, of),
        }
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
            Width::Four => self.copy::<T, 4>(step, from, to),
            Width::Shifted => self.copy_shifted(step, from, to),
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

    /// Copies rows with their shifts.
    fn copy_shifted<'k, T: Element>(
        &self,
        step: Val<'k, u32>,
        from: From<'k, T>,
        to: FillTile<'k, T>,
    ) {
        let start = step * self.depth;
        let left = (from.depth.max(start) - start).min(self.depth);
        let (row, rows, follows, top) = match self.major {
            Major::Depth => (left, from.outer, from.follows | start.gt(0u32), from.row),
            Major::Outer => (
                from.outer.min(self.outer),
                left,
                from.follows,
                from.row + start,
            ),
        };
        let own = match self.major {
            Major::Depth => self.depth,
            Major::Outer => self.outer,
        };
        let stage = Shifted {
            at: self.stage(step, from),
            pitch: from.pitch,
            row,
            rows,
            kept: self.kept,
        };
        // By themselves the 16 bytes that rows have for their shifts: the others are as many as threads, mostly.
        let [most, last] = to.split_columns(own);
        let follow = || stage.copy(0, most, None);
        let begin = || {
            let alone = |row: Val<'k, u32>| !from.joined | row.eq(0u32);
            let per = CHUNK / T::BYTES;
            if own == per {
                return stage.copy(0, most, Some(&alone));
            }
            // By themselves the first 16 bytes of each row, so that a thread waits once for what it loads.
            let [head, others] = most.split_columns(per);
            stage.copy(0, head, Some(&alone));
            stage.copy(per, others, None);
        };
        let above = from.joined & top.gt(0u32);
        step.kernel().if_else(follows | above, follow, begin);
        stage.copy(own, last, None);
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
        shifts: Option<&RowShifts<'k>>,
        outer: Val<'k, u32>,
        rows: u32,
        part: u32,
    ) -> Vec<FragmentA<'k, T>> {
        let blocks = 0..rows / 16;
        match (shifts, self.major) {
            (Some(shifts), _) => {
                let source = tile.shifted(outer, 0, shifts);
                blocks.map(|block| source.left(block, part)).collect()
            }
            (None, Major::Depth) => {
                let source = tile.a_rows(outer);
                blocks.map(|block| source.fragment(block, part)).collect()
            }
            (None, Major::Outer) => T::left_columns(tile, outer, rows / 16, part),
        }
    }

    /// The right fragments of a warp whose tile starts at column `outer`.
    pub(crate) fn right<'k, T: Element>(
        &self,
        tile: SharedTile<'k, T>,
        shifts: Option<&RowShifts<'k>>,
        outer: Val<'k, u32>,
        cols: u32,
        part: u32,
    ) -> Vec<FragmentB<'k, T>> {
        match (shifts, self.major) {
            (Some(shifts), _) => {
                let source = tile.shifted(outer, 0, shifts);
                (0..cols / 8)
                    .map(|block| source.right(block, part))
                    .collect()
            }
            (None, Major::Depth) => {
                let source = tile.b_rows(outer);
                let pairs = (0..cols / 16).flat_map(|block| source.fragments(block, part));
                pairs.collect()
            }
            (None, Major::Outer) => T::right_rows(tile, outer, cols / 16, part),
        }
    }
}
