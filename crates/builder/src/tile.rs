//! Matrices in shared memory, laid out without bank conflicts for filling them and for loading
//! fragments.

use crate::emit::Opnd;
use crate::kernel::Kernel;
use crate::pointer::{Ptr, Shared};
use crate::scalar::{Storable, Word};
use crate::shared::SharedArray;
use crate::value::{IntoVal, Val};
use heist_ptx::arch::Feature;

/// How the rows of a [`SharedTile`] lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileLayout {
    /// Row after row, each followed by this many unused elements. The pitch in
    /// bytes must be a multiple of 16; an odd multiple has no conflicts.
    Padded(u32),
    /// Row after row without gaps, the 16-byte chunks of each row permuted by
    /// an exclusive or with the row's number. The row must be a power of two
    /// of at least 32 bytes.
    Swizzled,
}

/// The shape of a matrix in shared memory: rows of `cols` neighbours.
#[derive(Clone, Copy, Debug)]
pub struct TileSpec<'n, T> {
    pub(crate) name: &'n str,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) layout: TileLayout,
    pub(crate) ty: std::marker::PhantomData<fn() -> T>,
}

impl<'n, T: Storable> TileSpec<'n, T> {
    /// `rows` rows of `cols` elements.
    pub fn new(name: &'n str, rows: u32, cols: u32, layout: TileLayout) -> TileSpec<'n, T> {
        TileSpec {
            name,
            rows,
            cols,
            layout,
            ty: std::marker::PhantomData,
        }
    }

    /// Elements from one row to the next.
    fn pitch(&self) -> u32 {
        match self.layout {
            TileLayout::Padded(gap) => self.cols + gap,
            TileLayout::Swizzled => self.cols,
        }
    }

    /// Elements that it takes.
    pub(crate) fn len(&self) -> u32 {
        self.rows * self.pitch()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u32 {
        self.len() * T::BYTES
    }

    /// The alignment it wants, in bytes.
    pub(crate) fn align(&self) -> u32 {
        match self.layout {
            TileLayout::Padded(_) => 16,
            // Eight rows: the period of the permutation, which is also the one of
            // the copy engine's and the matrix descriptors' swizzle.
            TileLayout::Swizzled => (self.cols * T::BYTES * 8)
                .next_power_of_two()
                .clamp(128, 1024),
        }
    }

    /// Fails the build where the shape can't be.
    #[track_caller]
    pub(crate) fn check(&self, k: &Kernel<'_>) {
        let row = u64::from(self.cols) * u64::from(T::BYTES);
        k.must_divide(
            &format!("a row of the tile {} in bytes", self.name),
            row,
            16,
        );
        let pitch = u64::from(self.pitch()) * u64::from(T::BYTES);
        k.must_divide(
            &format!("the pitch of the tile {} in bytes", self.name),
            pitch,
            16,
        );
        if self.layout == TileLayout::Swizzled && !(row.is_power_of_two() && row >= 32) {
            k.fail(format!(
                "a row of the tile {} is {row} bytes; a swizzled row is a power of two of at least 32",
                self.name
            ));
        }
    }

    pub(crate) fn over<'k>(&self, base: Ptr<'k, Shared, T>) -> SharedTile<'k, T> {
        SharedTile {
            base,
            rows: self.rows,
            cols: self.cols,
            pitch: self.pitch(),
            layout: self.layout,
        }
    }
}

/// A matrix in shared memory.
#[derive(Debug)]
pub struct SharedTile<'k, T> {
    base: Ptr<'k, Shared, T>,
    rows: u32,
    cols: u32,
    pitch: u32,
    layout: TileLayout,
}

impl<T> Clone for SharedTile<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SharedTile<'_, T> {}

