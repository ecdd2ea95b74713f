//! What is right: attention in f64 on the host.

use super::problem::{Layout, Lengths, Problem};
use crate::reference::{each_part, numbers};
use heist_launch::Buffer;

/// Results laid out as the queries, and the log-sum-exps: of each sequence, head
/// and row, or of each head and packed row.
#[derive(Clone, Debug, PartialEq)]
pub struct Attended {
    /// The results.
    pub out: Vec<f64>,
    /// The log-sum-exps.
    pub lse: Vec<f64>,
}

/// Where rows of a buffer are.
struct Rows {
    batch: usize,
    row: usize,
    head: usize,
}

impl Rows {
    fn of(problem: &Problem, heads: u32, length: u32) -> Rows {
        let (dim, heads, length) = (problem.head_dim as usize, heads as usize, length as usize);
        match (&problem.lengths, problem.layout) {
            (Lengths::Each(_), _) => Rows {
                batch: 0,
                row: heads * dim,
                head: dim,
            },
            (_, Layout::Rows) => Rows {
                batch: length * heads * dim,
                row: heads * dim,
                head: dim,
            },
            (_, Layout::Heads) => Rows {
                batch: length * heads * dim,
                row: dim,
                head: length * dim,
            },
        }
    }
}

/// One row of one head of one sequence.
struct Line {
    sequence: usize,
    head: usize,
    row: u32,
    q: usize,
    lse: usize,
}

/// Attends in f64 to what is in the buffers.
pub fn attend(problem: &Problem, q: &Buffer, k: &Buffer, v: &Buffer) -> Attended {
    let (q, k, v) = (numbers(q), numbers(k), numbers(v));
    let dim = problem.head_dim as usize;
    let (longest_q, longest_k) = problem.longest();
    let q_rows = Rows::of(problem, problem.heads, longest_q);
    let k_rows = Rows::of(problem, problem.kv_heads, longest_k);
    let sequences = problem.sequences();
    let ragged = problem.is_ragged();
    let total = problem.rows().0;
    let (mut lines, mut key_starts) = (Vec::new(), Vec::new());
    let (mut q_start, mut k_start) = (0usize, 0usize);
    for (sequence, &(queries, keys)) in sequences.iter().enumerate() {
        let (first_q, first_k) = if ragged { (q_start, k_start) } else { (0, 0) };
        key_starts.push(sequence * k_rows.batch + first_k * k_rows.row);
        for head in 0..problem.heads as usize {
            for row in 0..queries {
                let at = first_q + row as usize;
                let lse = if ragged {
                    head * total + at
                } else {
                    (sequence * problem.heads as usize + head) * longest_q as usize + at
                };
                let q = sequence * q_rows.batch + at * q_rows.row + head * q_rows.head;
                lines.push(Line {
                    sequence,
                    head,
                    row,
                    q,
                    lse,
                });
            }
        }
        q_start += queries as usize;
        k_start += keys as usize;
    }
    let group = (problem.heads / problem.kv_heads.max(1)).max(1) as usize;
    let scale = f64::from(problem.scale());
    // A row's results, and its log-sum-exp behind them.
    let mut rows = vec![0.0; lines.len() * (dim + 1)];
    each_part(&mut rows, dim + 1, |first, part| {
        for (index, result) in part.chunks_exact_mut(dim + 1).enumerate() {
            let line = &lines[first + index];
            let (queries, keys) = sequences[line.sequence];
            let base = key_starts[line.sequence] + line.head / group * k_rows.head;
            let query = &q[line.q..line.q + dim];
            let seen = problem.mask.seen(line.row, queries, keys);
            let at = |key: u32| base + key as usize * k_rows.row;
            let scores: Vec<f64> = seen
                .clone()
                .map(|key| {
                    let key = &k[at(key)..at(key) + dim];
                    query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * scale
                })
                .collect();
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if highest == f64::NEG_INFINITY {
                result[dim] = f64::NEG_INFINITY;
                continue;
            }
            let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (key, weight) in seen.zip(weights) {
                let value = &v[at(key)..at(key) + dim];
                for (result, value) in result.iter_mut().zip(value) {
                    *result += weight / sum * value;
                }
            }
            result[dim] = highest + sum.ln();
        }
    });
    let mut attended = Attended {
        out: vec![0.0; q.len()],
        lse: vec![0.0; lines.len()],
    };
    for (line, row) in lines.iter().zip(rows.chunks_exact(dim + 1)) {
        attended.out[line.q..line.q + dim].copy_from_slice(&row[..dim]);
        attended.lse[line.lse] = row[dim];
    }
    attended
}

#[cfg(test)]
mod tests {
    use super::super::problem::Mask;
    use super::*;

    #[test]
    fn equal_scores_average_what_is_seen() {
        let mut problem = Problem::new(1, 1, 4, 16);
        problem.mask = Mask::Causal;
        let zeros = Buffer::from_slice(&[half::f16::ZERO; 64]);
        let values: Vec<half::f16> = (0..64)
            .map(|i| half::f16::from_f32((i / 16) as f32))
            .collect();
        let attended = attend(&problem, &zeros, &zeros, &Buffer::from_slice(&values));
        for row in 0..4 {
            assert!((attended.out[row * 16] - row as f64 / 2.0).abs() < 1e-12);
            assert!((attended.lse[row] - (row as f64 + 1.0).ln()).abs() < 1e-12);
        }
    }

    #[test]
    fn a_row_that_sees_nothing_is_zero() {
        let mut problem = Problem::new(1, 1, 2, 16);
        problem.mask = Mask::Causal;
        problem.lengths = Lengths::Same {
            batch: 1,
            queries: 2,
            keys: 1,
        };
        let ones = |count| Buffer::from_slice(&vec![half::f16::ONE; count]);
        let attended = attend(&problem, &ones(32), &ones(16), &ones(16));
        assert_eq!(attended.lse[0], f64::NEG_INFINITY);
        assert_eq!((attended.out[0], attended.out[16]), (0.0, 1.0));
    }
}
