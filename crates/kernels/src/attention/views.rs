//! Strides of queries, keys and values.

/// Elements from one thing to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// From one sequence to the next; of packed sequences nothing.
    pub batch: u64,
    /// From one row to the next.
    pub row: u64,
    /// From one head to the next.
    pub head: u64,
}

/// Those of queries, keys and values that are parts of larger tensors, such as the three of one projection, or the first rows of a cache.
/// Results lie one behind the other all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Views {
    /// Of queries.
    pub q: View,
    /// Of keys.
    pub k: View,
    /// Of values.
    pub v: View,
}

impl View {
    /// The first element of a row of a head.
    pub(super) fn at(self, sequence: usize, row: usize, head: usize) -> usize {
        sequence * self.batch as usize + row * self.row as usize + head * self.head as usize
    }

    /// Elements from the first to the last, of so many sequences, rows of each and heads of `dim` elements.
    pub(super) fn span(self, [sequences, rows, heads, dim]: [u64; 4]) -> u64 {
        if sequences * rows * heads == 0 {
            return 0;
        }
        (sequences - 1) * self.batch + (rows - 1) * self.row + (heads - 1) * self.head + dim
    }
}

/// What lies where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Queries,
    Keys,
    Values,
}

impl Input {
    pub(super) const ALL: [Input; 3] = [Input::Queries, Input::Keys, Input::Values];
}
