//! The kernels of the family, and which tiles suit.

use super::copy;
use super::problem::{Experts, Gathering};
use super::sum;
use crate::error::KernelError;
use crate::family::{Family, Target, Variant};
use crate::gemm::Tiling;
use crate::grouped::problem::Grouped;
use crate::grouped::schedule::schedule as usual;
use crate::grouped::tiles::{Left, time, unfit};
use crate::grouped::wgmma::{Fused, Names, step};
use crate::plan::{LaunchPlan, Purpose};
use heist_builder::Feature;
use heist_sched::Schedule;

/// The tile shapes of either product: many rows an expert, tens of rows, a few.
pub(super) const TILINGS: [Tiling; 3] = [
    Tiling::new(128, 256, 64, 4),
    Tiling::new(64, 256, 64, 5),
    Tiling::new(64, 128, 64, 4).blocks(2),
];

/// Instead of the first where a schedule leaves no registers for so many columns: a policy that is interpreted in the only loop.
const NARROWER: Tiling = Tiling::new(128, 224, 64, 4);

/// `wgmma` fed by the copy engine and by gathering threads, each product in the tiles that suit it.
#[derive(Debug)]
struct Wgmma;

/// Every kernel that computes an expert layer.
pub static FAMILY: Family<Experts> = Family {
    name: "experts",
    variants: &[&Wgmma],
};

impl Experts {
    fn up_fused(&self, gathering: Gathering) -> Fused {
        Fused {
            gathered: (gathering == Gathering::Fused).then_some(self.per),
            gated: true,
            placed: false,
        }
    }

    pub(super) const DOWN_FUSED: Fused = Fused {
        gathered: None,
        gated: false,
        placed: true,
    };
}

/// The same as far as a schedule leaves registers for them.
fn held(
    product: &Grouped,
    fused: Fused,
    schedule: Option<&Schedule>,
    target: Target,
) -> [Tiling; 3] {
    let left = Left::by(product, schedule, fused);
    let [first, others @ ..] = TILINGS;
    let first = match unfit(product, &first, left, target) {
        None => first,
        Some(_) => NARROWER,
    };
    [first, others[0], others[1]]
}

/// The tiles whose estimated time is the lowest.
fn suited(product: &Grouped, fused: Fused, schedule: Option<&Schedule>, target: Target) -> Tiling {
    let tilings = held(product, fused, schedule, target);
    let timed = tilings.map(|tiling| (time(product, &tiling, fused, target), tiling));
    let best = timed
        .into_iter()
        .min_by(|one, other| one.0.total_cmp(&other.0));
    best.map_or(tilings[0], |(_, tiling)| tiling)
}

/// Microseconds of a launch that copies rows, and megabytes that it moves in one.
const LAUNCH: f64 = 5.0;
const MEMORY: f64 = 3.5;

/// Which way to gather takes less: gathering threads make every step of the first product longer, and a
/// launch moves all rows once more. Measured on an H200 (docs/measurements/groups.md): few steps gain by the
/// first, and many by the second.
pub(super) fn gathering(problem: &Experts, up: &Tiling, target: Target) -> Gathering {
    let [fused, launch] = gathering_times(problem, up, target);
    match fused <= launch {
        true => Gathering::Fused,
        false => Gathering::Launch,
    }
}

/// Microseconds that the first product takes either way, about.
pub(super) fn gathering_times(problem: &Experts, up: &Tiling, target: Target) -> [f64; 2] {
    let [fused, plain] = [Gathering::Fused, Gathering::Launch]
        .map(|way| time(&problem.up(), up, problem.up_fused(way), target));
    // Rows are written, and read by the product, which would have read tokens.
    let moved = 2 * problem.slots() * u64::from(problem.hidden) * 2;
    [fused, plain + LAUNCH + moved as f64 / 1e6 / MEMORY]
}

/// An expert layer whose products are made in tiles of these shapes. The caller's buffers are `x`,
/// `up`, `down`, `weights`, `order`, `shapes` and `d`.
///
/// # Errors
/// What could not be built or planned.
pub fn plan_with(
    problem: &Experts,
    [up, down]: [Tiling; 2],
    gathering: Gathering,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<LaunchPlan, KernelError> {
    problem.check()?;
    let own = usual(target);
    let schedule = schedule.unwrap_or(&own);
    let name = format!("experts {problem} {up} {down}");
    let mut plan = LaunchPlan::new(name, "wgmma", problem.work());
    if problem.slots() == 0 {
        return Ok(plan);
    }
    let direct = problem.per == 1;
    let mut workspace = vec![("inner", problem.inner)];
    if gathering == Gathering::Launch {
        workspace.push(("rows", problem.hidden));
        plan = plan.step(copy::step(problem, target)?);
    }
    let ups = Names {
        a: match gathering {
            Gathering::Fused => "x",
            Gathering::Launch => "rows",
        },
        b: "up",
        d: "inner",
        index: "order",
        factors: "weights",
    };
    let downs = Names {
        a: "inner",
        b: "down",
        d: if direct { "d" } else { "slots" },
        ..ups
    };
    let products = [
        step(
            &problem.up(),
            &up,
            problem.up_fused(gathering),
            &ups,
            schedule,
            target,
        )?,
        step(
            &problem.down(),
            &down,
            Experts::DOWN_FUSED,
            &downs,
            schedule,
            target,
        )?,
    ];
    plan.steps.extend(products.into_iter().flatten());
    let (ty, slots) = (problem.dtype.element(), problem.slots() as usize);
    if !direct {
        workspace.push(("slots", problem.hidden));
        let Experts {
            dtype, per, hidden, ..
        } = *problem;
        plan = plan.step(sum::step(dtype, per, problem.tokens(), hidden, target)?);
    }
    Ok(workspace.into_iter().fold(plan, |plan, (name, width)| {
        plan.buffer(name, Purpose::Workspace, ty, slots * width as usize)
    }))
}

impl Variant for Wgmma {
    type Problem = Experts;

    fn name(&self) -> &'static str {
        "wgmma"
    }

    fn about(&self) -> &'static str {
        "rows gathered, products with the gate and the weights in them, sums: two to four launches, Hopper"
    }

    fn suits(&self, problem: &Experts, target: Target) -> Result<u32, String> {
        if !target.arch.supports(Feature::Wgmma) {
            return Err(format!("{} has no wgmma: it needs sm_90a", target.arch));
        }
        problem.check().map_err(|error| error.to_string())?;
        Ok(1)
    }

    fn plan(
        &self,
        problem: &Experts,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<LaunchPlan, KernelError> {
        // Either way to gather has its tiles.
        let ways = [Gathering::Fused, Gathering::Launch]
            .into_iter()
            .enumerate();
        let ways = ways.flat_map(|(number, way)| {
            let tilings = held(&problem.up(), problem.up_fused(way), schedule, target);
            tilings.map(|up| (gathering_times(problem, &up, target)[number], way, up))
        });
        let best = ways.min_by(|one, other| one.0.total_cmp(&other.0));
        let (gathering, up) = best.map_or((Gathering::Fused, TILINGS[0]), |(_, way, up)| (way, up));
        let down = suited(&problem.down(), Experts::DOWN_FUSED, schedule, target);
        plan_with(problem, [up, down], gathering, schedule, target)
    }
}
