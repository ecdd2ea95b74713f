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

use heist_builder::Arch;
use heist_kernels::attention::{
    BACKWARD, Backward, Cache, Combine, Config, DecodeShape, Dtype, FAMILY, Grid, HeaviestFirst,
    Lengths, Mask, Problem, Rung, Sharing, Sums, WarpgroupShape, Weights, backward_in_parts,
    clustered_keys, decode_grid, decode_plan, decode_shape, job, schedule, staying, warpgroup_plan,
    warpgroup_schedule, warpgroup_shape, with_levels,
};
use heist_kernels::{KernelError, LaunchPlan, Target};
use heist_launch::{Arg, BufferRef, TensorMap};
use heist_sched::{AnyOrder, Schedule, TileSource};
use serde_json::{Value, json};
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

fn decode(batch: u32, heads: u32, kv_heads: u32, keys: u32, dim: u32, dtype: Dtype) -> Problem {
    let mut problem = Problem::new(batch, heads, 1, dim);
    (problem.kv_heads, problem.dtype) = (kv_heads, dtype);
    problem.lengths = Lengths::Same {
        batch,
        queries: 1,
        keys,
    };
    problem
}

/// Batches of 1 to 256, 1k to 128k keys, every kind of sharing.
fn decode_shapes() -> Vec<Problem> {
    let (f16, bf16) = (Dtype::F16, Dtype::Bf16);
    [
        (32, 32, 8, 8192, 128, bf16),
        (4, 32, 8, 65536, 128, bf16),
        (1, 32, 8, 131_072, 128, bf16),
        (1, 32, 8, 8192, 128, f16),
        (1, 32, 8, 1024, 128, bf16),
        (8, 32, 8, 4096, 128, bf16),
        (64, 32, 8, 2048, 128, f16),
        (256, 32, 8, 1024, 128, bf16),
        (128, 32, 8, 4096, 128, bf16),
        (16, 64, 8, 16384, 128, bf16),
        (2, 64, 8, 32768, 128, f16),
        (1, 64, 8, 32768, 128, bf16),
        (16, 32, 32, 4096, 128, bf16),
        (1, 32, 32, 16384, 128, bf16),
        (64, 16, 16, 2048, 64, f16),
        (8, 16, 16, 16384, 64, bf16),
        (32, 32, 1, 16384, 128, bf16),
        (1, 32, 1, 131_072, 128, bf16),
        (64, 32, 8, 4096, 64, bf16),
        (8, 64, 8, 65536, 64, bf16),
    ]
    .map(|(batch, heads, kv, keys, dim, dtype)| decode(batch, heads, kv, keys, dim, dtype))
    .into()
}

fn chosen(problem: &Problem) -> (String, Problem, Result<LaunchPlan, KernelError>) {
    let plan = FAMILY.plan(None, problem, H200);
    ("chosen".into(), problem.clone(), plan)
}

fn dealt(
    name: String,
    problem: &Problem,
    change: impl Fn(DecodeShape, Grid) -> (DecodeShape, Grid),
) -> (String, Problem, Result<LaunchPlan, KernelError>) {
    let shape = decode_shape(problem, H200);
    let grid = decode_grid(problem, &shape, H200);
    let (shape, grid) = change(shape, grid);
    let plan = decode_plan(problem, shape, grid, H200);
    (format!("{name} {shape}, {grid}"), problem.clone(), plan)
}

