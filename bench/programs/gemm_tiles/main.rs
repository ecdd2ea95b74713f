//! Writes the PTX of multiplications in many tile shapes and how to launch them,
//! for `bench/kernels/gemm_tiles.py`, which runs them beside cuBLAS.
//!
//! ```text
//! cargo run -p heist-bench --bin gemm_tiles -- DIR [SET [SHAPE...]]
//! ```
//!
//! A set is `tiles` (every tile shape that may suit, from which the constants of
//! the model were taken), `orders` (clusters, orders, sources and types for larger
//! ones), `widths` (for each number of tiles across the narrowest ones, alone and in clusters), `near` (what the model
//! finds fastest, and the fastest of every kind of tile), `kinds` (what it chooses, and the fastest of a few other kinds), `many` (up to 72: the 24 that it finds fastest, and three of each kind that it finds at most 1.6 times as slow), `small` (few rows), `chosen` (what the model chooses), `thin` (operands whose rows start anywhere: what is chosen, the variants, and few rows in every tile), `tiny` (8-bit floats: what
//! it chooses first, then every tile shape), `groups` (grouped multiplications, in every
//! variant), `random-groups` (drawn at random: what is chosen, then tile shapes), `scaled-groups` (those of 8-bit floats: what is chosen, then tile shapes) or
//! `experts` (layers of experts, in pairs of tile shapes). Shapes are from models, and odd
//! ones; others are given as 1544x1544x1544: m, n, k. `random:7:40` stands for 40 drawn with the seed 7. Words besides shapes:
//! tiles such as `wgmma:128x128x64/6` are the only ones then, `tf32` or `f16` is the type of the operands, `nn`, `tn` or `tt` their layout, and `tensor`, `rows` or `blocks` the only
//! kind of scales of the set `tiny`, and `alone` what it chooses without the others there. `static` adds arms in which given tiles are dealt out in
//! advance, `early` those that ask for the next tile before this one is done, and `order=grouped(4)` adds arms in which
//! tiles go in that order.

mod groups;
#[path = "../launches.rs"]
mod launches;
mod problems;

use groups::{drawn, expert_layers, groups, scaled};
use heist_builder::Arch;
use heist_kernels::gemm::{
    Cluster, FAMILY, Gemm, ThinTile, Tiling, job_with_thin, job_with_tiling, ranked,
};
use heist_kernels::{Job, KernelError, Target};
use heist_sched::{Schedule, Submit, TileSource};
use launches::describe;
use problems::problems;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

const H200: Target = Target {
    arch: Arch::SM_90A,
    sms: 132,
};

/// Tile shapes that may suit so many rows and columns.
fn candidates(problem: &Gemm) -> Vec<Tiling> {
    let mut all = Vec::new();
    let count = |tiling: &Tiling| {
        let (rows, cols) = match tiling.swapped {
            false => (problem.m, problem.n),
            true => (problem.n, problem.m),
        };
        rows.div_ceil(tiling.rows) * cols.div_ceil(tiling.cols)
    };
    if problem.m <= 128 {
        let cols = problem.m.next_multiple_of(8);
        for (rows, depth, stages, blocks) in [
            (64, 128, 8, 1),
            (64, 128, 4, 2),
            (64, 128, 6, 1),
            (64, 64, 12, 1),
            (128, 64, 8, 1),
            (128, 128, 5, 1),
        ] {
            let fit = (rows + cols) * depth * 2 * stages + rows * cols * 2 + 3000;
            let stages = if fit > 232_448 / blocks {
                (232_448 / blocks - rows * cols * 2 - 3000) / ((rows + cols) * depth * 2)
            } else {
                stages
            };
            all.push(
                Tiling::new(rows, cols, depth, stages)
                    .swapped()
                    .blocks(blocks),
            );
        }
    }
    for (rows, cols, stages, blocks) in [
        (64, 64, 8, 1),
        (64, 64, 6, 2),
        (64, 128, 8, 1),
        (64, 128, 4, 2),
        (64, 256, 5, 1),
        (128, 64, 8, 1),
        (128, 64, 4, 2),
        (128, 96, 7, 1),
        (128, 128, 6, 1),
        (128, 128, 3, 2),
        (128, 160, 5, 1),
        (128, 192, 4, 1),
        (128, 192, 5, 1),
        (128, 224, 4, 1),
        (128, 256, 4, 1),
        (128, 256, 3, 1),
        (256, 128, 4, 1),
        (256, 128, 3, 1),
        (256, 96, 4, 1),
    ] {
        all.push(Tiling::new(rows, cols, 64, stages).blocks(blocks));
    }
    let few = all.iter().map(count).min().unwrap_or(0);
    // Neither far more tiles than needed nor tiles with little in them.
    all.retain(|tiling| {
        let tiles = count(tiling);
        let area = tiles * tiling.rows * tiling.cols;
        (tiles <= 132 * 14 || tiles <= few * 2)
            && (tiling.swapped
                || (problem.m <= 64 && tiling.rows == 64)
                || f64::from(area) <= 2.1 * f64::from(problem.m * problem.n))
    });
    let mut split = Vec::new();
    for tiling in &all {
        let halves = problem.k * problem.input.bytes() / 2;
        let (tiles, steps) = (count(tiling), halves / tiling.depth);
        for shares in [2, 3, 4, 6, 8, 12, 16, 24, 33, 44, 66] {
            let blocks = tiles * shares;
            let useful = steps / shares >= 4 && tiles <= 100 && blocks >= 50;
            if useful && blocks <= 132 * tiling.blocks + 12 {
                split.push(tiling.split(shares));
            }
        }
    }
    all.retain(|tiling| count(tiling) >= 14);
    all.extend(split);
    all
}

