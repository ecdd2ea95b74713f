//! Which tiles and which schedule suit a problem on warpgroups: the candidate whose time the cost model puts lowest.

use super::candidates::{FEW_WAVES, LARGE, SWAPPED_ROWS, candidates, in_pieces};
use super::cost_model::{tiles, time, waves};
use super::problem::Gemm;
use super::tiling::{Cluster, Tiling};
use super::wgmma;
use crate::family::Target;
use heist_sched::{AnyOrder, Grouped, Schedule, Submit, TileSource};

/// Every tile shape on warpgroups that may suit a problem, with the microseconds that it takes about:
/// the fastest first.
pub fn ranked(problem: &Gemm, target: Target) -> Vec<(f64, Tiling)> {
    let all = candidates(problem, target).into_iter();
    let mut timed: Vec<_> = all
        .map(|tiling| (time(problem, &tiling, target), tiling))
        .collect();
    timed.sort_by(|one, other| one.0.total_cmp(&other.0));
    let cut: Vec<_> = timed
        .iter()
        .filter(|(_, tiling)| !tiling.pingpong)
        .filter_map(|(_, tiling)| in_pieces(problem, *tiling, target))
        .take(CUT)
        .collect();
    timed.extend(
        cut.into_iter()
            .map(|cut| (time(problem, &cut, target), cut)),
    );
    timed.sort_by(|one, other| one.0.total_cmp(&other.0));
    timed
}

/// Of how many tile shapes, the fastest whole ones, it is looked at whether to cut the last tiles.
const CUT: usize = 4;

/// The tiles that suit under a schedule, or under that of the problem's own.
pub(crate) fn tiling(problem: &Gemm, schedule: Option<&Schedule>, target: Target) -> Tiling {
    // Whether blocks take tile after tile and nothing else decides.
    let after_tile = schedule.is_none_or(wgmma::takes_tile_after_tile);
    let suits = |tiling: &Tiling| match schedule {
        // Warps of a cluster have no loop each there: its blocks can't leave one by one.
        Some(schedule) if wgmma::is_let_go(schedule) => tiling.cluster == Cluster::Alone,
        _ => after_tile || meets(problem, tiling, target),
    };
    let holds =
        |tiling: &Tiling| schedule.is_none_or(|schedule| wgmma::holds(problem, tiling, schedule));
    let mut ranked = ranked(problem, target).into_iter();
    let best = ranked.find(|(_, tiling)| suits(tiling) && holds(tiling));
    best.map_or(LARGE, |(_, tiling)| tiling)
}

/// Whether such tiles suit where a block's warps meet from tile to tile: two with a tile each never do, and registers that move for each tile
/// cost more than larger ones gain. In many waves the last one matters little, and what a width gains there is less than the model's error.
fn meets(problem: &Gemm, tiling: &Tiling, target: Target) -> bool {
    let waves = waves(problem, tiling, target);
    let step = match (tiling.rows, waves) {
        (_, 0..=FEW_WAVES) => 8,
        (0..=128, 9..) => 64,
        (0..=128, _) => 32,
        _ => 16,
    };
    let moves = tiling.moved(problem.in_levels().into()).is_some();
    !tiling.pingpong && (waves == 1 || !moves) && tiling.cols.is_multiple_of(step)
}

/// The schedule that suits. A grid of one wave is launched directly: requests that find no tile
/// cost 0.5 to 4 us at the end. In a larger grid blocks ask for each tile late: alone on the GPU
/// this is 0.1 to 0.4% slower than a static schedule, and up to 1.7 times as fast where other
/// kernels hold multiprocessors. So do clusters, though their blocks then know the next tile late,
/// which costs 0.7 to 1.1 us a tile. Tiles go in bands, so that their operands stay in L2.
pub(crate) fn schedule(problem: &Gemm, tiling: &Tiling, target: Target) -> Schedule {
    let tiles = tiles(problem, tiling) * u64::from(tiling.split);
    let once = tiles <= u64::from(target.sms * tiling.blocks);
    let source = if once || tiling.cluster == Cluster::Depth {
        TileSource::Direct
    } else {
        TileSource::Ticket
    };
    let mut schedule = Schedule::new(source).submit(Submit::Late);
    if tiling.split == 1 && (!tiling.swapped || problem.m > SWAPPED_ROWS) {
        schedule.order = AnyOrder::new(Grouped { rows: 16 });
    }
    schedule.cluster = tiling.cluster_shape();
    schedule
}
