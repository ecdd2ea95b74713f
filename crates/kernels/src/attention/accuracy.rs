//! The check of a job that has run: its rows compared with softmax in f64, and every element of its
//! results with the range that a result can have.

use super::append;
use super::cache::Cache;
use super::problem::{Dtype, Output, Problem, Weights};
use super::reference::{Attended, Sample, attend, tables};
use crate::reference::{Difference, decode};
use crate::{Job, KernelError};
use heist_launch::Buffer;
use std::fmt;

/// How far the results of a job that has run are from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// Of the results of the rows that were compared.
    pub out: Difference,
    /// Of the row whose results are the furthest off, for their size.
    pub row: Difference,
    /// Of the log-sum-exps.
    pub lse: Difference,
    /// The first element of all results that can't be right.
    pub odd: Option<Odd>,
    /// Rows that were compared, counted in every head, and rows that there are.
    pub rows: [usize; 2],
}

/// An element of the results that can't be right, whatever the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Odd {
    /// The buffer.
    pub buffer: &'static str,
    /// Which element.
    pub at: usize,
    /// What it is.
    pub value: f64,
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Odd { buffer, at, value } = self;
        write!(f, "element {at} of `{buffer}` is {value}")?;
        f.write_str(match *buffer {
            "lse" => ", and a log-sum-exp is a finite number or minus infinity",
            "k" | "v" => ", and that is not what was to be appended there",
            _ if value.is_nan() => ", which a kernel computed or did not write",
            _ => ", and a mean of values is no larger than the largest of them",
        })
    }
}

/// The relative norm of the difference that is right, for results.
///
/// Weights and results are rounded to the element type, unless something else
/// is asked for. In bf16 that alone is a relative norm of 1.5e-3 each, 2.1e-3
/// together, and an eighth of it in f16. That is a mean: what rounding does to the
/// weights of a row, all its elements share, so the norm over few rows may be larger.
pub fn bound(problem: &Problem) -> f64 {
    let (one, both) = match problem.dtype {
        Dtype::F16 => (3e-4, 5e-4),
        Dtype::Bf16 => (2e-3, 2.5e-3),
    };
    match (problem.weights, problem.output) {
        (Weights::Rounded, Output::Same) => {
            let rows = problem.rows().0 * problem.heads as usize;
            both * (1.0 + 1.0 / (rows.max(1) as f64).sqrt())
        }
        (Weights::Split, Output::F32) => 5e-5,
        _ => one,
    }
}

/// The same for log-sum-exps, which are f32 throughout.
pub const LSE_BOUND: f64 = 1e-5;

impl Accuracy {
    /// Fails where the results are wrong, with what is.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge(&self, problem: &Problem) -> Result<(), String> {
        if let Some(odd) = self.odd {
            return Err(odd.to_string());
        }
        let bound = bound(problem);
        let bounds = [bound, 3.0 * bound, LSE_BOUND];
        let all = [
            ("results", self.out),
            ("the results of one row", self.row),
            ("log-sum-exps", self.lse),
        ];
        for ((what, difference), bound) in all.into_iter().zip(bounds) {
            if !difference.within(bound) {
                return Err(format!("{what}: {difference}, more than {bound}"));
            }
        }
        Ok(())
    }
}

/// Compares a job that has run with the reference: all rows, or some and
/// besides every element for what no result can be.
///
/// # Errors
/// When the job is not one of attention.
pub fn verify(job: &Job, problem: &Problem, sample: Sample) -> Result<Accuracy, KernelError> {
    let data = |name: &str| {
        job.data(name)
            .ok_or_else(|| KernelError::unfit(format!("{} has no buffer `{name}`", job.name)))
    };
    let values = match problem.cache {
        Cache::Latent => "k",
        _ => "v",
    };
    let (out, lse, v) = (data("out")?, data("lse")?, data(values)?);
    let inputs = [data("q")?, data("k")?, v];
    let tables = tables(job);
    let attended = attend(problem, sample, inputs, &tables);
    let dim = problem.value_dim() as usize;
    let (mut found_out, mut found_lse) =
        (vec![0.0; attended.out.len()], vec![0.0; attended.lse.len()]);
    for (index, row) in attended.rows.iter().enumerate() {
        decode(out, row.result, &mut found_out[index * dim..][..dim]);
        decode(lse, row.lse, &mut found_lse[index..][..1]);
    }
    let Attended {
        rows,
        out: expected_out,
        lse: expected_lse,
    } = attended;
    Ok(Accuracy {
        out: Difference::between(&found_out, &expected_out),
        row: worst_row(&found_out, &expected_out, dim),
        lse: Difference::between(&found_lse, &expected_lse),
        odd: odd(out, lse, v, &tables.value_scales).or_else(|| {
            let scales = [&tables.key_scales[..], &tables.value_scales[..]];
            let found = append::misplaced(job, problem, scales);
            found.map(|(buffer, at, value)| Odd { buffer, at, value })
        }),
        rows: [rows.len(), lse.len()],
    })
}

/// Rows with many keys have small results: beside those with few, an error in one
/// of them would not be seen in the norm of all.
fn worst_row(found: &[f64], expected: &[f64], dim: usize) -> Difference {
    let rows = found.chunks_exact(dim).zip(expected.chunks_exact(dim));
    let rows = rows.map(|(found, expected)| Difference::between(found, expected));
    let worst = rows.reduce(|a, b| if b.norm > a.norm { b } else { a });
    worst.unwrap_or_else(|| Difference::between(&[], &[]))
}

/// Looks at every element. Poison is a NaN.
fn odd(out: &Buffer, lse: &Buffer, v: &Buffer, scales: &[f64]) -> Option<Odd> {
    let mut largest = 0.0f64;
    let _ = first(v, |value| {
        largest = largest.max(value.abs());
        false
    });
    // Rounded up by half a unit at most.
    let factor = scales.iter().copied().reduce(f64::max).unwrap_or(1.0);
    let largest = largest * factor * (1.0 + 1.0 / 128.0);
    let of = |buffer| move |(at, value)| Odd { buffer, at, value };
    first(out, |value| value.is_nan() || value.abs() > largest)
        .map(of("out"))
        .or_else(|| first(lse, |value| value.is_nan() || value == f64::INFINITY).map(of("lse")))
}

/// The first element of which `test` holds.
pub(super) fn first(buffer: &Buffer, mut test: impl FnMut(f64) -> bool) -> Option<(usize, f64)> {
    const STEP: usize = 1024;
    let mut values = [0.0; STEP];
    for from in (0..buffer.len()).step_by(STEP) {
        let values = &mut values[..STEP.min(buffer.len() - from)];
        decode(buffer, from, values);
        if let Some(at) = values.iter().position(|value| test(*value)) {
            return Some((from + at, values[at]));
        }
    }
    None
}
