//! Short sequences, few tiles, and long ones beside them.

use super::{H200, Set, chosen};
use heist_kernels::LaunchPlan;
use heist_kernels::attention::{
    Config, Dtype, FAMILY, Mask, Problem, Rung, Sharing, WarpgroupShape, job, schedule, staying,
    warpgroup_plan, warpgroup_schedule, warpgroup_shape,
};
use heist_sched::{Schedule, TileSource};

/// Short sequences at random, the same in every run with the same number: what is chosen.
pub(crate) fn any_short(count: usize, seed: u64) -> Vec<Set> {
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

/// As many keys as queries: what is chosen, and warpgroups with blocks that stay.
fn short(batch: u32, heads: u32, length: u32, dim: u32, mask: Mask, dtype: Dtype) -> Set {
    let mut problem = Problem::new(batch, heads, length, dim);
    (problem.mask, problem.dtype) = (mask, dtype);
    let mut arms = vec![chosen(&problem)];
    let own = WarpgroupShape {
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
    // Keys shared by two blocks, where there is a block for each tile.
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
pub(crate) fn narrow(batch: u32, heads: u32, length: u32, mask: Mask) -> Set {
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
pub(crate) fn level_sets() -> Vec<Set> {
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
pub(crate) fn short_sets() -> Vec<Set> {
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
pub(crate) fn long_sets() -> Vec<Set> {
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
pub(crate) fn few_sets() -> Vec<Set> {
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
pub(crate) fn one_set() -> Set {
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
