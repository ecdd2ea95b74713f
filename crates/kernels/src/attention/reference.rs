//! The reference: attention in f64 on the host, of all rows or of some.

use super::problem::Problem;
use super::score::{HostScore, Tables};
use super::views::{self, Input};
use crate::Job;
use crate::reference::{add, decode, dot, parallel};
use heist_launch::Buffer;
use std::ops::Range;

/// Which query rows are worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// All.
    All,
    /// Of each head of each sequence the first row and the last, the rows on
    /// both sides of some edges of tiles, and `random` others.
    Some {
        /// How many others.
        random: u32,
        /// Which others.
        seed: u64,
    },
}

impl Sample {
    /// All, where that takes a moment; else some.
    pub fn suited(problem: &Problem) -> Sample {
        // Multiplications and additions in f64: a core does a thousand million a second.
        match problem.work().flops {
            ..=2e10 => Sample::All,
            _ => Sample::Some { random: 4, seed: 1 },
        }
    }

    /// The rows of the head with number `line`, ascending.
    pub(super) fn rows(self, queries: u32, line: u64) -> Vec<u32> {
        let Sample::Some { random, seed } = self else {
            return (0..queries).collect();
        };
        if queries == 0 {
            return Vec::new();
        }
        let mut random_numbers = fastrand::Rng::with_seed(seed ^ line.wrapping_mul(0x9E37_79B9));
        let mut rows = vec![0, queries - 1];
        // Every tile has a multiple of 16 rows, most of 64.
        for tile in [16, 64, 128] {
            let edge = tile * random_numbers.u32(0..=queries / tile);
            rows.extend([edge.saturating_sub(1), edge]);
        }
        rows.extend((0..random).map(|_| random_numbers.u32(0..queries)));
        rows.retain(|row| *row < queries);
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

/// The results of some rows, one after the other, and their log-sum-exps.
#[derive(Clone, Debug, PartialEq)]
pub struct Attended {
    /// Where the rows are.
    pub rows: Vec<Row>,
    /// The results: a head's elements for each row.
    pub out: Vec<f64>,
    /// The log-sum-exps.
    pub lse: Vec<f64>,
}

/// Where a row of a head of a sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its first element in the queries.
    pub element: usize,
    /// Its first element in the results.
    pub result: usize,
    /// Its log-sum-exp.
    pub lse: usize,
}

/// Some rows of one head of one sequence: they share keys.
struct Group {
    queries: u32,
    keys: u32,
    /// Which sequence, and which head.
    sequence: usize,
    head: usize,
    /// The number of the sequence's first key among the keys of all.
    key_number: usize,
    /// The first key's first element, and the first value's; in pages, those of every page.
    first: [usize; 2],
    /// The rows, and where they are.
    rows: Vec<(u32, Row)>,
}

/// The parts of a key.
const KEYS_AND_VALUES: [Input; 2] = [Input::Keys, Input::Values];
/// Rows that are worked out together: what a block of keys is decoded for.
const TOGETHER: usize = 64;
/// Keys of a block.
const BLOCK: usize = 256;

fn groups(problem: &Problem, sample: Sample) -> Vec<Group> {
    let (longest_q, _) = problem.longest();
    let q = problem.view(Input::Queries);
    let out = views::View::dense(problem, problem.value_dim(), problem.heads, longest_q);
    let kv = KEYS_AND_VALUES.map(|input| problem.view(input));
    let share = (problem.heads / problem.kv_heads.max(1)).max(1) as usize;
    let (heads, ragged, total) = (
        problem.heads as usize,
        problem.is_ragged(),
        problem.rows().0,
    );
    let mut groups = Vec::new();
    let (mut q_start, mut k_start) = (0usize, 0usize);
    for (sequence, &(queries, keys)) in problem.sequences().iter().enumerate() {
        let first_q = if ragged { q_start } else { 0 };
        let whole = ragged && problem.page_size.is_none();
        let first_k = if whole { k_start } else { 0 };
        for head in 0..heads {
            let place = |row: u32| {
                let at = first_q + row as usize;
                let lse = if ragged {
                    head * total + at
                } else {
                    (sequence * heads + head) * longest_q as usize + at
                };
                let [element, result] = [q, out].map(|to| to.at(sequence, at, head));
                let row_at = Row {
                    element,
                    result,
                    lse,
                };
                (row, row_at)
            };
            let rows = sample.rows(queries, (sequence * heads + head) as u64);
            groups.extend(rows.chunks(TOGETHER).map(|rows| Group {
                queries,
                keys,
                sequence,
                head,
                key_number: k_start,
                first: kv.map(|to| to.at(sequence, first_k, head / share)),
                rows: rows.iter().map(|&row| place(row)).collect(),
            }));
        }
        q_start += queries as usize;
        k_start += keys as usize;
    }
    groups
}

/// Attends in f64 to what is in the buffers, on every core. What a model adds finds its
/// `tables`.
pub fn attend(
    problem: &Problem,
    sample: Sample,
    [q, k, v]: [&Buffer; 3],
    tables: &Tables,
) -> Attended {
    let groups = groups(problem, sample);
    let parts = parallel::map(&groups, |group| {
        attend_group(problem, group, [q, k, v], tables)
    });
    let mut attended = Attended {
        rows: groups
            .iter()
            .flat_map(|group| group.rows.iter().map(|&(_, row)| row))
            .collect(),
        out: Vec::new(),
        lse: Vec::new(),
    };
    for Part { out, lse } in parts {
        attended.out.extend(out);
        attended.lse.extend(lse);
    }
    attended
}

/// The results of a group's rows.
struct Part {
    out: Vec<f64>,
    lse: Vec<f64>,
}

/// The keys and values of a group's sequence, as its rows see them.
struct View<'a> {
    problem: &'a Problem,
    group: &'a Group,
    tables: &'a Tables,
    /// The keys that the mask shows to each row.
    seen: Vec<Range<usize>>,
    /// How many of the first keys every row sees besides.
    prefix: usize,
    /// The pages of all sequences, so many of each.
    pages: (Vec<u32>, usize),
}

