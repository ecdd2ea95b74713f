//! The numbering of query rows in the workspace between the launches.
//!
//! A block of queries of one head has numbers of its own, that start at a multiple of
//! its height, whether its sequence has rows for all of them or not. So a bulk copy takes a whole
//! block, and accumulators of rows past the end of a sequence are never used.

use crate::attention::problem::{Lengths, Problem};
use heist_builder::{Global, Ptr, Val};

/// The numbers of a problem's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Queries of a block.
    pub(super) height: u32,
    /// From one sequence to the next, where all are alike.
    pub(super) batch: u32,
    /// From one head to the next.
    pub(super) head: u32,
    /// In all.
    pub(super) count: u32,
}

impl Numbers {
    pub(super) fn of(problem: &Problem, height: u32) -> Numbers {
        let heads = problem.heads;
        match &problem.lengths {
            Lengths::Same { batch, queries, .. } => {
                let head = queries.div_ceil(height) * height;
                Numbers {
                    height,
                    batch: heads * head,
                    head,
                    count: batch * heads * head,
                }
            }
            // A sequence's blocks end before the next one's begin: see `first`.
            Lengths::Each(lengths) => {
                let head = (problem.rows().0 as u32 / height + lengths.len() as u32) * height;
                Numbers {
                    height,
                    batch: 0,
                    head,
                    count: heads * head,
                }
            }
        }
    }
}

/// A sequence: where its rows are, and how many.
#[derive(Clone, Copy)]
pub(super) struct Sequence<'k> {
    pub(super) q_start: Val<'k, u32>,
    pub(super) queries: Val<'k, u32>,
    pub(super) k_start: Val<'k, u32>,
    pub(super) keys: Val<'k, u32>,
    /// The number of its first row in the first head.
    pub(super) number: Val<'k, u32>,
}

/// Where sequences are found.
#[derive(Clone, Copy)]
pub(super) struct Sequences<'k> {
    pub(super) ragged: bool,
    pub(super) height: u32,
    pub(super) q_starts: Ptr<'k, Global, u32>,
    pub(super) k_starts: Ptr<'k, Global, u32>,
    pub(super) q_len: Val<'k, u32>,
    pub(super) k_len: Val<'k, u32>,
    pub(super) number_batch: Val<'k, u32>,
}

impl<'k> Sequences<'k> {
    pub(super) fn get(&self, sequence: Val<'k, u32>) -> Sequence<'k> {
        let k = sequence.kernel();
        if !self.ragged {
            return Sequence {
                q_start: k.c(0),
                queries: self.q_len,
                k_start: k.c(0),
                keys: self.k_len,
                number: sequence * self.number_batch,
            };
        }
        let (q, kv) = (self.q_starts.at(sequence), self.k_starts.at(sequence));
        let (q_start, k_start) = (q.load_readonly(), kv.load_readonly());
        Sequence {
            q_start,
            queries: q.at(1).load_readonly() - q_start,
            k_start,
            keys: kv.at(1).load_readonly() - k_start,
            // Rounding down and one more each are at least as much as rounding up.
            number: (q_start / self.height + sequence) * self.height,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_blocks_share_a_number() {
        let lengths = [5, 0, 64, 65, 1, 0, 0, 63, 128, 1];
        let each: Vec<_> = lengths.iter().map(|&length| (length, 1)).collect();
        let numbers = Numbers::of(&Problem::ragged(each, 3, 64), 64);
        let (mut start, mut end) = (0, 0);
        for (sequence, length) in lengths.into_iter().enumerate() {
            let number = (start / 64 + sequence as u32) * 64;
            assert!(number >= end, "{sequence}");
            end = number + length.div_ceil(64) * 64;
            start += length;
        }
        assert!(end <= numbers.head && numbers.count == 3 * numbers.head);
    }
}
