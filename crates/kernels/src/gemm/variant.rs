//! The kernels of the family, and which of them suits what.

use super::buffers::over_operands;
use super::candidates::LARGE;
use super::choose;
use super::config::Config;
use super::kernel::{GemmArgs, Plan, build, refusal, tiles};
use super::problem::Gemm;
use super::small::{SMALL, SMALLEST, smallest_are_faster};
use super::thin::Thin;
use super::tiling::{Cluster, Tiling};
use super::wgmma;
use crate::blackwell::TensorCores;
use crate::error::KernelError;
use crate::family::{Family, Target, Variant};
use crate::job::{Job, Step, buffer};
use crate::plan::LaunchPlan;
use heist_sched::{AnyOrder, Grouped, Schedule, Submit, TileSource};

/// `mma.sync` with a fixed tile shape.
#[derive(Debug)]
struct MmaSync {
    name: &'static str,
    about: &'static str,
    config: Config,
}

const fn config(block: [u32; 3], warp: [u32; 2], stages: u32, blocks: u32) -> Config {
    Config {
        rows: block[0],
        cols: block[1],
        depth: block[2],
        warp_rows: warp[0],
        warp_cols: warp[1],
        stages,
        blocks,
    }
}

/// `wgmma` fed by the copy engine, in tiles that suit the problem.
#[derive(Debug)]
pub(super) struct Warpgroups;

/// The same in the largest tiles.
#[derive(Debug)]
pub(super) struct LargeTiles;

/// Every kernel that multiplies.
pub static FAMILY: Family<Gemm> = Family {
    name: "gemm",
    variants: &[
        &TensorCores,
        &Warpgroups,
        &LargeTiles,
        &Thin,
        &MmaSync {
            name: "mma-128x256",
            about: "mma.sync, 128 x 256 tiles, one block a multiprocessor: large problems",
            config: config([128, 256, 64], [64, 64], 3, 1),
        },
        &MmaSync {
            name: "mma-128x128",
            about: "mma.sync, 128 x 128 tiles: two blocks a multiprocessor",
            config: config([128, 128, 32], [64, 64], 4, 2),
        },
        &MmaSync {
            name: "mma-64x64",
            about: "mma.sync, 64 x 64 tiles: small problems",
            config: SMALL,
        },
        &MmaSync {
            name: "mma-32x32",
            about: "mma.sync, 32 x 32 tiles: the smallest problems",
            config: SMALLEST,
        },
    ],
};

/// The default schedule of a multiplication: tiles in bands, with late submission, so that operands
/// stay in L2.
pub fn schedule(target: Target) -> Schedule {
    let greedy = heist_sched::AnyPolicy::new(heist_sched::Greedy);
    let source = TileSource::auto(target.arch, &greedy, false).source;
    let mut schedule = Schedule::new(source).submit(Submit::Late);
    schedule.order = AnyOrder::new(Grouped { rows: 8 });
    schedule
}

/// A multiplication with a tile shape of your own, over buffers called `a`, `b`, `c`, `d` and
/// `bias` that are still empty: what [`Job::buffer`] adds.
///
/// # Errors
/// What could not be built or planned.
pub fn job_with(
    problem: &Gemm,
    config: Config,
    schedule: &Schedule,
    target: Target,
) -> Result<Job, KernelError> {
    let plan = Plan::new(problem, config, target.arch)?;
    let tiles = tiles(problem.m, problem.n, &config);
    let kernel = build(&plan, tiles, schedule, target.arch)?;
    let resident = target.resident(&kernel.built.launch, config.registers());
    let launch = kernel.plan(resident)?;
    let args = GemmArgs {
        a: buffer("a"),
        b: buffer("b"),
        c: buffer("c"),
        d: buffer("d"),
        bias: buffer("bias"),
        m: problem.m,
        n: problem.n,
        k: problem.k,
        lda: problem.lda,
        ldb: problem.ldb,
        ldc: problem.ldc,
        alpha: problem.epilogue.alpha,
        beta: problem.epilogue.beta,
    };
    let step = Step::tiled(&kernel, &launch, args);
    Ok(Job::new(format!("gemm {problem} {config}"), problem.work()).step(step))
}

