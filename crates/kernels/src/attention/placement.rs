//! How a problem's queries, keys and values lie: one behind the other, or as parts of larger tensors.

use super::problem::{Layout, Lengths, Problem};
use super::views::{Input, View, Views};
use crate::KernelError;

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
