//! Which tiles suit groups on Hopper's warpgroups, and how many of them are launched.

use super::problem::{Alike, Grouped, Shapes, work};
use super::schedule::schedule as usual;
use super::stacked::refusal;
use super::waves::Load;
use super::wgmma::{Fused, Names, step};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::{
    Input, Major, Output, Scales, Tiling, added_by_scales, copying_registers, fits_levels,
    is_let_go, off_lines, takes_tile_after_tile,
};
use crate::job::Job;
use crate::plan::LaunchPlan;
use crate::space::too_much_shared;
use heist_builder::Feature;
use heist_launch::Dim3;
use heist_sched::Schedule;

/// Microseconds that a product takes in such tiles, about.
pub(super) fn time(problem: &Grouped, tiling: &Tiling, fused: Fused, target: Target) -> f64 {
    let Some(alike) = problem.alike() else {
        return f64::INFINITY;
    };
    let Alike { rows, n, k, .. } = alike;
    let across = f64::from(n.div_ceil(fused.width(tiling)));
    let tiles = alike.tiles_by_rows(tiling.rows).into_iter();
    let bytes = problem.input.bytes();
    // A gated pair has the matrices of the others besides.
    let used = rows.iter().filter(|rows| **rows > 0).count() as f64;
    let others = match fused.gated {
        false => 0.0,
        true => used * f64::from(n) * f64::from(k) * f64::from(bytes),
    };
    let load = Load {
        tiles: tiles.map(|count| count as f64 * across).collect(),
        steps: f64::from(k.div_ceil(tiling.depth * 2 / bytes)),
        bytes: work(problem).bytes + others,
        astride: off_lines(k * bytes),
        longer: match fused.gathered {
            None => added(problem, tiling) + alone(tiling),
            Some(_) => GATHERED * f64::from(tiling.rows) / 128.0,
        },
    };
    load.time(tiling, target)
}

/// Cycles that a step of 128 rows takes longer where threads gather them beside the copy engine: 0.09 us
/// on an H200.
const GATHERED: f64 = 158.0;

/// Cycles that a step takes longer where one warpgroup multiplies: nobody's products go on while it waits for
/// its stage. In groups of many rows tiles of 64 x 256 took 1.2 times as long for a row as 128 x 256.
fn alone(tiling: &Tiling) -> f64 {
    const WAIT: f64 = 45.0;
    match tiling.groups() * tiling.blocks == 1 {
        true => WAIT,
        false => 0.0,
    }
}

/// Cycles that a step takes longer where products are added in two levels: a warpgroup that is alone adds
/// its sums while no product runs, a sum of each thread in a cycle, and waits for the products before. Those of several are as in a
/// single product.
fn added(problem: &Grouped, tiling: &Tiling) -> f64 {
    const WAIT: f64 = 100.0;
    if problem.scales == Scales::Blocks && tiling.groups() > 1 {
        return added_by_scales(tiling);
    }
    match problem.in_levels() && tiling.groups() * tiling.blocks == 1 {
        true => WAIT + f64::from(tiling.cols / 2 * tiling.depth / 64),
        false => 0.0,
    }
}

/// Requests for a tile that find none, for each multiprocessor, that cost less than what it takes to avoid
/// them.
const VAIN: u64 = 4;

/// The grid of tiles of a launch: of those that there can be at `most`, as many as are expected. Where
/// groups turn out to have more, the first ones stand for the others too. Masked groups use a small part
/// of their room, and each tile that nobody uses would cost a request to the scheduler.
pub(super) fn expected(alike: Alike<'_>, tiling: &Tiling, most: Dim3, target: Target) -> Dim3 {
    let (slots, wide) = (u64::from(target.sms * tiling.blocks), u64::from(most.x));
    let high = alike.tiles(tiling.rows).max((VAIN * slots).div_ceil(wide));
    match u64::from(most.y) > high + (VAIN * slots).div_ceil(wide) {
        true => Dim3::new(most.x, high as u32, 1),
        false => most,
    }
}

