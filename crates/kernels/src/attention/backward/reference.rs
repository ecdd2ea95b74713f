//! The reference: gradients in f64 on the host, of all rows or of some.
//!
//! They are worked out from the results and the log-sum-exps that the kernels are
//! given, so a sample of rows and keys needs no whole attention.

use super::problem::Backward;
use crate::attention::reference::{Sample, tables};
use crate::attention::score::{HostScore, Tables};
use crate::attention::views::{Input, View};
use crate::reference::{add, decode, dot, parallel};
use crate::{Job, KernelError};
use heist_launch::Buffer;
use std::ops::Range;

/// Gradients of some rows, one after the other, and where the rows begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The first element of each.
    pub at: Vec<usize>,
    /// A head's elements for each row.
    pub values: Vec<f64>,
}

/// The gradients of some queries, and of some keys and their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gradients {
    /// Of queries.
    pub dq: Rows,
    /// Of keys.
    pub dk: Rows,
    /// Of values.
    pub dv: Rows,
}

impl Gradients {
    /// Each with the name of its buffer.
    pub fn named(&self) -> [(&'static str, &Rows); 3] {
        [("dq", &self.dq), ("dk", &self.dk), ("dv", &self.dv)]
    }

    fn append(&mut self, other: Gradients) {
        for (rows, other) in [
            (&mut self.dq, other.dq),
            (&mut self.dk, other.dk),
            (&mut self.dv, other.dv),
        ] {
            rows.at.extend(other.at);
            rows.values.extend(other.values);
        }
    }
}

/// Some rows of a head, in f64.
struct Head {
    /// The first element of each.
    at: Vec<usize>,
    values: Vec<f64>,
    dim: usize,
}

impl Head {
    fn load(buffer: &Buffer, at: Vec<usize>, dim: usize) -> Head {
        let mut values = vec![0.0; at.len() * dim];
        for (to, &at) in values.chunks_exact_mut(dim).zip(&at) {
            decode(buffer, at, to);
        }
        Head { at, values, dim }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.dim..][..self.dim]
    }
}

/// The buffers of a job.
struct Inputs<'j> {
    problem: &'j Backward,
    sample: Sample,
    q: &'j Buffer,
    k: &'j Buffer,
    v: &'j Buffer,
    out: &'j Buffer,
    d_out: &'j Buffer,
    lse: &'j Buffer,
    tables: Tables,
}

/// One key head of one sequence.
struct Line {
    number: u64,
    sequence: usize,
    kv_head: usize,
    queries: Range<usize>,
    keys: Range<usize>,
}

/// The queries of one head, and what is known of each row.
struct Queries {
    q: Head,
    d_out: Head,
    lse: Vec<f64>,
    delta: Vec<f64>,
}

/// Works out gradients of what is in a job's buffers, on every core.
///
/// # Errors
/// When the job is not one of gradients of attention.
pub fn gradients(job: &Job, problem: &Backward, sample: Sample) -> Result<Gradients, KernelError> {
    let data = |name: &str| {
        job.data(name)
            .ok_or_else(|| KernelError::unfit(format!("{} has no buffer `{name}`", job.name)))
    };
    let inputs = Inputs {
        problem,
        sample,
        q: data("q")?,
        k: data("k")?,
        v: data("v")?,
        out: data("out")?,
        d_out: data("d_out")?,
        lse: data("lse")?,
        tables: tables(job),
    };
    let lines = lines(problem);
    let mut all = Gradients::default();
    parallel::map(&lines, |line| inputs.of_line(line))
        .into_iter()
        .for_each(|part| all.append(part));
    Ok(all)
}

fn lines(problem: &Backward) -> Vec<Line> {
    let attention = &problem.attention;
    let (mut q_start, mut k_start) = (0, 0);
    let mut lines = Vec::new();
    for (sequence, &(queries, keys)) in attention.sequences().iter().enumerate() {
        let (queries, keys) = (queries as usize, keys as usize);
        for kv_head in 0..attention.kv_heads as usize {
            lines.push(Line {
                number: lines.len() as u64,
                sequence,
                kv_head,
                queries: q_start..q_start + queries,
                keys: k_start..k_start + keys,
            });
        }
        if attention.is_ragged() {
            q_start += queries;
            k_start += keys;
        }
    }
    lines
}

