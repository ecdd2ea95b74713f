//! The sets of groups and of layers of experts.

use super::H200;
use super::launches::describe;
use heist_kernels::gemm::{Input, Output, Scales, Tiling};
use heist_kernels::grouped::experts::{self, Experts, Gathering};
use heist_kernels::grouped::{self, Grouped, Shapes};
use heist_kernels::{Job, KernelError, Tuned};
use heist_sched::Schedule;
use heist_tune::Candidate;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Groups: rows, columns, depth.
fn grouped_problems() -> Vec<(String, Grouped)> {
    let skewed: Vec<u32> = (1..=64)
        .map(|i: u32| ((8192 / i) / 8 * 8).max(16))
        .collect();
    let many: Vec<u32> = (0..256).map(|i: u32| 8 + (i * 37) % 15 * 8).collect();
    let mut giant = vec![16; 63];
    giant.push(8192);
    let cases: Vec<(&str, Vec<u32>, u32, u32)> = vec![
        ("8 x 1024", vec![1024; 8], 4096, 4096),
        ("8 x 4096", vec![4096; 8], 14336, 4096),
        ("8 x 4096 down", vec![4096; 8], 4096, 14336),
        ("8 x 40", vec![40; 8], 4096, 7168),
        (
            "8, 40 to 3752",
            vec![40, 2048, 96, 40, 512, 1536, 168, 3752],
            4096,
            7168,
        ),
        ("64, 8192/i", skewed, 2048, 2048),
        ("256, 8 to 120", many, 2048, 7168),
        ("128 x 64", vec![64; 128], 4096, 2048),
        ("256 x 1", vec![1; 256], 2048, 7168),
        ("one giant among dwarfs", giant, 4096, 4096),
        (
            "Mixtral prefill",
            vec![900, 1200, 1024, 800, 1100, 1000, 1144, 1024],
            28672,
            4096,
        ),
        ("DeepSeek prefill", vec![256; 32], 4096, 7168),
        ("DeepSeek decode", vec![12; 32], 4096, 7168),
    ];
    let problem = |(name, rows, n, k): (&str, Vec<u32>, u32, u32)| {
        let problem = Grouped::rows(rows, n, k, Input::Bf16, Output::Bf16);
        (format!("{name}, n {n} k {k}"), problem)
    };
    cases.into_iter().map(problem).collect()
}

/// A tile shape of groups: rows, columns, stages, blocks on a multiprocessor, and whether two warpgroups have one each.
type Shape = (u32, u32, u32, u32, bool);

/// Those besides the chosen one.
const SHAPES: [Shape; 16] = [
    (64, 128, 4, 2, false),
    (64, 128, 8, 1, false),
    (64, 256, 5, 1, false),
    (128, 128, 6, 1, false),
    (128, 192, 5, 1, false),
    (128, 224, 4, 1, false),
    (128, 256, 4, 1, false),
    (192, 192, 4, 1, false),
    (256, 128, 4, 1, false),
    (256, 160, 4, 1, false),
    (256, 192, 3, 1, false),
    (64, 192, 6, 1, true),
    (64, 256, 5, 1, true),
    (128, 128, 6, 1, true),
    (128, 160, 5, 1, true),
    (128, 192, 5, 1, true),
];

/// Writes what is chosen for grouped problems, and other tile shapes.
fn write(
    problems: Vec<(String, Grouped)>,
    directory: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let (mut written, mut all) = (BTreeMap::new(), Vec::new());
    for (name, problem) in problems {
        let Shapes::Rows { rows, n, k } = &problem.shapes else {
            continue;
        };
        let chosen = grouped::FAMILY.choose(None, &problem, H200)?;
        let job = chosen.job(&problem, None, H200)?;
        let tiles = job.name.split(' ').next_back().unwrap_or("");
        let name_chosen = format!("chosen {tiles}");
        let mut arms = vec![describe(&name_chosen, &job, directory, &mut written)?];
        for order in ["grouped(4)", "grouped(8)"] {
            let schedule: Schedule = format!("ticket late {order}").parse()?;
            for variant in [None, Some("wgmma-128x256")] {
                let job = grouped::FAMILY.choose(variant, &problem, H200)?.job(
                    &problem,
                    Some(&schedule),
                    H200,
                )?;
                let name = format!("{} {order}", variant.unwrap_or("chosen"));
                arms.push(describe(&name, &job, directory, &mut written)?);
            }
        }
        for shape in SHAPES {
            match tiled(&problem, shape) {
                Ok((name, job)) => arms.push(describe(&name, &job, directory, &mut written)?),
                Err(why) => eprintln!("{name}, {shape:?}: {why}"),
            }
        }
        all.push(json!({ "name": name, "rows": rows, "n": n, "k": k, "arms": arms }));
    }
    std::fs::write(directory.join("sweep.json"), serde_json::to_string(&all)?)?;
    println!("{} kernels in {}", written.len(), directory.display());
    Ok(())
}

pub(super) fn groups(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    write(grouped_problems(), directory)
}