/// Bytes of shared memory that the ring takes and what lies beside it: the table of groups, 32 at least, and
/// the scheduler's words.
pub(super) fn shared_bytes(problem: &Grouped, tiling: &Tiling) -> u32 {
    let majors = [Major::Depth, problem.layout.b()];
    let scales = tiling.scale_bytes(problem.scales == Scales::Blocks);
    let table = ((problem.len() as u32).next_power_of_two().max(32) + 1) * 4;
    tiling.ring_bytes(majors) + scales + table + 256
}

/// Whether warps that copy and warps that multiply have a loop each under a schedule: where blocks take tile after tile. Where rows are `gathered`
/// all threads that copy do it, and have no registers for what a loaded policy takes.
pub(super) fn in_roles(schedule: &Schedule, gathered: bool) -> bool {
    takes_tile_after_tile(schedule) && !(gathered && is_let_go(schedule))
}

/// What a schedule leaves of a thread's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Warps that copy and warps that multiply have a loop each, so that registers can move.
    pub(super) roles: bool,
    /// Registers that a thread keeps which copies: for a policy that is interpreted, or to leave a tile. None where there is neither.
    pub(super) copying: u32,
    /// Registers that a thread takes which multiplies, more than others do.
    pub(super) more: u32,
    /// Whether rows go to places of their own.
    placed: bool,
}

/// Registers for factors of rows and columns (two and eight), for places and a gate, for words, or for scales of blocks, beside what a schedule takes: 128 x 240 and
/// 256 x 120 fit then in one loop, 128 x 256 and 256 x 128 do not.
const FACTORS: u32 = 10;

impl Left {
    /// What it leaves where it is given, or is the groups' own.
    pub(super) fn by(problem: &Grouped, schedule: Option<&Schedule>, fused: Fused) -> Left {
        let gathered = fused.gathered.is_some();
        let roles = !problem.check && schedule.is_none_or(|one| in_roles(one, gathered));
        let pausing = schedule.is_some_and(|schedule| schedule.pausing);
        let levels = problem.in_levels() && problem.scales != Scales::Blocks;
        let copying = match schedule.map_or(0, copying_registers) {
            // A tile with factors of rows, or sums in levels, that is left takes more; sums with scales of blocks have none to give.
            least if pausing && (levels || problem.scales == Scales::Rows) => least.max(64),
            least => least,
        };
        let alone = copying == 0 && roles;
        // Words are stored as they are added up; scales of blocks are read beside them.
        let wide = problem.output == Output::F32 || problem.scales == Scales::Blocks;
        // How many rows a masked group uses is known besides.
        let masked = matches!(problem.shapes, Shapes::Masked { .. });
        let more = match problem.scales {
            Scales::Rows if !alone || masked => FACTORS,
            _ if copying > 0 && !roles && (fused.gated || fused.placed || wide) => FACTORS,
            _ => 0,
        };
        Left {
            // Threads that gather rows need the registers that they start with.
            roles: roles && !gathered,
            copying,
            more,
            placed: fused.placed,
        }
    }
}

