//! The search space of a multiplication: every tile shape that can be tried, with its guards and
//! its modelled time.

use super::anew::{Anew, majors, through_registers};
use super::buffers::over_operands;
use super::choose;
use super::config::Config;
use super::cost_model;
use super::entry::PARAMETERS;
use super::problem::{Gemm, Input, Scales, Spread};
use super::thin::{self, ThinTile, plan_with_thin};
use super::tiling::{Cluster, Tiling};
use super::variant::{FAMILY, job_with, plan_with_tiling, schedule as usual};
use super::{kernel, wgmma};
use crate::blackwell;
use crate::entry::Settings;
use crate::error::KernelError;
use crate::family::Target;
use crate::plan::LaunchPlan;
use crate::space::{Tuned, choice, choice_or, names_of, only, schedule, too_much_shared};
use heist_tune::{Axis, Candidate, Proposal};

/// Columns of a tile on warpgroups.
const COLS: [u32; 15] = [
    8, 16, 24, 32, 48, 64, 96, 128, 144, 160, 176, 192, 208, 224, 256,
];
const STAGES: [u32; 9] = [2, 3, 4, 5, 6, 7, 8, 10, 12];
const SPLITS: [u32; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 33, 66];

/// The choices of a tile on warpgroups.
const ON_WARPGROUPS: [&str; 10] = [
    "rows", "cols", "depth", "stages", "blocks", "cluster", "split", "swapped", "tail", "pingpong",
];

/// The candidates of a problem, each judged.
pub(super) fn proposals(problem: &Gemm, target: Target) -> Vec<Proposal> {
    let (candidates, judge): (Vec<Candidate>, Judge) = match wgmma::refusal(problem, target) {
        _ if blackwell::refusal(problem, target).is_none() => (
            Axis::product(&blackwell::space::axes()),
            blackwell::space::judge,
        ),
        None => (on_warpgroups(problem, target), judge_warpgroups),
        Some(_) => (Axis::product(&with_mma()), judge_mma),
    };
    let judged = |judge: Judge| {
        move |candidate: Candidate| Proposal {
            judged: judge(problem, &candidate, target).map(Some),
            candidate,
        }
    };
    let few = match thin::is_tried(problem, target) {
        true => Axis::product(&few_rows()),
        false => Vec::new(),
    };
    let all = candidates.into_iter().map(judged(judge));
    all.chain(few.into_iter().map(judged(judge_thin))).collect()
}

type Judge = fn(&Gemm, &Candidate, Target) -> Result<f64, String>;

/// The launches of a candidate that the guards let through.
fn plan(problem: &Gemm, candidate: &Candidate, target: Target) -> Result<LaunchPlan, KernelError> {
    let schedule = schedule(candidate)?;
    let judged = |judge: Judge| judge(problem, candidate, target).map_err(KernelError::unfit);
    let plan = match (candidate.get("cols"), candidate.get("warp")) {
        _ if candidate.get("outer").is_some() => {
            only(candidate, "a tile for few rows", names_of(&few_rows()))?;
            judged(judge_thin)?;
            let tile = thin_tile(candidate)?;
            // A cluster is part of the tiles.
            let given = schedule.map(|mut given| {
                given.cluster = tile.schedule().cluster;
                given
            });
            plan_with_thin(problem, tile, given.as_ref(), target)?
        }
        (None, _) => {
            only(candidate, "a kernel without `cols`", ["variant"])?;
            let variant = FAMILY.choose(candidate.get("variant"), problem, target)?;
            return variant.plan(problem, schedule.as_ref(), target);
        }
        _ if blackwell::space::has(candidate) => {
            let names = blackwell::space::axes();
            only(candidate, "a tile without `rows`", names_of(&names))?;
            judged(blackwell::space::judge)?;
            blackwell::space::plan(problem, candidate, target)?
        }
        (Some(_), None) => {
            only(candidate, "a tile of warpgroups", ON_WARPGROUPS)?;
            judged(judge_warpgroups)?;
            // A cluster is part of the tiles.
            let tiling = tiling(candidate)?;
            let own = choose::schedule(problem, &tiling, target);
            let given = schedule.map(|mut given| {
                given.cluster = own.cluster;
                given
            });
            let tiling = wgmma::halved(problem, tiling, given.as_ref().unwrap_or(&own), target);
            plan_with_tiling(problem, tiling, given.as_ref(), target)?
        }
        (Some(_), Some(_)) => {
            only(candidate, "a tile of mma.sync", names_of(&with_mma()))?;
            judged(judge_mma)?;
            let own = usual(target);
            let schedule = schedule.as_ref().unwrap_or(&own);
            let job = job_with(problem, config(candidate)?, schedule, target)?;
            LaunchPlan::of_job("mma", job)
        }
    };
    let variant = plan.variant.clone();
    Ok(over_operands(plan, &variant, problem))
}