fn orders(problem: &Gemm) -> Vec<(Tiling, Schedule)> {
    let mut all = Vec::new();
    let shapes = [
        (128, 256, 4, 1),
        (128, 256, 4, 2),
        (128, 256, 3, 2),
        (128, 224, 4, 1),
        (128, 224, 4, 2),
        (128, 192, 5, 1),
        (128, 192, 5, 2),
        (128, 192, 4, 2),
        (128, 160, 5, 2),
        (128, 128, 6, 1),
        (128, 128, 6, 2),
        (256, 128, 4, 2),
        (256, 96, 4, 2),
        (192, 160, 4, 1),
        (192, 176, 4, 2),
        (192, 192, 4, 1),
        (192, 192, 4, 2),
        (256, 144, 4, 2),
        (256, 160, 4, 2),
        (256, 176, 4, 1),
        (256, 176, 4, 2),
        (256, 192, 3, 1),
        (256, 192, 3, 2),
        (64, 256, 5, 1),
        (64, 256, 5, 2),
        (64, 128, 8, 2),
    ];
    for (rows, cols, stages, pair) in shapes {
        let cluster = match pair {
            1 => Cluster::Alone,
            _ => Cluster::Below,
        };
        let tiling = Tiling::new(rows, cols, 64, stages).cluster(cluster);
        let tiles = problem.m.div_ceil(rows) * problem.n.div_ceil(cols);
        if !(50..=132 * 60).contains(&tiles) {
            continue;
        }
        let large = rows == 128 && cols >= 192;
        for (source, submit, order) in [
            (TileSource::Static, Submit::Late, "grouped(16)"),
            (TileSource::Static, Submit::Late, "grouped(8)"),
            (TileSource::Static, Submit::Late, "grouped(4)"),
            (TileSource::Ticket, Submit::Late, "grouped(16)"),
            (TileSource::Ticket, Submit::Early, "grouped(16)"),
            (TileSource::Direct, Submit::Late, "grouped(16)"),
        ] {
            let usual = source == TileSource::Static && order == "grouped(16)";
            if usual || (large && tiles > 132) {
                let mut schedule = Schedule::new(source).submit(submit);
                schedule.order = order.parse().unwrap_or(schedule.order);
                schedule.cluster = (1, pair, 1).into();
                all.push((tiling, schedule));
            }
        }
    }
    all
}

/// Stages that fit: beside two wide buffers of each warp in the epilogue, or a narrow one for a fourth stage.
fn deepest(rows: u32, cols: u32) -> u32 {
    let groups = (rows / 64).min(3).min(if rows == 256 { 2 } else { 3 });
    let stage = (rows + cols) * 128 + 16;
    let fit = |buffer: u32| (232_448 - 3072 - groups * 4 * buffer) / stage;
    fit(4096).max(fit(1024).min(4)).min(12)
}