/// Why tiles of this shape can't multiply these groups.
pub(super) fn unfit(
    problem: &Grouped,
    tiling: &Tiling,
    left: Left,
    target: Target,
) -> Option<String> {
    let Left {
        roles,
        copying,
        more,
        ..
    } = left;
    let bytes = shared_bytes(problem, tiling) + 2048;
    let levels = match problem.in_levels() {
        true => fits_levels(problem.scales, tiling).err(),
        false => None,
    };
    // Without loops of their own the next tile could not begin while one is stored: groups ask for theirs.
    let masked = matches!(problem.shapes, Shapes::Masked { .. });
    // Nor do 256 x 128 fit in one loop, where it is known besides how many rows are used.
    let twice = masked && copying > 0 && !tiling.keeps();
    let more = if twice { more.max(FACTORS) } else { more };
    let moved = tiling.moved_beside(problem.in_levels().into(), more);
    let moved = moved.filter(|_| !roles);
    let moved = moved.map(|_| "its sums do not fit the registers that a thread starts with");
    let reads = problem.scales == Scales::Rows;
    // 128 x 192 and 256 x 192 do not fit, and tiles of 184 columns do, beside rows of masked groups, columns that are stored the other way, and results that
    // threads store.
    let by_threads = problem.output == Output::F32
        || problem
            .alike()
            .is_some_and(|alike| !alike.n.is_multiple_of(8));
    let across = problem.layout.b() == Major::Outer;
    let besides = if masked || left.placed || by_threads || across {
        8
    } else {
        0
    };
    let held = copying == 0
        || problem.in_levels()
        || tiling.can_be_let_go(reads, !roles, besides, copying);
    let held = (!held).then_some(
        "its sums, what is read for them and what the schedule takes do not fit the registers",
    );
    let turns = tiling.pingpong && (problem.in_levels() || !roles);
    let turns = turns.then_some(
        "two warpgroups have a tile each where they add up in one level, in a loop of their own",
    );
    levels
        .or(moved)
        .or(held)
        .or(turns)
        .map(str::to_owned)
        .or_else(|| too_much_shared(bytes.into(), tiling.room(target.arch).into(), target))
}

/// Why warpgroups can't multiply these groups.
fn unable(problem: &Grouped, target: Target) -> Option<String> {
    const TYPES: [Input; 4] = [Input::F16, Input::Bf16, Input::E4m3, Input::E5m2];
    if !target.arch.supports(Feature::Wgmma) {
        return Some(format!("{} has no wgmma: it needs sm_90a", target.arch));
    }
    refusal(problem, &TYPES)
}

/// The launch of groups in tiles of this shape.
fn plan(
    problem: &Grouped,
    name: &str,
    tiling: &Tiling,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    let text = format!("grouped-gemm {problem} {tiling}");
    let plan = LaunchPlan::new(text, name, work(problem));
    let own = usual(target);
    let step = step(
        problem,
        tiling,
        Fused::default(),
        &NAMES,
        schedule.unwrap_or(&own),
        target,
    )?;
    Ok(step.into_iter().fold(plan, LaunchPlan::step))
}

/// The rank of tiles: wherever they can, they are ahead of `mma.sync`; among them the fastest.
fn rank(problem: &Grouped, tiling: &Tiling, target: Target) -> u32 {
    let time = time(problem, tiling, Fused::default(), target);
    u32::MAX - (time * 100.0).min(1e9) as u32
}

/// `wgmma` fed by the copy engine, in tiles that suit the groups: of 8-bit floats, whose two levels of sums do
/// not fit the registers beside those of the largest tiles, or of halves.
#[derive(Debug)]
pub(super) struct Suited {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) tiny: bool,
}

/// Bytes of the staging buffers of two warpgroups, and beside them.
const STAGED: u32 = 8 * 2048 + 2048;

/// Rows, and columns at most, of tiles of which each of two warpgroups has one.
const PINGPONG: [(u32, u32); 2] = [(64, 256), (128, 192)];

