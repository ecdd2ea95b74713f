//! How a problem is cut, and whether this kernel is expected ahead of the others: a small model.

#[cfg(test)]
mod timed;

use super::tile::{Form, ThinTile, majors, refusal, sides};
use crate::family::Target;
use crate::gemm::anew::Anew;
use crate::gemm::operand::CHUNK;
use crate::gemm::problem::{Gemm, Major};
use heist_sched::{Schedule, TileSource};

// The constants of the model are from 1248 launches of 78 shapes on an H200, with operands in memory, most of them drawn at random (`timed.txt`). Modelled times are off by 14% of the time in the
// mean of the better ones, and the tile that is chosen takes 1.045 times as long as the best of the 16. Fitted to either half of the shapes it took 1.046 and 1.064 times as long in the other,
// with the constants before 1.052 and 1.065; in 48 others, drawn and timed afterwards, 1.019. The worst is 40 x 4097 x 4097 in nt, 1.66: large tiles with shares are modelled too fast there.

/// Microseconds of a launch.
const LAUNCH: f64 = 1.515;
/// Microseconds more where blocks meet, and for each block of a multiprocessor where eight are a cluster (a third of it for two).
const MEET: f64 = 0.571;
const CLUSTER: f64 = 0.611;
/// What a block takes to begin, and for each of its sums.
const BEGIN: f64 = 0.198;
const SUM: f64 = 0.000_58;
/// What a multiprocessor takes for a copy of 16 bytes, and for a warp's load of an element of a fragment.
const COPY: f64 = 0.000_39;
const LOAD: f64 = 0.000_53;
/// Megabytes that memory gives in a microsecond, in sectors.
const MEMORY: f64 = 2.51;
const SECTOR: f64 = 32.0;
/// Blocks that a multiprocessor has at a time, and how much of a round that is not full is lost: others begin as some end.
const RESIDENT: f64 = 2.0;
const LOST: f64 = 0.312;

/// Microseconds that a problem takes so, with operands in memory.
fn time(problem: &Gemm, form: &Form, target: Target) -> f64 {
    let ([few, outer], tile) = (sides(problem), form.tile);
    let tiles = f64::from(outer.div_ceil(tile.outer)) * f64::from(problem.batch);
    let blocks = tiles * f64::from(tile.shares);
    // A stage is copied whole: zeros past the end of the depth.
    let depth = form.depth;
    let stages = problem.k.div_ceil(form.depth).div_ceil(tile.shares);
    // Rows of both parts of a stage, as they are stored, and bytes of each.
    let [large, small] = [(0, tile.outer), (1, few.next_multiple_of(8))].map(|(which, outer)| {
        let (rows, row) = match majors(problem)[which] {
            Major::Depth => (outer, depth),
            Major::Outer => (depth, outer),
        };
        [rows, row * problem.input.bytes()].map(f64::from)
    });
    // Rows start anywhere: each has 16 bytes more, and a sector.
    let copies = |[rows, row]: [f64; 2]| rows * (row / f64::from(CHUNK) + 1.0);
    let stage = (copies(large) + copies(small)) * COPY + form.loads(problem.input) * LOAD;
    let on_each = blocks / f64::from(target.sms);
    let beside = on_each.ceil().min(RESIDENT);
    let sums = f64::from(tile.outer) * f64::from(form.few);
    let block = BEGIN + f64::from(stages) * beside * stage + sums * SUM;
    let rounds = on_each / RESIDENT;
    let rounds = match rounds <= 1.0 {
        true => 1.0,
        false => rounds + LOST * (rounds.ceil() - rounds),
    };
    let [rows, row] = large;
    let sectors = blocks * f64::from(stages) * rows * (row / SECTOR + 1.0);
    let memory = sectors * SECTOR / 1e6 / MEMORY;
    let meet = match tile.shares {
        1 => 0.0,
        shares => MEET + CLUSTER * on_each * f64::from(shares).log2() / 3.0,
    };
    LAUNCH + meet + (rounds * block).max(memory)
}

/// Microseconds that a problem takes in such tiles, with operands in memory.
pub(crate) fn modelled(problem: &Gemm, tile: ThinTile, target: Target) -> f64 {
    time(problem, &Form::new(problem, tile), target)
}

/// Whether there is anything to be gained over tiles that the copy engine fills: an operand would have to be written anew for it.
pub(crate) fn is_tried(problem: &Gemm, target: Target) -> bool {
    let hopper = target.arch.number() == 90 && refusal(problem, target).is_none();
    hopper && Anew::along(problem, [false; 2]).is_some()
}

/// The tile that suits, among those with so many shares, and its time.
fn best(problem: &Gemm, target: Target, shares: &[u32]) -> (f64, ThinTile) {
    let tiles = ThinTile::OUTER
        .into_iter()
        .flat_map(|outer| shares.iter().map(move |&shares| ThinTile { outer, shares }));
    let timed = tiles.map(|tile| (modelled(problem, tile, target), tile));
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

/// Microseconds that a problem takes in the tile that suits, on Hopper, where an operand would have to be written anew for others; `None` elsewhere.
pub(crate) fn fastest(problem: &Gemm, target: Target) -> Option<f64> {
    is_tried(problem, target).then(|| best(problem, target, &ThinTile::SHARES).0)
}