/// Tile shapes for one to four waves: for each number of tiles across the narrowest ones that make it.
fn widths(problem: &Gemm) -> Vec<Tiling> {
    let mut all = Vec::new();
    for (rows, most) in [(64, 256), (128, 256), (192, 192), (256, 192)] {
        let mut narrowest = BTreeMap::new();
        for cols in (64..=most).step_by(8) {
            narrowest.entry(problem.n.div_ceil(cols)).or_insert(cols);
        }
        for cols in narrowest.into_values() {
            let stages = deepest(rows, cols);
            for cluster in [Cluster::Alone, Cluster::Below, Cluster::Beside] {
                all.push(Tiling::new(rows, cols, 64, stages).cluster(cluster));
            }
        }
    }
    let cost = |tiling: &Tiling| {
        let [below, beside] = tiling.cluster.sides();
        let down = problem.m.div_ceil(tiling.rows).next_multiple_of(below);
        let across = problem.n.div_ceil(tiling.cols).next_multiple_of(beside);
        (down * across).div_ceil(132) * tiling.rows * tiling.cols
    };
    let least = all.iter().map(cost).min().unwrap_or(0);
    all.retain(|tiling| {
        cost(tiling) * 4 <= least * 5 && tiling.stages >= 3 && tiling.check().is_ok()
    });
    all
}

/// What the model finds fastest, `first` of these, and the fastest of each kind: rows, shares of the depth, clusters,
/// blocks on a multiprocessor. So a constant that is wrong for a whole kind shows.
fn near(problem: &Gemm, first: usize, most: usize) -> Vec<Tiling> {
    let all = ranked(problem, H200);
    let kind = |tiling: &Tiling| {
        let Tiling {
            rows,
            split,
            cluster,
            blocks,
            swapped,
            ..
        } = *tiling;
        (rows, split, cluster, blocks, swapped)
    };
    let (mut seen, mut kept) = (HashSet::new(), Vec::new());
    for (number, (_, tiling)) in all.iter().enumerate() {
        if seen.insert(kind(tiling)) || number < first {
            kept.push(*tiling);
        }
    }
    kept.truncate(most);
    kept
}

/// Tiles of which several blocks fit on a multiprocessor, with as few stages as a short depth has: of each width that makes another number of tiles the narrowest.
fn crowded(problem: &Gemm) -> Vec<Tiling> {
    let steps = problem.k.div_ceil(64);
    let mut all = Vec::new();
    for (rows, blocks, most) in [(64, 4, 72), (64, 3, 96), (64, 2, 160), (128, 2, 72)] {
        for swapped in [false, true] {
            let wide = if swapped { problem.m } else { problem.n };
            let mut narrowest = BTreeMap::new();
            for cols in (32..=most).step_by(8) {
                narrowest.entry(wide.div_ceil(cols)).or_insert(cols);
            }
            for cols in narrowest.into_values().take(2) {
                let fit =
                    (232_448 / blocks - 1024 - rows * cols * 2 - 3072) / ((rows + cols) * 128 + 16);
                let tiling =
                    Tiling::new(rows, cols, 64, fit.min(steps + 1).clamp(2, 8)).blocks(blocks);
                all.push(if swapped { tiling.swapped() } else { tiling });
            }
        }
    }
    all.retain(|tiling| tiling.check().is_ok());
    all
}

/// What the model finds fastest and the fastest of each kind, and besides, of one wave of tiles of 64 and 128 rows, the narrowest of every width: more
/// multiprocessors have one then.
fn wave(problem: &Gemm) -> Vec<Tiling> {
    let mut all = near(problem, 6, 14);
    for (rows, least, most) in [(64, 64, 256), (128, 32, 160)] {
        let mut narrowest = BTreeMap::new();
        for cols in (least..=most).step_by(8) {
            let tiles = problem.m.div_ceil(rows) * problem.n.div_ceil(cols);
            if tiles <= H200.sms {
                narrowest.entry(std::cmp::Reverse(tiles)).or_insert(cols);
            }
        }
        for cols in narrowest.into_values().take(4) {
            let stages = deepest(rows, cols);
            let alone = Tiling::new(rows, cols, 64, stages);
            all.push(alone);
            all.push(alone.cluster(Cluster::Below));
        }
    }
    let mut seen = HashSet::new();
    all.retain(|tiling| tiling.check().is_ok() && seen.insert(*tiling));
    all
}

