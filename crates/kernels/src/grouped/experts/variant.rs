//! The kernels of the family, its entry in the catalogue, and which tiles suit.

use super::copy;
use super::data::{buffers, results};
use super::problem::{Experts, Gathering};
use super::sum;
use crate::entry::{Entry, Parameter, Prepared, Settings, holds};
use crate::error::KernelError;
use crate::family::{Family, Target, Variant};
use crate::gemm::Tiling;
use crate::grouped::problem::Grouped;
use crate::grouped::schedule::schedule as usual;
use crate::grouped::wgmma::{Fused, Names, step, time};
use crate::job::Job;
use crate::plan::{LaunchPlan, Purpose};
use crate::reference::Difference;
use crate::space::choice;
use heist_builder::Feature;
use heist_sched::Schedule;
use heist_tune::{Axis, Candidate, Proposal};

/// The tile shapes of either product: many rows an expert, tens of rows, a few.
const TILINGS: [Tiling; 3] = [
    Tiling::new(128, 256, 64, 4),
    Tiling::new(64, 256, 64, 5),
    Tiling::new(64, 128, 64, 4).blocks(2),
];

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

    const DOWN_FUSED: Fused = Fused {
        gathered: None,
        gated: false,
        placed: true,
    };
}

/// The tiles whose estimated time is the lowest.
fn suited(product: &Grouped, fused: Fused, target: Target) -> Tiling {
    let timed = TILINGS.map(|tiling| (time(product, &tiling, fused, target), tiling));
    let best = timed
        .into_iter()
        .min_by(|one, other| one.0.total_cmp(&other.0));
    best.map_or(TILINGS[0], |(_, tiling)| tiling)
}

/// Microseconds of a launch that copies rows, and megabytes that it moves in one.
const LAUNCH: f64 = 5.0;
const MEMORY: f64 = 3.5;

/// Which way to gather takes less: gathering threads make every step of the first product longer, and a
/// launch moves all rows once more. Measured on an H200 (docs/measurements.md): few steps gain by the
/// first, and many by the second.
fn gathering(problem: &Experts, up: &Tiling, target: Target) -> Gathering {
    let [fused, launch] = gathering_times(problem, up, target);
    match fused <= launch {
        true => Gathering::Fused,
        false => Gathering::Launch,
    }
}

/// Microseconds that the first product takes either way, about.
fn gathering_times(problem: &Experts, up: &Tiling, target: Target) -> [f64; 2] {
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
        let ways = TILINGS.iter().flat_map(|up| {
            let times = gathering_times(problem, up, target);
            times
                .into_iter()
                .zip([Gathering::Fused, Gathering::Launch])
                .map(move |way| (way, *up))
        });
        let best = ways.min_by(|one, other| one.0.0.total_cmp(&other.0.0));
        let (gathering, up) =
            best.map_or((Gathering::Fused, TILINGS[0]), |((_, way), up)| (way, up));
        let down = suited(&problem.down(), Experts::DOWN_FUSED, target);
        plan_with(problem, [up, down], gathering, schedule, target)
    }
}

/// `experts` in the catalogue.
pub(crate) struct ExpertsEntry;

const fn parameter(name: &'static str, default: &'static str, about: &'static str) -> Parameter {
    Parameter {
        name,
        default,
        about,
    }
}

const PARAMETERS: &[Parameter] = &[
    parameter(
        "rows",
        "40,200,0,1,95",
        "slots of each expert: each token has one for each of its experts",
    ),
    parameter("per", "2", "experts of each token"),
    parameter("hidden", "128", "elements of a token"),
    parameter("inner", "256", "elements between the two products"),
    parameter("dtype", "bf16", "f16, bf16"),
    parameter("variant", "", "the kernel; the best one unless given"),
    parameter(
        "config",
        "",
        "tile shapes of both products instead: wgmma:128x256x64/4,wgmma:64x256x64/5",
    ),
    parameter("seed", "1", "of the random data"),
];

fn problem(settings: &Settings) -> Result<Experts, KernelError> {
    settings.check(FAMILY.name, PARAMETERS)?;
    settings.instead("config", &["variant"])?;
    let rows = settings.word(PARAMETERS, "rows");
    let parsed: Result<Vec<u32>, _> = rows.split(',').map(|text| text.trim().parse()).collect();
    let rows = parsed.map_err(|_| {
        KernelError::unfit(format!(
            "`{rows}` is no list of numbers of rows, such as 40,200,0"
        ))
    })?;
    let problem = Experts {
        rows,
        per: settings.read(PARAMETERS, "per")?,
        hidden: settings.read(PARAMETERS, "hidden")?,
        inner: settings.read(PARAMETERS, "inner")?,
        dtype: settings.word(PARAMETERS, "dtype").parse()?,
    };
    problem.check()?;
    let wide = u64::from(problem.hidden.max(problem.inner));
    holds("the slots", problem.slots().saturating_mul(wide))?;
    let each = u64::from(problem.hidden) * u64::from(problem.inner);
    holds(
        "the experts",
        each.saturating_mul(2 * problem.rows.len() as u64),
    )?;
    Ok(problem)
}

