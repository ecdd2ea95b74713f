//! Destinations of `cp.async`: arrays and tiles that can be written and not read yet.
//!
//! They are handed out by a [pipeline](crate::CopyPipeline), which gives the
//! same memory back for reading after its wait.

use crate::kernel::number;
use crate::pointer::{Global, IntoIndex, Ptr, Shared};
use crate::scalar::Storable;
use crate::tile::SharedTile;
use crate::value::{Bool, IntoVal, Val};
use heist_ptx::arch::Feature;

/// An array while it is filled: written, not read.
#[derive(Debug)]
pub struct FillArray<'k, T> {
    pub(crate) base: Ptr<'k, Shared, T>,
}
impl<T> Clone for FillArray<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for FillArray<'_, T> {}

/// A tile while it is filled: written, not read.
#[derive(Debug)]
pub struct FillTile<'k, T> {
    pub(crate) tile: SharedTile<'k, T>,
}
impl<T> Clone for FillTile<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for FillTile<'_, T> {}

/// The way of a copy of 16 bytes; shorter ones always go through L1.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    PastL1,
    ThroughL1,
}

/// One `cp.async` of 4, 8 or 16 bytes; `size` bytes of them are read and the
/// rest is zero.
#[track_caller]
fn copy<'k, T: Storable, const BYTES: u32>(
    to: Ptr<'k, Shared, T>,
    from: Ptr<'k, Global, T>,
    size: Option<Val<'k, u32>>,
    way: Way,
) {
    const {
        assert!(
            BYTES == 4 || BYTES == 8 || BYTES == 16,
            "cp.async copies 4, 8 or 16 bytes"
        );
    }
    let k = to.k;
    k.require(Feature::CpAsync);
    let opcode = if BYTES == 16 && way == Way::PastL1 {
        k.require(Feature::PrefetchSize);
        "cp.async.cg.shared.global.L2::128B"
    } else {
        "cp.async.ca.shared.global"
    };
    let mut operands = vec![to.operand(), from.operand(), number(BYTES.into())];
    operands.extend(size.map(|size| size.operand()));
    k.effect(opcode, operands);
}

impl<'k, T: Storable> FillArray<'k, T> {
    /// Copies `BYTES` (4, 8 or 16) to the elements from `index` on.
    #[track_caller]
    pub fn copy<const BYTES: u32>(&self, index: impl IntoIndex<'k>, from: Ptr<'k, Global, T>) {
        copy::<T, BYTES>(self.base.at(index), from, None, Way::PastL1);
    }

    /// Copies where `inside` holds, and writes zeros without reading where it
    /// does not.
    #[track_caller]
    pub fn copy_or_zero<const BYTES: u32>(
        &self,
        index: impl IntoIndex<'k>,
        from: Ptr<'k, Global, T>,
        inside: Bool<'k>,
    ) {
        let size = inside.select(BYTES, 0u32);
        copy::<T, BYTES>(self.base.at(index), from, Some(size), Way::PastL1);
    }

    /// Writes an element by an ordinary store.
    #[track_caller]
    pub fn store(&self, index: impl IntoIndex<'k>, value: impl IntoVal<'k, T>) {
        self.base.at(index).store(value);
    }
}

impl<'k, T: Storable> FillTile<'k, T> {
    /// Its shape: rows and elements in a row.
    pub fn shape(&self) -> (u32, u32) {
        (self.tile.rows(), self.tile.cols())
    }