impl Tuned for Gemm {
    const KERNEL: &'static str = "gemm";

    /// Numbers that scale are no part of it: they cost the same whatever they are.
    fn words(&self) -> Option<String> {
        // No words say where an operand begins.
        if self.anywhere.contains(&true) {
            return None;
        }
        let spread = self.epilogue.added().unwrap_or(Spread::Matrix);
        let mut words = Settings::default();
        for (name, number) in [
            ("m", self.m),
            ("n", self.n),
            ("k", self.k),
            ("batch", self.batch),
            ("beta", u32::from(self.epilogue.beta != 0.0)),
        ] {
            words.set(name, number.to_string());
        }
        for (name, word) in [
            ("dtype", self.input.as_str()),
            ("out", self.output.as_str()),
            ("layout", self.layout.as_str()),
            ("scales", self.scales.as_str()),
            ("sums", self.sums.as_str()),
            ("spread", spread.as_str()),
            ("activation", self.epilogue.activation.as_str()),
        ] {
            words.set(name, word);
        }
        words.set("bias", self.epilogue.bias.to_string());
        Some(words.problem(PARAMETERS, &[]))
    }

    fn tuned(&self, candidate: &Candidate, target: Target) -> Result<LaunchPlan, KernelError> {
        plan(self, candidate, target)
    }
}

/// Every tile shape that is one. Most combinations of the switches are none, whatever the problem: to judge and
/// to write down tens of thousands of those took longer than to time the others.
fn on_warpgroups(problem: &Gemm, target: Target) -> Vec<Candidate> {
    // Rows of the result as columns of a tile: where there are few of them.
    // Of tf32 also where one way to multiply has an operand turned before, and the other has not.
    let turned = problem.input == Input::Tf32 && Anew::of(problem, false).is_some();
    let swapped: &[bool] = if problem.m <= 256 || turned {
        &[false, true]
    } else {
        &[false]
    };
    let waves = in_waves(problem, target);
    let mut all = Axis::product(&[
        Axis::new("rows", [64, 128, 192, 256]),
        Axis::new("cols", COLS),
        Axis::new("depth", [64, 128]),
        Axis::new("stages", STAGES),
        Axis::new("blocks", [1, 2]),
        Axis::new("cluster", ["1", "2", "beside", "depth"]),
        Axis::new("split", splits(problem)),
        Axis::new("swapped", swapped.iter().copied()),
        Axis::new("tail", waves.iter().copied()),
        Axis::new("pingpong", waves.iter().copied()),
    ]);
    all.retain(|candidate| tiling(candidate).is_ok());
    all
}

/// The last tiles in pieces, and a tile for each of two warpgroups, are tried where there may be more than a wave of tiles.
fn in_waves(problem: &Gemm, target: Target) -> &'static [bool] {
    let tiles = u64::from(problem.m.div_ceil(64)) * u64::from(problem.n.div_ceil(64));
    match splits(problem)[..] {
        [1] if tiles * u64::from(problem.batch) > u64::from(target.sms) => &[false, true],
        _ => &[false],
    }
}

/// Split-K is tried where one wave of tiles leaves multiprocessors idle.
fn splits(problem: &Gemm) -> Vec<u32> {
    let smallest = u64::from(problem.m.div_ceil(128)) * u64::from(problem.n.div_ceil(256));
    let most = if smallest >= 132 { 1 } else { problem.k / 256 };
    SPLITS
        .into_iter()
        .filter(|&split| split <= most.max(1))
        .collect()
}

fn tiling(candidate: &Candidate) -> Result<Tiling, KernelError> {
    let number = |name| choice::<u32>(candidate, name);
    let mut tiling = Tiling::new(
        number("rows")?,
        number("cols")?,
        number("depth")?,
        number("stages")?,
    )
    .blocks(choice_or(candidate, "blocks", 1)?)
    .cluster(choice_or(candidate, "cluster", Cluster::Alone)?)
    .split(choice_or(candidate, "split", 1)?);
    tiling.swapped = choice_or(candidate, "swapped", false)?;
    tiling.tail = choice_or(candidate, "tail", false)?;
    tiling.pingpong = choice_or(candidate, "pingpong", false)?;
    tiling.check()?;
    Ok(tiling)
}

