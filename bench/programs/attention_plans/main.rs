//! Writes plans of attention (PTX, launches, parameters, tensor maps) for
//! `bench/kernels/attention_plans.py`, which runs them beside PyTorch's backends.
//!
//! ```text
//! cargo run -p heist-bench --bin attention_plans -- DIR SET...
//! ```
//!
//! Sets are `decode` (20 shapes with what is chosen), `deal` (some of them with other
//! shares and stages), `ways` (some of them and others at random with every plausible plan), `step` (some of them dealt to other numbers of blocks), `any` (others at random with what is chosen), `neighbours` (one key head a tile, two and four), `tall` (8-bit keys under 32 rows and more), `stages` (how much is on its way), `paged` (pages beside whole sequences), `tiny` (keys and values of 8 bits, whole and in pages), `spec` (2 to 16 queries, with weights rounded and split), `latent` (keys and values that are one row), `rounds` (the same with 128 heads, in batches of many sizes), `short` (128 to 1024 tokens), `brief` (others at random), `either` (drawn near the border between warpgroups and the ladder, with both), `narrow` (heads of 128, blocks of other sizes), `few` (fewer tiles than multiprocessors), `spread` (few tiles and many keys at random, shared by one to eight blocks), `broad` (wide heads and short sequences at random, in tiles of one warpgroup and of two), `lone` (long sequences of few heads under a causal mask), `cross` (many queries and few keys), `causal` (sequences of any length up to 3000 tokens under a causal mask), `long` (2k to 8k), `one`
//! (one sequence of 512 tokens), `backward` (gradients, for `bench/kernels/backward.py`), `cut` (gradients of few tiles, in several numbers of parts, and of heads of other sizes), `grid` (small ones with every head size, to be compared with f64) and `packed` (ten skewed batches, for `bench/kernels/packed.py`).

mod decode;
mod describe;
mod drawn;
mod gradients;
mod packed;
mod short;

use decode::{
    any_decode, combines, deals, decode, decode_shapes, in_step, latent, neighbours, paged,
    speculative, stages, tall, tiny, ways,
};
use describe::describe;
use drawn::{broad_sets, causal_sets, cross_sets, either_sets, lone_sets, spread_sets};
use gradients::{backward_sets, cut_sets, grid_sets};
use heist_builder::Arch;
use heist_kernels::attention::{Dtype, FAMILY, Mask, Problem};
use heist_kernels::{KernelError, LaunchPlan, Target};
use packed::{packed_batches, packed_set};
use serde_json::json;
use short::{any_short, few_sets, level_sets, long_sets, narrow, one_set, short_sets};
use std::collections::BTreeMap;
use std::path::Path;

const H200: Target = Target {
    arch: Arch::SM_90A,
    sms: 132,
};

/// A shape, and the plans that are tried on it.
struct Set {
    problem: Problem,
    arms: Vec<(String, Problem, Result<LaunchPlan, KernelError>)>,
}

fn chosen(problem: &Problem) -> (String, Problem, Result<LaunchPlan, KernelError>) {
    let plan = FAMILY.plan(None, problem, H200);
    ("chosen".into(), problem.clone(), plan)
}