/// Other shares, fewer stages, whole tiles.
fn deals(problem: &Problem) -> Set {
    let mut arms = vec![chosen(problem)];
    for least in [1, 2, 4] {
        arms.push(dealt("dealt".into(), problem, |shape, _| {
            let grid = Grid {
                blocks: 132,
                least,
                combine: Combine::Launch,
            };
            (shape, grid)
        }));
    }
    arms.push(dealt("two stages".into(), problem, |shape, grid| {
        (DecodeShape { stages: 2, ..shape }, grid)
    }));
    arms.push(dealt("three stages".into(), problem, |shape, grid| {
        (DecodeShape { stages: 3, ..shape }, grid)
    }));
    arms.push(dealt("double stages".into(), problem, |shape, grid| {
        let shape = DecodeShape {
            keys: 2 * shape.keys,
            stages: shape.stages / 2,
            ..shape
        };
        (shape, grid)
    }));
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// Who combines the parts of tiles: whole sequences and pages.
fn combines(problem: &Problem) -> Set {
    let Lengths::Same { batch, keys, .. } = problem.lengths else {
        unreachable!("a shape of `decode`");
    };
    let mut arms = vec![chosen(problem)];
    let lengths = vec![(1, keys); batch as usize];
    let mut pages = Problem::ragged(lengths, problem.heads, problem.head_dim);
    (pages.kv_heads, pages.dtype, pages.page_size) = (problem.kv_heads, problem.dtype, Some(64));
    for (name, problem) in [("whole", problem), ("pages", &pages)] {
        for combine in [Combine::Launch, Combine::LastBlock] {
            let shape = decode_shape(problem, H200);
            let least = (65536 / (shape.keys * shape.head_dim * 4)).max(1);
            let grid = Grid {
                blocks: 132,
                least,
                combine,
            };
            let name = format!("{name} {combine:?}");
            arms.push((
                name,
                problem.clone(),
                decode_plan(problem, shape, grid, H200),
            ));
        }
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// How much is on its way, and one or two blocks a multiprocessor.
fn stages(problem: &Problem) -> Set {
    let mut arms = vec![chosen(problem)];
    let base = decode_shape(problem, H200);
    for (keys, stages) in [(1, 2), (1, 3), (1, 4), (2, 4), (2, 6), (2, 3)] {
        let keys = base.keys / keys;
        let name = format!("{stages} stages of {keys}");
        arms.push(dealt(name, problem, |shape, grid| {
            (
                DecodeShape {
                    keys,
                    stages,
                    ..shape
                },
                Grid {
                    least: grid.least * (base.keys / keys),
                    ..grid
                },
            )
        }));
    }
    for stages in [2, 3] {
        let name = format!("two blocks, {stages} stages");
        arms.push(dealt(name, problem, |shape, grid| {
            let least = (grid.least / 2).max(1);
            let blocks = 264;
            (
                DecodeShape { stages, ..shape },
                Grid {
                    blocks,
                    least,
                    ..grid
                },
            )
        }));
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// The same lengths, whole and in pages.
fn paged(problem: &Problem) -> Set {
    let Lengths::Same { batch, keys, .. } = problem.lengths else {
        unreachable!("a shape of `decode`");
    };
    let mut arms = vec![chosen(problem)];
    for page_size in [None, Some(16), Some(32), Some(64), Some(128), Some(256)] {
        let mut other = Problem::ragged(
            vec![(1, keys); batch as usize],
            problem.heads,
            problem.head_dim,
        );
        (other.kv_heads, other.dtype, other.page_size) =
            (problem.kv_heads, problem.dtype, page_size);
        let (_, other, plan) = chosen(&other);
        let name = page_size.map_or("packed".into(), |size| format!("pages of {size}"));
        arms.push((name, other, plan));
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// Keys and values of 8 bits beside those of 16: whole, and in pages.
fn tiny(problem: &Problem) -> Set {
    let Lengths::Same { batch, keys, .. } = problem.lengths else {
        unreachable!("a shape of `decode`");
    };
    let mut arms = vec![chosen(problem)];
    let mut small = problem.clone();
    small.cache = Cache::E4m3;
    let (_, _, plan) = chosen(&small);
    arms.push(("e4m3".into(), small.clone(), plan));
    for (keys, stages, blocks) in [(64, 3, 1), (64, 6, 1), (128, 2, 2), (64, 4, 2), (256, 3, 1)] {
        let base = decode_shape(&small, H200);
        let shape = DecodeShape {
            keys,
            stages,
            ..base
        };
        let grid = decode_grid(&small, &shape, H200);
        let dealt = Grid {
            blocks: grid.blocks * blocks,
            least: (grid.least / blocks).max(1),
            // Shares may end inside of tiles.
            combine: if blocks > 1 {
                Combine::Launch
            } else {
                grid.combine
            },
        };
        let plan = decode_plan(&small, shape, dealt, H200);
        let name = format!("e4m3 {stages} stages of {keys}, {blocks} blocks");
        arms.push((name, small.clone(), plan));
    }
    for (cache, mark) in [(Cache::Same, ""), (Cache::E4m3, "e4m3 ")] {
        for page_size in [Some(16), Some(64), Some(128)] {
            let lengths = vec![(1, keys); batch as usize];
            let mut other = Problem::ragged(lengths, problem.heads, problem.head_dim);
            (other.kv_heads, other.dtype, other.page_size, other.cache) =
                (problem.kv_heads, problem.dtype, page_size, cache);
            let (_, other, plan) = chosen(&other);
            let size = page_size.unwrap_or(0);
            arms.push((format!("{mark}pages of {size}"), other, plan));
        }
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// A shape of a decoding kernel with as many stages as there is room for, up to `most`.
fn with_stages(shape: DecodeShape, most: u32) -> DecodeShape {
    let stages = (2..=most).rev().find(|&stages| {
        let shape = DecodeShape { stages, ..shape };
        shape.shared_bytes() <= H200.arch.limits().shared_opt_in
    });
    DecodeShape {
        stages: stages.unwrap_or(2),
        ..shape
    }
}

/// Every plausible way to deal a shape, beside what is chosen.
fn ways(problem: &Problem) -> Set {
    let mut arms = vec![chosen(problem)];
    let own = decode_shape(problem, H200);
    let grid = decode_grid(problem, &own, H200);
    let mut try_out = |name: &str, shape: DecodeShape, grid: Grid| {
        let plan = decode_plan(problem, shape, grid, H200);
        arms.push((name.into(), problem.clone(), plan));
    };
    let dealt = |shape: &DecodeShape, blocks: u32, combine: Combine| Grid {
        blocks,
        least: (65536 / shape.stage_bytes()).max(1),
        combine,
    };
    try_out("last, 132", own, dealt(&own, 132, Combine::LastBlock));
    try_out("launch, 132", own, dealt(&own, 132, Combine::Launch));
    let Lengths::Same { batch, keys, .. } = problem.lengths else {
        unreachable!("a shape of `decode`");
    };
    let group = problem.heads / problem.kv_heads;
    let tiles = batch * problem.kv_heads * group.div_ceil(own.rows());
    let of_tile = keys.div_ceil(own.keys);
    let whole = |most: u32| Grid {
        blocks: tiles.div_ceil(tiles.div_ceil(most)),
        least: tiles.div_ceil(most) * of_tile,
        combine: Combine::Nobody,
    };
    if tiles >= 100 {
        try_out("whole, 132", own, whole(132));
        try_out("whole, one each", own, whole(tiles));
    }
    let two = DecodeShape { stages: 2, ..own };
    try_out("two stages", two, grid);
    try_out(
        "two stages, last, 264",
        two,
        dealt(&two, 264, Combine::LastBlock),
    );
    if own.rows() == 16 {
        let wide = DecodeShape {
            keys: 2 * own.keys,
            ..own
        };
        let wide = with_stages(wide, 2);
        try_out("twice the keys", wide, decode_grid(problem, &wide, H200));
    }
    if own.rows() > 16 {
        let narrow = DecodeShape {
            keys: own.keys / 2,
            ..own
        };
        let narrow = with_stages(narrow, 3);
        try_out("half the keys", narrow, decode_grid(problem, &narrow, H200));
    } else {
        let eight = with_stages(
            DecodeShape {
                warps: 8,
                keys: own.keys * (1 + u32::from(own.keys < 128)),
                ..own
            },
            3,
        );
        let again = decode_grid(problem, &eight, H200);
        try_out("8 warps", eight, again);
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// Shares that begin and end with tiles, and others.
fn in_step(problem: &Problem) -> Set {
    let mut arms = vec![chosen(problem)];
    let own = decode_shape(problem, H200);
    let dealt = |blocks: u32, combine: Combine| Grid {
        blocks,
        least: (65536 / own.stage_bytes()).max(1),
        combine,
    };
    for blocks in [128, 132, 256, 264] {
        for (name, combine) in [("last", Combine::LastBlock), ("launch", Combine::Launch)] {
            let plan = decode_plan(problem, own, dealt(blocks, combine), H200);
            arms.push((format!("{blocks} {name}"), problem.clone(), plan));
        }
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// The same lengths whole and in pages, with one key head a tile, two and four.
fn neighbours(problem: &Problem) -> Set {
    let Lengths::Same { batch, keys, .. } = problem.lengths else {
        unreachable!("a shape of `decode`");
    };
    let mut arms = vec![chosen(problem)];
    let mut small = problem.clone();
    small.cache = Cache::E4m3;
    let mut dense = |name: &str, change: &dyn Fn(DecodeShape) -> DecodeShape| {
        let shape = change(decode_shape(&small, H200));
        let plan = decode_plan(&small, shape, decode_grid(&small, &shape, H200), H200);
        arms.push((format!("e4m3 {name}"), small.clone(), plan));
    };
    dense("whole", &|shape| shape);
    dense("whole, 8 warps", &|shape| {
        with_stages(DecodeShape { warps: 8, ..shape }, 3)
    });
    if problem.head_dim == 64 {
        dense("whole, one key a row", &|shape| {
            let shape = DecodeShape {
                twins: false,
                ..shape
            };
            with_stages(shape, 3)
        });
    }
    for cache in [Cache::Same, Cache::E4m3] {
        let mark = if cache == Cache::E4m3 { "e4m3 " } else { "" };
        for page_size in [None, Some(16), Some(64)] {
            let lengths = vec![(1, keys); batch as usize];
            let mut other = Problem::ragged(lengths, problem.heads, problem.head_dim);
            (other.kv_heads, other.dtype, other.page_size, other.cache) =
                (problem.kv_heads, problem.dtype, page_size, cache);
            let size = page_size.map_or("packed".into(), |size| format!("pages of {size}"));
            let (_, _, plan) = chosen(&other);
            arms.push((format!("{mark}{size}"), other.clone(), plan));
            let own = decode_shape(&other, H200);
            for heads in [1, 2, 4] {
                let row = heads * problem.head_dim * if cache == Cache::E4m3 { 1 } else { 2 };
                let warps = if heads == 1 { 4 } else { 8 };
                let least = 16 * warps / heads;
                let shape = DecodeShape {
                    heads,
                    down: heads,
                    warps,
                    keys: (16384 / row).clamp(least, 64 * warps / heads),
                    ..own
                };
                let shape = with_stages(shape, 3);
                if shape != own {
                    let plan = decode_plan(&other, shape, decode_grid(&other, &shape, H200), H200);
                    arms.push((format!("{mark}{size}, {heads} heads"), other.clone(), plan));
                }
            }
        }
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// Keys and values of 8 bits under 32 rows and more of a key head, in every storage.
fn tall(problem: &Problem) -> Set {
    let Lengths::Same { batch, keys, .. } = problem.lengths else {
        unreachable!("a shape of `decode`");
    };
    let mut arms = vec![chosen(problem)];
    let mut small = problem.clone();
    small.cache = Cache::E4m3;
    let (_, _, plan) = chosen(&small);
    arms.push(("e4m3 whole".into(), small, plan));
    for (cache, mark) in [(Cache::Same, ""), (Cache::E4m3, "e4m3 ")] {
        for page_size in [None, Some(16), Some(64)] {
            let lengths = vec![(1, keys); batch as usize];
            let mut other = Problem::ragged(lengths, problem.heads, problem.head_dim);
            (other.kv_heads, other.dtype, other.page_size, other.cache) =
                (problem.kv_heads, problem.dtype, page_size, cache);
            let (_, _, plan) = chosen(&other);
            let size = page_size.map_or("packed".into(), |size| format!("pages of {size}"));
            arms.push((format!("{mark}{size}"), other.clone(), plan));
            // Who combines, the other way.
            let (_, _, plan) = dealt(String::new(), &other, |shape, grid| {
                let combine = match grid.combine {
                    Combine::Launch => Combine::LastBlock,
                    Combine::LastBlock | Combine::Nobody => Combine::Launch,
                };
                (shape, Grid { combine, ..grid })
            });
            arms.push((format!("{mark}{size}, other combine"), other, plan));
        }
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// Latent attention in pages of 64: what is chosen, either way to combine, and second tiles of sequences in rounds of their own.
fn latent(batch: u32, heads: u32, queries: u32, keys: u32) -> Set {
    let mut problem = Problem::ragged(vec![(queries, keys); batch as usize], heads, 576);
    (problem.kv_heads, problem.dtype, problem.page_size) = (1, Dtype::Bf16, Some(64));
    (problem.cache, problem.value_dim) = (Cache::Latent, Some(512));
    let mut arms = vec![chosen(&problem)];
    for combine in [Combine::LastBlock, Combine::Launch] {
        let name = format!("{combine:?}");
        arms.push(dealt(name, &problem, |shape, grid| {
            (shape, Grid { combine, ..grid })
        }));
    }
    let rounds = (heads * queries).div_ceil(64);
    if rounds > 1 {
        arms.push(dealt("in rounds".into(), &problem, |shape, grid| {
            (DecodeShape { rounds, ..shape }, grid)
        }));
    }
    Set { problem, arms }
}

/// Shapes at random, the same in every run with the same number.
fn any_decode(count: usize, seed: u64) -> Vec<Problem> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = Vec::new();
    while all.len() < count {
        let kv_heads = 1u32 << random.u32(0..6);
        let group = 1u32 << random.u32(0..6);
        let most = 1 << random.u32(0..9);
        let batch = random.u32(1..=most);
        let keys = random.u32(4..64) << random.u32(7..12);
        let dim = [64, 128][random.usize(0..2)];
        let bytes = u64::from(batch * kv_heads) * u64::from(keys * dim) * 4;
        if kv_heads * group <= 128 && (8_000_000..1_200_000_000).contains(&bytes) {
            let dtype = [Dtype::F16, Dtype::Bf16][random.usize(0..2)];
            all.push(decode(batch, kv_heads * group, kv_heads, keys, dim, dtype));
        }
    }
    all
}

/// Short sequences at random, the same in every run with the same number: what is chosen.
fn any_short(count: usize, seed: u64) -> Vec<Set> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = Vec::new();
    while all.len() < count {
        let (batch, heads) = (random.u32(1..=48), random.u32(4..=32));
        let length = random.u32(8..=64) * 16;
        let mut problem = Problem::new(batch, heads, length, [64, 128][random.usize(0..2)]);
        problem.mask = [Mask::Full, Mask::Causal][random.usize(0..2)];
        problem.dtype = [Dtype::F16, Dtype::Bf16][random.usize(0..2)];
        if (2e7..3e8).contains(&problem.work().bytes) {
            all.push(Set {
                arms: vec![chosen(&problem)],
                problem,
            });
        }
    }
    all
}

/// Several queries, as speculative decoding has them.
fn speculative(queries: u32, kv_heads: u32) -> Set {
    let mut problem = decode(16, 32, kv_heads, 8192, 128, Dtype::Bf16);
    problem.lengths = Lengths::Same {
        batch: 16,
        queries,
        keys: 8192,
    };
    problem.mask = Mask::Causal;
    let mut split = problem.clone();
    split.weights = Weights::Split;
    let (_, _, plan) = chosen(&split);
    Set {
        arms: vec![chosen(&problem), ("split weights".into(), split, plan)],
        problem,
    }
}

/// As many keys as queries: what is chosen, and warpgroups with blocks that stay.
fn short(batch: u32, heads: u32, length: u32, dim: u32, mask: Mask, dtype: Dtype) -> Set {
    let mut problem = Problem::new(batch, heads, length, dim);
    (problem.mask, problem.dtype) = (mask, dtype);
    let mut arms = vec![chosen(&problem)];
    let own = WarpgroupShape {
        shared: false,
        sharing: Sharing::None,
        ..warpgroup_shape(&problem, H200)
    };
    let wide = WarpgroupShape {
        groups: 3,
        keys: 96,
        ..own
    };
    let two = WarpgroupShape {
        groups: 2,
        keys: 128,
        ..own
    };
    let mut shapes = vec![("stay", staying(&problem, two, 1, H200))];
    let plain = WarpgroupShape {
        stay: None,
        strip: 4,
        stages: 2,
        ..two
    };
    shapes.push(("new blocks, strip 4", plain));
    if dim <= 64 {
        shapes.push(("stay wide", staying(&problem, wide, 1, H200)));
        let narrow = WarpgroupShape { keys: 64, ..two };
        shapes.push(("stay narrow", staying(&problem, narrow, 1, H200)));
    }
    // Several blocks of one warpgroup.
    let each = match dim {
        ..=64 => &[(64, 2), (128, 2), (64, 3), (64, 4)][..],
        _ => &[(64, 2), (96, 2)],
    };
    for &(keys, resident) in each {
        let one = WarpgroupShape {
            groups: 1,
            keys,
            ..own
        };
        let name = ["", "", "two of", "three of", "four of"][resident as usize];
        shapes.push((name, staying(&problem, one, resident, H200)));
    }
    // Keys shared by the warpgroups of a block, where there is a block for each tile.
    if u64::from(length.div_ceil(64)) * u64::from(heads * batch) <= 132 {
        let parts = match dim {
            ..=64 => &[(2, 64), (2, 128), (3, 80), (4, 64)][..],
            _ => &[(2, 64), (2, 48)],
        };
        for &(groups, keys) in parts {
            let shared = WarpgroupShape {
                groups,
                keys,
                shared: true,
                ..own
            };
            let name = ["", "", "by two,", "by three,", "by four,"][groups as usize];
            shapes.push((name, staying(&problem, shared, 1, H200)));
        }
    }
    // And by two blocks.
    if u64::from(length.div_ceil(64)) * u64::from(heads * batch) <= 132 {
        for keys in [64, 128] {
            let pair = WarpgroupShape {
                groups: 1,
                keys,
                sharing: Sharing::Two,
                ..own
            };
            shapes.push(("a pair", staying(&problem, pair, 2, H200)));
        }
        let ladder = FAMILY.plan(Some("large"), &problem, H200);
        arms.push(("ladder".into(), problem.clone(), ladder));
    }
    for (name, shape) in shapes {
        let schedule = Schedule::new(TileSource::Direct);
        let plan = warpgroup_plan(&problem, shape, &schedule, H200);
        arms.push((format!("{name} {}", shape.keys), problem.clone(), plan));
    }
    Set { problem, arms }
}

/// How levels of the softmax are found, and who waits for whom: what is chosen, each way.
fn levels(batch: u32, heads: u32, length: u32, dim: u32, mask: Mask) -> Set {
    let mut problem = Problem::new(batch, heads, length, dim);
    (problem.mask, problem.dtype) = (mask, Dtype::Bf16);
    let mut arms = vec![chosen(&problem)];
    let own = WarpgroupShape {
        lazy: false,
        ..warpgroup_shape(&problem, H200)
    };
    let mut shapes = vec![("own", own)];
    if dim <= 64 && length >= 2048 {
        for (groups, keys) in [(3, 96), (3, 80), (2, 128)] {
            shapes.push((
                "new",
                WarpgroupShape {
                    groups,
                    keys,
                    ..own
                },
            ));
        }
    }
    if own.stay.is_some() {
        let with = |groups, keys, resident| {
            let shape = WarpgroupShape {
                groups,
                keys,
                ..own
            };
            staying(&problem, shape, resident, H200)
        };
        shapes.push(("two 128", with(2, 128, 1)));
        shapes.push(("two 64", with(2, 64, 1)));
        let one = match dim {
            ..=64 => &[(64, 3), (96, 3), (128, 2)][..],
            _ => &[(64, 2)],
        };
        for &(keys, resident) in one {
            shapes.push(("one", with(1, keys, resident)));
        }
        if dim <= 64 {
            shapes.push(("three 96", with(3, 96, 1)));
        }
    }
    let schedule = warpgroup_schedule(&problem, H200);
    for (name, shape) in shapes {
        for (lazy, turns) in [(false, false), (true, false), (false, true), (true, true)] {
            if turns && shape.groups != 2 {
                continue;
            }
            let shape = WarpgroupShape {
                lazy,
                turns,
                ..shape
            };
            let plan = warpgroup_plan(&problem, shape, &schedule, H200);
            let (lazy, turns) = (
                if lazy { " lazy" } else { "" },
                if turns { " turns" } else { "" },
            );
            let tile = format!("{}x{}x{}", shape.groups, shape.keys, shape.resident());
            let name = format!("{name} {tile}{lazy}{turns}");
            arms.push((name, problem.clone(), plan));
        }
    }
    Set { problem, arms }
}

/// Heads of 128 elements and few keys: blocks of every size, in turns and not.
fn narrow(batch: u32, heads: u32, length: u32, mask: Mask) -> Set {
    let mut problem = Problem::new(batch, heads, length, 128);
    (problem.mask, problem.dtype) = (mask, Dtype::Bf16);
    let mut arms = vec![chosen(&problem)];
    let own = WarpgroupShape {
        lazy: true,
        ..warpgroup_shape(&problem, H200)
    };
    let schedule = warpgroup_schedule(&problem, H200);
    for (groups, keys, resident) in [(2, 64, 1), (2, 96, 1), (2, 128, 1), (1, 64, 2)] {
        for (strip, turns) in [(1, false), (2, false), (1, true)] {
            let fits = turns && groups != 2 || strip == 2 && mask == Mask::Full;
            if fits || strip == 1 && mask == Mask::Causal {
                continue;
            }
            let shape = WarpgroupShape {
                groups,
                keys,
                strip,
                turns,
                ..own
            };
            let shape = staying(&problem, shape, resident, H200);
            let plan = warpgroup_plan(&problem, shape, &schedule, H200);
            let turns = if turns { " turns" } else { "" };
            let name = format!("{groups}x{keys}x{resident} strip {strip}{turns}");
            arms.push((name, problem.clone(), plan));
        }
    }
    Set { problem, arms }
}

/// Short and long ones.
fn level_sets() -> Vec<Set> {
    let shapes = [
        (32, 16, 256, 64),
        (16, 16, 1024, 64),
        (16, 32, 256, 128),
        (8, 32, 512, 128),
        (8, 16, 2048, 128),
        (4, 32, 4096, 64),
        (1, 16, 16384, 128),
    ];
    let masks = [Mask::Full, Mask::Causal];
    let set =
        |(batch, heads, length, dim)| masks.map(|mask| levels(batch, heads, length, dim, mask));
    shapes.into_iter().flat_map(set).collect()
}

/// 128 to 1024 tokens.
fn short_sets() -> Vec<Set> {
    let shapes = [
        (64, 12, 128, 64),
        (16, 12, 384, 64),
        (32, 16, 256, 64),
        (16, 16, 1024, 64),
        (16, 16, 128, 128),
        (16, 32, 256, 128),
        (8, 32, 512, 128),
        (4, 32, 1024, 128),
    ];
    let masks = [Mask::Full, Mask::Causal];
    let set = |(batch, heads, length, dim)| {
        masks.map(|mask| short(batch, heads, length, dim, mask, Dtype::Bf16))
    };
    shapes.into_iter().flat_map(set).collect()
}

/// 2k to 16k tokens.
fn long_sets() -> Vec<Set> {
    let masks = [Mask::Full, Mask::Causal];
    let shapes = [
        (8, 16, 2048, 128),
        (2, 16, 8192, 128),
        (1, 16, 16384, 128),
        (4, 32, 4096, 64),
    ];
    let set = |(batch, heads, length, dim)| {
        masks.map(|mask| short(batch, heads, length, dim, mask, Dtype::Bf16))
    };
    shapes.into_iter().flat_map(set).collect()
}

/// Fewer tiles than multiprocessors.
fn few_sets() -> Vec<Set> {
    let shapes = [
        (1, 8, 128, 64),
        (2, 8, 128, 64),
        (8, 8, 128, 64),
        (1, 8, 256, 64),
        (3, 8, 256, 64),
        (1, 4, 1024, 64),
        (1, 8, 512, 64),
        (2, 8, 512, 64),
        (1, 8, 1024, 64),
        (1, 16, 768, 64),
        (2, 12, 320, 64),
        (1, 8, 128, 128),
        (4, 8, 128, 128),
        (1, 8, 256, 128),
        (3, 8, 256, 128),
        (1, 4, 1024, 128),
        (1, 8, 512, 128),
        (1, 16, 512, 128),
        (1, 8, 1024, 128),
    ];
    let masks = [Mask::Full, Mask::Causal];
    let set = |(batch, heads, length, dim)| {
        masks.map(|mask| short(batch, heads, length, dim, mask, Dtype::Bf16))
    };
    shapes.into_iter().flat_map(set).collect()
}

/// The small shape of the field reports, with keys shared out in several ways.
fn one_set() -> Set {
    let mut set = short(1, 8, 512, 64, Mask::Full, Dtype::F16);
    let problem = set.problem.clone();
    let own = Config::suited(Rung::Large, &problem, H200);
    for (down, across, cols) in [
        (2, 4, 64),
        (2, 4, 32),
        (2, 8, 64),
        (2, 8, 32),
        (1, 4, 64),
        (1, 8, 64),
        (4, 4, 64),
        (4, 2, 64),
    ] {
        let config = Config {
            down,
            across,
            cols,
            splits: 1,
            ..own
        };
        let schedule = schedule(&config, &problem, H200);
        let job = job(&problem, &config, &schedule, H200);
        let plan = job.map(|job| LaunchPlan::of_job("large", job));
        set.arms.push((config.to_string(), problem.clone(), plan));
    }
    set
}

/// Gradients of 16k tokens with a hidden size of 2048, for `bench/kernels/backward.py`.
fn backward_sets() -> Vec<Set> {
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
fn cut_sets() -> Vec<Set> {
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
fn grid_sets() -> Vec<Set> {
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

/// Lengths of ten batches, 16 heads: one long sequence among short ones, power laws, two kinds.
fn packed_batches() -> Vec<(Vec<u32>, u32, Mask)> {
    let zipf = |count: u32, first: u32| (1..=count).map(|i| (first / i).max(64)).collect();
    let with = |long: u32, count: usize, short: u32| {
        let mut all = vec![short; count];
        all.insert(count / 2, long);
        all
    };
    let uniform = (0..32u32).map(|i| 128 + (i * 1237) % 1920).collect();
    let geometric = (0..12u32).map(|i| 8192u32 >> (i / 2)).collect();
    let lognormal = (0..48u32)
        .map(|i| {
            let at = (f64::from((i * 29) % 48) + 0.5) / 48.0;
            (600.0 * (1.2 * (at / (1.0 - at)).ln() / 1.7).exp()) as u32
        })
        .collect();
    let two: Vec<u32> = (0..64)
        .map(|i| if i % 16 == 0 { 4096 } else { 256 })
        .collect();
    let short = (0..128u32).map(|i| 32 + (i * 97) % 480).collect();
    vec![
        (with(8192, 63, 128), 128, Mask::Causal),
        (zipf(64, 16384), 128, Mask::Causal),
        (uniform, 128, Mask::Causal),
        (geometric, 128, Mask::Causal),
        (lognormal, 128, Mask::Full),
        (two, 128, Mask::Full),
        (vec![2048; 8], 128, Mask::Causal),
        (zipf(64, 16384), 64, Mask::Full),
        (with(16384, 100, 64), 64, Mask::Causal),
        (short, 64, Mask::Causal),
    ]
}

/// A packed batch: what is chosen, and every way to hand out its tiles.
fn packed_set((lengths, dim, mask): (Vec<u32>, u32, Mask)) -> Set {
    let each = lengths.iter().map(|&length| (length, length)).collect();
    let mut problem = Problem::ragged(each, 16, dim);
    (problem.mask, problem.dtype) = (mask, Dtype::Bf16);
    let mut arms = vec![chosen(&problem)];
    let own = warpgroup_shape(&problem, H200).scheduled();
    let longest = WarpgroupShape {
        listed: None,
        ..own
    };
    let listed = own;
    let narrow = WarpgroupShape {
        groups: 2,
        keys: 128,
        ..listed
    };
    for source in [TileSource::Direct, TileSource::Static, TileSource::Ticket] {
        for (name, shape) in [("for the longest", longest), ("listed", listed)] {
            let mut schedule = Schedule::new(source);
            if shape.listed.is_none() {
                schedule.order = warpgroup_schedule(&problem, H200).order;
            }
            let plan = warpgroup_plan(&problem, shape, &schedule, H200);
            arms.push((format!("{name} {source}"), problem.clone(), plan));
        }
    }
    let direct = Schedule::new(TileSource::Direct);
    let mut stay = |shape: WarpgroupShape, name: &str| {
        let shape = staying(&problem, shape, 1, H200);
        let plan = warpgroup_plan(&problem, shape, &direct, H200);
        arms.push((format!("{name} stay"), problem.clone(), plan));
    };
    if narrow != listed {
        stay(narrow, "listed 128x128");
    }
    for heads in [1, 2, 4, 8, 16] {
        let shape = WarpgroupShape {
            listed: Some(heads),
            ..listed
        };
        stay(shape, &format!("listed {heads}"));
    }
    Set { problem, arms }
}

/// Problems drawn near the border between warpgroups and the ladder: few queries or few keys, few tiles, wide heads.
fn either_sets(count: usize, seed: u64) -> Vec<Set> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut sets = Vec::new();
    while sets.len() < count {
        let mut length = |least: f64, most: f64| (least * (most / least).powf(rng.f64())) as u32;
        let (queries, keys, lines) = (
            length(33.0, 3000.0),
            length(33.0, 3000.0),
            length(1.0, 1500.0),
        );
        let dim = rng
            .choice([64, 80, 96, 128, 128, 128, 160, 192, 256])
            .unwrap_or(128);
        let causal = rng.bool();
        let heads = [16, 8, 4, 2, 1]
            .into_iter()
            .find(|heads| lines >= heads * heads)
            .unwrap_or(1);
        let keys = if causal || rng.bool() { queries } else { keys };
        let batch = lines / heads;
        let mut problem = Problem::new(batch, heads, queries, dim);
        problem.lengths = Lengths::Same {
            batch,
            queries,
            keys,
        };
        problem.dtype = Dtype::Bf16;
        problem.kv_heads = heads.div_ceil(rng.choice([1, 1, 2, 4]).unwrap_or(1));
        problem.mask = if causal { Mask::Causal } else { Mask::Full };
        if problem.work().flops > 3e10 {
            continue;
        }
        let arm = |name: &str| {
            (
                name.to_owned(),
                problem.clone(),
                FAMILY.plan(Some(name), &problem, H200),
            )
        };
        let arms = vec![chosen(&problem), arm("wgmma"), arm("large")];
        sets.push(Set { problem, arms });
    }
    sets
}

/// Numbers between two, as often of each size.
fn between(rng: &mut fastrand::Rng, least: u32, most: u32) -> u32 {
    let (least, most) = (f64::from(least), f64::from(most));
    (least * (most / least).powf(rng.f64())).round() as u32
}

/// A problem of sequences that are alike.
fn alike(
    (batch, heads, kv_heads): (u32, u32, u32),
    (queries, keys): (u32, u32),
    dim: u32,
    causal: bool,
) -> Problem {
    let mut problem = Problem::new(batch, heads, queries, dim);
    problem.lengths = Lengths::Same {
        batch,
        queries,
        keys,
    };
    (problem.dtype, problem.kv_heads) = (Dtype::Bf16, kv_heads);
    problem.mask = if causal { Mask::Causal } else { Mask::Full };
    problem
}

/// Few tiles and many keys, those of a survey and others at random: what is chosen, keys shared by one to eight
/// blocks, larger tiles and the ladder.
fn spread_sets(count: usize, seed: u64) -> Vec<Set> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut problems = vec![
        alike((4, 4, 4), (97, 4655), 64, false),
        alike((1, 1, 1), (2593, 2593), 64, false),
        alike((1, 1, 1), (1493, 1493), 128, false),
        alike((2, 1, 1), (5141, 5141), 64, true),
    ];
    problems.extend((0..count).map(|number| {
        let (dim, causal) = ([64, 128][number % 2], number % 4 >= 2);
        let tiles = rng.u32(4..if causal { 170 } else { 100 });
        let along = between(&mut rng, 1, tiles);
        let lines = (tiles / along).max(1);
        let heads = [8, 4, 2, 1].into_iter().find(|heads| lines >= *heads);
        let heads = heads.unwrap_or(1);
        let queries = along * 64 - rng.u32(0..40);
        let keys = match causal {
            true => queries.max(256),
            false => between(&mut rng, 256, 16384),
        };
        alike((lines / heads, heads, heads), (queries, keys), dim, causal)
    }));
    problems.iter().map(spread).collect()
}

/// The arms of a problem of few tiles.
fn spread(problem: &Problem) -> Set {
    let mut arms = vec![chosen(problem)];
    let direct = Schedule::new(TileSource::Direct);
    let own = warpgroup_shape(problem, H200).scheduled();
    let mut add = |name: String, shape: WarpgroupShape| {
        let plan = warpgroup_plan(problem, shape, &direct, H200);
        arms.push((name, problem.clone(), plan));
    };
    let (queries, _) = problem.longest();
    let tiles = queries.div_ceil(64) * problem.heads * problem.sequences().len() as u32;
    for sharing in Sharing::ALL {
        if sharing.blocks() * tiles > 10 * H200.sms {
            continue;
        }
        let suited = clustered_keys(problem, sharing);
        let all = if suited > 64 {
            vec![suited, 64]
        } else {
            vec![suited]
        };
        for keys in all {
            let shape = WarpgroupShape {
                groups: 1,
                keys,
                sharing,
                ..own
            };
            let shape = with_levels(problem, staying(problem, shape, 2, H200));
            add(format!("by {} x{keys}", sharing.blocks()), shape);
            if sharing == Sharing::None && tiles > 2 * H200.sms {
                add(format!("a block each x{keys}"), shape.a_block_each());
            }
        }
    }
    let large = WarpgroupShape {
        groups: 2,
        keys: 128,
        ..own
    };
    add("large tiles".into(), with_levels(problem, large));
    let ladder = FAMILY.plan(Some("large"), problem, H200);
    arms.push(("ladder".into(), problem.clone(), ladder));
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// Wide heads and short sequences, those of a survey and others at random: what is chosen, tiles of two warpgroups, and
/// of one, of which a multiprocessor holds two blocks: those that stay, and one for each tile.
fn broad_sets(count: usize, seed: u64) -> Vec<Set> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut problems = vec![
        alike((12, 64, 8), (52, 52), 256, true),
        alike((5, 16, 8), (161, 57), 256, false),
        alike((29, 32, 8), (532, 532), 256, true),
        alike((52, 16, 8), (87, 87), 192, true),
        alike((9, 32, 8), (249, 249), 192, true),
        alike((33, 16, 2), (95, 95), 192, false),
        alike((55, 32, 4), (110, 110), 160, true),
        alike((42, 16, 16), (294, 294), 160, true),
    ];
    problems.extend((0..count).map(|number| {
        let dim = [256, 192, 256, 160, 192, 256, 144, 192][number % 8];
        let tokens = between(&mut rng, 32, 800);
        let lines = between(&mut rng, 16, 3000).min(400_000 / tokens);
        let heads = [32, 16, 8].into_iter().find(|heads| lines >= 2 * heads);
        let heads = heads.unwrap_or(8);
        let kv_heads = heads / rng.choice([1, 2, 4, 8]).unwrap_or(1);
        let batch = (lines / heads).max(1);
        alike(
            (batch, heads, kv_heads),
            (tokens, tokens),
            dim,
            number % 3 != 0,
        )
    }));
    problems.iter().map(broad).collect()
}

/// The arms of a problem of wide heads.
fn broad(problem: &Problem) -> Set {
    let mut arms = vec![chosen(problem)];
    let direct = Schedule::new(TileSource::Direct);
    let own = WarpgroupShape {
        keys: if problem.head_dim <= 192 { 80 } else { 64 },
        ..warpgroup_shape(problem, H200).scheduled()
    };
    let mut add = |name: String, shape: WarpgroupShape, schedule: &Schedule| {
        let plan = warpgroup_plan(problem, with_levels(problem, shape), schedule, H200);
        arms.push((name, problem.clone(), plan));
    };
    let mut late = direct.clone();
    if problem.mask == Mask::Causal {
        late.order = AnyOrder::new(HeaviestFirst {
            heads: problem.heads,
        });
    }
    add("two warpgroups".into(), own, &late);
    for keys in [32, 48, 64] {
        let one = WarpgroupShape {
            groups: 1,
            keys,
            ..own
        };
        let shape = staying(problem, one, 2, H200);
        if !shape.fits(H200) {
            continue;
        }
        add(format!("one x{keys} stays"), shape, &direct);
        add(
            format!("one x{keys} a tile each"),
            shape.a_block_each(),
            &direct,
        );
    }
    Set {
        problem: problem.clone(),
        arms,
    }
}

/// Long sequences of few heads under a causal mask: their tiles are more than a wave, and the longest alone is what is waited for.
fn lone_sets(count: usize, seed: u64) -> Vec<Set> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut problems = vec![alike((2, 1, 1), (7853, 7853), 64, true)];
    problems.extend((0..count).map(|number| {
        let lines = between(&mut rng, 1, 24);
        let tiles = rng.u32(140..700);
        let tokens = tiles / lines * 64 - rng.u32(0..40);
        alike(
            (1, lines, lines),
            (tokens, tokens),
            [64, 128][number % 2],
            true,
        )
    }));
    problems.iter().map(spread).collect()
}

/// Many queries and few keys, as where pictures attend to texts.
fn cross_sets(count: usize, seed: u64) -> Vec<Set> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut problems = vec![
        alike((24, 4, 1), (1483, 73), 128, false),
        alike((4, 10, 10), (4096, 77), 64, false),
        alike((4, 8, 8), (1024, 77), 80, false),
    ];
    problems.extend((0..count).map(|number| {
        let (queries, keys) = (between(&mut rng, 100, 5000), between(&mut rng, 16, 2000));
        let lines = between(&mut rng, 8, 200).max(40_000 / queries);
        alike(
            (lines.div_ceil(8), 8, 8),
            (queries, keys),
            [64, 128, 64, 128, 96][number % 5],
            false,
        )
    }));
    problems.iter().map(cross).collect()
}

/// Sequences under a causal mask at random.
fn causal_sets(count: usize, seed: u64, [least, most]: [u32; 2]) -> Vec<Set> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let problems = (0..count).map(|number| {
        let tokens = between(&mut rng, least, most);
        let lines = between(&mut rng, 8, 800).clamp(8_000 / tokens, 800_000 / tokens);
        alike(
            (lines.div_ceil(8), 8, 8),
            (tokens, tokens),
            [64, 128, 64, 128, 96][number % 5],
            true,
        )
    });
    problems.map(|problem| cross(&problem)).collect()
}

/// The arms of a problem of few keys: blocks that stay, of every size of a block of keys.
fn cross(problem: &Problem) -> Set {
    let mut arms = vec![chosen(problem)];
    let direct = Schedule::new(TileSource::Direct);
    let own = WarpgroupShape {
        sharing: Sharing::None,
        ..warpgroup_shape(problem, H200).scheduled()
    };
    for (groups, residents) in [(1, 2..=3), (2, 1..=1), (3, 1..=1)] {
        for (keys, resident) in [32, 48, 64, 80, 96, 128]
            .into_iter()
            .flat_map(|keys| residents.clone().map(move |resident| (keys, resident)))
        {
            // Blocks that are filled, and not many small ones.
            let (_, all) = problem.longest();
            let blocks = all.div_ceil(keys);
            let padding = blocks * keys - all;
            if blocks > 4 && keys < 64 || padding > all / 4 + 16 {
                continue;
            }
            let shape = WarpgroupShape {
                groups,
                keys,
                ..own
            };
            let shape = with_levels(problem, staying(problem, shape, resident, H200));
            if !shape.fits(H200) {
                continue;
            }
            let mut add = |what: &str, shape: WarpgroupShape| {
                let plan = warpgroup_plan(problem, shape, &direct, H200);
                let name = format!("{groups}x{keys} {resident} at a time{what}");
                arms.push((name, problem.clone(), plan));
            };
            add("", shape);
            if problem.mask == Mask::Causal {
                let strip = 3 - shape.strip;
                add(
                    &format!(", strips of {strip}"),
                    WarpgroupShape { strip, ..shape },
                );
                add(", a block each", shape.a_block_each());
            }
        }
    }
    Set {
        problem: problem.clone(),
        arms,
    }
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn map(map: &TensorMap) -> Value {
    let TensorMap {
        buffer: BufferRef::Named(buffer),
        ..
    } = map
    else {
        return Value::Null;
    };
    json!({
        "map": buffer, "element": map.element.as_str(), "dims": map.dims, "strides": map.strides,
        "box": map.box_dims, "element_strides": map.element_strides,
        "swizzle": map.swizzle.as_str(), "l2": map.l2.as_str(),
    })
}

fn parameter(arg: &Arg) -> Value {
    match arg {
        Arg::Scalar(scalar) => json!({ "hex": hex(&scalar.to_bytes()) }),
        Arg::Bytes(bytes) => json!({ "hex": hex(bytes) }),
        Arg::Buffer { data, .. } => json!({ "own": hex(data.bytes()) }),
        Arg::Pointer {
            buffer: BufferRef::Named(name),
            ..
        } => json!({ "buffer": name }),
        Arg::Pointer { .. } | Arg::Struct(_) | Arg::Function(_) => Value::Null,
        Arg::TensorMap(tensor) => map(tensor),
    }
}

fn describe(
    directory: &Path,
    files: &mut BTreeMap<String, String>,
    name: &str,
    problem: &Problem,
    plan: &LaunchPlan,
) -> Result<Value, Box<dyn std::error::Error>> {
    let mut steps = Vec::new();
    for step in &plan.steps {
        // Kernels are the same for many shapes.
        let (text, next) = (step.ptx(), format!("{}.ptx", files.len()));
        let file = files.entry(text.clone()).or_insert(next).clone();
        std::fs::write(directory.join(&file), text)?;
        let (grid, block) = (step.launch.grid, step.launch.block);
        steps.push(json!({
            "ptx": file, "entry": step.entry, "grid": [grid.x, grid.y, grid.z],
            "block": [block.x, block.y, block.z], "shared": step.launch.dynamic_shared,
            "overlaps": step.overlaps,
            "params": step.params.iter().map(parameter).collect::<Vec<_>>(),
        }));
    }
    let buffers = plan
        .buffers
        .iter()
        .map(|buffer| json!({ "name": buffer.name, "bytes": buffer.bytes() }));
    Ok(json!({
        "name": name, "plan": plan.name, "variant": plan.variant,
        "page": problem.page_size, "ragged": problem.is_ragged(),
        "cache": problem.cache.to_string(), "bytes": problem.work().bytes,
        "table": problem.page_table(),
        "buffers": buffers.collect::<Vec<_>>(), "steps": steps,
    }))
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
