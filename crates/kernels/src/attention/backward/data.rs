//! Data to try the kernels with: random queries, keys, values and gradients, and
//! results and log-sum-exps that go with them.

use super::problem::Backward;
use crate::Job;
use crate::attention::problem::{Dtype, Lengths};
use crate::attention::reference::{Sample, attend, tables};
use crate::random::uniform;
use half::{bf16, f16};
use heist_launch::{Buffer, ElementType};

/// Fills a job's inputs.
///
/// Small problems get the results and log-sum-exps of an attention in f64. For large
/// ones, which would take a host minutes, they are made up as random data would give
/// them on average: the gradients are a function of what the kernels are given,
/// whether it is the true attention or not.
pub fn fill(job: &mut Job, problem: &Backward, seed: u64) {
    let attention = &problem.attention;
    let halves = attention.dtype.element();
    for (index, name) in ["q", "k", "v", "d_out"].into_iter().enumerate() {
        set(job, name, |count| {
            uniform(halves, seed * 4 + index as u64, count)
        });
    }
    let inputs = ["q", "k", "v"].map(|name| job.data(name).cloned());
    if let (Sample::All, [Some(q), Some(k), Some(v)]) = (Sample::suited(attention), &inputs) {
        let attended = attend(attention, Sample::All, [q, k, v], &tables(job));
        let dim = attention.head_dim as usize;
        let rows = || attended.rows.iter();
        set(job, "out", |count| {
            let mut out = vec![0.0; count];
            for (row, values) in rows().zip(attended.out.chunks_exact(dim)) {
                out[row.result..][..dim].copy_from_slice(values);
            }
            round(attention.dtype, &out)
        });
        set(job, "lse", |count| {
            let mut lse = vec![0.0f32; count];
            for (row, value) in rows().zip(&attended.lse) {
                lse[row.lse] = *value as f32;
            }
            Buffer::from_slice(&lse)
        });
        return;
    }
    set(job, "out", |count| {
        let mut values = vec![0.0; count];
        let random = uniform(ElementType::F32, seed * 4 + 5, count);
        crate::reference::decode(&random, 0, &mut values);
        values.iter_mut().for_each(|value| *value /= 64.0);
        round(attention.dtype, &values)
    });
    set(job, "lse", |count| made_up_sums(problem, count));
}

/// Uniform numbers have a variance of a third, and the mean of a normal number's
/// exponential is that of half its variance.
fn made_up_sums(problem: &Backward, count: usize) -> Buffer {
    let attention = &problem.attention;
    let scale = attention.scale();
    let half_variance = attention.head_dim as f32 / 9.0 * scale * scale / 2.0;
    let mut lse = Vec::with_capacity(count);
    let heads = match attention.lengths {
        Lengths::Same { batch, .. } => batch * attention.heads,
        Lengths::Each(_) => attention.heads,
    };
    let sequences = match &attention.lengths {
        Lengths::Same { queries, keys, .. } => vec![(*queries, *keys)],
        Lengths::Each(lengths) => lengths.clone(),
    };
    for _ in 0..heads {
        for &(queries, keys) in &sequences {
            lse.extend((0..queries).map(|row| {
                let seen = attention.mask.seen(row, queries, keys).len();
                (seen as f32).ln() + half_variance
            }));
        }
    }
    Buffer::from_slice(&lse)
}

fn set(job: &mut Job, name: &str, make: impl FnOnce(usize) -> Buffer) {
    if let Some(buffer) = job.buffers.iter_mut().find(|buffer| buffer.name == name) {
        buffer.data = make(buffer.data.len());
    }
}

fn round(dtype: Dtype, values: &[f64]) -> Buffer {
    match dtype {
        Dtype::F16 => {
            let values: Vec<f16> = values.iter().map(|&value| f16::from_f64(value)).collect();
            Buffer::from_slice(&values)
        }
        Dtype::Bf16 => {
            let values: Vec<bf16> = values.iter().map(|&value| bf16::from_f64(value)).collect();
            Buffer::from_slice(&values)
        }
    }
}
