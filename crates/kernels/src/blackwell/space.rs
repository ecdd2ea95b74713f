//! The search space on Blackwell's tensor cores: one block or a pair, widths of tiles, and how many
//! stages.

use super::choose;
use super::scaled::has_scales;
use super::tiling::TensorTiling;
use super::variant::plan_with_tiling;
use crate::error::KernelError;
use crate::family::Target;
use crate::gemm::Gemm;
use crate::plan::LaunchPlan;
use crate::space::{choice, schedule};
use heist_tune::{Axis, Candidate};

/// The choices. A candidate has no rows: all tiles have the same.
pub(crate) fn axes() -> Vec<Axis> {
    vec![
        Axis::new("blocks", [1, 2]),
        Axis::new("cols", choose::WIDTHS),
        Axis::new("stages", [2, 3, 4, 5, 6, 7, 8]),
    ]
}

/// Whether a candidate is one of these.
pub(crate) fn has(candidate: &Candidate) -> bool {
    candidate.get("cols").is_some() && candidate.get("rows").is_none()
}

fn tiling(candidate: &Candidate) -> Result<TensorTiling, KernelError> {
    let tiling = TensorTiling {
        // What was remembered before there were pairs does not say.
        blocks: match candidate.get("blocks") {
            None => 1,
            Some(_) => choice(candidate, "blocks")?,
        },
        cols: choice(candidate, "cols")?,
        stages: choice(candidate, "stages")?,
    };
    tiling.check()?;
    Ok(tiling)
}

/// Microseconds that a candidate takes, about.
///
/// # Errors
/// Why it can't be.
pub(crate) fn judge(problem: &Gemm, candidate: &Candidate, target: Target) -> Result<f64, String> {
    let fits = || {
        let tiling = tiling(candidate)?;
        tiling.fits(has_scales(problem), target.arch)?;
        Ok(tiling)
    };
    let tiling = fits().map_err(|error: KernelError| error.to_string())?;
    Ok(choose::time(problem, &tiling, target))
}

/// The launches of a candidate.
///
/// # Errors
/// What could not be built or planned.
pub(crate) fn plan(
    problem: &Gemm,
    candidate: &Candidate,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    let schedule = schedule(candidate)?;
    plan_with_tiling(problem, tiling(candidate)?, schedule.as_ref(), target)
}
