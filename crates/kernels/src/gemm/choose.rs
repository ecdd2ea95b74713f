//! Which tiles and which schedule suit a problem on warpgroups: the candidate whose time the cost model puts lowest.

use super::anew::{Anew, through_registers};
use super::candidates::{FEW_WAVES, LARGE, SWAPPED_ROWS, candidates, in_pieces};
use super::cost_model::{tiles, time, waves};
use super::problem::{Gemm, Input};
use super::small::{self, HIDDEN};
use super::thin;
use super::tiling::{Cluster, THROUGH, Tiling};
use super::wgmma;
use crate::family::Target;
use heist_launch::Dim3;
use heist_sched::{AnyOrder, Grouped, Linear, Schedule, Submit, TileSource};

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

/// Which kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Warpgroups,
    /// Few rows or columns over a large operand.
    Thin,
    /// The small tiles of `mma.sync`.
    Mma,
}

/// How much has to be gained before the kernel for few rows is taken: the model of warpgroups finds them a quarter slower than they are, where operands are written anew for few rows.
/// Of 43 shapes with 33 to 96 rows what is chosen took 1.022 times as long as the fastest, with 0.85 here 1.039; of 35 with fewer rows it was the fastest with either.
const AHEAD: f64 = 0.7;

/// How much longer than those of `mma.sync` it may be modelled to take: its model, of operands in memory, finds the smallest problems slower than they are.
const NEAR: f64 = 1.15;

/// The kernel that is expected to be the fastest, on Hopper: where an operand's rows start anywhere, so that it would be written anew, or copied by blocks that
/// are mostly empty, not always that on warpgroups.
pub(super) fn kind(problem: &Gemm, target: Target) -> Kind {
    if Anew::along(problem, [false; 2]).is_none() {
        return Kind::Warpgroups;
    }
    let ranked = ranked(problem, target);
    let warpgroups = ranked.first().map_or(f64::INFINITY, |best| best.0);
    let mma = small::modelled(problem, target);
    let thin = thin::fastest(problem, target);
    match thin {
        Some(thin) if thin <= (NEAR * mma).min(AHEAD * warpgroups) => Kind::Thin,
        _ if mma <= HIDDEN * warpgroups => Kind::Mma,
        _ => Kind::Warpgroups,
    }
}

/// Of how many tile shapes, the fastest whole ones, it is looked at whether to cut the last tiles.
const CUT: usize = 4;

/// How much longer the model's time of tiles in no cluster may be, in more than a wave, for these to be taken: it puts pairs of halves ahead by 0.1 to
/// 0.7%, and on an H200 the same tiles alone were 0.5 to 2.7% faster in 10 of 10 such shapes of four to eight waves.
const LEVEL: f64 = 1.01;

/// The tiles that suit under a schedule, or under that of the problem's own.
pub(crate) fn tiling(problem: &Gemm, schedule: Option<&Schedule>, target: Target) -> Tiling {
    // Whether blocks take tile after tile and nothing else decides.
    let after_tile = schedule.is_none_or(wgmma::takes_tile_after_tile);
    let suits = |tiling: &Tiling| match schedule {
        // Warps of a cluster have no loop each there: its blocks can't leave one by one.
        Some(schedule) if wgmma::is_let_go(schedule) => tiling.cluster == Cluster::Alone,
        _ => after_tile || meets(problem, tiling, target),
    };
    let holds = |tiling: &Tiling| match schedule {
        Some(schedule) => wgmma::holds(problem, tiling, schedule, target),
        None => wgmma::holds(
            problem,
            tiling,
            &self::schedule(problem, tiling, target),
            target,
        ),
    };
    let ranked = ranked(problem, target);
    let mut fitting = ranked
        .iter()
        .filter(|(_, tiling)| suits(tiling) && holds(tiling));
    let best = fitting.next().copied();
    // Nor does a cluster find a place where one of its multiprocessors is held, and its blocks take no halves of tiles.
    let halves = matches!(problem.input, Input::F16 | Input::Bf16);
    let apart = best.filter(|(_, best)| {
        halves && best.cluster != Cluster::Alone && waves(problem, best, target) > 1
    });
    let alone = apart.and_then(|(time, _)| {
        let near = fitting.take_while(|(other, _)| *other <= time * LEVEL);
        near.copied()
            .find(|(_, tiling)| tiling.cluster == Cluster::Alone)
    });
    let best = alone.or(best);
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
    let through = match through_registers(problem, tiling.swapped) {
        true => THROUGH,
        false => 0,
    };
    let moves = tiling.moved_beside(problem.in_levels().into(), through);
    let moves = moves.is_some();
    !tiling.pingpong && (waves == 1 || !moves) && tiling.cols.is_multiple_of(step)
}

