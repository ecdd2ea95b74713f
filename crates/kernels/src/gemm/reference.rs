//! Random data for a multiplication, and its result in f64.

use super::mx::{MX_BLOCK, mx_count, mx_place};
use super::problem::{Activation, Gemm, Major, Scales, Spread};
use super::scales::BLOCK;
use crate::job::Job;
use crate::random::uniform;
use crate::reference::{Matrix, matmul, numbers};
use heist_launch::{Buffer, ElementType, Role};

/// Adds the buffers of a multiplication with random data to a job. The result
/// is poisoned where nothing is added to it.
pub(crate) fn buffers(job: Job, problem: &Gemm, seed: u64) -> Job {
    let (input, output) = (problem.input.element(), problem.output.element());
    let size = |rows: u32, pitch: u32| rows as usize * pitch as usize * problem.batch as usize;
    let result = size(problem.m, problem.ldc);
    let c = problem.stored_of_c(result as u64) as usize;
    let bias = if problem.epilogue.bias {
        problem.n as usize
    } else {
        0
    };
    let job = match problem.scales {
        Scales::None => job,
        Scales::Mx => job
            .buffer("scale_a", Role::In, powers(seed + 4, problem.m, problem.k))
            .buffer("scale_b", Role::In, powers(seed + 5, problem.n, problem.k)),
        _ => {
            let [a, b] = problem.scale_counts();
            job.buffer("scale_a", Role::In, random_scales(seed + 4, a))
                .buffer("scale_b", Role::In, random_scales(seed + 5, b))
        }
    };
    job.buffer(
        "a",
        Role::In,
        uniform(input, seed, size(problem.rows_of_a(), problem.lda)),
    )
    .buffer(
        "b",
        Role::In,
        uniform(input, seed + 1, size(problem.rows_of_b(), problem.ldb)),
    )
    .buffer("c", Role::In, uniform(output, seed + 2, c))
    .buffer("d", Role::Out, Buffer::poisoned(output, result))
    .buffer("bias", Role::In, uniform(output, seed + 3, bias))
}

/// Random factors between a half and one and a half.
pub(crate) fn random_scales(seed: u64, count: usize) -> Buffer {
    let numbers = numbers(&uniform(ElementType::F32, seed, count));
    let bytes = numbers
        .iter()
        .flat_map(|x| (1.0 + *x as f32 / 2.0).to_le_bytes());
    Buffer::from_bytes(ElementType::F32, bytes.collect())
        .unwrap_or_else(|| Buffer::zeros(ElementType::F32, count))
}

/// Random powers of two between an eighth and eight for `outer` rows or columns. What is there beside
/// them is not a number.
fn powers(seed: u64, outer: u32, depth: u32) -> Buffer {
    let numbers = numbers(&uniform(ElementType::F32, seed, mx_count(outer, depth)));
    let mut powers = vec![0xFFu8; numbers.len()];
    for row in 0..outer as usize {
        for at in (0..depth as usize).step_by(MX_BLOCK as usize) {
            let place = mx_place(row, at, depth as usize);
            powers[place] = (127.0 + 3.5 * numbers[place]).round() as u8;
        }
    }
    let count = powers.len();
    Buffer::from_bytes(ElementType::U8, powers)
        .unwrap_or_else(|| Buffer::zeros(ElementType::U8, count))
}

/// The factor of an element of A, or of B, of this row or column and depth.
fn scale(problem: &Gemm, scales: &[f64], of_a: bool, outer: usize, depth: usize) -> f64 {
    let (block, blocks) = (BLOCK as usize, problem.k.div_ceil(BLOCK) as usize);
    let at = match (problem.scales, of_a) {
        (Scales::None, _) => return 1.0,
        (Scales::Tensor, _) => 0,
        (Scales::Rows, _) => outer,
        (Scales::Blocks, true) => depth / block * problem.m as usize + outer,
        (Scales::Blocks, false) => outer / block * blocks + depth / block,
        (Scales::Mx, _) => mx_place(outer, depth, problem.k as usize),
    };
    let scale = scales.get(at).copied().unwrap_or(f64::NAN);
    match problem.scales {
        Scales::Mx => (scale - 127.0).exp2(),
        _ => scale,
    }
}

