//! How a problem is cut, and whether this kernel is expected ahead of the others: a small model.

use super::tile::{Form, ThinTile, majors, refusal, sides};
use crate::family::Target;
use crate::gemm::anew::{Anew, as_it_is};
use crate::gemm::choose::ranked;
use crate::gemm::problem::{Gemm, Major};
use heist_sched::{Schedule, TileSource};

// The constants of the model. They are estimates: none is fitted to measurements of this kernel yet.

/// Megabytes that memory gives in a microsecond, and L2.
const MEMORY: f64 = 3.9;
const L2: f64 = 5.0;
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

/// Rows of tiles: longer pieces of rows where these run along the depth, or across it.
fn outers(problem: &Gemm) -> [u32; 3] {
    match majors(problem)[0] {
        Major::Depth => [64, 32, 16],
        Major::Outer => [128, 64, 32],
    }
}

/// Microseconds that a problem takes so, with operands in memory.
fn time(problem: &Gemm, form: &Form, target: Target) -> f64 {
    let ([few, outer], tile) = (sides(problem), form.tile);
    let tiles = f64::from(outer.div_ceil(tile.outer)) * f64::from(problem.batch);
    let blocks = tiles * f64::from(tile.shares);
    let bytes = f64::from(outer) * f64::from(problem.k) * f64::from(problem.input.bytes());
    let bytes = bytes * f64::from(problem.batch);
    let moved = bytes / 1e6 / MEMORY.min(ASKED * blocks);
    // Every tile reads all few rows.
    let asked = bytes / 1e6 / L2 * (1.0 + f64::from(few) / f64::from(tile.outer));
    // For a product of 16 rows, 512 bytes, lanes load all its elements, and those of each eight few rows once for the warp's rows.
    let of_large = f64::from(512 / 32 / problem.input.bytes());
    let of_few = of_large / 2.0 * f64::from(form.few / 8) * 16.0 / f64::from(form.warp_outer);
    let sms = f64::from(target.sms);
    let full = (blocks / sms).ceil() * sms / blocks;
    let loaded = bytes / 512.0 * (of_large + of_few) * LOAD / sms * full / CLOCK;
    let meet = if tile.shares > 1 { MEET } else { 0.0 };
    LAUNCH + meet + moved.max(asked).max(loaded)
}

/// The tile that suits, among those with so many shares, and its time.
fn best(problem: &Gemm, target: Target, shares: &[u32]) -> (f64, ThinTile) {
    let forms = outers(problem).into_iter().flat_map(|outer| {
        let tiles = shares.iter().map(move |&shares| ThinTile { outer, shares });
        tiles.map(|tile| Form::new(problem, tile))
    });
    // A share of few steps is mostly its beginning; one that is asked for may have any.
    let useful = forms.filter(|form| {
        let least = 2 * form.tile.shares;
        shares.len() == 1 || form.tile.shares == 1 || problem.k.div_ceil(form.depth) >= least
    });
    let timed = useful.map(|form| (time(problem, &form, target), form.tile));
    let best = timed.min_by(|one, other| one.0.total_cmp(&other.0));
    best.unwrap_or((f64::INFINITY, WHOLE))
}

/// A tile whose depth is not shared.
const WHOLE: ThinTile = ThinTile {
    outer: 64,
    shares: 1,
};

/// The schedule that suits: every block has its tile, and those of a cluster share its depth.
pub(crate) fn schedule(problem: &Gemm, target: Target) -> Schedule {
    best(problem, target, &ThinTile::SHARES).1.schedule()
}

/// The tile that suits under a schedule, or under its own.
pub(super) fn tile(problem: &Gemm, schedule: Option<&Schedule>, target: Target) -> ThinTile {
    let Some(schedule) = schedule else {
        return best(problem, target, &ThinTile::SHARES).1;
    };
    let cluster = schedule.cluster;
    let along = cluster.y == 1 && cluster.z == 1 && ThinTile::SHARES.contains(&cluster.x);
    let shares = match schedule.source == TileSource::Direct && along {
        true => cluster.x,
        false => 1,
    };
    best(problem, target, &[shares]).1
}

/// Whether this kernel is expected to be the fastest, on Hopper: where an operand's rows start anywhere, so that it would be written anew, or copied by blocks that
/// are mostly empty.
pub(crate) fn is_ahead(problem: &Gemm, target: Target) -> bool {
    let hopper = target.arch.number() == 90 && refusal(problem, target).is_none();
    if !hopper || Anew::along(problem, [false; 2]).is_none() {
        return false;
    }
    let (own, _) = best(problem, target, &ThinTile::SHARES);
    let anew = ranked(problem, target).first().map(|best| best.0);
    let anew = anew.unwrap_or(f64::INFINITY);
    own <= AHEAD * anew.min(LAUNCH + as_it_is(problem, target))
}
