//! How a problem is cut, and whether this kernel is expected ahead of the others: a small model.

use super::{FEW, Tile, WARPS, refusal, sides, step_depth, swapped};
use crate::family::Target;
use crate::gemm::anew::{Anew, as_it_is};
use crate::gemm::choose::ranked;
use crate::gemm::problem::{Gemm, Major};
use heist_launch::Dim3;
use heist_sched::{Schedule, TileSource};

/// Bytes of the large operand in a stage.
const STAGE: u32 = 16 << 10;
/// Bytes of the stages of a block: three blocks fit on a multiprocessor.
const ROOM: u32 = 70 << 10;
/// Most stages.
const STAGES: u32 = 4;
/// How many blocks of a cluster may share the depth.
const SHARES: [u32; 4] = [1, 2, 4, 8];

// The constants of the model. They are estimates: none is fitted to measurements of this kernel yet.

/// Megabytes that memory gives in a microsecond, and L2 to lanes that load single elements.
const MEMORY: f64 = 3.9;
/// Megabytes that a block has asked for in the microsecond that an answer takes.
const ASKED: f64 = 0.045;
/// Microseconds of a launch, with its first answers and its stores.
const LAUNCH: f64 = 3.0;
/// The same of a cluster that meets.
const MEET: f64 = 1.3;
/// Cycles in which a multiprocessor loads an element of each lane of a warp from shared memory, and cycles in a microsecond.
const LOAD: f64 = 1.3;
const CLOCK: f64 = 1755.0;
/// How much has to be gained before this kernel is taken.
const AHEAD: f64 = 0.95;

/// A tile of so many rows of the large operand, with as many shares.
fn tile_of(problem: &Gemm, outer: u32, shares: u32) -> Tile {
    let [few, _] = sides(problem);
    let few = few.next_multiple_of(8);
    let bytes = problem.input.bytes();
    // Two blocks of 16 rows of a warp share the fragments of the few rows.
    let warp_outer = match outer {
        16 => 16,
        _ if few > 8 || outer == 128 => 32,
        _ => 16,
    };
    let deep = WARPS * warp_outer / outer;
    let product = deep * step_depth(problem.input);
    let most = STAGE / (outer * bytes);
    // A short depth is one stage.
    let depth = problem
        .k
        .max(1)
        .next_multiple_of(product)
        .clamp(product, most);
    let stage = (outer + few) * (depth * bytes + 16);
    Tile {
        outer,
        warp_outer,
        few,
        depth,
        stages: (ROOM / stage).clamp(2, STAGES),
        shares,
    }
}

/// Rows of tiles: longer pieces of rows where these run along the depth, or across it.
fn outers(problem: &Gemm) -> [u32; 3] {
    let major = match swapped(problem) {
        true => problem.layout.b(),
        false => problem.layout.a(),
    };
    match major {
        Major::Depth => [64, 32, 16],
        Major::Outer => [128, 64, 32],
    }
}

/// Microseconds that a problem takes so, with operands in memory.
fn time(problem: &Gemm, tile: &Tile, target: Target) -> f64 {
    let [_, outer] = sides(problem);
    let tiles = outer.div_ceil(tile.outer) * problem.batch;
    let blocks = f64::from(tiles * tile.shares);
    let bytes = f64::from(outer) * f64::from(problem.k) * f64::from(problem.input.bytes());
    let megabytes = bytes * f64::from(problem.batch) / 1e6;
    let moved = megabytes / MEMORY.min(ASKED * blocks);
    // Lanes load 8 elements of the large operand for 16 rows and 4 for each 8 few ones, in halves or words as many bytes.
    let few = f64::from(tile.few / 8 * 4 * 16 / tile.warp_outer);
    let loads = if problem.input.bytes() == 2 { 8.0 } else { 4.0 };
    let cycles = LOAD * loads * (1.0 + few / 8.0);
    let sms = f64::from(target.sms);
    let full = (blocks / sms).ceil() * sms / blocks;
    let loaded = megabytes * 1e6 / 512.0 * cycles / sms * full / CLOCK;
    let meet = if tile.shares > 1 { MEET } else { 0.0 };
    LAUNCH + meet + moved.max(loaded)
}

/// The tile that suits, and its time.
fn best(problem: &Gemm, target: Target, shares: &[u32]) -> (f64, Tile) {
    let mut best = None::<(f64, Tile)>;
    for outer in outers(problem) {
        for &shares in shares {
            let tile = tile_of(problem, outer, shares);
            if shares > 1 && problem.k.div_ceil(tile.depth) < 2 * shares {
                continue;
            }
            let time = time(problem, &tile, target);
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, tile));
            }
        }
    }
    best.unwrap_or_else(|| {
        let tile = tile_of(problem, FEW, 1);
        (time(problem, &tile, target), tile)
    })
}

/// The schedule that suits: every block has its tile, and those of a cluster share its depth.
pub(crate) fn schedule(problem: &Gemm, target: Target) -> Schedule {
    let (_, tile) = best(problem, target, &SHARES);
    let mut schedule = Schedule::new(TileSource::Direct);
    schedule.cluster = Dim3::new(tile.shares, 1, 1);
    schedule
}

/// The tile that suits under a schedule.
pub(super) fn tile(problem: &Gemm, schedule: &Schedule, target: Target) -> Tile {
    let cluster = schedule.cluster;
    let along = cluster.y == 1 && cluster.z == 1 && SHARES.contains(&cluster.x);
    let shares = match schedule.source == TileSource::Direct && along {
        true => cluster.x,
        false => 1,
    };
    let (_, tile) = best(problem, target, &[shares]);
    // So many shares are asked for, whatever they gain.
    Tile { shares, ..tile }
}

/// Whether this kernel is expected to be the fastest on Hopper: where operands would be written anew, or copied by blocks that are mostly empty.
pub(crate) fn is_ahead(problem: &Gemm, target: Target) -> bool {
    let hopper = target.arch.number() == 90 && refusal(problem, target).is_none();
    if !hopper || Anew::along(problem, [false; 2]).is_none() {
        return false;
    }
    let (own, _) = best(problem, target, &SHARES);
    let anew = ranked(problem, target)
        .first()
        .map_or(f64::INFINITY, |best| best.0);
    own <= AHEAD * anew.min(LAUNCH + as_it_is(problem, target))
}