fn judge_warpgroups(problem: &Gemm, candidate: &Candidate, target: Target) -> Result<f64, String> {
    let tiling = &tiling(candidate).map_err(|error| error.to_string())?;
    let majors = majors(problem, tiling.swapped);
    // Beside the ring a block has a kilobyte at least, for alignment and its scheduler.
    let scales = tiling.scale_bytes(problem.scales == Scales::Blocks);
    let bytes = tiling.ring_bytes(majors) + tiling.sent_bytes() + scales + 1024;
    let room = tiling.room(target.arch);
    if let Some(why) = too_much_shared(bytes.into(), room.into(), target) {
        return Err(why);
    }
    if !matches!(tiling.cluster, Cluster::Alone | Cluster::Depth) {
        if tiling.split > 1 || tiling.blocks > 1 {
            return Err("a cluster is of whole tiles, one block a multiprocessor".into());
        }
        let [down, across] = tiling.cluster.sides();
        let [high, wide] = cost_model::sides(problem, tiling);
        for (count, what, own, all) in [
            (across, "columns", tiling.cols, wide),
            (down, "rows", tiling.rows, high),
        ] {
            if count > 1 && all <= own {
                return Err(format!(
                    "a cluster of {count} tiles of {own} {what} for {all} {what}"
                ));
            }
        }
        if let Some(why) = wgmma::unshared(tiling, majors) {
            return Err(why);
        }
    }
    if through_registers(problem, tiling.swapped) && !tiling.can_go_through() {
        return Err(
            "words stored across the depth go through registers, and its sums leave none".into(),
        );
    }
    if tiling.tail {
        wgmma::cut(problem, tiling, target)?;
    }
    if tiling.pingpong {
        if problem.in_levels() {
            return Err("two warpgroups with a tile each add up in one level".into());
        }
        let tiles = wgmma::tiles(problem, tiling).count();
        if tiles <= target.sms.into() {
            return Err(format!(
                "{tiles} tiles are one a block, and two warpgroups take them in turns"
            ));
        }
    }
    let steps = problem.k.div_ceil(tiling.depth);
    if tiling.split > 1 && steps / tiling.split < 4 {
        return Err(format!(
            "{} shares of {steps} steps: each has four at least",
            tiling.split
        ));
    }
    Ok(cost_model::time(problem, tiling, target))
}

/// Tiles of few rows, or columns, over an operand whose rows start anywhere.
fn few_rows() -> [Axis; 2] {
    [
        Axis::new("outer", ThinTile::OUTER),
        Axis::new("shares", ThinTile::SHARES),
    ]
}

fn thin_tile(candidate: &Candidate) -> Result<ThinTile, KernelError> {
    let [outer, shares] = ["outer", "shares"].map(|name| candidate.get(name).unwrap_or_default());
    format!("thin:{outer}x{shares}").parse()
}

fn judge_thin(problem: &Gemm, candidate: &Candidate, target: Target) -> Result<f64, String> {
    let tile = thin_tile(candidate).map_err(|error| error.to_string())?;
    match thin::refusal(problem, target) {
        Some(why) => Err(why),
        None => Ok(thin::modelled(problem, tile, target)),
    }
}

fn with_mma() -> Vec<Axis> {
    vec![
        Axis::new("rows", [32, 64, 128, 256]),
        Axis::new("cols", [32, 64, 128, 256]),
        Axis::new("depth", [32, 64]),
        Axis::new("warp", ["16x32", "32x32", "32x64", "64x32", "64x64"]),
        Axis::new("stages", [2, 3, 4, 5]),
        Axis::new("blocks", [1, 2]),
    ]
}

fn config(candidate: &Candidate) -> Result<Config, KernelError> {
    let number = |name| choice::<u32>(candidate, name);
    let warp = candidate.get("warp").unwrap_or_default();
    let sides = warp
        .split_once('x')
        .and_then(|(rows, cols)| Some((rows.parse::<u32>().ok()?, cols.parse::<u32>().ok()?)));
    let (warp_rows, warp_cols) = sides.ok_or_else(|| {
        KernelError::unfit(format!("`{warp}` is no tile of a warp, such as 64x32"))
    })?;
    let config = Config {
        rows: number("rows")?,
        cols: number("cols")?,
        depth: number("depth")?,
        warp_rows,
        warp_cols,
        stages: number("stages")?,
        blocks: choice_or(candidate, "blocks", 1)?,
    };
    config.check()?;
    Ok(config)
}

