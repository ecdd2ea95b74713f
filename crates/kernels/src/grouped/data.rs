//! Random data for grouped multiplications, and their results in f64.

use super::check::WORDS;
use super::problem::{Grouped, Shapes};
use crate::error::KernelError;
use crate::gemm::{Major, SCALE_BLOCK, Scales, random_scales};
use crate::job::Job;
use crate::random::uniform;
use crate::reference::{Matrix, matmul, numbers, numbers_in};
use heist_launch::{Buffer, ElementType, Role};

/// Where each group's A, B and D begin, and where the last ones end.
pub(crate) fn places(problem: &Grouped) -> (Vec<[u64; 3]>, [u64; 3]) {
    let mut end = [0u64; 3];
    let mut begin = Vec::new();
    for group in problem.groups() {
        begin.push(end);
        let rows = match problem.shapes {
            Shapes::Masked { room, .. } => room,
            Shapes::Rows { .. } | Shapes::Own(_) => group.m,
        };
        let [m, n, k] = [rows, group.n, group.k].map(u64::from);
        for (end, size) in end.iter_mut().zip([m * k, n * k, m * n]) {
            // Groups of their own shapes each begin where 16 bytes do.
            *end += match problem.shapes {
                Shapes::Rows { .. } | Shapes::Masked { .. } => size,
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
        Shapes::Masked { counts, .. } => counts.clone(),
        Shapes::Own(groups) => groups.iter().flat_map(|g| [g.m, g.n, g.k]).collect(),
    }
}

/// What rows of D that no group uses have before and after: a number, since peers' results are
/// compared with ours.
const UNUSED: f64 = -77.0;

/// Adds the buffers with random data to a job; the results are poisoned, and so are A and its scales
/// where groups do not use their rows.
pub(crate) fn buffers(job: Job, problem: &Grouped, seed: u64) -> Job {
    let (begin, [a, b, d]) = places(problem);
    let (input, output) = (problem.input.element(), problem.output.element());
    let place: Vec<u64> = begin.into_iter().flatten().collect();
    let rows = unused(problem);
    let mut left = uniform(input, seed, a as usize);
    let (d, role) = match problem.shapes {
        Shapes::Masked { k, n, .. } => {
            for row in &rows {
                let whole = row * k as usize..(row + 1) * k as usize;
                fill(&mut left, whole, NAN);
            }
            let mut d = Buffer::poisoned(output, d as usize);
            for row in &rows {
                let whole = row * n as usize..(row + 1) * n as usize;
                fill(&mut d, whole, output.from_f64(UNUSED));
            }
            // What is not used keeps its contents.
            (d, Role::InOut)
        }
        _ => (Buffer::poisoned(output, d as usize), Role::Out),
    };
    let job = match problem.scales {
        Scales::None => job,
        _ => {
            let [of_a, of_b] = problem.scale_counts();
            let mut of_a = random_scales(seed + 4, of_a);
            let blocks = match problem.scales {
                Scales::Blocks => problem
                    .alike()
                    .map_or(0, |alike| alike.k.div_ceil(SCALE_BLOCK)),
                _ => 1,
            };
            for (row, block) in rows
                .iter()
                .flat_map(|row| (0..blocks as usize).map(move |block| (row, block)))
            {
                let at = scale_of_row(problem, *row, block);
                fill(&mut of_a, at..at + 1, NAN);
            }
            job.buffer("scale_a", Role::In, of_a).buffer(
                "scale_b",
                Role::In,
                random_scales(seed + 5, of_b),
            )
        }
    };
    job.buffer("a", Role::In, left)
        .buffer("b", Role::In, uniform(input, seed + 1, b as usize))
        .buffer("d", role, d)
        .buffer("shapes", Role::In, Buffer::from_slice(&described(problem)))
        .buffer("places", Role::In, Buffer::from_slice(&place))
        .buffer(
            "record",
            Role::InOut,
            Buffer::zeros(ElementType::U32, WORDS),
        )
}

/// The bits of a NaN in every floating-point type.
const NAN: u64 = u64::MAX;

/// Sets elements to these bits.
fn fill(buffer: &mut Buffer, elements: std::ops::Range<usize>, bits: u64) {
    let size = buffer.ty().bytes();
    let one = &bits.to_le_bytes()[..size];
    let bytes = &mut buffer.bytes_mut()[elements.start * size..elements.end * size];
    bytes
        .chunks_exact_mut(size)
        .for_each(|element| element.copy_from_slice(one));
}

/// The rows of the matrix of all groups that no group uses.
fn unused(problem: &Grouped) -> Vec<usize> {
    let Shapes::Masked { counts, room, .. } = &problem.shapes else {
        return Vec::new();
    };
    let room = *room as usize;
    let of = |(group, count): (usize, &u32)| group * room + *count as usize..(group + 1) * room;
    counts.iter().enumerate().flat_map(of).collect()
}

/// Where the scale of a row of the matrix of all groups and a block of the depth is.
fn scale_of_row(problem: &Grouped, row: usize, block: usize) -> usize {
    let Some(alike) = problem.alike() else {
        return 0;
    };
    let blocks = alike.k.div_ceil(SCALE_BLOCK) as usize;
    match (problem.scales, alike.room) {
        (Scales::Blocks, None) => block * alike.total() as usize + row,
        (Scales::Blocks, Some(room)) => {
            let room = room as usize;
            (row / room * blocks + block) * room + row % room
        }
        _ => row,
    }
}

/// Fails where a row of D that no group uses was written.
pub(crate) fn check_unused(ran: &Job, problem: &Grouped) -> Result<(), KernelError> {
    let (Shapes::Masked { room, n, .. }, Some(d)) = (&problem.shapes, ran.data("d")) else {
        return Ok(());
    };
    let n = *n as usize;
    let written = unused(problem).into_iter().find(|row| {
        let cells = numbers_in(d, row * n..(row + 1) * n);
        cells.into_iter().any(|cell| cell != UNUSED)
    });
    match written {
        None => Ok(()),
        Some(row) => Err(KernelError::unfit(format!(
            "row {} of group {} lies behind the group's count and was written",
            row % *room as usize,
            row / *room as usize
        ))),
    }
}

/// Multiplies a group's parts of A and B by their scales, of which all are given.
fn scale(
    problem: &Grouped,
    group: usize,
    [of_a, of_b]: &[Vec<f64>; 2],
    [left, right]: [&mut [f64]; 2],
) {
    let Some(alike) = problem.alike() else {
        return;
    };
    let block = SCALE_BLOCK as usize;
    let (n, k, blocks) = (
        alike.n as usize,
        alike.k as usize,
        alike.k.div_ceil(SCALE_BLOCK) as usize,
    );
    let first = match alike.room {
        Some(room) => group * room as usize,
        None => alike.rows[..group].iter().map(|&rows| rows as usize).sum(),
    };
    let factor = |all: &[f64], at: usize| all.get(at).copied().unwrap_or(f64::NAN);
    for (at, value) in left.iter_mut().enumerate() {
        let (row, depth) = (first + at / k, at % k);
        *value *= factor(of_a, scale_of_row(problem, row, depth / block));
    }
    // Scales are of 8-bit floats, whose matrices B are stored along the depth.
    for (at, value) in right.iter_mut().enumerate() {
        let (col, depth) = (at / k, at % k);
        *value *= match problem.scales {
            Scales::Blocks => {
                let of_group = group * n.div_ceil(block);
                factor(of_b, (of_group + col / block) * blocks + depth / block)
            }
            _ => factor(of_b, group * n + col),
        };
    }
}

/// Found and expected elements of D, group after group, without the gaps
/// between them. What the kernel only reads is as it was made.
pub(crate) fn results(ran: &Job, problem: &Grouped) -> (Vec<f64>, Vec<f64>) {
    let ty = problem.output.element();
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    let (begin, _) = places(problem);
    let scales = ["scale_a", "scale_b"].map(|name| ran.data(name).map(numbers).unwrap_or_default());
    let groups = problem.groups().into_iter().zip(begin);
    for (number, (group, [from_a, from_b, from_d])) in groups.enumerate() {
        let (m, n, k) = (group.m as usize, group.n as usize, group.k as usize);
        let part = |name: &str, from: u64, len: usize| -> Vec<f64> {
            let from = from as usize;
            let data = ran.data(name);
            data.map_or(Vec::new(), |data| numbers_in(data, from..from + len))
        };
        let (mut left, mut right) = (part("a", from_a, m * k), part("b", from_b, n * k));
        if problem.scales != Scales::None {
            scale(problem, number, &scales, [&mut left, &mut right]);
        }
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
