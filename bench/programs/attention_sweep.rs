//! Writes the PTX of many attention configurations and how to launch them, for
//! `bench/kernels/attention_sweep.py`, which runs them beside PyTorch's.
//!
//! ```text
//! cargo run -p heist-bench --bin attention_sweep -- DIR [SET]
//! ```
//!
//! A set is `small`, `large`, `wide`, `feeds`, `ladder`, `anchors` or `precision`;
//! all of them unless given.

mod launches;

use heist_builder::Arch;
use heist_kernels::Target;
use heist_kernels::attention::{
    Config, Dtype, Feed, Mask, MaskKind, Problem, Rung, Weights, job, schedule,
};
use launches::describe;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

const H200: Target = Target {
    arch: Arch::SM_90,
    sms: 132,
};

/// A shape of the anchors: 16384 tokens, hidden 2048.
fn anchor(dim: u32, length: u32, dtype: Dtype, mask: Mask) -> Problem {
    let mut problem = Problem::new(16384 / length, 2048 / dim, length, dim);
    problem.dtype = dtype;
    problem.mask = mask;
    problem
}

/// Combinations that might be good for large shapes of a head dimension.
fn large(dim: u32) -> Vec<Config> {
    let base = Config::suited(Rung::Large, &Problem::new(16, 32, 1024, dim), H200);
    // Row blocks, warps, columns, queries in registers, blocks that fit.
    let shapes: &[(u32, u32, u32, bool, u32)] = match dim {
        0..=64 => &[
            (2, 4, 64, false, 3),
            (2, 4, 64, true, 2),
            (2, 4, 80, false, 2),
            (2, 4, 96, false, 2),
            (2, 4, 128, false, 2),
            (2, 6, 64, false, 2),
            (2, 2, 64, false, 6),
            (3, 4, 32, false, 2),
            (3, 4, 48, false, 2),
            (1, 4, 64, true, 4),
        ],
        65..=128 => &[
            (2, 4, 64, false, 2),
            (2, 4, 48, false, 2),
            (2, 4, 32, true, 2),
            (2, 2, 64, false, 4),
            (2, 8, 64, false, 1),
            (1, 4, 64, false, 3),
        ],
        _ => &[
            (1, 4, 32, false, 2),
            (1, 4, 64, false, 2),
            (1, 8, 32, false, 1),
            (1, 8, 64, false, 1),
            (1, 8, 64, true, 1),
        ],
    };
    let mut configs = vec![base];
    for &(row_blocks, down, cols, q_in_registers, min_blocks) in shapes {
        for (feed, stages, swizzled) in [
            (Feed::Pairs, 2, false),
            (Feed::Pairs, 2, true),
            (Feed::Turns, 2, true),
            (Feed::Turns, 3, false),
        ] {
            configs.push(Config {
                row_blocks,
                down,
                cols,
                q_in_registers,
                min_blocks,
                feed,
                stages,
                swizzled,
                ..base
            });
        }
    }
    configs
}

/// Ways to feed the tiles that are best, with blocks that stay and without.
fn feeds(problem: &Problem) -> Vec<Config> {
    let mut configs = Vec::new();
    for rung in [Rung::Large, Rung::Persistent] {
        let base = Config::suited(rung, problem, H200);
        for (feed, stages, swizzled) in [
            (Feed::Pairs, 2, false),
            (Feed::Pairs, 2, true),
            (Feed::Turns, 2, false),
            (Feed::Turns, 2, true),
            (Feed::Turns, 3, false),
            (Feed::Turns, 3, true),
        ] {
            for (hoisted, set_aside) in [(false, false), (true, false), (false, true), (true, true)]
            {
                configs.push(Config {
                    feed,
                    stages,
                    swizzled,
                    hoisted,
                    set_aside,
                    ..base
                });
            }
        }
    }
    configs
}

/// Tiles for wide heads; the kernel for causal masks, which does for none.
fn wide(problem: &Problem) -> Vec<Config> {
    let base = Config {
        mask: MaskKind::Causal,
        ..Config::suited(Rung::Large, problem, H200)
    };
    let mut configs = vec![base];
    let shapes: &[(u32, u32)] = match problem.head_dim {
        0..=128 => &[(2, 64), (2, 48), (2, 32)],
        _ => &[(1, 64), (1, 48), (1, 32)],
    };
    for &(row_blocks, cols) in shapes {
        for (feed, swizzled) in [
            (Feed::Pairs, false),
            (Feed::Turns, false),
            (Feed::Turns, true),
        ] {
            for hoisted in [false, true] {
                configs.push(Config {
                    row_blocks,
                    cols,
                    feed,
                    swizzled,
                    hoisted,
                    min_blocks: 2,
                    ..base
                });
            }
        }
    }
    configs
}

/// Tiles for weights in two terms, beside those for rounded ones.
fn precision(problem: &Problem) -> Vec<Config> {
    let rounded = Config::suited(Rung::Large, problem, H200);
    let mut split = problem.clone();
    split.weights = Weights::Split;
    let suited = Config::suited(Rung::Large, &split, H200);
    let mut configs = vec![rounded, suited];
    // Columns, blocks that fit: what the assembler spills little for.
    let shapes: &[(u32, u32)] = match problem.head_dim {
        0..=64 => &[(64, 2), (32, 3)],
        _ => &[(64, 2), (32, 2)],
    };
    for &(cols, min_blocks) in shapes {
        for (hoisted, swizzled) in [(false, false), (false, true), (true, true)] {
            configs.push(Config {
                mask: MaskKind::Causal,
                cols,
                min_blocks,
                hoisted,
                swizzled,
                q_in_registers: false,
                ..suited
            });
        }
    }
    configs
}