/// The same for groups drawn at random.
pub(super) fn drawn(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    write(random_groups(32), directory)
}

/// Groups drawn at random: how many, how many rows a group and how uneven, columns, depth. Small
/// enough that a set is measured in minutes.
fn random_groups(count: usize) -> Vec<(String, Grouped)> {
    let mut random = fastrand::Rng::with_seed(17);
    let mut all = Vec::new();
    while all.len() < count {
        let groups = 1usize << random.u32(2..=8);
        let mean = 4.0 * 512f64.powf(random.f64());
        // From even groups to a power law.
        let skew = 1.5 * random.f64() * f64::from(random.u8(0..=1));
        let shares: Vec<f64> = (0..groups).map(|i| (i as f64 + 1.0).powf(-skew)).collect();
        let total = mean * groups as f64 / shares.iter().sum::<f64>();
        let rows = shares
            .iter()
            .map(|share| (share * total).round().max(1.0) as u32);
        let mut rows: Vec<u32> = rows.collect();
        random.shuffle(&mut rows);
        let mut side = |least: u32, most: u32| 64 * random.u32(least..=most);
        let (n, k) = (side(16, 160), side(16, 112));
        let (matrix, total) = (f64::from(n) * f64::from(k), rows.iter().sum::<u32>());
        let (flops, bytes) = (
            2.0 * matrix * f64::from(total),
            2.0 * matrix * groups as f64,
        );
        if flops < 8e11 && bytes < 5e9 {
            let name = format!("{groups} of {mean:.0}, skew {skew:.1}, n {n} k {k}");
            let problem = Grouped::rows(rows, n, k, Input::Bf16, Output::Bf16);
            all.push((name, problem));
        }
    }
    all
}

/// A problem in tiles of a shape: the arm's name, and its job.
fn tiled(
    problem: &Grouped,
    (rows, cols, stages, blocks, pingpong): Shape,
) -> Result<(String, Job), KernelError> {
    let words = [
        ("rows", rows),
        ("cols", cols),
        ("depth", 64),
        ("stages", stages),
        ("blocks", blocks),
        ("pingpong", pingpong.into()),
    ];
    let words = words.map(|(name, number)| (name, number.to_string()));
    let plan = problem.tuned(&Candidate::new(words), H200)?;
    let mark = if pingpong { "/pingpong" } else { "" };
    let name = format!("{rows}x{cols}/{stages}*{blocks}{mark}");
    Ok((name, plan.job(|_| None)))
}

/// Groups of 8-bit floats: rows, room where they are masked, columns, depth. Prefill and decode of
/// DeepSeek's and Qwen3's experts, even and uneven.
fn scaled_groups() -> Vec<(String, Grouped)> {
    let skewed: Vec<u32> = (1..=64).map(|i: u32| (8192 / i).max(16)).collect();
    let uneven: Vec<u32> = (0..32).map(|i: u32| 32 + (i * 37) % 29 * 16).collect();
    let mut giant = vec![16; 63];
    giant.push(8192);
    let cases = vec![
        ("4 x 8192", vec![8192; 4], None, 4096, 7168),
        ("8 x 4096", vec![4096; 8], None, 4096, 7168),
        ("8 x 4096 down", vec![4096; 8], None, 7168, 2048),
        ("32 x 256", vec![256; 32], None, 4096, 7168),
        ("32, 32 to 480", uneven.clone(), None, 7168, 2048),
        ("128 x 128", vec![128; 128], None, 3072, 4096),
        ("64, 8192/i", skewed, None, 2048, 2048),
        ("one giant among dwarfs", giant, None, 4096, 4096),
        ("256 x 1", vec![1; 256], None, 2048, 7168),
        ("1 x 1024", vec![1024], Some(1024), 4096, 7168),
        ("4 x 256", vec![256; 4], Some(1024), 4096, 7168),
        ("32 x 12", vec![12; 32], Some(1024), 4096, 7168),
        ("32 x 12 down", vec![12; 32], Some(1024), 7168, 2048),
        ("32, 32 to 480", uneven, Some(1024), 4096, 7168),
        ("16 x 64", vec![64; 16], Some(4096), 3072, 4096),
    ];
    let (input, output) = (Input::E4m3, Output::Bf16);
    let problems = cases.into_iter().flat_map(|(name, rows, room, n, k)| {
        let kinds = match room {
            None => vec![Scales::Blocks, Scales::Rows],
            Some(_) => vec![Scales::Blocks],
        };
        kinds.into_iter().map(move |scales| {
            let problem = match room {
                None => Grouped::rows(rows.clone(), n, k, input, output),
                Some(room) => Grouped::masked(rows.clone(), room, [n, k], input, output),
            };
            let masked = if room.is_some() { "masked " } else { "" };
            let name = format!("{scales} {masked}{name}, n {n} k {k}");
            (name, problem.scales(scales))
        })
    });
    problems.collect()
}