/// The three that the model finds fastest of each kind, of those that it finds at most so many times slower than the
/// fastest.
fn many(problem: &Gemm, slower: f64, most: usize) -> Vec<Tiling> {
    let all = ranked(problem, H200);
    let least = all.first().map_or(0.0, |(time, _)| *time);
    let kind = |tiling: &Tiling| {
        let Tiling {
            rows,
            depth,
            split,
            cluster,
            blocks,
            swapped,
            pingpong,
            ..
        } = *tiling;
        (rows, depth, split > 1, cluster, blocks, swapped, pingpong)
    };
    let (mut seen, mut kept) = (HashMap::new(), Vec::new());
    for (number, (time, tiling)) in all.iter().enumerate() {
        let count = seen.entry(kind(tiling)).or_insert(0);
        *count += 1;
        if number < 24 || (*count <= 3 && *time <= least * slower) {
            kept.push(*tiling);
        }
    }
    kept.truncate(most);
    kept
}

/// Tiles dealt out in advance, in bands.
fn dealt(tiling: &Tiling) -> Schedule {
    let mut schedule = Schedule::new(TileSource::Static).submit(Submit::Late);
    schedule.order = "grouped(16)".parse().unwrap_or(schedule.order);
    let [down, across] = tiling.cluster.sides();
    schedule.cluster = (across, down, 1).into();
    schedule
}

/// A kernel by name, or why it can't be.
type Named = (String, Result<Job, KernelError>);

/// The kernels of a set for a problem, or those in the tiles that the words name.
fn jobs(set: &str, words: &[&str], problem: &Gemm) -> Result<Vec<Named>, KernelError> {
    let in_tiles = |tiling: Tiling| {
        let job = job_with_tiling(problem, tiling, None, H200);
        (tiling.to_string(), job)
    };
    let only: Vec<Tiling> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let reordered = words.iter().any(|word| word.starts_with("order="));
    if !only.is_empty() && !reordered {
        let given = only.iter().flat_map(|tiling| {
            let own = words.contains(&"static").then(|| dealt(tiling));
            let asked = words.contains(&"early").then(|| Schedule {
                source: TileSource::Ticket,
                submit: Submit::Early,
                ..dealt(tiling)
            });
            let others = [own, asked].into_iter().flatten();
            let arms = std::iter::once(None).chain(others.map(Some));
            arms.map(move |schedule| {
                let told = schedule.as_ref().map(|one| format!(" {one}"));
                let job = job_with_tiling(problem, *tiling, schedule.as_ref(), H200);
                (format!("{tiling}{}", told.unwrap_or_default()), job)
            })
        });
        return Ok(given.collect());
    }
    let tilings = match set {
        _ if !only.is_empty() => only,
        "chosen" => return Ok(vec![chosen(problem)?]),
        "variants" => {
            let first = chosen(problem)?;
            let others = FAMILY.variants.iter().filter_map(|variant| {
                variant.suits(problem, H200).ok()?;
                let job = variant.job(problem, None, H200);
                Some((variant.name().to_owned(), job))
            });
            return Ok(std::iter::once(first).chain(others).collect());
        }
        "thin" => {
            let others = FAMILY.variants.iter().filter_map(|variant| {
                let multiplies = variant.name() == "wgmma" || variant.name().starts_with("mma");
                let suits = multiplies && variant.suits(problem, H200).is_ok();
                suits.then(|| (variant.name().to_owned(), variant.job(problem, None, H200)))
            });
            let cut = [16, 32, 64, 128]
                .into_iter()
                .flat_map(|outer| [1, 2, 4, 8].map(|shares| ThinTile { outer, shares }));
            let thin = cut.map(|tile| {
                let job = job_with_thin(problem, tile, None, H200);
                (tile.to_string(), job)
            });
            return Ok(std::iter::once(chosen(problem)?)
                .chain(others)
                .chain(thin)
                .collect());
        }
        "orders" => {
            let ordered = orders(problem).into_iter().map(|(tiling, schedule)| {
                let job = job_with_tiling(problem, tiling, Some(&schedule), H200);
                (format!("{tiling} {schedule}"), job)
            });
            return Ok(ordered.collect());
        }
        "tiny" => {
            let (name, job) = chosen(problem)?;
            let others = match words.contains(&"alone") {
                true => Vec::new(),
                false => with_pairs(problem, candidates(problem)),
            };
            let others = others.into_iter().map(in_tiles);
            let others = others.filter(|(other, job)| *other != name && job.is_ok());
            let first = [(format!("{name}*"), job)];
            return Ok(first.into_iter().chain(others).collect());
        }
        "widths" => widths(problem),
        "near" => near(problem, 6, 18),
        "wave" => wave(problem),
        "crowded" => {
            let near = near(problem, 3, 7);
            let direct = Schedule::new(TileSource::Direct);
            let alone = |tiling: &Tiling| {
                let job = job_with_tiling(problem, *tiling, Some(&direct), H200);
                (format!("{tiling} direct"), job)
            };
            let plain = near
                .iter()
                .filter(|tiling| !tiling.pingpong && tiling.cluster.count() == 1);
            let first = plain.take(2).map(alone);
            let crowded = crowded(problem);
            let others = crowded.iter().map(alone);
            let all = near
                .iter()
                .map(|tiling| in_tiles(*tiling))
                .chain(first)
                .chain(others);
            return Ok(all.filter(|(_, job)| job.is_ok()).collect());
        }
        "kinds" => near(problem, 1, 6),
        "many" => many(problem, 1.6, 72),
        _ => candidates(problem),
    };
    let orders: Vec<&str> = words
        .iter()
        .filter_map(|word| word.strip_prefix("order="))
        .collect();
    let ordered = tilings.iter().flat_map(|tiling| {
        let whole = orders.iter().filter(|_| tiling.split == 1);
        whole.map(|order| in_order(problem, *tiling, order))
    });
    let ordered: Vec<_> = ordered.collect();
    Ok(tilings.into_iter().map(in_tiles).chain(ordered).collect())
}

