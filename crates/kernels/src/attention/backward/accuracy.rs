//! The check of a job that has run: its gradients compared with those in f64, and every element
//! checked not to be NaN.

use super::problem::Backward;
use super::reference::gradients;
use crate::attention::accuracy::first;
use crate::attention::problem::Dtype;
use crate::attention::reference::Sample;
use crate::reference::{Difference, decode};
use crate::{Job, KernelError};
use std::fmt;

/// How far the gradients of a job that has run are from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// Of queries, keys and values, by the names of their buffers.
    pub gradients: [(&'static str, Difference); 3],
    /// The first element that can't be right.
    pub odd: Option<Unwritten>,
}

/// An element that is no number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unwritten {
    /// The buffer.
    pub buffer: &'static str,
    /// Which element.
    pub at: usize,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unwritten { buffer, at } = self;
        write!(
            f,
            "element {at} of `{buffer}` is not a number: a kernel computed it so or did not write it"
        )
    }
}

impl Accuracy {
    /// The gradient that is the furthest off.
    pub fn worst(&self) -> (&'static str, Difference) {
        let [first, rest @ ..] = self.gradients;
        rest.into_iter()
            .fold(first, |a, b| if b.1.norm > a.1.norm { b } else { a })
    }

    /// Fails where the gradients are wrong, with what is.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge(&self, problem: &Backward) -> Result<(), String> {
        if let Some(odd) = self.odd {
            return Err(odd.to_string());
        }
        let (bound, (name, worst)) = (bound(problem), self.worst());
        if worst.within(bound) {
            return Ok(());
        }
        Err(format!("{name}: {worst}, more than {bound}"))
    }
}

/// The relative norm of the difference that is right.
///
/// Weights, gradients of scores, and results are rounded to the element type; a
/// gradient of scores is a difference, so rounding of what it is made of counts more.
pub fn bound(problem: &Backward) -> f64 {
    match problem.attention.dtype {
        Dtype::F16 => 1e-3,
        Dtype::Bf16 => 8e-3,
    }
}

/// Compares a job that has run with the reference.
///
/// # Errors
/// When the job is not one of gradients of attention.
pub fn verify(job: &Job, problem: &Backward, sample: Sample) -> Result<Accuracy, KernelError> {
    let expected = gradients(job, problem, sample)?;
    let dim = problem.attention.head_dim as usize;
    let mut odd = None;
    let mut compared = Vec::new();
    for (name, rows) in expected.named() {
        let data = job
            .data(name)
            .ok_or_else(|| KernelError::unfit(format!("{} has no buffer `{name}`", job.name)))?;
        let mut found = vec![0.0; rows.values.len()];
        for (to, &at) in found.chunks_exact_mut(dim).zip(&rows.at) {
            decode(data, at, to);
        }
        compared.push((name, Difference::between(&found, &rows.values)));
        let nan = first(data, f64::is_nan);
        odd = odd.or(nan.map(|(at, _)| Unwritten { buffer: name, at }));
    }
    let gradients = compared
        .try_into()
        .map_err(|_| KernelError::unfit("a reference has three gradients"))?;
    Ok(Accuracy { gradients, odd })
}
