//! What a tile is, and what problems there are for it.

use crate::error::KernelError;
use crate::family::Target;
use crate::gemm::operand::shifted_bytes;
use crate::gemm::problem::{Gemm, Input, Major, Scales};
use heist_launch::Dim3;
use heist_sched::{Schedule, TileSource};
use std::fmt;
use std::str::FromStr;

/// Most rows, or columns, that are few.
pub(super) const FEW: u32 = 96;

/// Threads of a block.
pub(super) const WARPS: u32 = 4;
pub(super) const THREADS: u32 = 32 * WARPS;

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
    pub(crate) const OUTER: [u32; 4] = [16, 32, 64, 128];
    /// Blocks of a cluster that there may be.
    pub(crate) const SHARES: [u32; 4] = [1, 2, 4, 8];

    /// Its blocks are a cluster, each with the tile of its place.
    pub(crate) fn schedule(self) -> Schedule {
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
pub(super) struct Form {
    pub(super) tile: ThinTile,
    /// Of the rows of the large operand those of a warp.
    pub(super) warp_outer: u32,
    /// Few rows, in whole eights.
    pub(super) few: u32,
    /// The depth of a stage.
    pub(super) depth: u32,
    /// Stages.
    pub(super) stages: u32,
}

/// Bytes of the large operand in a stage.
const STAGE: u32 = 16 << 10;
/// Bytes of the stages of a block: two blocks fit on a multiprocessor, and on sm_120 one.
const ROOM: u32 = 80 << 10;
/// How many stages there are.
const STAGES_LEAST: u32 = 3;
const STAGES_MOST: u32 = 6;

impl Form {
    pub(super) fn new(problem: &Gemm, tile: ThinTile) -> Form {
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

    /// Loads of a lane's elements, of all warps for a stage: a fragment has four registers of the large operand and two of the other one, with 32 bits each.
    pub(super) fn loads(&self, input: Input) -> f64 {
        let elements = f64::from(4 / input.bytes());
        let [left, right] = [self.warp_outer / 16 * 4, self.few / 8 * 2].map(f64::from);
        let products = f64::from(WARPS * self.depth * input.bytes()) / f64::from(self.deep() * 32);
        products * (left + right) * elements
    }

    /// Warps that share a stage's depth.
    pub(super) fn deep(&self) -> u32 {
        WARPS * self.warp_outer / self.tile.outer
    }
}

/// Whether the large operand is B: the few rows are those of the result.
pub(super) fn swapped(problem: &Gemm) -> bool {
    problem.m <= problem.n
}

/// How the large operand is stored, and the other one.
pub(super) fn majors(problem: &Gemm) -> [Major; 2] {
    match swapped(problem) {
        true => [problem.layout.b(), problem.layout.a()],
        false => [problem.layout.a(), problem.layout.b()],
    }
}

/// Few rows, and rows of the large operand.
pub(super) fn sides(problem: &Gemm) -> [u32; 2] {
    match swapped(problem) {
        true => [problem.m, problem.n],
        false => [problem.n, problem.m],
    }
}

/// Why this kernel can't multiply that.
pub(crate) fn refusal(problem: &Gemm, target: Target) -> Option<String> {
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
