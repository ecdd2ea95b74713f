//! Rows of the left operand that lie anywhere: the producer warpgroup copies them row by row, by an
//! index on the device, where the copy engine would take boxes of neighbours.

use super::left::left;
use super::tiling::{SPAN, Tiling};
use heist_builder::{FillTile, Global, Kernel, Ptr, Val, f16};

/// Threads that copy: the producer warpgroup.
pub(crate) const GATHERERS: u32 = 128;

/// 16 bytes are copied at once: so many of a row's 128 bytes.
const CHUNKS: u32 = 8;

/// Rows that are read at once, each by [`CHUNKS`] threads.
const ABREAST: u32 = GATHERERS / CHUNKS;

/// Where the rows of a tile are.
#[derive(Clone, Copy)]
pub(crate) struct Gather<'k> {
    /// The matrix.
    pub(crate) from: Ptr<'k, Global, f16>,
    /// Elements from one of its rows to the next, and in each: a multiple of 8.
    pub(crate) depth: Val<'k, u32>,
    /// The tile's first entry of the index.
    pub(crate) index: Ptr<'k, Global, u32>,
    /// Entries that stand for one row of the matrix, one after the other.
    pub(crate) per: u32,
    /// How many entries there are from the first on: at least one.
    pub(crate) inside: Val<'k, u32>,
    /// Whether whole stages cover the depth.
    pub(crate) even: bool,
}

/// The rows of a tile that one thread copies a part of.
pub(crate) struct Rows<'k> {
    /// Its part of each row, and whether the row is inside, as the bytes of a copy.
    rows: Vec<(Ptr<'k, Global, f16>, Val<'k, u32>)>,
    tiling: Tiling,
    /// Its first row of a tile, and its part of 128 bytes.
    place: [Val<'k, u32>; 2],
    depth: Val<'k, u32>,
    even: bool,
}

impl<'k> Gather<'k> {
    /// Looks the rows of a tile up.
    pub(crate) fn rows(&self, k: &Kernel<'k>, tiling: &Tiling) -> Rows<'k> {
        let thread = k.thread_index();
        let (row, chunk) = (thread / CHUNKS, thread % CHUNKS);
        let rows = (0..tiling.rows / ABREAST).map(|turn| {
            let row = row + turn * ABREAST;
            let inside = row.lt(self.inside);
            // Rows outside are zeros. They are not read, but their addresses are valid.
            let entry = self.index.at(inside.select(row, 0u32)).load_readonly();
            let from = self.from.at((entry / self.per).mul_wide(self.depth));
            (from.at(chunk * CHUNKS), inside.select(16u32, 0u32))
        });
        Rows {
            rows: rows.collect(),
            tiling: *tiling,
            place: [row, chunk],
            depth: self.depth,
            even: self.even,
        }
    }
}

impl<'k> Rows<'k> {
    /// Copies this thread's part of stage `step` of the depth.
    pub(crate) fn copy(&self, to: FillTile<'k, f16>, step: Val<'k, u32>) {
        let [row, chunk] = self.place;
        for piece in 0..self.tiling.depth / SPAN {
            let at = step * self.tiling.depth + piece * SPAN;
            let there = (!self.even).then(|| left(self.depth, at + chunk * CHUNKS).gt(0u32));
            for (turn, (from, bytes)) in (0..).zip(&self.rows) {
                let row = row + (piece * self.tiling.rows + turn * ABREAST);
                let bytes = there.map_or(*bytes, |there| there.select(*bytes, 0u32));
                // An address behind the row is not used.
                let from = there.map_or(from.at(at), |there| from.at(there.select(at, 0u32)));
                to.copy_chunk_part(row, chunk, from, bytes);
            }
        }
    }
}