impl<'k> Kernel<'k> {
    /// A matrix in shared memory. For one that is filled by asynchronous copies
    /// see [`Kernel::copy_pipeline`].
    #[track_caller]
    pub fn tile<T: Storable>(&self, spec: TileSpec<'_, T>) -> SharedTile<'k, T> {
        spec.check(self);
        let array = self.shared_aligned::<T>(spec.name, spec.len(), spec.align());
        spec.over(array.ptr())
    }
}

impl<'k, T: Storable> SharedTile<'k, T> {
    /// How many rows it has.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The same bits as elements of another type. One of another size fails the
    /// build.
    #[track_caller]
    pub fn cast<U: Storable>(&self) -> SharedTile<'k, U> {
        if U::BYTES != T::BYTES {
            self.kernel().fail(format!(
                "a tile of {}-byte elements can't be one of {}-byte elements",
                T::BYTES,
                U::BYTES
            ));
        }
        SharedTile {
            base: self.base.cast(),
            rows: self.rows,
            cols: self.cols,
            pitch: self.pitch,
            layout: self.layout,
        }
    }

    /// The same rows of bytes, with elements of another size. They must fill the rows.
    #[track_caller]
    pub fn retyped<U: Storable>(&self) -> SharedTile<'k, U> {
        let row = self.pitch_bytes();
        self.kernel().must_divide(
            "a row of a retyped tile in bytes",
            row.into(),
            U::BYTES.into(),
        );
        SharedTile {
            base: self.base.cast(),
            rows: self.rows,
            cols: self.cols * T::BYTES / U::BYTES,
            pitch: row / U::BYTES,
            layout: self.layout,
        }
    }

    /// Its first `rows` rows, or all there are.
    #[must_use]
    pub fn top(&self, rows: u32) -> SharedTile<'k, T> {
        SharedTile {
            rows: rows.min(self.rows),
            ..*self
        }
    }

    /// The `rows` rows from `row0` on. Of a swizzled tile `row0` is a multiple of 8,
    /// after which the permutation starts again.
    #[must_use]
    #[track_caller]
    pub fn rows_from(&self, row0: impl IntoVal<'k, u32>, rows: u32) -> SharedTile<'k, T> {
        let row0 = row0.into_val(&self.kernel());
        SharedTile {
            base: self.base.byte_offset(row0 * self.pitch_bytes()),
            rows,
            ..*self
        }
    }

    /// Its columns before `at`, and those from there on.
    #[track_caller]
    pub(crate) fn split_columns(&self, at: u32) -> [SharedTile<'k, T>; 2] {
        let k = self.kernel();
        k.must_divide("the bytes before a column", (at * T::BYTES).into(), 16);
        if at > self.cols || self.layout == TileLayout::Swizzled {
            k.fail(format!(
                "a tile of {} columns can't be split at column {at}, or is swizzled",
                self.cols
            ));
        }
        let part = |base, cols| SharedTile {
            base,
            cols,
            ..*self
        };
        let at = at.min(self.cols);
        [part(self.base, at), part(self.base.at(at), self.cols - at)]
    }

    /// How many elements a row has.
    pub fn cols(&self) -> u32 {
        self.cols
    }

    /// Elements in 16 bytes.
    pub(crate) fn per_chunk() -> u32 {
        16 / T::BYTES
    }

    /// Elements from one row to the next.
    pub fn pitch(&self) -> u32 {
        self.pitch
    }

    /// Chunks of 16 bytes in a row.
    pub fn chunks(&self) -> u32 {
        self.cols / Self::per_chunk()
    }

    /// The kernel it belongs to.
    pub fn kernel(&self) -> Kernel<'k> {
        self.base.k
    }

    /// How its rows lie.
    pub fn layout(&self) -> TileLayout {
        self.layout
    }

    /// Where it starts.
    pub fn ptr(&self) -> Ptr<'k, Shared, T> {
        self.base
    }

    /// A tile of the first `rows` rows of an array that is used for something
    /// else before or after.
    #[track_caller]
    pub fn over(
        array: SharedArray<'k, T>,
        rows: u32,
        cols: u32,
        layout: TileLayout,
    ) -> SharedTile<'k, T> {
        let spec = TileSpec::new("over an array", rows, cols, layout);
        let k = array.ptr().k;
        spec.check(&k);
        if spec.len() > array.len() {
            k.fail_with(crate::Problem::OutOfRange {
                what: "the size of a tile over an array".into(),
                value: spec.len().into(),
                low: 0,
                high: array.len().into(),
            });
        }
        spec.over(array.ptr())
    }

    /// A pointer to one element.
    #[track_caller]
    pub fn at(&self, row: impl IntoVal<'k, u32>, col: impl IntoVal<'k, u32>) -> Ptr<'k, Shared, T> {
        let k = self.base.k;
        let (row, col) = (row.into_val(&k), col.into_val(&k));
        match self.layout {
            TileLayout::Padded(_) => self.base.at(row.mul_add(self.pitch, col)),
            TileLayout::Swizzled => {
                let per = Self::per_chunk();
                self.chunk(row, col / per).at(col % per)
            }
        }
    }

    /// A pointer to the 16 bytes at chunk `chunk` of a row.
    #[track_caller]
    pub fn chunk(
        &self,
        row: impl IntoVal<'k, u32>,
        chunk: impl IntoVal<'k, u32>,
    ) -> Ptr<'k, Shared, T> {
        let k = self.base.k;
        let (row, chunk) = (row.into_val(&k), chunk.into_val(&k));
        let chunk = match self.layout {
            TileLayout::Padded(_) => chunk,
            TileLayout::Swizzled => chunk ^ self.turn(row),
        };
        // The offset first: it does not depend on the stage, so it can be hoisted out of loops over
        // stages.
        let offset = row.mul_add(self.pitch * T::BYTES, chunk * 16);
        self.base.byte_offset(offset)
    }

    /// What a row's chunks are permuted with: rows that share a 128-byte line
    /// of banks differ in their chunk already, so only the rest of the row's
    /// number takes part.
    #[track_caller]
    fn turn(&self, row: Val<'k, u32>) -> Val<'k, u32> {
        let chunks = self.chunks();
        if chunks >= 8 {
            row & 7
        } else {
            let rows_per_line = 8 / chunks.max(1);
            (row >> rows_per_line.trailing_zeros()) & (chunks.max(1) - 1)
        }
    }

    /// Whether `rows` further down the chunks lie in the same order.
    pub(crate) fn repeats_after(&self, rows: u32) -> bool {
        match self.layout {
            TileLayout::Padded(_) => true,
            TileLayout::Swizzled => rows.is_multiple_of(8),
        }
    }

    /// Bytes from one row to the next.
    pub(crate) fn pitch_bytes(&self) -> u32 {
        self.pitch * T::BYTES
    }

    /// A loader of 16-row, two-chunk blocks whose lane addresses are computed
    /// once, here. `order` says which matrix of the block each group of eight
    /// lanes addresses.
    #[track_caller]
    pub(crate) fn loader(
        &self,
        row0: Val<'k, u32>,
        chunk0: Val<'k, u32>,
        order: LaneOrder,
        transposed: bool,
    ) -> Loader<'k, T> {
        let k = self.base.k;
        let lane = k.lane();
        let (row_in_block, chunk_in_block) = match order {
            LaneOrder::RowsFirst => (lane & 15, lane >> 4),
            LaneOrder::ChunksFirst => ((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1),
        };
        let row = row0 + row_in_block;
        let pitch = self.pitch * T::BYTES;
        let at = |chunk: Val<'k, u32>| self.base.byte_offset(row.mul_add(pitch, chunk * 16));
        let chunk = chunk0 + chunk_in_block;
        // Eight chunks on, the permutation starts again: the same address and a
        // constant.
        let pairs = (self.chunks() / 2).clamp(1, PERIOD);
        let columns = match self.layout {
            TileLayout::Padded(_) => vec![at(chunk)],
            TileLayout::Swizzled => {
                let turn = self.turn(row);
                (0..pairs)
                    .map(|pair| at((chunk + pair * 2) ^ turn))
                    .collect()
            }
        };
        Loader {
            columns,
            pairs: self.chunks() / 2,
            block_bytes: i64::from(self.pitch * T::BYTES) * 16,
            transposed,
        }
    }
}