/// Ways to share out the keys of the small shape.
fn small(problem: &Problem) -> Vec<Config> {
    let base = Config::suited(Rung::Large, problem, H200);
    let mut configs = Vec::new();
    for (row_blocks, down, across, cols) in [
        (1, 4, 1, 64),
        (1, 4, 2, 64),
        (1, 4, 2, 32),
        (1, 4, 4, 32),
        (1, 4, 4, 64),
        (1, 2, 2, 64),
        (1, 2, 4, 32),
        (1, 2, 4, 64),
        (1, 2, 8, 32),
        (2, 2, 2, 64),
        (2, 2, 4, 32),
        (2, 2, 4, 64),
        (2, 1, 4, 64),
        (2, 1, 8, 32),
        (1, 1, 4, 64),
    ] {
        for stages in [2, 3] {
            configs.push(Config {
                row_blocks,
                down,
                across,
                cols,
                stages,
                q_in_registers: true,
                min_blocks: 1,
                ..base
            });
        }
    }
    configs.push(Config {
        splits: 2,
        across: 1,
        ..base
    });
    configs
}

fn cases(set: &str) -> Vec<(Problem, Vec<Config>)> {
    let mut cases = Vec::new();
    if set == "all" || set == "large" {
        for (dim, length, dtype) in [
            (32, 1024, Dtype::F16),
            (64, 1024, Dtype::F16),
            (128, 1024, Dtype::F16),
            (256, 1024, Dtype::F16),
        ] {
            for mask in [Mask::Full, Mask::Causal] {
                let problem = anchor(dim, length, dtype, mask);
                let configs = large(dim).into_iter().map(|config| Config {
                    dtype,
                    mask: mask.kind(),
                    ..config
                });
                cases.push((problem, configs.collect()));
            }
        }
    }
    if set == "all" || set == "feeds" {
        for (dim, dtype) in [(64, Dtype::F16), (128, Dtype::F16)] {
            for mask in [Mask::Full, Mask::Causal] {
                let problem = anchor(dim, 2048, dtype, mask);
                cases.push((problem.clone(), feeds(&problem)));
            }
        }
    }
    if set == "all" || set == "wide" {
        for dim in [96, 256] {
            for mask in [Mask::Full, Mask::Causal] {
                let mut problem = Problem::new(8, 8, 2048, dim);
                problem.mask = mask;
                cases.push((problem.clone(), wide(&problem)));
            }
        }
    }
    if set == "all" || set == "precision" {
        for dim in [64, 128] {
            for mask in [Mask::Full, Mask::Causal] {
                let problem = anchor(dim, 4096, Dtype::Bf16, mask);
                cases.push((problem.clone(), precision(&problem)));
            }
        }
    }
    for batch in [1, 2] {
        let problem = Problem::new(batch, 8, 512, 64);
        if set == "all" || set == "small" {
            cases.push((problem.clone(), small(&problem)));
        }
        if set == "all" || set == "ladder" {
            let configs = Rung::ALL.map(|rung| Config::suited(rung, &problem, H200));
            cases.push((problem, configs.to_vec()));
        }
    }
    if set == "all" || set == "anchors" {
        for (dim, length, dtype) in [
            (64, 1024, Dtype::F16),
            (64, 4096, Dtype::Bf16),
            (64, 16384, Dtype::Bf16),
            (128, 1024, Dtype::F16),
            (128, 4096, Dtype::Bf16),
            (128, 16384, Dtype::Bf16),
        ] {
            for mask in [Mask::Full, Mask::Causal] {
                let problem = anchor(dim, length, dtype, mask);
                let configs = [Rung::Large, Rung::Persistent]
                    .map(|rung| Config::suited(rung, &problem, H200));
                cases.push((problem, configs.to_vec()));
            }
        }
    }
    cases
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, rest @ ..] = &arguments[..] else {
        return Err(
            "usage: attention_sweep DIR [small|large|wide|feeds|ladder|anchors|precision]".into(),
        );
    };
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory)?;
    let mut written = BTreeMap::new();
    let mut all = Vec::new();
    for (problem, configs) in cases(rest.first().map_or("all", String::as_str)) {
        let mut arms = Vec::new();
        for config in configs {
            match job(&problem, &config, &schedule(&config, &problem, H200), H200) {
                Ok(job) => {
                    let name = format!("{config} fit {} {}", config.min_blocks, config.weights);
                    arms.push(describe(&name, &job, directory, &mut written)?);
                }
                Err(error) => eprintln!("{problem}, {config}: {error}"),
            }
        }
        let (batch, (length, _)) = (problem.sequences().len(), problem.longest());
        all.push(json!({
            "name": problem.to_string(), "batch": batch, "heads": problem.heads,
            "length": length, "dim": problem.head_dim, "dtype": problem.dtype.to_string(),
            "causal": problem.mask == Mask::Causal, "flops": problem.work().flops, "arms": arms,
        }));
    }
    std::fs::write(directory.join("sweep.json"), serde_json::to_string(&all)?)?;
    println!("{} kernels in {}", written.len(), directory.display());
    Ok(())
}
