//! Few queries and many keys.

use super::{H200, Set, chosen};
use heist_kernels::attention::{
    Cache, Combine, DecodeShape, Dtype, Grid, Lengths, Mask, Problem, Weights, decode_grid,
    decode_plan, decode_shape,
};
use heist_kernels::{KernelError, LaunchPlan};

pub(crate) fn decode(
    batch: u32,
    heads: u32,
    kv_heads: u32,
    keys: u32,
    dim: u32,
    dtype: Dtype,
) -> Problem {
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
pub(crate) fn decode_shapes() -> Vec<Problem> {
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
pub(crate) fn deals(problem: &Problem) -> Set {
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
pub(crate) fn combines(problem: &Problem) -> Set {
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
pub(crate) fn stages(problem: &Problem) -> Set {
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
pub(crate) fn paged(problem: &Problem) -> Set {
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
pub(crate) fn tiny(problem: &Problem) -> Set {
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
pub(crate) fn ways(problem: &Problem) -> Set {
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
pub(crate) fn in_step(problem: &Problem) -> Set {
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
pub(crate) fn neighbours(problem: &Problem) -> Set {
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
pub(crate) fn tall(problem: &Problem) -> Set {
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
pub(crate) fn latent(batch: u32, heads: u32, queries: u32, keys: u32) -> Set {
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
pub(crate) fn any_decode(count: usize, seed: u64) -> Vec<Problem> {
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

/// Several queries, as speculative decoding has them.
pub(crate) fn speculative(queries: u32, kv_heads: u32) -> Set {
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
