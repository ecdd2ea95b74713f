//! Random data for expert layers, and their results in f64.

use super::problem::Experts;
use crate::grouped::data::described;
use crate::job::Job;
use crate::random::uniform;
use crate::reference::{Matrix, matmul, numbers, numbers_in};
use heist_launch::{Buffer, ElementType, Role};

/// Every slot once, in some order that is the same for the same seed.
fn order(slots: u64, seed: u64) -> Vec<u32> {
    let keys: Vec<f32> = uniform(ElementType::F32, seed, slots as usize)
        .to_vec()
        .unwrap_or_default();
    let mut order: Vec<u32> = (0..slots as u32).collect();
    order.sort_by(|&a, &b| {
        keys[a as usize]
            .total_cmp(&keys[b as usize])
            .then(a.cmp(&b))
    });
    order
}

/// Adds the inputs with random data to a job that has its workspace, and its results, which are poisoned.
pub(super) fn buffers(job: Job, problem: &Experts, seed: u64) -> Job {
    let [hidden, inner] = [problem.hidden, problem.inner].map(|size| size as usize);
    let (slots, tokens) = (problem.slots() as usize, problem.tokens() as usize);
    let (groups, ty) = (problem.rows.len(), problem.dtype.element());
    job.buffer("x", Role::In, uniform(ty, seed, tokens * hidden))
        .buffer(
            "up",
            Role::In,
            uniform(ty, seed + 1, groups * 2 * inner * hidden),
        )
        .buffer(
            "down",
            Role::In,
            uniform(ty, seed + 2, groups * hidden * inner),
        )
        .buffer(
            "weights",
            Role::In,
            uniform(ElementType::F32, seed + 3, slots),
        )
        .buffer(
            "order",
            Role::In,
            Buffer::from_slice(&order(problem.slots(), seed + 4)),
        )
        .buffer(
            "shapes",
            Role::In,
            Buffer::from_slice(&described(&problem.up())),
        )
        .buffer("d", Role::Out, Buffer::poisoned(ty, tokens * hidden))
}

/// Found and expected elements of the results. What is stored between launches is rounded here, too.
pub(super) fn results(ran: &Job, problem: &Experts) -> (Vec<f64>, Vec<f64>) {
    let [hidden, inner] = [problem.hidden, problem.inner].map(|size| size as usize);
    let ty = problem.dtype.element();
    let round = |value: f64| ty.to_f64(ty.from_f64(value));
    let all = |name: &str| ran.data(name).map_or(Vec::new(), numbers);
    let part = |name: &str, from: usize, len: usize| {
        let data = ran.data(name);
        data.map_or(Vec::new(), |data| numbers_in(data, from..from + len))
    };
    let (x, weights, found) = (all("x"), all("weights"), all("d"));
    let order: Vec<u32> = ran
        .data("order")
        .and_then(Buffer::to_vec)
        .unwrap_or_default();
    let mut slots = vec![0.0; order.len() * hidden];
    let mut first = 0;
    for (group, &rows) in problem.rows.iter().enumerate() {
        let rows = rows as usize;
        let own = &order[first..first + rows];
        first += rows;
        let tokens: Vec<f64> = own
            .iter()
            .flat_map(|slot| {
                let token = (slot / problem.per) as usize;
                x[token * hidden..(token + 1) * hidden].iter().copied()
            })
            .collect();
        let weight = |name: &str, size: usize, number: usize| part(name, number * size, size);
        let product = |left: &[f64], right: &[f64], n: usize, k: usize| {
            matmul(Matrix::rows(left, k), Matrix::columns(right, k), rows, n, k)
        };
        let gate = weight("up", inner * hidden, 2 * group);
        let up = weight("up", inner * hidden, 2 * group + 1);
        let gate = product(&tokens, &gate, inner, hidden);
        let up = product(&tokens, &up, inner, hidden);
        let gated = gate.iter().zip(up);
        let gated: Vec<f64> = gated
            .map(|(g, u)| round(g / (1.0 + (-g).exp()) * u))
            .collect();
        let down = weight("down", inner * hidden, group);
        let down = product(&gated, &down, hidden, inner);
        for (row, &slot) in own.iter().enumerate() {
            let slot = slot as usize;
            for (to, from) in slots[slot * hidden..][..hidden]
                .iter_mut()
                .zip(&down[row * hidden..])
            {
                *to = round(weights[slot] * from);
            }
        }
    }
    let per = problem.per as usize;
    let expected = slots.chunks(per * hidden).flat_map(|token| {
        let column = move |at: usize| token.iter().skip(at).step_by(hidden).sum::<f64>();
        (0..hidden).map(move |at| round(column(at)))
    });
    (found, expected.collect())
}