/// The schedule that suits. A grid of one wave is launched directly: requests that find no tile
/// cost 0.5 to 4 us at the end. In a larger grid blocks ask for each tile late: alone on the GPU
/// this is 0.1 to 0.4% slower than a static schedule, and up to 1.7 times as fast where other
/// kernels hold multiprocessors. So do clusters, though their blocks then know the next tile late,
/// which costs 0.7 to 1.1 us a tile. Tiles go in bands, so that their operands stay in L2; in one wave in the order in which neighbours
/// ask for the same lines.
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
        schedule.order = AnyOrder::new(BANDS);
    }
    if once && tiling.split == 1 && tiling.cluster == Cluster::Alone && problem.batch == 1 {
        let extent = wgmma::tiles(problem, tiling);
        let own = asked_for(&schedule.order, tiling, extent);
        let others = [AnyOrder::new(Grouped { rows: 4 }), AnyOrder::new(Linear)];
        let others = others.map(|order| (asked_for(&order, tiling, extent), order));
        let best = others
            .into_iter()
            .min_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((_, order)) = best.filter(|(asked, _)| *asked <= own * CLOSER) {
            schedule.order = order;
        }
    }
    schedule.cluster = tiling.cluster_shape();
    schedule
}

/// The order of tiles in many waves: bands, so that what they read stays in L2.
const BANDS: Grouped = Grouped { rows: 16 };

/// How much less tiles that run beside each other have to ask L2 for before their order is changed.
const CLOSER: f64 = 0.8;

/// Blocks whose requests for a line of L2 become one, if they come at a time: those of consecutive numbers, about as many as a GPC has. On an H200 1280 x 640 x 5120 in tiles of 128 x 64 took
/// 20.7 us in bands of 16 and 15.9 in bands of four. Its blocks ask for 6.1 million sectors; by Nsight Compute L2 reads 4.2 million of them in bands of 16, and 3.4 million where operands are swapped,
/// which has shorter columns of tiles (15.1 us).
const NEIGHBOURS: usize = 16;

/// Rows and columns that so many consecutive tiles ask L2 for, each once, in the mean. Of 86 plans of 49 shapes in one wave 33 have an order that asks for a fifth less: in it they
/// took 0.959 of the time with operands in L2 and 0.975 with others, 1.028 at worst.
fn asked_for(order: &AnyOrder, tiling: &Tiling, extent: Dim3) -> f64 {
    let count = extent.count() as u32;
    let tiles: Vec<_> = (0..count).map(|index| order.tile(index, extent)).collect();
    let near = NEIGHBOURS.min(tiles.len()).max(1);
    let distinct = |mut places: Vec<u32>| {
        places.sort_unstable();
        places.dedup();
        places.len() as f64
    };
    let asked = tiles.windows(near).map(|tiles| {
        let down = distinct(tiles.iter().map(|tile| tile.y).collect());
        let across = distinct(tiles.iter().map(|tile| tile.x).collect());
        down * f64::from(tiling.rows) + across * f64::from(tiling.cols)
    });
    asked.sum::<f64>() / (tiles.len() + 1 - near) as f64
}
