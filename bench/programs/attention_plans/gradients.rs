//! Gradients.

use super::{H200, Set};
use heist_kernels::attention::{BACKWARD, Backward, Dtype, Mask, Problem, Sums, backward_in_parts};

/// Gradients of 16k tokens with a hidden size of 2048, for `bench/kernels/backward.py`.
pub(crate) fn backward_sets() -> Vec<Set> {
    let masks = [Mask::Full, Mask::Causal];
    let set = |(dim, queries): (u32, u32), mask| {
        let mut problem = Problem::new(16384 / queries, 2048 / dim, queries, dim);
        (problem.mask, problem.dtype) = (mask, Dtype::Bf16);
        let arm = |(name, sums): (&str, Sums)| {
            let asked = Backward {
                attention: problem.clone(),
                sums,
            };
            let plan = BACKWARD.plan(None, &asked, H200);
            (name.to_owned(), problem.clone(), plan)
        };
        let kinds = [("chosen", Sums::Float), ("deterministic", Sums::Fixed)];
        Set {
            arms: kinds.map(arm).into(),
            problem,
        }
    };
    let lengths = [2048, 4096, 8192, 16384];
    let shapes = [64, 128].map(|dim| lengths.map(|length| (dim, length)));
    let shapes = shapes.into_iter().flatten();
    shapes
        .flat_map(|shape| masks.map(|mask| set(shape, mask)))
        .collect()
}

/// Gradients of problems with few tiles in so many parts, with what is chosen, and by the other variant.
pub(crate) fn cut_sets() -> Vec<Set> {
    let set = |(batch, heads, kv_heads, queries, dim, causal)| {
        let mut problem = Problem::new(batch, heads, queries, dim);
        (problem.kv_heads, problem.dtype) = (kv_heads, Dtype::Bf16);
        problem.mask = if causal { Mask::Causal } else { Mask::Full };
        let tiles = batch * kv_heads * queries.div_ceil(128);
        let asked = |sums| Backward {
            attention: problem.clone(),
            sums,
        };
        let float = asked(Sums::Float);
        let mut plans = vec![("chosen".to_owned(), BACKWARD.plan(None, &float, H200))];
        let fixed = BACKWARD.plan(None, &asked(Sums::Fixed), H200);
        plans.push(("deterministic".to_owned(), fixed));
        for parts in [1, 2, 3, 4, 5, 6, 8, 12, 16] {
            if parts == 1 || tiles * parts <= 4 * H200.sms {
                for (mark, sums) in [("", Sums::Float), ("deterministic, ", Sums::Fixed)] {
                    let plan = backward_in_parts(&asked(sums), parts, None, H200);
                    plans.push((format!("{mark}{parts} parts"), plan));
                }
            }
        }
        if dim % 64 != 0 {
            plans.push((
                "tensor".to_owned(),
                BACKWARD.plan(Some("tensor"), &float, H200),
            ));
        }
        let arm = |(name, plan)| (name, problem.clone(), plan);
        Set {
            arms: plans.into_iter().map(arm).collect(),
            problem: problem.clone(),
        }
    };
    let shapes = [
        (1, 4, 1, 3097, 128, false),
        (2, 8, 2, 692, 128, false),
        (1, 4, 1, 95, 128, false),
        (1, 8, 2, 157, 128, true),
        (1, 8, 2, 2050, 32, true),
        (1, 4, 1, 7118, 64, true),
        (1, 4, 1, 7829, 64, false),
        (5, 4, 1, 4441, 128, true),
        (1, 32, 8, 761, 128, true),
        (2, 8, 2, 1112, 128, true),
        (1, 4, 1, 751, 64, false),
        (1, 2, 2, 1046, 128, false),
        (3, 4, 1, 633, 128, true),
        (1, 16, 4, 567, 80, false),
        (2, 4, 2, 3563, 96, true),
        (4, 16, 4, 206, 128, true),
        (6, 8, 2, 533, 128, true),
        (14, 1, 1, 7284, 96, true),
        (6, 2, 1, 3389, 96, false),
        (20, 32, 8, 1037, 80, true),
        (15, 8, 8, 2802, 80, false),
        (31, 1, 1, 6293, 32, false),
        (14, 4, 4, 4020, 32, true),
        (4, 8, 8, 2048, 112, false),
        (4, 8, 8, 2048, 48, true),
        (4, 16, 16, 4096, 128, true),
        (4, 16, 16, 4096, 64, false),
    ];
    shapes.into_iter().map(set).collect()
}

/// Gradients of small problems of every head size, with and without parts and a mask, in both forms.
pub(crate) fn grid_sets() -> Vec<Set> {
    let mut sets = Vec::new();
    for (index, dim) in (16..=128).step_by(16).enumerate() {
        for which in 0..4 {
            let group = [1, 2, 4, 8][(index + which) % 4];
            let (batch, kv_heads, queries) = [(1, 2, 333), (5, 4, 641)][which / 2];
            let mut problem = Problem::new(batch, kv_heads * group, queries, dim);
            (problem.kv_heads, problem.dtype) = (kv_heads, Dtype::Bf16);
            problem.mask = [Mask::Full, Mask::Causal][which % 2];
            let arm = |(name, sums, parts): (&str, Sums, Option<u32>)| {
                let attention = problem.clone();
                let asked = Backward { attention, sums };
                let plan = match parts {
                    Some(parts) => backward_in_parts(&asked, parts, None, H200),
                    None => BACKWARD.plan(None, &asked, H200),
                };
                (name.to_owned(), problem.clone(), plan)
            };
            let arms = [
                ("chosen", Sums::Float, None),
                ("whole", Sums::Float, Some(1)),
                ("deterministic", Sums::Fixed, None),
                ("deterministic, 3 parts", Sums::Fixed, Some(3)),
            ];
            sets.push(Set {
                arms: arms.map(arm).into(),
                problem: problem.clone(),
            });
        }
    }
    sets
}
