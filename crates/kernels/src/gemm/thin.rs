//! Few rows, or few columns, times a large operand whose rows start anywhere: one launch that reads it once, as it is stored.
//!
//! To write the large operand anew reads and writes it before it is read again. Here blocks copy it to shared memory 16 bytes at a time, with the shifts
//! of its rows ([`Width::Shifted`]), and multiply with `mma.sync`: its rows are the 16 of a fragment, the few ones the 8 columns. Lanes load single elements of
//! shared memory, which costs less than memory takes as long as there are few.
//!
//! A tile has some rows of the large operand and all few ones. Where tiles are too few for the GPU the blocks of a cluster share its depth, and inside of a block warps
//! do. All of them leave their sums in shared memory; then each block adds up some results, in the order of the shares, so a result does not depend on which was
//! done first. There is no workspace and no second launch. Blocks of a cluster have one tile, so a schedule that hands out tiles has clusters of one.

mod choose;
mod kernel;
mod tile;

use super::buffers::over_operands;
use super::choose::{Kind, kind};
use super::problem::Gemm;
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::job::Job;
use crate::plan::LaunchPlan;
use heist_sched::{Schedule, TileSource};
use tile::Form;

pub(super) use choose::{fastest, is_tried, modelled, schedule};
pub use tile::ThinTile;
pub(super) use tile::refusal;

/// The variant.
#[derive(Debug)]
pub(crate) struct Thin;

impl Variant for Thin {
    type Problem = Gemm;

    fn name(&self) -> &'static str {
        "thin"
    }

    fn about(&self) -> &'static str {
        "mma.sync, few rows or columns times operands whose rows start anywhere, read once: Hopper"
    }

    fn suits(&self, problem: &Gemm, target: Target) -> Result<u32, String> {
        match refusal(problem, target) {
            Some(why) => Err(why),
            None if kind(problem, target) == Kind::Thin => Ok(u32::MAX - 1),
            None => Ok(0),
        }
    }

    fn plan(
        &self,
        problem: &Gemm,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        if let Some(why) = refusal(problem, target) {
            return Err(KernelError::unfit(format!("gemm {problem} thin: {why}")));
        }
        let tile = choose::tile(problem, given, target);
        let plan = plan_with_thin(problem, tile, given, target)?;
        Ok(over_operands(plan, self.name(), problem))
    }
}

/// The launch in such tiles.
pub(super) fn plan_with_thin(
    problem: &Gemm,
    tile: ThinTile,
    given: Option<&Schedule>,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    // A tile ends before it could be left: blocks leave between tiles.
    let given = given.map(|given| Schedule {
        pausing: false,
        ..given.clone()
    });
    let job = job_with_thin(problem, tile, given.as_ref(), target)?;
    Ok(LaunchPlan::of_job(&tile.to_string(), job))
}

/// A multiplication of few rows in a tile of your own, over buffers called `a`, `b`, `c`, `d` and `bias` that are still empty.
///
/// # Errors
/// What could not be built or planned.
pub fn job_with_thin(
    problem: &Gemm,
    tile: ThinTile,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<Job, KernelError> {
    problem.check()?;
    if let Some(why) = refusal(problem, target) {
        return Err(KernelError::unfit(format!("gemm {problem} {tile}: {why}")));
    }
    let own = tile.schedule();
    let schedule = schedule.unwrap_or(&own);
    if tile.shares > 1 && (schedule.source != TileSource::Direct || schedule.cluster != own.cluster)
    {
        return Err(KernelError::unfit(format!(
            "gemm {problem} {tile}: blocks that share the depth are a cluster of {} along x with one tile each, not `{schedule}`: \
             take the source direct and that cluster, or one share",
            tile.shares
        )));
    }
    let step = kernel::step(problem, &Form::new(problem, tile), schedule, target)?;
    let name = format!("gemm {problem} {tile}");
    Ok(Job::new(name, problem.work()).step(step))
}