/// The tile shapes of both products in words.
fn tilings(text: &str) -> Result<[Tiling; 2], KernelError> {
    let shapes: Result<Vec<Tiling>, _> = text.split(',').map(str::parse).collect();
    <[Tiling; 2]>::try_from(shapes?).map_err(|_| {
        KernelError::unfit(format!(
            "`{text}` are no tile shapes of two products: write wgmma:128x256x64/4,wgmma:64x256x64/5"
        ))
    })
}

/// What the settings ask for, and its launches.
fn planned(
    settings: &Settings,
    schedule: Option<&Schedule>,
    target: Target,
) -> Result<(Experts, LaunchPlan), KernelError> {
    let problem = problem(settings)?;
    let plan = match settings.get("config") {
        Some(text) => {
            let tilings = tilings(text)?;
            let gathering = gathering(&problem, &tilings[0], target);
            plan_with(&problem, tilings, gathering, schedule, target)?
        }
        None => FAMILY
            .choose(settings.get("variant"), &problem, target)?
            .plan(&problem, schedule, target)?,
    };
    Ok((problem, plan))
}

impl Entry for ExpertsEntry {
    fn name(&self) -> &'static str {
        FAMILY.name
    }

    fn about(&self) -> &'static str {
        "a layer of experts: tokens gathered, two products with a gate between them, weighed sums"
    }

    fn parameters(&self) -> &'static [Parameter] {
        PARAMETERS
    }

    fn variants(&self) -> Vec<(&'static str, &'static str)> {
        FAMILY.list()
    }

    fn schedule(&self, _: &Settings, target: Target) -> Result<Option<Schedule>, KernelError> {
        Ok(Some(usual(target)))
    }

    fn launches(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        Ok(planned(settings, schedule, target)?.1.job(|_| None))
    }

    fn prepare(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Prepared, KernelError> {
        let (problem, plan) = planned(settings, schedule, target)?;
        let seed = settings.read(PARAMETERS, "seed")?;
        Ok(prepared(plan, problem, seed))
    }

    fn space(&self, settings: &Settings, target: Target) -> Result<Vec<Proposal>, KernelError> {
        let problem = problem(settings)?;
        let judged = FAMILY.variants[0].suits(&problem, target);
        let axes = [
            Axis::new("up", TILINGS),
            Axis::new("down", TILINGS),
            Axis::new("gather", [Gathering::Fused, Gathering::Launch]),
        ];
        let proposals = Axis::product(&axes).into_iter().map(|candidate| {
            let time = |name, product: Grouped, fused| {
                let tiling = choice::<Tiling>(&candidate, name);
                tiling.map_or(f64::INFINITY, |tiling| {
                    time(&product, &tiling, fused, target)
                })
            };
            let down = time("down", problem.down(), Experts::DOWN_FUSED);
            let up = choice::<Tiling>(&candidate, "up").map_or(f64::INFINITY, |up| {
                let [fused, launch] = gathering_times(&problem, &up, target);
                match choice(&candidate, "gather") {
                    Ok(Gathering::Launch) => launch,
                    _ => fused,
                }
            });
            Proposal {
                judged: judged.clone().map(|_| Some(up + down)),
                candidate,
            }
        });
        Ok(proposals.collect())
    }

    fn tuned(
        &self,
        settings: &Settings,
        candidate: &Candidate,
        target: Target,
    ) -> Result<Prepared, KernelError> {
        let problem = problem(settings)?;
        let schedule = crate::space::schedule(candidate)?;
        let plan = match candidate.get("up") {
            Some(_) => {
                let tilings = [choice(candidate, "up")?, choice(candidate, "down")?];
                let gathering = choice(candidate, "gather")?;
                plan_with(&problem, tilings, gathering, schedule.as_ref(), target)?
            }
            None => FAMILY
                .choose(settings.get("variant"), &problem, target)?
                .plan(&problem, schedule.as_ref(), target)?,
        };
        let seed = settings.read(PARAMETERS, "seed")?;
        Ok(prepared(plan, problem, seed))
    }
}

/// A plan with random data and its check.
pub fn prepared(plan: LaunchPlan, problem: Experts, seed: u64) -> Prepared {
    let job = plan.job(|_| None);
    Prepared {
        job: buffers(job, &problem, seed),
        bound: 6e-3,
        verify: Box::new(move |ran| {
            let (found, expected) = results(ran, &problem);
            Ok(Difference::between(&found, &expected))
        }),
    }
}