    /// Its first `rows` rows, or all there are.
    #[must_use]
    pub fn top(&self, rows: u32) -> FillTile<'k, T> {
        FillTile {
            tile: self.tile.top(rows),
        }
    }

    /// Its columns before `at`, and those from there on: a multiple of 16 bytes, of a tile that is not swizzled.
    #[track_caller]
    pub fn split_columns(&self, at: u32) -> [FillTile<'k, T>; 2] {
        self.tile.split_columns(at).map(|tile| FillTile { tile })
    }

    /// Copies the 16 bytes at chunk `chunk` of a row.
    #[track_caller]
    pub fn copy_chunk(
        &self,
        row: impl IntoVal<'k, u32>,
        chunk: impl IntoVal<'k, u32>,
        from: Ptr<'k, Global, T>,
    ) {
        copy::<T, 16>(self.tile.chunk(row, chunk), from, None, Way::PastL1);
    }

    /// Copies the first `bytes` of the 16 bytes at chunk `chunk` of a row, and
    /// writes zeros for the rest.
    #[track_caller]
    pub fn copy_chunk_part(
        &self,
        row: impl IntoVal<'k, u32>,
        chunk: impl IntoVal<'k, u32>,
        from: Ptr<'k, Global, T>,
        bytes: impl IntoVal<'k, u32>,
    ) {
        let bytes = bytes.into_val(&self.tile.kernel());
        copy::<T, 16>(self.tile.chunk(row, chunk), from, Some(bytes), Way::PastL1);
    }

    /// Writes one element by an ordinary store, for edges that 16-byte copies
    /// can't reach.
    #[track_caller]
    pub fn store(
        &self,
        row: impl IntoVal<'k, u32>,
        col: impl IntoVal<'k, u32>,
        value: impl IntoVal<'k, T>,
    ) {
        self.tile.at(row, col).store(value);
    }

    /// The whole block copies the whole tile from a matrix whose rows are
    /// `pitch` elements apart. The tile's chunks must be a multiple of the
    /// block's threads, and each row a divisor or multiple of them.
    #[track_caller]
    pub fn copy_all(&self, from: Ptr<'k, Global, T>, pitch: impl IntoVal<'k, u32>) {
        let pitch = pitch.into_val(&self.tile.kernel());
        let chunks = self.tile.chunks() * self.tile.rows();
        self.tile.kernel().must_divide(
            "the number of 16-byte chunks of a tile",
            chunks.into(),
            self.tile.kernel().threads().into(),
        );
        self.each_piece::<16>(|piece| {
            piece.copy(from.at(piece.row.mul_add(pitch, piece.col)), None);
        });
    }

    /// Like [`copy_all`](FillTile::copy_all), with zeros in place of elements at or past `rows`
    /// rows and `cols` columns of the source. Rows of the source must start at multiples of 16
    /// bytes.
    #[track_caller]
    pub fn copy_inside(
        &self,
        from: Ptr<'k, Global, T>,
        pitch: impl IntoVal<'k, u32>,
        rows: impl IntoVal<'k, u32>,
        cols: impl IntoVal<'k, u32>,
    ) {
        let k = self.tile.kernel();
        let (pitch, rows, cols) = (pitch.into_val(&k), rows.into_val(&k), cols.into_val(&k));
        let per = SharedTile::<T>::per_chunk();
        self.each_piece::<16>(|piece| {
            let left = cols.max(piece.col) - piece.col;
            let bytes = piece.row.lt(rows).select(left.min(per) * T::BYTES, 0u32);
            // Where nothing is inside nothing is read, so keep the start address.
            let index = bytes
                .gt(0)
                .select(piece.row.mul_add(pitch, piece.col), 0u32);
            piece.copy(from.at(index), Some(bytes));
        });
    }

    /// Like [`copy_all`](FillTile::copy_all), for inner loops and any shape: each
    /// thread computes one address and steps from there. With `inside`, rows at
    /// or past it become zeros.
    #[track_caller]
    pub fn copy_rows(
        &self,
        from: Ptr<'k, Global, T>,
        pitch: impl IntoVal<'k, u32>,
        inside: Option<Val<'k, u32>>,
    ) {
        let k = self.tile.kernel();
        k.asked_here();
        let pitch = pitch.into_val(&k);
        let (threads, chunks, rows) = (k.threads(), self.tile.chunks(), self.tile.rows());
        let per = SharedTile::<T>::per_chunk();
        let t = k.thread_index();
        let put = |to, from, row: Val<'k, u32>| {
            let size = inside.map(|inside| row.lt(inside).select(16u32, 0u32));
            copy::<T, 16>(to, from, size, Way::PastL1);
        };
        if !threads.is_multiple_of(chunks) {
            // Rows that do not divide the block: each copy has its own address.
            for trip in 0..(rows * chunks).div_ceil(threads) {
                let index = t + trip * threads;
                let (row, chunk) = (index / chunks, index % chunks);
                let whole = (trip + 1) * threads <= rows * chunks;
                k.if_(k.c(whole) | index.lt(rows * chunks), || {
                    let from = from.at(row.mul_add(pitch, chunk * per));
                    put(self.tile.chunk(row, chunk), from, row);
                });
            }
            return;
        }
        let step = threads / chunks;
        let (row, chunk) = (t / chunks, t % chunks);
        let to = self.tile.chunk(row, chunk);
        let advance = pitch.mul_wide(step * T::BYTES);
        let mut from = from.at(row.mul_add(pitch, chunk * per));
        for down in (0..rows).step_by(step as usize) {
            let below = row + down;
            let whole = down + step <= rows;
            let to = if self.tile.repeats_after(step) {
                to.byte_offset(down * self.tile.pitch_bytes())
            } else {
                self.tile.chunk(below, chunk)
            };
            k.if_(k.c(whole) | below.lt(rows), || put(to, from, below));
            if down + step < rows {
                from = from.byte_offset(advance);
            }
        }
    }

    /// Calls `each` with every piece of `BYTES` bytes that this thread copies,
    /// for the whole block to copy the whole tile. A piece has 4, 8 or 16 bytes.
    /// Where they are no multiple of the block's threads, some threads have one
    /// less.
    #[track_caller]
    pub fn each_piece<const BYTES: u32>(&self, each: impl Fn(Piece<'k, T, BYTES>)) {
        let k = self.tile.kernel();
        k.asked_here();
        let per = (BYTES / T::BYTES).max(1);
        let (threads, pieces) = (k.threads(), self.tile.cols() / per);
        let total = pieces * self.tile.rows();
        if total == 0 {
            k.fail(format!("a tile has no pieces of {BYTES} bytes"));
            return;
        }
        let t = k.thread_index();
        let stacked = threads.is_multiple_of(pieces);
        let below = threads / pieces;
        let place = |row: Val<'k, u32>, piece: Val<'k, u32>| match BYTES {
            16 => self.tile.chunk(row, piece),
            _ => self.tile.at(row, piece * per),
        };
        let first = (t / pieces, t % pieces);
        for trip in 0..total.div_ceil(threads) {
            let copy = || {
                let (row, piece) = if stacked {
                    (first.0 + trip * below, first.1)
                } else {
                    let index = t + trip * threads;
                    (index / pieces, index % pieces)
                };
                let to = if stacked && self.tile.repeats_after(below) {
                    let bytes = self.tile.pitch_bytes() * trip * below;
                    place(first.0, first.1).byte_offset(bytes)
                } else {
                    place(row, piece)
                };
                each(Piece {
                    row,
                    col: piece * per,
                    trip,
                    below: if stacked { below } else { 0 },
                    to,
                });
            };
            if (trip + 1) * threads <= total {
                copy();
            } else {
                k.if_(t.lt(total - trip * threads), copy);
            }
        }
    }
}

