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
use super::operand::shifted_bytes;
use super::problem::{Gemm, Major, Scales};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::job::Job;
use crate::plan::LaunchPlan;
use heist_launch::Dim3;
use heist_sched::{Schedule, TileSource};
use std::fmt;
use std::str::FromStr;

pub(super) use choose::{is_ahead, schedule};

/// The variant.
#[derive(Debug)]
pub(crate) struct Thin;

/// Most rows, or columns, that are few.
const FEW: u32 = 32;

/// Threads of a block.
const WARPS: u32 = 4;
const THREADS: u32 = 32 * WARPS;

/// A tile of few rows. Written `thin:64x4`: rows of the large operand, and blocks of a cluster that share its depth.
///
/// ```
/// use heist_kernels::gemm::ThinTile;
/// let tile: ThinTile = "thin:64x4".parse().unwrap();
/// assert_eq!((tile.outer, tile.shares), (64, 4));
/// assert_eq!(tile.to_string(), "thin:64x4");
/// assert!("thin:48x4".parse::<ThinTile>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThinTile {
    /// Rows of the large operand.
    pub outer: u32,
    /// Blocks that share its depth.
    pub shares: u32,
}

impl ThinTile {
    /// Rows that there may be.
    const OUTER: [u32; 4] = [16, 32, 64, 128];
    /// Blocks of a cluster that there may be.
    const SHARES: [u32; 4] = [1, 2, 4, 8];

    /// Its blocks are a cluster, each with the tile of its place.
    pub(super) fn schedule(self) -> Schedule {
        let mut schedule = Schedule::new(TileSource::Direct);
        schedule.cluster = Dim3::new(self.shares, 1, 1);
        schedule
    }
}

impl fmt::Display for ThinTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thin:{}x{}", self.outer, self.shares)
    }
}

impl FromStr for ThinTile {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<ThinTile, KernelError> {
        let read = || {
            let (outer, shares) = text.strip_prefix("thin:")?.split_once('x')?;
            let tile = ThinTile {
                outer: outer.parse().ok()?,
                shares: shares.parse().ok()?,
            };
            let known =
                ThinTile::OUTER.contains(&tile.outer) && ThinTile::SHARES.contains(&tile.shares);
            known.then_some(tile)
        };
        read().ok_or_else(|| {
            KernelError::unfit(format!(
                "`{text}` is no tile for few rows: write one like thin:64x4, with 16, 32, 64 or 128 rows of the large operand and 1, 2, 4 or 8 shares of the depth"
            ))
        })
    }
}

/// How the kernel is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    tile: ThinTile,
    /// Of the rows of the large operand those of a warp.
    warp_outer: u32,
    /// Few rows, in whole eights.
    few: u32,
    /// The depth of a stage.
    depth: u32,
    /// Stages.
    stages: u32,
}

/// Bytes of the large operand in a stage.
const STAGE: u32 = 16 << 10;
/// Bytes of the stages of a block: two blocks fit on a multiprocessor, and on sm_120 one.
const ROOM: u32 = 80 << 10;
/// How many stages there are.
const STAGES_LEAST: u32 = 3;
const STAGES_MOST: u32 = 6;

impl Form {
    fn new(problem: &Gemm, tile: ThinTile) -> Form {
        let [few, _] = sides(problem);
        let few = few.next_multiple_of(8);
        let bytes = problem.input.bytes();
        // Two blocks of 16 rows of a warp share the fragments of the few rows.
        let warp_outer = match tile.outer {
            16 => 16,
            128 => 32,
            _ if few > 8 => 32,
            _ => 16,
        };
        let deep = WARPS * warp_outer / tile.outer;
        // Of a warp at least one product, 32 bytes deep.
        let product = deep * 32 / bytes;
        let [large, small] = majors(problem);
        let stage = |depth| {
            shifted_bytes(large, [tile.outer, depth], bytes)
                + shifted_bytes(small, [few, depth], bytes)
        };
        let mut most = STAGE / (tile.outer * bytes);
        while STAGES_LEAST * stage(most) > ROOM {
            most /= 2;
        }
        // A short depth is one stage.
        let short = problem.k.max(1).checked_next_multiple_of(product);
        let depth = short.map_or(most, |short| short.min(most));
        Form {
            tile,
            warp_outer,
            few,
            depth,
            stages: (ROOM / stage(depth)).clamp(STAGES_LEAST, STAGES_MOST),
        }
    }

    /// Warps that share a stage's depth.
    fn deep(&self) -> u32 {
        WARPS * self.warp_outer / self.tile.outer
    }
}

/// Whether the large operand is B: the few rows are those of the result.
fn swapped(problem: &Gemm) -> bool {
    problem.m <= problem.n
}

/// How the large operand is stored, and the other one.
fn majors(problem: &Gemm) -> [Major; 2] {
    match swapped(problem) {
        true => [problem.layout.b(), problem.layout.a()],
        false => [problem.layout.a(), problem.layout.b()],
    }
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
        if let Some(why) = refusal(problem, target) {
            return Err(KernelError::unfit(format!("gemm {problem} thin: {why}")));
        }
        // A tile ends before it could be left: blocks leave between tiles.
        let given = given.map(|given| Schedule {
            pausing: false,
            ..given.clone()
        });
        let tile = choose::tile(problem, given.as_ref(), target);
        let job = job_with_thin(problem, tile, given.as_ref(), target)?;
        let plan = LaunchPlan::of_job(self.name(), job);
        Ok(over_operands(plan, self.name(), problem))
    }
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