/// A multiplication on warpgroups in tiles of your own, over buffers called `a`, `b`, `c`, `d` and
/// `bias` that are still to be added. Buffers that the job already has are its workspace.
///
/// # Errors
/// What could not be built or planned.
pub fn job_with_tiling(
    problem: &Gemm,
    tiling: Tiling,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<Job, KernelError> {
    let plan = plan_with_tiling(problem, tiling, schedule, target)?;
    Ok(plan.job(|_| None))
}

pub(super) fn plan_with_tiling(
    problem: &Gemm,
    tiling: Tiling,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    let own = choose::schedule(problem, &tiling, target);
    wgmma::plan(problem, &tiling, schedule.unwrap_or(&own), target)
}

impl Variant for Warpgroups {
    type Problem = Gemm;

    fn name(&self) -> &'static str {
        "wgmma"
    }

    fn about(&self) -> &'static str {
        "wgmma and tensor copies, in tiles that suit the shape: Hopper"
    }

    fn suits(&self, problem: &Gemm, target: Target) -> Result<u32, String> {
        match wgmma::refusal(problem, target) {
            Some(why) => Err(why),
            None => match choose::kind(problem, target) {
                choose::Kind::Warpgroups => Ok(u32::MAX),
                choose::Kind::Thin | choose::Kind::Mma => Ok(0),
            },
        }
    }

    fn plan(
        &self,
        problem: &Gemm,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        problem.check()?;
        let mut tiling = choose::tiling(problem, schedule, target);
        let alone = |schedule: &Schedule| {
            let dealt = schedule.source != TileSource::Direct;
            // Blocks of a cluster can't leave one by one, and those that share a depth have one tile.
            schedule.pausing || dealt && tiling.cluster == Cluster::Depth
        };
        if schedule.is_some_and(alone) {
            tiling.cluster = Cluster::Alone;
        }
        tiling.tail &= wgmma::can_cut(problem, &tiling, schedule);
        let own = choose::schedule(problem, &tiling, target);
        tiling = wgmma::halved(problem, tiling, schedule.unwrap_or(&own), target);
        let plan = plan_with_tiling(problem, tiling, schedule, target)?;
        Ok(over_operands(plan, self.name(), problem))
    }
}

impl Variant for LargeTiles {
    type Problem = Gemm;

    fn name(&self) -> &'static str {
        "wgmma-128x256"
    }

    fn about(&self) -> &'static str {
        "wgmma and tensor copies, 128 x 256 tiles, a warpgroup that copies and two that multiply: Hopper"
    }

    fn suits(&self, problem: &Gemm, target: Target) -> Result<u32, String> {
        match wgmma::refusal(problem, target) {
            Some(why) => Err(why),
            None => Ok(0),
        }
    }

    fn plan(
        &self,
        problem: &Gemm,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let plan = plan_with_tiling(problem, LARGE, schedule, target)?;
        Ok(over_operands(plan, self.name(), problem))
    }
}

impl Variant for MmaSync {
    type Problem = Gemm;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn suits(&self, problem: &Gemm, target: Target) -> Result<u32, String> {
        if target.arch.number() < 80 {
            return Err("mma.sync of these types came with sm_80".into());
        }
        if let Some(why) = refusal(problem) {
            return Err(why);
        }
        let shared = u64::from(self.config.stages * self.config.stage_bytes());
        let limit = target.arch.limits().shared_opt_in;
        if shared + 1024 > limit.into() {
            return Err(format!(
                "its stages take {shared} bytes of shared memory, and {} has {limit}",
                target.arch
            ));
        }
        if self.config == SMALLEST {
            let small = rank(&SMALL, problem, target);
            return Ok(match smallest_are_faster(problem, target) {
                true => small + 1,
                false => small - 1,
            });
        }
        Ok(rank(&self.config, problem, target))
    }

    fn plan(
        &self,
        problem: &Gemm,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        let own = self::schedule(target);
        let job = job_with(problem, self.config, schedule.unwrap_or(&own), target)?;
        Ok(over_operands(
            LaunchPlan::of_job(self.name, job),
            self.name,
            problem,
        ))
    }
}

/// How well tiles of `mma.sync` suit, from 1 on. Larger ones read less; but every multiprocessor should have work, and the last wave
/// should not be nearly empty.
fn rank(config: &Config, problem: &Gemm, target: Target) -> u32 {
    let tiles = tiles(problem.m, problem.n, config).count() as f64;
    let slots = f64::from(target.sms * config.blocks);
    let rounds = (tiles / slots).ceil();
    let area = f64::from(config.rows * config.cols);
    let used = f64::from(problem.m) * f64::from(problem.n);
    let full = used / (rounds * slots * area);
    let side = (area / (128.0 * 256.0)).powf(0.2);
    1 + (full * side * 1e9) as u32
}