/// A few neighbours of a row of a tile while it is filled.
#[derive(Debug)]
pub struct Piece<'k, T, const BYTES: u32> {
    /// Its row.
    pub row: Val<'k, u32>,
    /// Its first column.
    pub col: Val<'k, u32>,
    /// Its number among those of this thread.
    pub trip: u32,
    /// Rows from one piece of this thread down to the next, in the same column;
    /// zero where they do not lie like that.
    pub below: u32,
    to: Ptr<'k, Shared, T>,
}

impl<'k, T: Storable, const BYTES: u32> Piece<'k, T, BYTES> {
    /// Copies it; of `bytes`, if given, that many are read and the rest is zero.
    #[track_caller]
    pub fn copy(&self, from: Ptr<'k, Global, T>, bytes: Option<Val<'k, u32>>) {
        copy::<T, BYTES>(self.to, from, bytes, Way::PastL1);
    }

    /// The same, and what lies beside it stays in L1: for pieces that other threads of the multiprocessor read the neighbours of.
    #[track_caller]
    pub fn copy_kept(&self, from: Ptr<'k, Global, T>, bytes: Option<Val<'k, u32>>) {
        copy::<T, BYTES>(self.to, from, bytes, Way::ThroughL1);
    }

    /// Writes one of its elements by an ordinary store, where a copy would read too much.
    #[track_caller]
    pub fn store(&self, index: u32, value: impl IntoVal<'k, T>) {
        self.to.at(index).store(value);
    }
}