impl Suited {
    /// The tiles whose estimated time is the lowest.
    fn tiling(problem: &Grouped, left: Left, target: Target) -> Option<Tiling> {
        let roles = left.roles;
        let widths = |least: u32, most: u32| (least..=most).step_by(32);
        // In three runs 128 x 224 was 0.2 to 5% slower than 128 x 256 in all of the three sets of halves, of 45, for which the model has it ahead.
        let halves = problem.input.bytes() == 2;
        let suits = move |tiling: &Tiling| !(halves && tiling.rows == 128 && tiling.cols == 224);
        let shared = [64, 128].into_iter().flat_map(|rows| {
            let wide = widths(64, 256).map(move |cols| Tiling::new(rows, cols, 64, 8));
            let wide = wide.filter(suits);
            wide.flat_map(|tiling| [1, 2].map(|blocks| tiling.blocks(blocks)))
        });
        let own = PINGPONG.into_iter().flat_map(|(rows, most)| {
            widths(96, most).map(move |cols| Tiling::new(rows, cols, 64, 8).pingpong())
        });
        // In two levels, where 128 x 128 asks L2 and shared memory for all that these give.
        let scaled = match problem.scales {
            Scales::Blocks if roles => [192, 256].as_slice(),
            _ if problem.in_levels() && roles => &[256],
            _ => &[],
        };
        let scaled = scaled.iter().map(|rows| Tiling::new(*rows, 128, 64, 8));
        let deepest = |tiling: Tiling| {
            let stages = (3..=8).rev();
            let tilings = stages.map(|stages| Tiling { stages, ..tiling });
            // Whoever has a tile of its own stores through a staging buffer of each warp, which a further stage would take.
            let staged = |tiling: &Tiling| {
                let taken = shared_bytes(problem, tiling) + STAGED;
                !tiling.pingpong || taken <= tiling.room(target.arch)
            };
            let fits = |tiling: &Tiling| {
                let fits = unfit(problem, tiling, left, target).is_none();
                tiling.check().is_ok() && fits && staged(tiling)
            };
            tilings.into_iter().find(fits)
        };
        let timed = shared
            .chain(own)
            .chain(scaled)
            .filter_map(deepest)
            .map(|tiling| (time(problem, &tiling, Fused::default(), target), tiling));
        let best = timed.min_by(|one, other| one.0.total_cmp(&other.0));
        best.map(|(_, tiling)| tiling)
    }
}

impl Variant for Suited {
    type Problem = Grouped;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn suits(&self, problem: &Grouped, target: Target) -> Result<u32, String> {
        if problem.input.is_tiny() != self.tiny {
            let types = if self.tiny {
                "e4m3 and e5m2"
            } else {
                "f16 and bf16"
            };
            return Err(format!("it multiplies {types}, not {}", problem.input));
        }
        if let Some(why) = unable(problem, target) {
            return Err(why);
        }
        match Suited::tiling(problem, Left::by(problem, None, Fused::default()), target) {
            Some(tiling) => Ok(rank(problem, &tiling, target)),
            None => Err(format!("no tile fits {}", target.arch)),
        }
    }

    fn plan(
        &self,
        problem: &Grouped,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        self.suits(problem, target).map_err(KernelError::unfit)?;
        let left = Left::by(problem, schedule, Fused::default());
        let Some(tiling) = Suited::tiling(problem, left, target) else {
            return Err(KernelError::unfit("ask first whether it suits"));
        };
        plan(problem, self.name(), &tiling, schedule, target)
    }
}

/// `wgmma` fed by the copy engine, in tiles of one shape.
#[derive(Debug)]
pub(super) struct Wgmma {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) tiling: Tiling,
}

impl Variant for Wgmma {
    type Problem = Grouped;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn suits(&self, problem: &Grouped, target: Target) -> Result<u32, String> {
        let why = unable(problem, target).or_else(|| {
            unfit(
                problem,
                &self.tiling,
                Left::by(problem, None, Fused::default()),
                target,
            )
        });
        match why {
            Some(why) => Err(why),
            None => Ok(rank(problem, &self.tiling, target)),
        }
    }

    fn plan(
        &self,
        problem: &Grouped,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        plan(problem, self.name, &self.tiling, schedule, target)
    }
}

/// A grouped multiplication on warpgroups in tiles of a shape of your own, over buffers that are still to be added.
///
/// # Errors
/// What could not be built or planned.
pub fn job_with_tiling(
    problem: &Grouped,
    tiling: Tiling,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<Job, KernelError> {
    let tiles = Wgmma {
        name: "wgmma",
        about: "tiles that were given",
        tiling,
    };
    tiles.suits(problem, target).map_err(KernelError::unfit)?;
    tiles.job(problem, schedule, target)
}

/// The buffers of a product with nothing else in it.
const NAMES: Names = Names {
    a: "a",
    b: "b",
    d: "d",
    index: "shapes",
    factors: "d",
};