/// Which of a block's four 8x8 matrices each group of eight lanes addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneOrder {
    /// Down the rows, then to the next chunk.
    RowsFirst,
    /// Across the chunks, then to the next rows.
    ChunksFirst,
}

/// Pairs of chunks after which a swizzled row's permutation starts again.
const PERIOD: u32 = 4;

/// Lane addresses of the blocks of a tile.
#[derive(Clone, Debug)]
pub(crate) struct Loader<'k, T> {
    /// One address for all pairs of chunks (padded), or one per pair of a
    /// period of the permutation.
    columns: Vec<Ptr<'k, Shared, T>>,
    /// Pairs of chunks in a row.
    pairs: u32,
    block_bytes: i64,
    transposed: bool,
}

impl<'k, T: Storable> Loader<'k, T> {
    /// Four registers of the block `rows` blocks down and `pair` pairs of
    /// chunks to the right.
    #[track_caller]
    pub(crate) fn load<R: Word>(&self, rows: u32, pair: u32) -> [Val<'k, R>; 4] {
        let at = match self.columns.as_slice() {
            [only] => only.byte_offset(i64::from(pair) * 32),
            columns => {
                let first = columns[0];
                if pair >= self.pairs {
                    first.k.fail(format!(
                        "pair {pair} of 16-byte chunks is past the end of a tile row that has {}",
                        self.pairs
                    ));
                }
                let column = columns.get((pair % PERIOD) as usize).unwrap_or(&first);
                column.byte_offset(i64::from(pair / PERIOD) * i64::from(PERIOD) * 32)
            }
        };
        let at = at.byte_offset(i64::from(rows) * self.block_bytes);
        load_matrices(at, self.transposed)
    }
}

