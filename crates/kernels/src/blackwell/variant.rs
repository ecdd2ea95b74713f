//! The kernel as a variant of `gemm`.

use super::choose;
use super::kernel::{plan, refusal};
use super::tiling::TensorTiling;
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::{Gemm, costs_more, over_operands};
use crate::job::Job;
use crate::plan::LaunchPlan;
use heist_sched::Schedule;

/// `tcgen05` fed by the copy engine, in tiles that suit the problem.
#[derive(Debug)]
pub(crate) struct TensorCores;

/// The schedule that suits a problem in these tiles, or in those that suit it.
pub(crate) fn schedule(problem: &Gemm, tiling: Option<TensorTiling>, target: Target) -> Schedule {
    let tiling = tiling.unwrap_or_else(|| choose::tiling(problem, target));
    choose::schedule(problem, &tiling, target)
}

/// A multiplication in tiles of your own, over buffers called `a`, `b`, `c`, `d` and `bias` that
/// are still to be added. Without a schedule it takes the one that suits.
///
/// # Errors
/// What could not be built or planned.
pub fn job_with_tiling(
    problem: &Gemm,
    tiling: TensorTiling,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<Job, KernelError> {
    Ok(plan_with_tiling(problem, tiling, schedule, target)?.job(|_| None))
}

pub(super) fn plan_with_tiling(
    problem: &Gemm,
    tiling: TensorTiling,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    let own = choose::schedule(problem, &tiling, target);
    plan(problem, &tiling, schedule.unwrap_or(&own), target)
}

impl Variant for TensorCores {
    type Problem = Gemm;

    fn name(&self) -> &'static str {
        "tcgen05"
    }

    fn about(&self) -> &'static str {
        "tcgen05 and tensor copies, sums in tensor memory, in tiles that suit the shape: Blackwell"
    }

    fn suits(&self, problem: &Gemm, target: Target) -> Result<u32, String> {
        match refusal(problem, target) {
            Some(why) => Err(why),
            None if costs_more(problem, target) => Ok(0),
            // `mma.sync` has a fraction of the rate on the GPUs that have tcgen05.
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