/// Microseconds that tiles of `mma.sync` take, about: the products of a wave, with the rate that
/// tiles of 128 x 256 reach, and less for smaller ones, which read more.
fn judge_mma(problem: &Gemm, candidate: &Candidate, target: Target) -> Result<f64, String> {
    let config = &config(candidate).map_err(|error| error.to_string())?;
    let bytes = u64::from(config.stages * config.stage_bytes()) + 1024;
    let limit = u64::from(target.arch.limits().shared_opt_in);
    if let Some(why) = too_much_shared(bytes, limit / u64::from(config.blocks), target) {
        return Err(why);
    }
    let most = 65536 / (config.threads().max(1) * config.blocks);
    if config.registers() > most {
        return Err(format!(
            "about {} registers a thread, and {} blocks of {} threads leave {most}",
            config.registers(),
            config.blocks,
            config.threads()
        ));
    }
    const FLOPS_A_MICROSECOND: f64 = 1024.0 * 1700.0;
    let tiles = kernel::tiles(problem.m, problem.n, config).count() as f64;
    let slots = f64::from(target.sms * config.blocks);
    let area = f64::from(config.rows * config.cols);
    let wave = 2.0 * area * f64::from(problem.k) * f64::from(config.blocks) / FLOPS_A_MICROSECOND;
    let side = (area / (128.0 * 256.0)).powf(0.2);
    Ok((tiles / slots).ceil() * wave / side)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Layout, Output};
    use heist_builder::Arch;

    fn hopper() -> Target {
        Target {
            arch: Arch::SM_90A,
            sms: 132,
        }
    }

    fn gemm(m: u32, n: u32, k: u32) -> Gemm {
        Gemm::new(m, n, k, Input::Bf16, Output::Bf16, Layout::Nt)
    }

    /// A row for each would be most of a journal, and the same for every problem.
    #[test]
    fn combinations_that_are_no_tile_shape_are_no_candidates() {
        for problem in [gemm(32, 32, 32), gemm(64, 512, 4096), gemm(4096, 4096, 64)] {
            for Proposal { candidate, .. } in proposals(&problem, hopper()) {
                assert!(tiling(&candidate).is_ok(), "{candidate}");
            }
        }
    }

    #[test]
    fn what_needs_more_than_a_wave_is_tried_where_there_may_be_one() {
        let tried = |problem: &Gemm, name| {
            let all = proposals(problem, hopper());
            all.iter()
                .any(|one| one.candidate.get(name) == Some("true"))
        };
        for name in ["tail", "pingpong"] {
            // 132 tiles of 64 x 64, one more, and four batches of 34.
            assert!(!tried(&gemm(64, 132 * 64, 128), name));
            assert!(tried(&gemm(64, 132 * 64 + 8, 128), name));
            let mut batches = gemm(64, 34 * 64, 128);
            batches.batch = 4;
            assert!(tried(&batches, name));
        }
    }

    /// A candidate that passes the guards can be built: they are as strict as the kernels.
    #[test]
    fn what_is_not_refused_can_be_built() {
        for (problem, target) in [
            (gemm(64, 512, 4096), hopper()),
            (gemm(1024, 768, 512), hopper()),
            (gemm(2048, 6144, 1024), hopper()),
            (gemm(5, 333, 1001), hopper()),
            (
                gemm(1024, 768, 512),
                Target {
                    arch: Arch::SM_100A,
                    sms: 148,
                },
            ),
            (
                gemm(300, 200, 100),
                Target {
                    arch: Arch::SM_80,
                    sms: 108,
                },
            ),
        ] {
            let all = proposals(&problem, target);
            let possible: Vec<_> = all.iter().filter(|one| one.judged.is_ok()).collect();
            assert!(
                possible.len() >= 16,
                "{problem}: {} of {}",
                possible.len(),
                all.len()
            );
            for one in possible.iter().step_by(possible.len() / 8) {
                let made = problem.tuned(&one.candidate, target);
                assert!(
                    made.is_ok(),
                    "{problem} {}: {:?}",
                    one.candidate,
                    made.err()
                );
            }
        }
    }

    /// What the model may choose, the tuner may.
    #[test]
    fn the_last_tiles_are_tried_in_pieces() {
        let problem = gemm(8192, 8192, 8192);
        let in_pieces = |one: &Proposal| one.candidate.get("tail") == Some("true");
        let (cut, whole): (Vec<_>, Vec<_>) = proposals(&problem, hopper())
            .into_iter()
            .partition(in_pieces);
        let chosen = |one: &&Proposal| {
            let words = [
                ("rows", "128"),
                ("cols", "256"),
                ("depth", "64"),
                ("stages", "4"),
                ("blocks", "1"),
                ("cluster", "1"),
                ("pingpong", "false"),
            ];
            words
                .iter()
                .all(|(name, value)| one.candidate.get(name) == Some(value))
        };
        let [cut_one, whole_one] =
            [&cut, &whole].map(|all| all.iter().find(chosen).expect("the largest tiles"));
        let made = problem.tuned(&cut_one.candidate, hopper()).expect("a plan");
        assert!(made.variant.contains("/tail"), "{}", made.variant);
        assert!(
            cut_one.judged < whole_one.judged,
            "{cut_one:?} {whole_one:?}"
        );
        let why = cut.iter().find_map(|one| one.judged.clone().err());
        assert!(why.is_some(), "some can't be cut");
        // Where there is less than a wave, nothing is tried twice.
        assert!(
            !proposals(&gemm(64, 512, 4096), hopper())
                .iter()
                .any(in_pieces)
        );
    }

    /// Tiles of few rows where an operand would be written anew for others, and only there.
    #[test]
    fn few_rows_over_unaligned_operands_are_tried() {
        let thin = |problem: &Gemm, target| {
            let all = proposals(problem, target).into_iter();
            let thin = all.filter(|one| one.candidate.get("outer").is_some());
            thin.collect::<Vec<_>>()
        };
        let problem = gemm(5, 333, 1001);
        let tried = thin(&problem, hopper());
        assert_eq!(tried.len(), 16);
        for Proposal { candidate, judged } in &tried {
            assert!(judged.clone().is_ok_and(|time| time.is_some()));
            let made = problem.tuned(candidate, hopper()).expect("a plan");
            assert!(made.variant.starts_with("thin:"), "{}", made.variant);
            assert_eq!(made.steps.len(), 1);
        }
        let scheduled = tried[3].candidate.clone().with("schedule", "direct early");
        problem.tuned(&scheduled, hopper()).expect("a plan");
        assert!(thin(&gemm(5, 336, 1000), hopper()).is_empty());
        assert!(thin(&gemm(97, 333, 1001), hopper()).is_empty());
        let blackwell = Target {
            arch: Arch::SM_100A,
            sms: 148,
        };
        assert!(thin(&problem, blackwell).is_empty());
        let wrong = Candidate::new([("outer", "48"), ("shares", "2")]);
        let error = problem.tuned(&wrong, hopper()).expect_err("no tile");
        assert!(error.to_string().contains("thin:64x4"), "{error}");
        let mixed = Candidate::new([("outer", "32"), ("shares", "2"), ("stages", "3")]);
        let error = problem.tuned(&mixed, hopper()).expect_err("no choice");
        assert!(error.to_string().contains("few rows"), "{error}");
    }

    #[test]
    fn what_can_t_fit_says_so_with_its_numbers() {
        let problem = gemm(4096, 4096, 4096);
        let all = proposals(&problem, hopper());
        let why = |words: &[(&str, &str)]| {
            let is = |one: &&Proposal| {
                words
                    .iter()
                    .all(|(name, value)| one.candidate.get(name) == Some(value))
            };
            let found = all.iter().find(is).expect("a candidate");
            found.judged.clone().expect_err("refused")
        };
        let shared = why(&[
            ("rows", "128"),
            ("cols", "256"),
            ("depth", "64"),
            ("stages", "12"),
            ("blocks", "1"),
        ]);
        assert!(
            shared.contains("bytes of shared memory") && shared.contains("232448"),
            "{shared}"
        );
        // No tile shape, so no candidate of the sweep; who names it is told why.
        let wide = [
            ("rows", "256"),
            ("cols", "256"),
            ("depth", "64"),
            ("stages", "2"),
        ];
        let sums =
            judge_warpgroups(&problem, &Candidate::new(wide), hopper()).expect_err("refused");
        assert!(sums.contains("registers"), "{sums}");
    }
}