/// Writes what is chosen for each, and tile shapes beside it.
pub(super) fn scaled(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (mut written, mut all) = (BTreeMap::new(), Vec::new());
    for (name, problem) in scaled_groups() {
        let chosen = grouped::FAMILY.choose(None, &problem, H200)?;
        let job = chosen.job(&problem, None, H200)?;
        let mut arms = vec![describe("chosen", &job, directory, &mut written)?];
        for (rows, cols, stages, blocks) in [
            (64, 64, 6, 2),
            (64, 128, 8, 1),
            (64, 192, 6, 1),
            (128, 64, 8, 1),
            (128, 128, 6, 1),
            (128, 192, 4, 1),
            (192, 128, 5, 1),
            (256, 128, 4, 1),
        ] {
            match tiled(&problem, (rows, cols, stages, blocks, false)) {
                Ok((name, job)) => arms.push(describe(&name, &job, directory, &mut written)?),
                Err(why) => eprintln!("{name}, {rows}x{cols}: {why}"),
            }
        }
        let (rows, room, n, k) = match &problem.shapes {
            Shapes::Rows { rows, n, k } => (rows, 0, n, k),
            Shapes::Masked { counts, room, n, k } => (counts, *room, n, k),
            Shapes::Own(_) => continue,
        };
        all.push(json!({
            "name": name, "rows": rows, "room": room, "n": n, "k": k,
            "scales": problem.scales.as_str(), "arms": arms,
        }));
    }
    std::fs::write(directory.join("sweep.json"), serde_json::to_string(&all)?)?;
    println!("{} kernels in {}", written.len(), directory.display());
    Ok(())
}

/// Layers of experts: slots of each, experts a token, hidden, inner.
fn expert_problems() -> Vec<(String, Experts)> {
    let spread = |count: u32, mean: u32| -> Vec<u32> {
        let share = |i: u32| mean / 2 + (i * 37) % 17 * mean / 16;
        let mut rows: Vec<u32> = (0..count).map(share).collect();
        let total: u32 = rows.iter().sum();
        rows[0] += total.next_multiple_of(8) - total;
        rows
    };
    let mut skewed: Vec<u32> = (1..=64).map(|i: u32| (4096 / i).max(16)).collect();
    let total: u32 = skewed.iter().sum();
    skewed[0] += total.next_multiple_of(8) - total;
    let cases = [
        ("Mixtral, 4096 tokens", spread(8, 1024), 2, 4096, 14336),
        ("Mixtral, 512 tokens", spread(8, 128), 2, 4096, 14336),
        ("Mixtral, 32 tokens", vec![8; 8], 2, 4096, 14336),
        (
            "32 of DeepSeek's, 1024 tokens",
            spread(32, 256),
            8,
            7168,
            2048,
        ),
        ("32 of DeepSeek's, 48 tokens", vec![12; 32], 8, 7168, 2048),
        (
            "128 of Qwen3's, 4096 tokens",
            spread(128, 256),
            8,
            2048,
            768,
        ),
        ("128 of Qwen3's, 128 tokens", vec![8; 128], 8, 2048, 768),
        ("64 skewed", skewed, 8, 2048, 1408),
        (
            "16 of Llama 4's, 2048 tokens",
            spread(16, 128),
            1,
            5120,
            8192,
        ),
    ];
    let problem = |(name, rows, per, hidden, inner): (&str, Vec<u32>, u32, u32, u32)| {
        let problem = Experts {
            rows,
            per,
            hidden,
            inner,
            dtype: Input::Bf16,
        };
        (name.to_owned(), problem)
    };
    cases.into_iter().map(problem).collect()
}

/// Writes layers of experts in pairs of tile shapes, with rows gathered on the way in and by a launch.
pub(super) fn expert_layers(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (mut written, mut all) = (BTreeMap::new(), Vec::new());
    let shapes = [
        Tiling::new(128, 256, 64, 4),
        Tiling::new(64, 256, 64, 5),
        Tiling::new(64, 128, 64, 4).blocks(2),
    ];
    for (name, problem) in expert_problems() {
        let chosen = experts::FAMILY.choose(None, &problem, H200)?;
        let job = chosen.job(&problem, None, H200)?;
        let mut arms = vec![describe("chosen", &job, directory, &mut written)?];
        for (gathering, mark) in [(Gathering::Fused, ""), (Gathering::Launch, " copied")] {
            for (up, down) in shapes
                .iter()
                .flat_map(|up| shapes.iter().map(move |down| (up, down)))
            {
                let plan = experts::plan_with(&problem, [*up, *down], gathering, None, H200)?;
                let name = format!("{up} {down}{mark}");
                arms.push(describe(
                    &name,
                    &plan.job(|_| None),
                    directory,
                    &mut written,
                )?);
            }
        }
        all.push(json!({
            "name": name, "rows": problem.rows, "per": problem.per, "hidden": problem.hidden,
            "inner": problem.inner, "arms": arms,
        }));
    }
    std::fs::write(directory.join("sweep.json"), serde_json::to_string(&all)?)?;
    println!("{} kernels in {}", written.len(), directory.display());
    Ok(())
}
