//! How queries, keys and values lie: one behind the other, or as parts of larger tensors.

use super::problem::{Layout, Lengths, Problem};
use crate::KernelError;

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

impl Views {
    /// The three of one projection: in each row the heads of its query, then those of its key, then those of its value.
    pub fn of_projection(problem: &Problem) -> Views {
        let heads = u64::from(problem.heads + 2 * problem.kv_heads);
        let dim = u64::from(problem.head_dim);
        let (queries, keys) = problem.longest();
        let of = |rows: u32| View {
            batch: match problem.lengths {
                Lengths::Same { .. } => u64::from(rows) * heads * dim,
                Lengths::Each(_) => 0,
            },
            row: heads * dim,
            head: dim,
        };
        Views {
            q: of(queries),
            k: of(keys),
            v: of(keys),
        }
    }
}

impl View {
    /// Of heads of `dim` elements, so many of each of so many rows of a sequence, one behind the other.
    pub fn dense(problem: &Problem, dim: u32, heads: u32, rows: u32) -> View {
        let (dim, heads, rows) = (u64::from(dim), u64::from(heads), u64::from(rows));
        let batch = rows * heads * dim;
        match (&problem.lengths, problem.layout) {
            (Lengths::Each(_), _) => View {
                batch: 0,
                row: heads * dim,
                head: dim,
            },
            (_, Layout::Rows) => View {
                batch,
                row: heads * dim,
                head: dim,
            },
            (_, Layout::Heads) => View {
                batch,
                row: dim,
                head: rows * dim,
            },
        }
    }

    /// The first element of a row of a head.
    pub(super) fn at(self, sequence: usize, row: usize, head: usize) -> usize {
        sequence * self.batch as usize + row * self.row as usize + head * self.head as usize
    }

    /// Elements from the first to the last, of so many sequences, rows of each and heads of `dim` elements.
    fn span(self, [sequences, rows, heads, dim]: [u64; 4]) -> u64 {
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

impl Problem {
    /// How an input lies.
    pub(super) fn view(&self, input: Input) -> View {
        let (queries, keys) = self.longest();
        let [key_dim, value_dim] = self.stored_dims();
        // Packed sequences are counted from the first row of all.
        let whole = |view: View| View {
            batch: if self.is_ragged() { 0 } else { view.batch },
            ..view
        };
        match (input, self.views) {
            (Input::Queries, Some(views)) => whole(views.q),
            (Input::Keys, Some(views)) => whole(views.k),
            (Input::Values, Some(views)) => whole(views.v),
            (Input::Queries, None) => View::dense(self, self.head_dim, self.heads, queries),
            (Input::Keys, None) => View::dense(self, key_dim, self.kv_heads, keys),
            (Input::Values, None) => View::dense(self, value_dim, self.kv_heads, keys),
        }
    }

    /// Elements from the first to the last of queries, keys and values.
    pub fn spans(&self) -> [usize; 3] {
        let Some(views) = self.views else {
            let ((q, k), (_, v)) = (self.elements(), self.value_elements());
            return [q, k, v];
        };
        let (sequences, [queries, keys]) = match self.lengths {
            Lengths::Same {
                batch,
                queries,
                keys,
            } => (batch.into(), [queries, keys].map(u64::from)),
            Lengths::Each(_) => {
                let (queries, keys) = self.rows();
                (1, [queries, keys].map(|rows| rows as u64))
            }
        };
        let (heads, kv_heads) = (self.heads.into(), self.kv_heads.into());
        let [dim, value_dim] = [self.head_dim, self.value_dim()].map(u64::from);
        [
            views.q.span([sequences, queries, heads, dim]),
            views.k.span([sequences, keys, kv_heads, dim]),
            views.v.span([sequences, keys, kv_heads, value_dim]),
        ]
        .map(|span| span as usize)
    }

    /// Fails where views can't be had, with the reason.
    pub(super) fn can_view(&self, views: Views) -> Result<(), KernelError> {
        self.not_paged()?;
        if self.append.is_some() {
            return Err(KernelError::unfit(
                "new keys, and keys that are a part of a larger tensor: give a cache that lies whole",
            ));
        }
        for (name, View { batch, row, head }) in [("q", views.q), ("k", views.k), ("v", views.v)] {
            // The copy engine steps by 16 bytes.
            if let Some(stride) = [batch, row, head]
                .into_iter()
                .find(|stride| !stride.is_multiple_of(8) || *stride > u32::MAX.into())
            {
                return Err(KernelError::unfit(format!(
                    "{name} with {stride} elements from one thing to the next: multiples of 8 below 2^32 can be had; copy it"
                )));
            }
        }
        Ok(())
    }

    /// Fails where inputs are parts of larger tensors, for kernels that take them one behind the other.
    pub(super) fn lies_whole(&self) -> Result<(), KernelError> {
        match self.views {
            None => Ok(()),
            Some(_) => Err(KernelError::unfit(
                "queries, keys or values that are parts of larger tensors: the variants wgmma, tcgen05 and decode take them; elsewhere copy them",
            )),
        }
    }
}
