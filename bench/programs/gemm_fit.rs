//! Fits the constants of the model that chooses tiles to measured times.
//!
//! ```text
//! cargo run -p heist-bench --bin gemm_fit -- COLD HOT [--turns N] [--each] [--plans] [--only CONSTANT]...
//! ```
//!
//! A line of `COLD` is a measured plan of a bf16 product: m, n, k, the layout (nt where there is none), the tiles, microseconds, and cuBLAS's
//! (`gemm_tiles.py` adds such lines to the file that `--plans` names), and `HOT` has the same plans where operands come again
//! and again (`--hot 16`). The geometric mean of both counts. The model chooses among those of the measured plans that are
//! candidates for it; the best is the best of all. Every other shape is fitted to; the
//! others show whether the constants hold. Told are, for the constants as they are and as fitted: how much longer
//! what the model chooses of the measured plans takes than the best of them, its speed over cuBLAS, the
//! error of the modelled times. `--each` tells every class of shapes, every kind of plan and the worst shapes, `--plans` every plan with its times and those modelled. Constants are varied one after the other, all or those
//! that `--only` names.

use heist_builder::Arch;
use heist_kernels::Target;
use heist_kernels::gemm::{Costs, Gemm, H200, Input, Layout, Output, Tiling, ranked, times_at};
use std::collections::{BTreeMap, HashSet};

const TARGET: Target = Target {
    arch: Arch::SM_90A,
    sms: 132,
};

struct Plan {
    tiling: Tiling,
    /// The geometric mean of both.
    us: f64,
    /// Cold and hot.
    each: [f64; 2],
    /// Whether it is a candidate.
    open: bool,
}

struct Shape {
    problem: Gemm,
    cublas: f64,
    plans: Vec<Plan>,
}

/// A shape and a layout.
type Told<'t> = ([u32; 3], &'t str);

/// Microseconds, and cuBLAS's, of each shape and its tiles.
type Lines<'t> = BTreeMap<(Told<'t>, &'t str), [f64; 2]>;

fn lines(text: &str) -> Result<Lines<'_>, Box<dyn std::error::Error>> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ([m, n, k], layout, [tiles, us, cublas]) = match words[..] {
            [m, n, k, tiles, us, cublas] => ([m, n, k], "nt", [tiles, us, cublas]),
            [m, n, k, layout, tiles, us, cublas] => ([m, n, k], layout, [tiles, us, cublas]),
            _ => return Err(format!("`{line}` is no plan").into()),
        };
        let sides = [m.parse()?, n.parse()?, k.parse()?];
        all.insert(((sides, layout), tiles), [us.parse()?, cublas.parse()?]);
    }
    Ok(all)
}

fn read(cold: &str, hot: &str) -> Result<Vec<Shape>, Box<dyn std::error::Error>> {
    let mut all: BTreeMap<Told<'_>, Shape> = BTreeMap::new();
    let hot = lines(hot)?;
    for ((told, tiles), [cold, cublas]) in lines(cold)? {
        let Some([hot, other]) = hot.get(&(told, tiles)).copied() else {
            continue;
        };
        let ([m, n, k], layout) = told;
        let layout: Layout = layout.parse()?;
        let shape = all.entry(told).or_insert_with(|| Shape {
            problem: Gemm::new(m, n, k, Input::Bf16, Output::Bf16, layout),
            cublas: (cublas * other).sqrt(),
            plans: Vec::new(),
        });
        shape.plans.push(Plan {
            tiling: tiles.parse()?,
            us: (cold * hot).sqrt(),
            each: [cold, hot],
            open: false,
        });
    }
    let mut all: Vec<Shape> = all.into_values().collect();
    for shape in &mut all {
        let candidates = ranked(&shape.problem, TARGET).into_iter();
        let candidates: HashSet<Tiling> = candidates.map(|(_, tiling)| tiling).collect();
        for plan in &mut shape.plans {
            plan.open = candidates.contains(&plan.tiling);
        }
    }
    all.retain(|shape| shape.plans.iter().filter(|plan| plan.open).count() > 1);
    Ok(all)
}

