//! Problems drawn at random, with the plans that might suit.

use super::{H200, Set, chosen};
use heist_kernels::attention::{
    Dtype, FAMILY, HeaviestFirst, Lengths, Mask, Problem, Sharing, WarpgroupShape, clustered_keys,
    staying, warpgroup_plan, warpgroup_shape, with_levels,
};
use heist_sched::{AnyOrder, Schedule, TileSource};

/// Problems drawn near the border between warpgroups and the ladder: few queries or few keys, few tiles, wide heads.
pub(crate) fn either_sets(count: usize, seed: u64) -> Vec<Set> {
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
pub(crate) fn spread_sets(count: usize, seed: u64) -> Vec<Set> {
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
pub(crate) fn broad_sets(count: usize, seed: u64) -> Vec<Set> {
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
pub(crate) fn lone_sets(count: usize, seed: u64) -> Vec<Set> {
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
pub(crate) fn cross_sets(count: usize, seed: u64) -> Vec<Set> {
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
pub(crate) fn causal_sets(count: usize, seed: u64, [least, most]: [u32; 2]) -> Vec<Set> {
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
