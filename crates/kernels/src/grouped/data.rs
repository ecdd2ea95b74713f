//! Random data for grouped multiplications, and their results in f64.

use super::check::WORDS;
use super::problem::{Grouped, Shapes};
use crate::gemm::Major;
use crate::job::Job;
use crate::random::uniform;
use crate::reference::{Matrix, matmul, numbers_in};
use heist_launch::{Buffer, ElementType, Role};

/// Where each group's A, B and D begin, and where the last ones end.
pub(crate) fn places(problem: &Grouped) -> (Vec<[u64; 3]>, [u64; 3]) {
    let mut end = [0u64; 3];
    let mut begin = Vec::new();
    for group in problem.groups() {
        begin.push(end);
        let [m, n, k] = [group.m, group.n, group.k].map(u64::from);
        for (end, size) in end.iter_mut().zip([m * k, n * k, m * n]) {
            // Groups of their own shapes each begin where 16 bytes do.
            *end += match problem.shapes {
                Shapes::Rows { .. } => size,
                Shapes::Own(_) => size.next_multiple_of(8),
            };
        }
    }
    (begin, end)
}

/// What the device reads shapes from.
pub(crate) fn described(problem: &Grouped) -> Vec<u32> {
    match &problem.shapes {
        Shapes::Rows { rows, .. } => {
            let ends = rows.iter().scan(0u32, |end, &m| {
                *end += m;
                Some(*end)
            });
            ends.collect()
        }
        Shapes::Own(groups) => groups.iter().flat_map(|g| [g.m, g.n, g.k]).collect(),
    }
}

/// Adds the buffers with random data to a job; the results are poisoned.
pub(crate) fn buffers(job: Job, problem: &Grouped, seed: u64) -> Job {
    let (begin, [a, b, d]) = places(problem);
    let (input, output) = (problem.input.element(), problem.output.element());
    let place: Vec<u64> = begin.into_iter().flatten().collect();
    job.buffer("a", Role::In, uniform(input, seed, a as usize))
        .buffer("b", Role::In, uniform(input, seed + 1, b as usize))
        .buffer("d", Role::Out, Buffer::poisoned(output, d as usize))
        .buffer("shapes", Role::In, Buffer::from_slice(&described(problem)))
        .buffer("places", Role::In, Buffer::from_slice(&place))
        .buffer(
            "record",
            Role::InOut,
            Buffer::zeros(ElementType::U32, WORDS),
        )
}

/// Found and expected elements of D, group after group, without the gaps
/// between them. What the kernel only reads is as it was made.
pub(crate) fn results(ran: &Job, problem: &Grouped) -> (Vec<f64>, Vec<f64>) {
    let ty = problem.output.element();
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    let (begin, _) = places(problem);
    for (group, [from_a, from_b, from_d]) in problem.groups().into_iter().zip(begin) {
        let (m, n, k) = (group.m as usize, group.n as usize, group.k as usize);
        let part = |name: &str, from: u64, len: usize| -> Vec<f64> {
            let from = from as usize;
            let data = ran.data(name);
            data.map_or(Vec::new(), |data| numbers_in(data, from..from + len))
        };
        let (left, right) = (part("a", from_a, m * k), part("b", from_b, n * k));
        let right = match problem.layout.b() {
            Major::Depth => Matrix::columns(&right, k),
            Major::Outer => Matrix::rows(&right, n),
        };
        let exact = matmul(Matrix::rows(&left, k), right, m, n, k);
        expected.extend(exact.into_iter().map(|value| ty.to_f64(ty.from_f64(value))));
        found.extend(part("d", from_d, m * n));
    }
    (found, expected)
}