impl<'a> View<'a> {
    fn new(problem: &'a Problem, group: &'a Group, tables: &'a Tables) -> View<'a> {
        let seen = group.rows.iter().map(|&(row, _)| {
            let seen = problem.mask.seen(row, group.queries, group.keys);
            seen.start as usize..seen.end as usize
        });
        View {
            problem,
            group,
            tables,
            seen: seen.collect(),
            prefix: match problem.scoring.prefix {
                None => 0,
                Some(_) => tables.prefixes[group.sequence] as usize,
            },
            pages: (problem.page_table(), problem.pages().0),
        }
    }

    /// Which row of the cache a key is in.
    fn place(&self, key: usize) -> usize {
        let Some(size) = self.problem.page_size else {
            return key;
        };
        let size = size as usize;
        let (table, each) = &self.pages;
        let page = table[self.group.sequence * each + key / size] as usize;
        page * size + key % size
    }

    /// Whether a row sees some of these keys, as far as the mask and the prefix say.
    fn reaches(&self, number: usize, keys: &Range<usize>) -> bool {
        let seen = &self.seen[number];
        keys.start < self.prefix || (seen.end > keys.start && seen.start < keys.end)
    }

    /// Whether a row sees a key.
    fn sees(&self, number: usize, key: usize) -> bool {
        (key < self.prefix || self.seen[number].contains(&key)) && self.in_blocks(number, key)
    }

    /// Whether a mask of blocks shows a key to a row.
    fn in_blocks(&self, number: usize, key: usize) -> bool {
        let View {
            problem,
            group,
            tables,
            ..
        } = self;
        let at = [group.rows[number].0 as usize, key];
        problem.scoring.blocks.is_none_or(|blocks| {
            let byte = blocks.at(problem.extents(), [group.sequence, group.head], at);
            tables.blocks[byte] != 0.0
        })
    }

    /// Calls `each` with the number of every row, a key that it sees, and the elements of `part` that this key
    /// has in a buffer: 0 is the keys, 1 the values.
    fn each_seen(&self, part: usize, from: &Buffer, mut each: impl FnMut(usize, usize, &[f64])) {
        let View { problem, group, .. } = self;
        let dim = [problem.head_dim, problem.value_dim()][part] as usize;
        let pitch = problem.view(KEYS_AND_VALUES[part]).row as usize;
        let keys = group.keys as usize;
        let mut elements = vec![0.0; BLOCK * dim];
        for first in (0..keys).step_by(BLOCK) {
            let block = first..(first + BLOCK).min(keys);
            if !(0..self.seen.len()).any(|number| self.reaches(number, &block)) {
                continue;
            }
            for (key, to) in block.clone().zip(elements.chunks_exact_mut(dim)) {
                decode(from, group.first[part] + self.place(key) * pitch, to);
            }
            for number in 0..self.seen.len() {
                for key in block.clone().filter(|key| self.sees(number, *key)) {
                    each(number, key, &elements[(key - first) * dim..][..dim]);
                }
            }
        }
    }
}

fn attend_group(
    problem: &Problem,
    group: &Group,
    [q, k, v]: [&Buffer; 3],
    tables: &Tables,
) -> Part {
    let [dim, value_dim] = [problem.head_dim, problem.value_dim()].map(|dim| dim as usize);
    // The factor of a key head's keys, or of its values.
    let kv_head = group.head * problem.kv_heads as usize / problem.heads as usize;
    let factor = |scales: &[f64]| scales.get(kv_head).copied().unwrap_or(1.0);
    let scale = f64::from(problem.scale()) * factor(&tables.key_scales);
    let (queries, keys) = (group.queries, group.keys as usize);
    let rows = group.rows.iter().map(|&(_, at)| {
        let mut query = vec![0.0; dim];
        decode(q, at.element, &mut query);
        query
    });
    let rows: Vec<_> = rows.collect();
    let view = View::new(problem, group, tables);
    let mut weights: Vec<Vec<f64>> = rows.iter().map(|_| vec![f64::NEG_INFINITY; keys]).collect();
    view.each_seen(0, k, |number, key, elements| {
        let product = dot(&rows[number], elements) * scale;
        weights[number][key] = problem.scoring.mods.iter().fold(product, |score, one| {
            one.in_f64(&HostScore {
                score,
                sequence: group.sequence,
                head: group.head,
                position: i64::from(group.rows[number].0) + keys as i64 - i64::from(queries),
                key: key as i64,
                queries: i64::from(queries),
                keys: keys as i64,
                first_key: group.key_number,
                tables,
            })
        });
    });
    let sink = match problem.scoring.sinks {
        true => tables.sinks[group.head],
        false => f64::NEG_INFINITY,
    };
    let lse = weights.iter_mut().map(|row| softmax(row, sink)).collect();
    let mut out = vec![0.0; rows.len() * value_dim];
    view.each_seen(1, v, |number, key, elements| {
        let weight = weights[number][key] * factor(&tables.value_scales);
        add(
            &mut out[number * value_dim..][..value_dim],
            weight,
            elements,
        );
    });
    Part { out, lse }
}

/// Turns the scores of a row into weights beside a sink, and gives the logarithm of their sum. A row
/// that sees nothing has no weights.
fn softmax(scores: &mut [f64], sink: f64) -> f64 {
    let highest = scores.iter().copied().fold(sink, f64::max);
    if highest == f64::NEG_INFINITY {
        scores.fill(0.0);
        return highest;
    }
    for score in &mut *scores {
        *score = (*score - highest).exp();
    }
    let sum = scores.iter().sum::<f64>() + (sink - highest).exp();
    for weight in scores {
        *weight /= sum;
    }
    highest + sum.ln()
}

/// What is in the tables of a job.
pub(super) fn tables(job: &Job) -> Tables {
    let one = |name: &str| {
        let Some(buffer) = job.data(name) else {
            return Vec::new();
        };
        let mut values = vec![0.0; buffer.len()];
        decode(buffer, 0, &mut values);
        values
    };
    Tables {
        slopes: one("slopes"),
        sinks: one("sinks"),
        prefixes: one("prefixes"),
        documents: one("documents"),
        blocks: one("block_mask"),
        pairs: one("pairs"),
        custom: one("custom"),
        key_scales: one("k_scale"),
        value_scales: one("v_scale"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Mask;
    use super::*;
    use crate::attention::Lengths;
    use heist_launch::ElementType;

    #[test]
    fn equal_scores_average_what_is_seen() {
        let mut problem = Problem::new(1, 1, 4, 16);
        problem.mask = Mask::Causal;
        let zeros = Buffer::from_slice(&[half::f16::ZERO; 64]);
        let values: Vec<half::f16> = (0..64)
            .map(|i| half::f16::from_f32((i / 16) as f32))
            .collect();
        let attended = attend(
            &problem,
            Sample::All,
            [&zeros, &zeros, &Buffer::from_slice(&values)],
            &Tables::default(),
        );
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
        let data = [&ones(32), &ones(16), &ones(16)];
        let attended = attend(&problem, Sample::All, data, &Tables::default());
        assert_eq!(attended.lse[0], f64::NEG_INFINITY);
        assert_eq!((attended.out[0], attended.out[16]), (0.0, 1.0));
    }

    #[test]
    fn a_sample_has_the_rows_of_the_whole() {
        let mut problem = Problem::ragged(vec![(70, 90), (0, 5), (1, 3), (129, 300)], 4, 16);
        problem.kv_heads = 2;
        problem.mask = Mask::Window { left: 40, right: 2 };
        let random = |seed, rows: usize, heads: usize| {
            crate::random::uniform(ElementType::F16, seed, rows * heads * 16)
        };
        let (q, k, v) = (random(1, 200, 4), random(2, 398, 2), random(3, 398, 2));
        let (data, none) = ([&q, &k, &v], Tables::default());
        let all = attend(&problem, Sample::All, data, &none);
        assert_eq!(all.lse.len(), 200 * 4);
        let sample = Sample::Some { random: 3, seed: 5 };
        let some = attend(&problem, sample, data, &none);
        // Every head of every sequence that has rows, its first and its last.
        for head in 0..4 {
            for row in [0, 69, 70, 71, 199] {
                assert!(some.rows.iter().any(|at| at.lse == head * 200 + row));
            }
        }
        assert!(some.rows.len() < all.rows.len() / 4);
        for (index, row) in some.rows.iter().enumerate() {
            let whole = all.rows.iter().position(|other| other == row).expect("it");
            assert_eq!(some.lse[index], all.lse[whole]);
            assert_eq!(some.out[index * 16..][..16], all.out[whole * 16..][..16]);
        }
    }
}
