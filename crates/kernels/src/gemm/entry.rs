//! Multiplication by name: its settings, and random data with its check.

use super::candidates::LARGE;
use super::choose;
use super::problem::{Gemm, Input, Spread};
use super::reference::{buffers, found, result};
use super::space;
use super::thin::{self, Thin, ThinTile, job_with_thin};
use super::variant::{
    FAMILY, LargeTiles, Warpgroups, job_with, job_with_tiling, schedule as usual,
};
use crate::blackwell::{self, TensorCores};
use crate::entry::{Parameter, Prepared, Settings, holds, parameter};
use crate::error::KernelError;
use crate::family::{Family, Target, Variant};
use crate::job::Job;
use crate::listing::{Listing, variant};
use crate::reference::Difference;
use crate::space::Tuned;
use heist_sched::Schedule;
use heist_tune::{Candidate, Proposal};

/// `gemm` in the catalogue.
pub(crate) struct GemmEntry;

pub(super) const PARAMETERS: &[Parameter] = &[
    parameter("m", "256", "rows of the result"),
    parameter("n", "256", "columns of the result"),
    parameter("k", "256", "the depth"),
    parameter(
        "batch",
        "1",
        "how many products, one after the other in memory",
    ),
    parameter("dtype", "bf16", "of A and B: f16, bf16, tf32, e4m3, e5m2"),
    parameter("out", "bf16", "of C and D: f16, bf16, f32"),
    parameter("layout", "nt", "nn, nt, tn, tt: t is stored transposed"),
    parameter(
        "scales",
        "none",
        "factors of A and B: none, tensor, rows; of 8-bit floats also blocks (of 128) and mx (powers of two of 32: Blackwell)",
    ),
    parameter(
        "sums",
        "levels",
        "of 8-bit floats: levels (every 128 deep added in f32), fast",
    ),
    parameter("alpha", "1", "the factor of the product"),
    parameter("beta", "0", "the factor of C"),
    parameter(
        "spread",
        "matrix",
        "what of C is stored, for all of it: matrix, row, column, one",
    ),
    parameter("bias", "false", "whether a vector is added to every row"),
    parameter("activation", "none", "none, relu, gelu, silu"),
    parameter("variant", "", "the kernel; the best one unless given"),
    parameter(
        "config",
        "",
        "a tile shape instead: 128x256x32/64x64/4, wgmma:128x256x64/4, tcgen05:128x256x64/4, thin:64x4",
    ),
    parameter("seed", "1", "of the random data"),
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
    let epilogue = super::Epilogue {
        alpha: settings.read(PARAMETERS, "alpha")?,
        beta: settings.read(PARAMETERS, "beta")?,
        spread: word("spread").parse()?,
        bias: settings.read(PARAMETERS, "bias")?,
        activation: word("activation").parse()?,
    };
    if epilogue.beta == 0.0 && epilogue.spread != Spread::Matrix {
        return Err(KernelError::unfit(format!(
            "spread={} says what of C is stored, and beta=0 adds none of it: give beta=1, or leave spread out",
            epilogue.spread
        )));
    }
    Ok(problem.epilogue(epilogue))
}

impl Listing for GemmEntry {
    type Problem = Gemm;
    const FAMILY: &'static Family<Gemm> = &FAMILY;
    const ABOUT: &'static str = "D = activation(alpha * A * B + beta * C + bias), any shape";
    const PARAMETERS: &'static [Parameter] = PARAMETERS;

    fn problem(settings: &Settings) -> Result<Gemm, KernelError> {
        problem(settings)
    }

    fn schedule(
        settings: &Settings,
        problem: &Gemm,
        target: Target,
    ) -> Result<Option<Schedule>, KernelError> {
        let tiling = match settings.get("config") {
            Some(text) if text.starts_with("tcgen05:") => {
                let tiling = Some(text.parse()?);
                return Ok(Some(blackwell::schedule(problem, tiling, target)));
            }
            Some(text) if text.starts_with("thin:") => {
                return Ok(Some(text.parse::<ThinTile>()?.schedule()));
            }
            Some(text) if text.starts_with("wgmma:") => Some(text.parse()?),
            Some(_) => None,
            None => {
                let chosen = FAMILY.choose(variant(settings), problem, target)?;
                match chosen.name() {
                    name if name == TensorCores.name() => {
                        return Ok(Some(blackwell::schedule(problem, None, target)));
                    }
                    name if name == Warpgroups.name() => {
                        Some(choose::tiling(problem, None, target))
                    }
                    name if name == LargeTiles.name() => Some(LARGE),
                    name if name == Thin.name() => {
                        return Ok(Some(thin::schedule(problem, target)));
                    }
                    _ => None,
                }
            }
        };
        Ok(Some(match tiling {
            Some(tiling) => choose::schedule(problem, &tiling, target),
            None => usual(target),
        }))
    }

    fn job(
        settings: &Settings,
        problem: &Gemm,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        match settings.get("config") {
            Some(text) if text.starts_with("tcgen05:") => {
                blackwell::job_with_tiling(problem, text.parse()?, schedule, target)
            }
            Some(text) if text.starts_with("wgmma:") => {
                job_with_tiling(problem, text.parse()?, schedule, target)
            }
            Some(text) if text.starts_with("thin:") => {
                job_with_thin(problem, text.parse()?, schedule, target)
            }
            Some(text) => {
                let own = usual(target);
                job_with(problem, text.parse()?, schedule.unwrap_or(&own), target)
            }
            None => FAMILY
                .choose(variant(settings), problem, target)?
                .job(problem, schedule, target),
        }
    }

    fn prepared(job: Job, problem: Gemm, seed: u64) -> Prepared {
        prepared(job, problem, seed)
    }

    fn proposals(problem: &Gemm, target: Target) -> Vec<Proposal> {
        space::proposals(problem, target)
    }

    fn tuned(problem: &Gemm, candidate: &Candidate, target: Target) -> Result<Job, KernelError> {
        Ok(problem.tuned(candidate, target)?.job(|_| None))
    }

    fn words(problem: &Gemm) -> Option<String> {
        problem.words()
    }
}

/// What sums that the tensor cores alone make of 8-bit floats may lose. They lose more the deeper they
/// are: 1.0e-3 of the norm at a depth of 4096, 2.9e-3 at 16384.
pub(crate) fn lost(input: Input, in_levels: bool, depth: u32) -> f64 {
    match input.is_tiny() && !in_levels {
        true => 3e-7 * f64::from(depth),
        false => 0.0,
    }
}

/// A job with random data and its check.
pub fn prepared(job: Job, problem: Gemm, seed: u64) -> Prepared {
    let job = buffers(job, &problem, seed);
    Prepared {
        bound: 2e-3 + lost(problem.input, problem.in_levels(), problem.k),
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
