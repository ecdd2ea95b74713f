//! The kernels of the family, and which of them suits what.

use super::buffers::over_operands;
use super::choose;
use super::config::Config;
use super::kernel::{GemmArgs, Plan, build, refusal, tiles};
use super::problem::Gemm;
use super::reference::{buffers, found, result};
use super::space;
use super::tiling::Tiling;
use super::wgmma;
use crate::blackwell::{self, TensorCores};
use crate::entry::{Entry, Parameter, Prepared, Settings, holds};
use crate::error::KernelError;
use crate::family::{Family, Target, Variant};
use crate::job::{Job, Step, buffer};
use crate::plan::LaunchPlan;
use crate::reference::Difference;
use crate::space::Tuned;
use heist_sched::{AnyOrder, Grouped, Schedule, Submit, TileSource};
use heist_tune::{Candidate, Proposal};

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
struct Warpgroups;

/// The same in the largest tiles.
#[derive(Debug)]
struct LargeTiles;

/// Every kernel that multiplies.
pub static FAMILY: Family<Gemm> = Family {
    name: "gemm",
    variants: &[
        &TensorCores,
        &Warpgroups,
        &LargeTiles,
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
            config: config([64, 64, 32], [32, 32], 4, 2),
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
    let plan = Plan::new(problem, config)?;
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
            // Wherever it can, it is ahead of `mma.sync`.
            None => Ok(u32::MAX),
        }
    }

    fn plan(
        &self,
        problem: &Gemm,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        problem.check()?;
        let tiling = choose::tiling(problem, target);
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
        let plan = plan_with_tiling(problem, choose::LARGE, schedule, target)?;
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
        let shared = u64::from(self.config.stages)
            * u64::from((self.config.rows + self.config.cols) * self.config.depth * 2);
        let limit = target.arch.limits().shared_opt_in;
        if shared + 1024 > limit.into() {
            return Err(format!(
                "its stages take {shared} bytes of shared memory, and {} has {limit}",
                target.arch
            ));
        }
        // Larger tiles read less; but every multiprocessor should have work, and the last wave
        // should not be nearly empty.
        let tiles = tiles(problem.m, problem.n, &self.config).count() as f64;
        let slots = f64::from(target.sms * self.config.blocks);
        let rounds = (tiles / slots).ceil();
        let area = f64::from(self.config.rows * self.config.cols);
        let used = f64::from(problem.m) * f64::from(problem.n);
        let full = used / (rounds * slots * area);
        let side = (area / (128.0 * 256.0)).powf(0.2);
        Ok(1 + (full * side * 1e9) as u32)
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

/// `gemm` in the catalogue.
pub(crate) struct GemmEntry;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "m",
        default: "256",
        about: "rows of the result",
    },
    Parameter {
        name: "n",
        default: "256",
        about: "columns of the result",
    },
    Parameter {
        name: "k",
        default: "256",
        about: "the depth",
    },
    Parameter {
        name: "batch",
        default: "1",
        about: "how many products, one after the other in memory",
    },
    Parameter {
        name: "dtype",
        default: "bf16",
        about: "of A and B: f16, bf16, tf32, e4m3, e5m2",
    },
    Parameter {
        name: "out",
        default: "bf16",
        about: "of C and D: f16, bf16, f32",
    },
    Parameter {
        name: "layout",
        default: "nt",
        about: "nn, nt, tn, tt: t is stored transposed",
    },
    Parameter {
        name: "scales",
        default: "none",
        about: "factors of A and B: none, tensor, rows, blocks (of 128, of 8-bit floats)",
    },
    Parameter {
        name: "sums",
        default: "levels",
        about: "of 8-bit floats: levels (every 128 deep added in f32), fast",
    },
    Parameter {
        name: "alpha",
        default: "1",
        about: "the factor of the product",
    },
    Parameter {
        name: "beta",
        default: "0",
        about: "the factor of C",
    },
    Parameter {
        name: "bias",
        default: "false",
        about: "whether a vector is added to every row",
    },
    Parameter {
        name: "activation",
        default: "none",
        about: "none, relu, gelu, silu",
    },
    Parameter {
        name: "variant",
        default: "",
        about: "the kernel; the best one unless given",
    },
    Parameter {
        name: "config",
        default: "",
        about: "a tile shape instead: 128x256x32/64x64/4, wgmma:128x256x64/4, tcgen05:128x256x64/4",
    },
    Parameter {
        name: "seed",
        default: "1",
        about: "of the random data",
    },
];

