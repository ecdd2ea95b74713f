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

use super::buffers::over_operands;
use super::problem::{Gemm, Input, Scales};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::job::Job;
use crate::plan::LaunchPlan;
use heist_sched::Schedule;

pub(super) use choose::{is_ahead, schedule};

/// The variant.
#[derive(Debug)]
pub(crate) struct Thin;

/// Most rows, or columns, that are few.
const FEW: u32 = 32;

/// Threads of a block.
const WARPS: u32 = 4;
const THREADS: u32 = 32 * WARPS;

/// How the kernel is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Rows of the large operand.
    outer: u32,
    /// Of them those of a warp.
    warp_outer: u32,
    /// Few rows, in whole eights.
    few: u32,
    /// The depth of a stage.
    depth: u32,
    /// Stages.
    stages: u32,
    /// Blocks that share the depth.
    shares: u32,
}

impl Tile {
    /// Warps that share a stage's depth.
    fn deep(&self) -> u32 {
        WARPS * self.warp_outer / self.outer
    }
}

/// Whether the large operand is B: the few rows are those of the result.
fn swapped(problem: &Gemm) -> bool {
    problem.m <= problem.n
}

/// Few rows, and rows of the large operand.
fn sides(problem: &Gemm) -> [u32; 2] {
    match swapped(problem) {
        true => [problem.m, problem.n],
        false => [problem.n, problem.m],
    }
}

/// Why this kernel can't multiply that.
fn refusal(problem: &Gemm, target: Target) -> Option<String> {
    if target.arch.number() < 90 {
        return Some("its blocks share the depth in clusters, which came with sm_90".into());
    }
    if problem.input.is_tiny() {
        return Some(format!(
            "it multiplies f16, bf16 and tf32, not {}",
            problem.input
        ));
    }
    if problem.scales != Scales::None {
        return Some("it applies no factors of A and B".into());
    }
    let [few, _] = sides(problem);
    (few > FEW)
        .then(|| format!("it is for at most {FEW} rows or columns, and the fewer here are {few}"))
}

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
            None if is_ahead(problem, target) => Ok(u32::MAX - 1),
            None => Ok(0),
        }
    }

    fn plan(
        &self,
        problem: &Gemm,
        given: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        problem.check()?;
        if let Some(why) = refusal(problem, target) {
            return Err(KernelError::unfit(format!("gemm {problem} thin: {why}")));
        }
        let own = schedule(problem, target);
        let given = given.unwrap_or(&own);
        let tile = choose::tile(problem, given, target);
        let step = kernel::step(problem, tile, given, target)?;
        let job = Job::new(format!("gemm {problem} thin"), problem.work()).step(step);
        let plan = LaunchPlan::of_job(self.name(), job);
        Ok(over_operands(plan, self.name(), problem))
    }
}

/// The depth of a product.
fn step_depth(input: Input) -> u32 {
    32 / input.bytes()
}
