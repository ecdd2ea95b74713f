//! C as results add it: each its own element of a matrix, or a row, a column or one element that is spread over all of them.
//!
//! What a thread's row of results has in common is read once, where the row begins.

use super::problem::Spread;
use super::stored::Stored;
use heist_builder::{Global, IntoIndex, Ptr, Val};

/// C from an element of the result on.
#[derive(Clone, Copy)]
pub(crate) struct Added<'k, T> {
    first: Ptr<'k, Global, T>,
    spread: Spread,
    /// What all columns of a row add, where that was read.
    of_row: Option<Val<'k, f32>>,
}

impl<'k, T: Stored> Added<'k, T> {
    /// From the first element of the result on. One that is spread is the same for all results of a batch.
    pub(crate) fn new(spread: Spread, first: Ptr<'k, Global, T>) -> Added<'k, T> {
        Added {
            first,
            spread,
            of_row: None,
        }
    }

    /// From a row and column on, which are so many elements further where C is a matrix.
    pub(crate) fn at(
        &self,
        [row, col]: [Val<'k, u32>; 2],
        further: impl IntoIndex<'k>,
    ) -> Added<'k, T> {
        let first = match self.spread {
            Spread::Matrix => self.first.at(further),
            Spread::Row => self.first.at(col),
            Spread::Column => self.first.at(row),
            Spread::One => self.first,
        };
        Added::new(self.spread, first)
    }

    /// The same for one row of a thread's, of which something is inside where `rows` is not zero.
    pub(crate) fn line(mut self, rows: Option<Val<'k, u32>>) -> Added<'k, T> {
        if matches!(self.spread, Spread::Column | Spread::One) {
            self.of_row = Some(match rows {
                None => self.load(),
                Some(rows) => {
                    let k = rows.kernel();
                    let value = k.var(0.0f32);
                    k.if_(rows.gt(0u32), || value.set(self.load()));
                    value.get()
                }
            });
        }
        self
    }

    /// What all columns of the line add.
    pub(crate) fn of_row(&self) -> Option<Val<'k, f32>> {
        self.of_row
    }

    /// Whether all rows of a column add the same.
    pub(crate) fn is_of_columns(&self) -> bool {
        matches!(self.spread, Spread::Row | Spread::One)
    }

    /// Whether pairs of neighbours, the first of them at an even column, lie in a word or two: those of a row always do.
    pub(crate) fn has_pairs(&self, aligned: u32) -> bool {
        self.spread == Spread::Row || aligned > 1
    }

    /// The element itself.
    pub(crate) fn load(&self) -> Val<'k, f32> {
        self.first.load().cast::<f32>()
    }

    /// Where it is.
    pub(crate) fn first(&self) -> Ptr<'k, Global, T> {
        self.first
    }
}