/// The same tiles, one a block where there are so few, in an order of their own.
fn in_order(problem: &Gemm, tiling: Tiling, order: &str) -> Named {
    let (high, wide) = match tiling.swapped {
        false => (problem.m, problem.n),
        true => (problem.n, problem.m),
    };
    let once = high.div_ceil(tiling.rows) * wide.div_ceil(tiling.cols) <= H200.sms * tiling.blocks;
    let source = match once {
        true => TileSource::Direct,
        false => TileSource::Ticket,
    };
    let mut schedule = Schedule::new(source).submit(Submit::Late);
    schedule.order = order.parse().unwrap_or(schedule.order);
    let [down, across] = tiling.cluster.sides();
    schedule.cluster = (across, down, 1).into();
    let job = job_with_tiling(problem, tiling, Some(&schedule), H200);
    (format!("{tiling} {order}"), job)
}

/// The kernel that the family chooses.
fn chosen(problem: &Gemm) -> Result<Named, KernelError> {
    let variant = FAMILY.choose(None, problem, H200)?;
    let job = variant.job(problem, None, H200)?;
    let name = job.name.split(' ').next_back().unwrap_or("").to_owned();
    Ok((name, Ok(job)))
}

/// The same tiles, and the larger ones in pairs.
fn with_pairs(problem: &Gemm, mut all: Vec<Tiling>) -> Vec<Tiling> {
    let pairs = all.iter().filter(|tiling| {
        tiling.rows > 64 && !tiling.swapped && tiling.split == 1 && problem.m > 512
    });
    let pairs: Vec<_> = pairs.map(|tiling| tiling.cluster(Cluster::Below)).collect();
    all.extend(pairs);
    all
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, rest @ ..] = &arguments[..] else {
        return Err(
            "usage: gemm_tiles DIR [tiles|orders|widths|near|wave|crowded|kinds|many|small|chosen|variants|thin|tiny|groups|random-groups|scaled-groups|experts [SHAPE...]]"
                .into(),
        );
    };
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory)?;
    let set = rest.first().map_or("tiles", String::as_str);
    match set {
        "groups" => return groups(directory),
        "random-groups" => return drawn(directory),
        "scaled-groups" => return scaled(directory),
        "experts" => return expert_layers(directory),
        _ => {}
    }
    let words: Vec<&str> = rest.iter().skip(1).map(String::as_str).collect();
    let (mut written, mut all) = (BTreeMap::new(), Vec::new());
    for problem in problems(set, &words)? {
        let mut arms = Vec::new();
        for (name, job) in jobs(set, &words, &problem)? {
            match job {
                Ok(job) => arms.push(describe(&name, &job, directory, &mut written)?),
                Err(error) => eprintln!("{problem}, {name}: {error}"),
            }
        }
        let Gemm { m, n, k, .. } = problem;
        all.push(json!({
            "name": problem.to_string(), "m": m, "n": n, "k": k, "arms": arms,
            "input": problem.input.to_string(), "output": problem.output.to_string(),
            "batch": problem.batch, "layout": problem.layout.to_string(), "scales": problem.scales.to_string(), "sums": problem.sums.to_string(),
        }));
    }
    std::fs::write(directory.join("sweep.json"), serde_json::to_string(&all)?)?;
    println!("{} kernels in {}", written.len(), directory.display());
    Ok(())
}