type Field = (&'static str, fn(&mut Costs) -> &mut f64);

macro_rules! fields {
    ($($name:ident)*) => {
        [$((stringify!($name), |costs: &mut Costs| &mut costs.$name)),*]
    };
}

/// The constants that are varied. The clock is that of the GPU.
const FIELDS: &[Field] = &fields![
    product least_product shared l2 row outside outside_across latency far first crowded alone beat astride row_astride sectors row_sectors asked asked_sectors apart lockstep uneven tile tile_rows turned next turn ahead panel brief leaving one_buffer narrow waiting rest memory sums sums_turned second meeting met pieces cluster many launch
];

impl Shape {
    fn both(&self, costs: &Costs) -> Vec<[f64; 2]> {
        let of = |plan: &Plan| times_at(&self.problem, &plan.tiling, TARGET, costs);
        self.plans.iter().map(of).collect()
    }

    fn times(&self, costs: &Costs) -> Vec<f64> {
        let mean = |[cold, hot]: [f64; 2]| (cold * hot).sqrt();
        self.both(costs).into_iter().map(mean).collect()
    }

    fn best(&self) -> f64 {
        let times = self.plans.iter().map(|plan| plan.us);
        times.fold(f64::INFINITY, f64::min)
    }

    /// What the model chooses.
    fn choice(&self, costs: &Costs) -> &Plan {
        let times = self.times(costs);
        let open = (0..times.len()).filter(|at| self.plans[*at].open);
        let least = open.min_by(|one, other| times[*one].total_cmp(&times[*other]));
        &self.plans[least.unwrap_or(0)]
    }

    /// Its rows, waves of the best plan, and depth.
    fn class(&self) -> [&'static str; 3] {
        let Gemm { m, n, k, .. } = self.problem;
        let best = self
            .plans
            .iter()
            .min_by(|one, other| one.us.total_cmp(&other.us));
        let waves = best.map_or(0, |best| {
            let tiling = &best.tiling;
            let [high, wide] = if tiling.swapped { [n, m] } else { [m, n] };
            let blocks = high.div_ceil(tiling.rows) * wide.div_ceil(tiling.cols) * tiling.split;
            blocks.div_ceil(TARGET.sms * tiling.blocks)
        });
        [
            match m {
                0..=64 => "1 to 64 rows",
                65..=256 => "65 to 256 rows",
                257..=1024 => "257 to 1024 rows",
                _ => "more rows",
            },
            match waves {
                0..=1 => "one wave",
                2..=4 => "2 to 4 waves",
                _ => "many waves",
            },
            match k {
                0..=1024 => "depth to 1024",
                1025..=4096 => "depth to 4096",
                _ => "deeper",
            },
        ]
    }

    /// How far the choice and the modelled times are off. Near plans count as chosen in part, so that
    /// it is smooth, and plans count less the slower they are.
    fn loss(&self, costs: &Costs) -> f64 {
        const NEAR: f64 = 0.02;
        let (both, best) = (self.both(costs), self.best());
        let times: Vec<f64> = both.iter().map(|[cold, hot]| (cold * hot).sqrt()).collect();
        let open = self.plans.iter().zip(&times).filter(|(plan, _)| plan.open);
        let least = open.map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        let (mut chosen, mut all, mut off, mut counted) = (0.0, 0.0, 0.0, 0.0);
        for ((plan, time), both) in self.plans.iter().zip(times).zip(both) {
            let part = match plan.open {
                true => (-(time / least - 1.0) / NEAR).exp(),
                false => 0.0,
            };
            chosen += part * (plan.us / best).ln();
            all += part;
            let weight = (-(plan.us / best - 1.0) * 4.0).exp();
            let [cold, hot] = [0, 1].map(|at| (both[at] / plan.each[at]).ln().powi(2));
            off += weight * (cold + hot) / 2.0;
            counted += weight;
        }
        chosen / all + 0.5 * off / counted
    }
}

fn loss(shapes: &[&Shape], costs: &Costs) -> f64 {
    let sum: f64 = shapes.iter().map(|shape| shape.loss(costs)).sum();
    sum / shapes.len() as f64
}

/// Varies one constant after the other by less and less.
fn fit(shapes: &[&Shape], from: Costs, turns: usize, only: &[String]) -> Costs {
    let (mut costs, mut least, mut step) = (from, loss(shapes, &from), 0.1);
    for _ in 0..turns {
        let before = least;
        let varied = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
        for (_, field) in FIELDS.iter().filter(|(name, _)| varied(name)) {
            for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                let mut other = costs;
                *field(&mut other) *= factor;
                let found = loss(shapes, &other);
                if found < least {
                    (costs, least) = (other, found);
                }
            }
        }
        if before - least < 1e-6 {
            step /= 2.0;
        }
    }
    costs
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.map(f64::ln).collect();
    (values.iter().sum::<f64>() / values.len() as f64).exp()
}

fn tell(name: &str, shapes: &[&Shape], costs: &Costs) {
    let longer = |shape: &&&Shape| shape.choice(costs).us / shape.best();
    let worst = shapes
        .iter()
        .map(|shape| longer(&shape))
        .fold(0.0, f64::max);
    let speed = |shape: &&Shape| shape.cublas / shape.choice(costs).us;
    let slowest = shapes.iter().map(speed).fold(f64::INFINITY, f64::min);
    let best = mean(shapes.iter().map(|shape| shape.cublas / shape.best()));
    let longer = mean(shapes.iter().map(|shape| longer(&shape)));
    println!(
        "{name}: {} shapes, chosen takes {longer:.4} of the best (at worst {worst:.2}), {:.4} of cuBLAS's speed (at \
         worst {slowest:.2}; the best {best:.4}), loss {:.5}",
        shapes.len(),
        mean(shapes.iter().map(speed)),
        loss(shapes, costs),
    );
}