/// `ldmatrix` of `N` 8x8 matrices of 16-bit elements.
#[track_caller]
fn load_matrices<'k, T: Storable, R: Word, const N: usize>(
    at: Ptr<'k, Shared, T>,
    transposed: bool,
) -> [Val<'k, R>; N] {
    const {
        assert!(
            N == 1 || N == 2 || N == 4,
            "ldmatrix loads 1, 2 or 4 matrices"
        )
    }
    let k = at.k;
    k.require(Feature::Ldmatrix);
    let regs: [_; N] = std::array::from_fn(|_| k.rec.reg(R::KIND.class()));
    let trans = if transposed { ".trans" } else { "" };
    k.effect(
        format!("ldmatrix.sync.aligned.m8n8.x{N}{trans}.shared.b16"),
        vec![
            Opnd::Vector(regs.iter().map(|&reg| reg.into()).collect()),
            at.operand(),
        ],
    );
    regs.map(|reg| Val::from_reg(k, reg))
}

impl<'k, H: crate::Half> Ptr<'k, Shared, H>
where
    H::Pair: Word,
{
    /// Loads `N` (1, 2 or 4) 8x8 matrices: lane `i` gives the address of row
    /// `i % 8` of matrix `i / 8`, and each lane gets, of every matrix, elements
    /// `2 * (i % 4)` and the next of row `i / 4`.
    #[track_caller]
    pub fn load_matrices<const N: usize>(self) -> [Val<'k, H::Pair>; N] {
        load_matrices(self, false)
    }

    /// The same with each matrix transposed on the way.
    #[track_caller]
    pub fn load_matrices_transposed<const N: usize>(self) -> [Val<'k, H::Pair>; N] {
        load_matrices(self, true)
    }

    /// Stores `N` (1, 2 or 4) 8x8 matrices, the reverse of
    /// [`load_matrices`](Ptr::load_matrices). From Hopper on.
    #[track_caller]
    pub fn store_matrices<const N: usize>(self, values: [Val<'k, H::Pair>; N]) {
        self.put_matrices("", values);
    }

    /// The same with each matrix transposed on the way.
    #[track_caller]
    pub fn store_matrices_transposed<const N: usize>(self, values: [Val<'k, H::Pair>; N]) {
        self.put_matrices(".trans", values);
    }

    #[track_caller]
    fn put_matrices<const N: usize>(self, trans: &str, values: [Val<'k, H::Pair>; N]) {
        const {
            assert!(
                N == 1 || N == 2 || N == 4,
                "stmatrix stores 1, 2 or 4 matrices"
            )
        }
        self.k.require(Feature::Stmatrix);
        let lanes = values.iter().map(|value| value.register().into()).collect();
        self.k.effect(
            format!("stmatrix.sync.aligned.m8n8.x{N}{trans}.shared.b16"),
            vec![self.operand(), Opnd::Vector(lanes)],
        );
    }
}
