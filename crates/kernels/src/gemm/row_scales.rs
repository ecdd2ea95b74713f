//! Factors of rows and columns, as the epilogue reads them: there, or before the products.

use heist_builder::{Global, Kernel, Ptr, Val};

/// Factors of rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct RowScales<'k> {
    /// From the first row on.
    pub(super) rows: Ptr<'k, Global, f32>,
    /// From the first column on.
    pub(super) cols: Ptr<'k, Global, f32>,
    /// The first row's, where it has been read.
    pub(super) row: Option<Val<'k, f32>>,
    /// All of them, where they were read before the products.
    pub(super) ahead: Option<Ahead<'k>>,
}

/// The factors of 64 rows and of the columns of a tile, read before the products: their latency is
/// hidden behind these. A warp of a warpgroup has 16 of the rows.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<'k> {
    /// Of the two rows that a thread has.
    rows: [Val<'k, f32>; 2],
    /// Of all columns, 32 neighbours in the lanes of a warp.
    cols: [Val<'k, f32>; 8],
}

impl<'k> Ahead<'k> {
    /// Reads them, from the first row and column on. Of both, so many are inside; a tile has `cols`
    /// columns.
    pub(crate) fn read(
        k: &Kernel<'k>,
        [rows, columns]: [Ptr<'k, Global, f32>; 2],
        [down, across]: [Val<'k, u32>; 2],
        cols: u32,
    ) -> Ahead<'k> {
        let read = |from: Ptr<'k, Global, f32>, at: Val<'k, u32>, inside: Val<'k, u32>| {
            let factor = k.var(0.0f32);
            k.if_(at.lt(inside), || factor.set(from.at(at).load_readonly()));
            factor.get()
        };
        let first = (k.warp_uniform() & 3) * 16 + (k.lane() >> 2);
        Ahead {
            rows: [0, 8].map(|further| read(rows, first + further, down)),
            cols: [0, 1, 2, 3, 4, 5, 6, 7].map(|piece| match piece * 32 < cols {
                true => read(columns, k.lane() + piece * 32, across),
                false => k.c(0.0),
            }),
        }
    }

    /// Those of this thread's pair of columns in the 8 that begin at `first`.
    pub(super) fn pair(&self, k: &Kernel<'k>, first: u32) -> [Val<'k, f32>; 2] {
        let lane = (k.lane() & 3) * 2 + first % 32;
        let factors = self.cols[(first / 32) as usize];
        [0, 1].map(|next| factors.shuffle_from(lane + next))
    }
}

impl<'k> RowScales<'k> {
    /// Factors from these addresses on.
    pub(crate) fn new(rows: Ptr<'k, Global, f32>, cols: Ptr<'k, Global, f32>) -> Self {
        RowScales {
            rows,
            cols,
            row: None,
            ahead: None,
        }
    }

    /// The same from a row and column on, with the row's factor, if it is inside.
    pub(super) fn from(
        &self,
        row: Val<'k, u32>,
        col: Val<'k, u32>,
        rows: Option<Val<'k, u32>>,
    ) -> Self {
        if self.ahead.is_some() {
            return *self;
        }
        let k = row.kernel();
        let from = self.rows.at(row);
        let factor = match rows {
            None => from.load(),
            Some(rows) => {
                let factor = k.var(0.0f32);
                k.if_(rows.gt(0u32), || factor.set(from.load()));
                factor.get()
            }
        };
        RowScales {
            rows: from,
            cols: self.cols.at(col),
            row: Some(factor),
            ahead: None,
        }
    }

    /// The same with factors that were read ahead.
    pub(crate) fn ahead(self, ahead: Option<Ahead<'k>>) -> Self {
        RowScales { ahead, ..self }
    }

    /// The same with the factor of the thread's first or second row of 16, where it was read ahead.
    pub(super) fn half(self, half: usize) -> Self {
        let row = self.ahead.map_or(self.row, |ahead| Some(ahead.rows[half]));
        RowScales { row, ..self }
    }
}