/// The classes of shapes, how long each kind of plan takes, measured over modelled, and the shapes with the worst choices.
fn tell_each(shapes: &[&Shape], costs: &Costs) {
    let mut classes: BTreeMap<[&str; 3], Vec<&Shape>> = BTreeMap::new();
    for shape in shapes {
        classes.entry(shape.class()).or_default().push(shape);
    }
    for (class, shapes) in classes {
        tell(&format!("  {}", class.join(", ")), &shapes, costs);
    }
    let mut kinds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for shape in shapes {
        for (plan, time) in shape.plans.iter().zip(shape.times(costs)) {
            let Tiling {
                rows,
                split,
                cluster,
                blocks,
                swapped,
                pingpong,
                ..
            } = plan.tiling;
            let turned = if pingpong {
                " pingpong"
            } else if swapped {
                " swapped"
            } else {
                ""
            };
            let shared = if split > 1 { " shares" } else { "" };
            let kind = format!("{rows} rows*{blocks}{turned}{shared} cluster {cluster}");
            kinds.entry(kind).or_default().push(plan.us / time);
        }
    }
    for (kind, values) in kinds {
        let spread =
            values.iter().map(|value| value.ln().powi(2)).sum::<f64>() / values.len() as f64;
        let (count, mean) = (values.len(), mean(values.into_iter()));
        println!(
            "  {kind}: {count} plans take {mean:.3} of what is modelled, off by {:.3}",
            spread.sqrt()
        );
    }
    let mut worst: Vec<_> = shapes
        .iter()
        .map(|shape| (shape.choice(costs).us / shape.best(), shape))
        .collect();
    worst.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (longer, shape) in worst.iter().take(25) {
        let choice = shape.choice(costs);
        let mut plans: Vec<_> = shape.plans.iter().zip(shape.times(costs)).collect();
        plans.sort_by(|one, other| one.0.us.total_cmp(&other.0.us));
        let told =
            |(plan, time): &(&Plan, f64)| format!("{} {:.2} ({time:.2})", plan.tiling, plan.us);
        let plans: Vec<String> = plans.iter().take(4).map(told).collect();
        println!(
            "  {longer:.3} {}: {} {:.2}, cuBLAS {:.2}; {}",
            shape.problem,
            choice.tiling,
            choice.us,
            shape.cublas,
            plans.join(", "),
        );
    }
}

/// Every plan of a shape: its tiles, the times cold and hot, and as modelled.
fn tell_plans(shape: &Shape) {
    let Gemm { m, n, k, .. } = shape.problem;
    for (plan, [cold, hot]) in shape.plans.iter().zip(shape.both(&H200)) {
        let Plan {
            tiling, each, open, ..
        } = plan;
        println!(
            "plan {m} {n} {k} {tiling} {:.2} {:.2} {cold:.2} {hot:.2} {open}",
            each[0], each[1]
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut files, mut turns, mut each, mut plans) = (Vec::new(), 60, false, false);
    let mut only = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--turns" => turns = words.next().ok_or("--turns needs a number")?.parse()?,
            "--each" => each = true,
            "--plans" => plans = true,
            "--only" => only.extend(words.next()),
            _ => files.push(std::fs::read_to_string(word)?),
        }
    }
    let [cold, hot] = &files[..] else {
        return Err(
            "usage: gemm_fit COLD HOT [--turns N] [--each] [--plans] [--only CONSTANT]...".into(),
        );
    };
    let all = read(cold, hot)?;
    let half = |odd: usize| all.iter().skip(odd).step_by(2).collect::<Vec<_>>();
    let (known, others, every) = (half(0), half(1), all.iter().collect::<Vec<_>>());
    tell("as it is, all", &every, &H200);
    if each {
        tell_each(&every, &H200);
    }
    if plans {
        every.iter().for_each(|shape| tell_plans(shape));
    }
    if turns == 0 {
        return Ok(());
    }
    tell("as it is, one half", &known, &H200);
    tell("as it is, the other", &others, &H200);
    let half = fit(&known, H200, turns, &only);
    tell("fitted to one half", &known, &half);
    tell("fitted to one half, the other", &others, &half);
    let mut whole = fit(&every, H200, turns, &only);
    tell("fitted to all", &every, &whole);
    if each {
        tell_each(&every, &whole);
    }
    for (name, field) in FIELDS {
        println!("    {name}: {:.4},", field(&mut whole));
    }
    Ok(())
}