fn sets(name: &str) -> Vec<Set> {
    let shapes = decode_shapes();
    let some = |at: &[usize]| at.iter().map(|at| shapes[*at].clone()).collect::<Vec<_>>();
    match name {
        "decode" => shapes
            .iter()
            .map(|problem| Set {
                problem: problem.clone(),
                arms: vec![chosen(problem)],
            })
            .collect(),
        "deal" => some(&[0, 1, 4, 7, 10, 13, 14, 16, 17, 18])
            .iter()
            .map(deals)
            .collect(),
        "combine" => some(&[2, 3, 4, 5, 10, 11, 13, 16, 17])
            .into_iter()
            .chain([
                decode(2, 8, 2, 1024, 64, Dtype::Bf16),
                decode(16, 32, 8, 1024, 128, Dtype::Bf16),
                decode(4, 16, 2, 4096, 128, Dtype::Bf16),
            ])
            .map(|problem| combines(&problem))
            .collect(),
        "stages" => some(&[0, 1, 4, 8, 10, 15, 16, 19])
            .iter()
            .map(stages)
            .collect(),
        "ways" => some(&[2, 3, 5, 10, 11, 13, 16, 17])
            .into_iter()
            .chain(any_decode(8, 18))
            .map(|problem| ways(&problem))
            .collect(),
        "step" => some(&[5, 7, 8, 11, 16, 1, 2])
            .into_iter()
            .chain([
                decode(8, 16, 1, 3968, 64, Dtype::Bf16),
                decode(7, 64, 16, 12288, 128, Dtype::Bf16),
                decode(8, 128, 8, 10496, 128, Dtype::F16),
            ])
            .map(|problem| in_step(&problem))
            .collect(),
        "any" => any_decode(24, 19)
            .iter()
            .map(|problem| Set {
                problem: problem.clone(),
                arms: vec![chosen(problem)],
            })
            .collect(),
        "neighbours" => some(&[15, 18, 0, 1, 16]).iter().map(neighbours).collect(),
        "tall" => [
            (32, 32, 1, 16384, 128),
            (8, 64, 2, 16384, 128),
            (16, 64, 1, 12288, 128),
            (100, 32, 1, 3000, 128),
            (4, 128, 4, 8192, 128),
            (1, 32, 1, 131_072, 128),
            (32, 32, 1, 16384, 64),
        ]
        .map(|(batch, heads, kv, keys, dim)| {
            tall(&decode(batch, heads, kv, keys, dim, Dtype::Bf16))
        })
        .into(),
        "brief" => any_short(16, 20),
        "either" => either_sets(80, 21),
        "short" => short_sets(),
        "levels" => level_sets(),
        "narrow" => [
            (16, 32, 256, Mask::Full),
            (16, 30, 288, Mask::Full),
            (12, 20, 384, Mask::Full),
            (12, 24, 448, Mask::Full),
            (8, 32, 512, Mask::Full),
            (7, 24, 640, Mask::Full),
            (6, 25, 768, Mask::Full),
            (4, 32, 1024, Mask::Full),
            (16, 32, 256, Mask::Causal),
            (20, 20, 304, Mask::Causal),
            (7, 24, 640, Mask::Causal),
        ]
        .into_iter()
        .map(|(batch, heads, length, mask)| narrow(batch, heads, length, mask))
        .collect(),
        "long" => long_sets(),
        "few" => few_sets(),
        "spread" => spread_sets(16, 22),
        "broad" => broad_sets(12, 23),
        "lone" => lone_sets(24, 26),
        "cross" => cross_sets(45, 28),
        "causal" => {
            let mut sets = causal_sets(60, 29, [48, 3000]);
            sets.extend(causal_sets(20, 30, [2000, 5000]));
            sets
        }
        "one" => vec![one_set()],
        "backward" => backward_sets(),
        "cut" => cut_sets(),
        "grid" => grid_sets(),
        "packed" => packed_batches().into_iter().map(packed_set).collect(),
        "paged" => some(&[0, 1, 8]).iter().map(paged).collect(),
        "tiny" => some(&[0, 1, 2, 4, 8, 9, 12, 15, 16, 18])
            .iter()
            .map(tiny)
            .collect(),
        "latent" => [
            (1, 16, 1, 65536),
            (32, 16, 1, 8192),
            (128, 16, 1, 4096),
            (128, 64, 1, 4096),
            (4, 128, 1, 32768),
            (128, 128, 1, 4096),
            (32, 128, 2, 8192),
        ]
        .map(|(batch, heads, queries, keys)| latent(batch, heads, queries, keys))
        .into(),
        "rounds" => [
            (16, 1, 8192),
            (24, 1, 16384),
            (40, 1, 4096),
            (64, 1, 8192),
            (96, 1, 2048),
            (100, 1, 4096),
            (200, 1, 2048),
            (300, 1, 1000),
            (20, 2, 8192),
            (48, 2, 4096),
            (128, 2, 2048),
            (50, 3, 3000),
        ]
        .map(|(batch, queries, keys)| latent(batch, 128, queries, keys))
        .into(),
        "spec" => [(2, 8), (4, 8), (8, 8), (16, 8), (4, 4)]
            .map(|(queries, kv_heads)| speculative(queries, kv_heads))
            .into(),
        other => {
            eprintln!(
                "`{other}` is no set: decode, deal, ways, step, any, neighbours, tall, brief, either, combine, stages, paged, tiny, spec, latent, short, narrow, levels, few, spread, broad, lone, cross, causal, long, one, backward, cut, grid, packed"
            );
            std::process::exit(2);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let directory = words.next().ok_or("a folder is wanted, and then sets")?;
    let directory = Path::new(&directory);
    std::fs::create_dir_all(directory)?;
    let (mut all, mut files) = (Vec::new(), BTreeMap::new());
    for name in words {
        for set in sets(&name) {
            let mut arms = Vec::new();
            for (arm, problem, plan) in &set.arms {
                match plan {
                    Ok(plan) => arms.push(describe(directory, &mut files, arm, problem, plan)?),
                    Err(error) => eprintln!("{}: {arm}: {error}", set.problem),
                }
            }
            let problem = &set.problem;
            let (queries, keys) = problem.longest();
            all.push(json!({
                "set": name, "name": problem.to_string(), "batch": problem.sequences().len(),
                "heads": problem.heads, "kv_heads": problem.kv_heads, "queries": queries,
                "keys": keys, "dim": problem.head_dim, "values": problem.value_dim(), "dtype": problem.dtype.to_string(),
                "causal": problem.mask == Mask::Causal,
                "lengths": problem.sequences().iter().map(|(q, _)| *q).collect::<Vec<_>>(),
                "flops": problem.work().flops, "bytes": problem.work().bytes, "arms": arms,
            }));
        }
    }
    std::fs::write(directory.join("plans.json"), serde_json::to_string(&all)?)?;
    Ok(())
}