impl Inputs<'_> {
    fn queries(&self, line: &Line, head: usize) -> Queries {
        let attention = &self.problem.attention;
        let dim = attention.head_dim as usize;
        let (longest, _) = attention.longest();
        let rows = |view: View| {
            line.queries
                .clone()
                .map(move |row| view.at(line.sequence, row, head))
        };
        let at: Vec<usize> = rows(View::dense(
            attention,
            attention.head_dim,
            attention.heads,
            longest,
        ))
        .collect();
        let first = if attention.is_ragged() {
            head * attention.rows().0 + line.queries.start
        } else {
            (line.sequence * attention.heads as usize + head) * longest as usize
        };
        let mut lse = vec![0.0; at.len()];
        decode(self.lse, first, &mut lse);
        let out = Head::load(self.out, at.clone(), dim);
        let d_out = Head::load(self.d_out, at.clone(), dim);
        let delta = (0..at.len()).map(|row| dot(out.row(row), d_out.row(row)));
        Queries {
            delta: delta.collect(),
            q: Head::load(self.q, rows(attention.view(Input::Queries)).collect(), dim),
            d_out,
            lse,
        }
    }

    fn of_line(&self, line: &Line) -> Gradients {
        let attention = &self.problem.attention;
        let (dim, scale) = (attention.head_dim as usize, f64::from(attention.scale()));
        let group = (attention.heads / attention.kv_heads) as usize;
        let (queries, keys) = (line.queries.len() as u32, line.keys.len() as u32);
        let rows = |view: View| -> Vec<usize> {
            let keys = line.keys.clone();
            keys.map(|row| view.at(line.sequence, row, line.kv_head))
                .collect()
        };
        let k = Head::load(self.k, rows(attention.view(Input::Keys)), dim);
        let v = Head::load(self.v, rows(attention.view(Input::Values)), dim);
        let (_, longest) = attention.longest();
        let of_keys = rows(View::dense(
            attention,
            attention.head_dim,
            attention.kv_heads,
            longest,
        ));
        let heads: Vec<Queries> = (line.kv_head * group..(line.kv_head + 1) * group)
            .map(|head| self.queries(line, head))
            .collect();
        // The weight of a key for a query, and the gradient of its score.
        let pair = |head: usize, row: usize, key: usize| {
            let of = &heads[head];
            let product = dot(of.q.row(row), k.row(key)) * scale;
            let unchanged = (product, 1.0);
            let (score, slope) =
                attention
                    .scoring
                    .mods
                    .iter()
                    .fold(unchanged, |(score, slope), one| {
                        let at = HostScore {
                            score,
                            sequence: line.sequence,
                            head: line.kv_head * group + head,
                            position: row as i64 + i64::from(keys) - i64::from(queries),
                            key: key as i64,
                            queries: queries.into(),
                            keys: keys.into(),
                            first_key: line.keys.start,
                            tables: &self.tables,
                        };
                        (one.in_f64(&at), slope * one.slope_in_f64(&at))
                    });
            // A row that sees no key has a log-sum-exp of minus infinity.
            let weight = match score == f64::NEG_INFINITY {
                true => 0.0,
                false => (score - of.lse[row]).exp(),
            };
            let d_weight = dot(of.d_out.row(row), v.row(key));
            (weight, weight * (d_weight - of.delta[row]) * slope)
        };
        let mut found = Gradients::default();
        for (index, of) in heads.iter().enumerate() {
            let number = line.number * group as u64 + index as u64;
            for row in self.sample.rows(queries, number) {
                let mut sums = vec![0.0; dim];
                for key in attention.mask.seen(row, queries, keys) {
                    let (_, d_score) = pair(index, row as usize, key as usize);
                    add(&mut sums, d_score * scale, k.row(key as usize));
                }
                found.dq.at.push(of.d_out.at[row as usize]);
                found.dq.values.extend(sums);
            }
        }
        for key in self.sample.rows(keys, !line.number) {
            let (mut dk, mut dv) = (vec![0.0; dim], vec![0.0; dim]);
            for (index, of) in heads.iter().enumerate() {
                for row in 0..queries {
                    if attention.mask.seen(row, queries, keys).contains(&key) {
                        let row = row as usize;
                        let (weight, d_score) = pair(index, row, key as usize);
                        add(&mut dk, d_score * scale, of.q.row(row));
                        add(&mut dv, weight, of.d_out.row(row));
                    }
                }
            }
            found.dk.at.push(of_keys[key as usize]);
            found.dv.at.push(of_keys[key as usize]);
            found.dk.values.extend(dk);
            found.dv.values.extend(dv);
        }
        found
    }
}