/// The problem that settings describe.
fn problem(settings: &Settings) -> Result<Gemm, KernelError> {
    settings.check("gemm", PARAMETERS)?;
    settings.instead("config", &["variant"])?;
    let number = |name| settings.read::<u32>(PARAMETERS, name);
    let word = |name| settings.word(PARAMETERS, name);
    let mut problem = Gemm::new(
        number("m")?,
        number("n")?,
        number("k")?,
        word("dtype").parse()?,
        word("out").parse()?,
        word("layout").parse()?,
    );
    problem.batch = number("batch")?;
    problem.scales = word("scales").parse()?;
    problem.sums = word("sums").parse()?;
    for (what, rows, pitch) in [
        ("A", problem.rows_of_a(), problem.lda),
        ("B", problem.rows_of_b(), problem.ldb),
        ("D", problem.m, problem.ldc),
    ] {
        let one = u64::from(rows) * u64::from(pitch);
        holds(what, one.saturating_mul(problem.batch.into()))?;
    }
    Ok(problem.epilogue(super::Epilogue {
        alpha: settings.read(PARAMETERS, "alpha")?,
        beta: settings.read(PARAMETERS, "beta")?,
        bias: settings.read(PARAMETERS, "bias")?,
        activation: word("activation").parse()?,
    }))
}

impl Entry for GemmEntry {
    fn name(&self) -> &'static str {
        FAMILY.name
    }

    fn about(&self) -> &'static str {
        "D = activation(alpha * A * B + beta * C + bias), any shape"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn variants(&self) -> Vec<(&'static str, &'static str)> {
        FAMILY.list()
    }

    fn schedule(
        &self,
        settings: &Settings,
        target: Target,
    ) -> Result<Option<Schedule>, KernelError> {
        let problem = problem(settings)?;
        let tiling = match settings.get("config") {
            Some(text) if text.starts_with("tcgen05:") => {
                let tiling = Some(text.parse()?);
                return Ok(Some(blackwell::schedule(&problem, tiling, target)));
            }
            Some(text) if text.starts_with("wgmma:") => Some(text.parse()?),
            Some(_) => None,
            None => {
                let variant = FAMILY.choose(settings.get("variant"), &problem, target)?;
                match variant.name() {
                    name if name == TensorCores.name() => {
                        return Ok(Some(blackwell::schedule(&problem, None, target)));
                    }
                    name if name == Warpgroups.name() => Some(choose::tiling(&problem, target)),
                    name if name == LargeTiles.name() => Some(choose::LARGE),
                    _ => None,
                }
            }
        };
        Ok(Some(match tiling {
            Some(tiling) => choose::schedule(&problem, &tiling, target),
            None => self::schedule(target),
        }))
    }

    fn launches(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        let problem = problem(settings)?;
        match settings.get("config") {
            Some(text) if text.starts_with("tcgen05:") => {
                blackwell::job_with_tiling(&problem, text.parse()?, schedule, target)
            }
            Some(text) if text.starts_with("wgmma:") => {
                job_with_tiling(&problem, text.parse()?, schedule, target)
            }
            Some(text) => {
                let own = self::schedule(target);
                job_with(&problem, text.parse()?, schedule.unwrap_or(&own), target)
            }
            None => FAMILY
                .choose(settings.get("variant"), &problem, target)?
                .job(&problem, schedule, target),
        }
    }

    fn prepare(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Prepared, KernelError> {
        let job = self.launches(settings, schedule, target)?;
        let seed = settings.read(PARAMETERS, "seed")?;
        Ok(prepared(job, problem(settings)?, seed))
    }

    fn space(&self, settings: &Settings, target: Target) -> Result<Vec<Proposal>, KernelError> {
        Ok(space::proposals(&problem(settings)?, target))
    }

    fn tuned(
        &self,
        settings: &Settings,
        candidate: &Candidate,
        target: Target,
    ) -> Result<Prepared, KernelError> {
        let problem = problem(settings)?;
        let job = problem.tuned(candidate, target)?.job(|_| None);
        let seed = settings.read(PARAMETERS, "seed")?;
        Ok(prepared(job, problem, seed))
    }

    fn problem_words(&self, settings: &Settings) -> String {
        let words = problem(settings).ok().and_then(|problem| problem.words());
        words.unwrap_or_else(|| settings.problem(PARAMETERS, &[]))
    }
}

/// A job with random data and its check.
pub fn prepared(job: Job, problem: Gemm, seed: u64) -> Prepared {
    let job = buffers(job, &problem, seed);
    // Sums that the tensor cores alone make of 8-bit floats lose more the deeper they are:
    // 1.0e-3 at a depth of 4096, 2.9e-3 at 16384.
    let lost = match problem.input.is_tiny() && !problem.in_levels() {
        true => 3e-7 * f64::from(problem.k),
        false => 0.0,
    };
    Prepared {
        bound: 2e-3 + lost,
        verify: Box::new(move |ran| {
            let found = found(ran, &problem);
            let before = buffers(Job::default(), &problem, seed);
            // Rounded like the result, so that the rest is the kernel's own error.
            let ty = problem.output.element();
            let expected: Vec<f64> = result(&before, &problem)
                .into_iter()
                .map(|value| ty.to_f64(ty.from_f64(value)))
                .collect();
            Ok(Difference::between(&found, &expected))
        }),
        job,
    }
}