/// A matrix times its factors.
fn scaled(job: &Job, problem: &Gemm, of_a: bool) -> Vec<f64> {
    let data = |name: &str| job.data(name).map(numbers).unwrap_or_default();
    let (name, factors, major, pitch) = match of_a {
        true => ("a", "scale_a", problem.layout.a(), problem.lda),
        false => ("b", "scale_b", problem.layout.b(), problem.ldb),
    };
    let mut matrix = data(name);
    if problem.scales == Scales::None {
        return matrix;
    }
    let (factors, pitch) = (data(factors), pitch as usize);
    for (at, value) in matrix.iter_mut().enumerate() {
        let (outer, depth) = match major {
            Major::Depth => (at / pitch, at % pitch),
            Major::Outer => (at % pitch, at / pitch % problem.k.max(1) as usize),
        };
        // Gaps between rows have no factor.
        let outside = depth >= problem.k as usize;
        if !outside {
            *value *= scale(problem, &factors, of_a, outer, depth);
        }
    }
    matrix
}

fn matrix(data: &[f64], major: Major, pitch: u32, left: bool) -> Matrix<'_> {
    // A left matrix with neighbours along the depth is row after row, and so is
    // a right one with neighbours along the other axis.
    if (major == Major::Depth) == left {
        Matrix::rows(data, pitch as usize)
    } else {
        Matrix::columns(data, pitch as usize)
    }
}

/// The elements of D that were computed, row after row without gaps.
pub(crate) fn found(job: &Job, problem: &Gemm) -> Vec<f64> {
    let d = job.data("d").map(numbers).unwrap_or_default();
    let rows = d.chunks(problem.ldc.max(1) as usize);
    rows.flat_map(|row| row.iter().take(problem.n as usize).copied())
        .collect()
}

/// What they should be, before they are rounded to their type.
pub(crate) fn result(job: &Job, problem: &Gemm) -> Vec<f64> {
    let data = |name: &str| job.data(name).map(numbers).unwrap_or_default();
    let (c, bias) = (data("c"), data("bias"));
    let (a, b) = (scaled(job, problem, true), scaled(job, problem, false));
    let (m, n, k) = (problem.m as usize, problem.n as usize, problem.k as usize);
    let of = |data: &'_ [f64], number: usize, rows: u32, pitch: u32| {
        let size = rows as usize * pitch as usize;
        data[number * size..][..size].to_vec()
    };
    let mut d = Vec::new();
    for number in 0..problem.batch as usize {
        let a = of(&a, number, problem.rows_of_a(), problem.lda);
        let b = of(&b, number, problem.rows_of_b(), problem.ldb);
        let left = matrix(&a, problem.layout.a(), problem.lda, true);
        let right = matrix(&b, problem.layout.b(), problem.ldb, false);
        d.extend(matmul(left, right, m, n, k));
    }
    let epilogue = &problem.epilogue;
    for (index, value) in d.iter_mut().enumerate() {
        let mut sum = *value * f64::from(epilogue.alpha);
        if let Some(spread) = epilogue.added() {
            let [row, col] = [index / n, index % n];
            let at = match spread {
                Spread::Matrix => row * problem.ldc as usize + col,
                Spread::Row => col,
                Spread::Column => row % m,
                Spread::One => 0,
            };
            sum += f64::from(epilogue.beta) * c.get(at).copied().unwrap_or(f64::NAN);
        }
        if epilogue.bias {
            sum += bias.get(index % n).copied().unwrap_or(f64::NAN);
        }
        *value = activate(sum, epilogue.activation);
    }
    d
}

/// An activation in f64.
pub(crate) fn activate(x: f64, activation: Activation) -> f64 {
    match activation {
        Activation::None => x,
        // A NaN stays.
        Activation::Relu if x < 0.0 => 0.0,
        Activation::Relu => x,
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * x * (1.0 + (root * (x + 0.044_715 * x * x * x)).tanh())
        }
    }
}
