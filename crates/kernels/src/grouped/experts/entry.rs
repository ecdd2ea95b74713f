//! Layers of experts by name: settings, search space, and random data with its check.

use super::data::{buffers, results};
use super::problem::{Experts, Gathering};
use super::variant::{FAMILY, TILINGS, gathering, gathering_times, plan_with};
use crate::entry::{Parameter, Prepared, Settings, holds, parameter};
use crate::error::KernelError;
use crate::family::{Family, Target};
use crate::gemm::Tiling;
use crate::grouped::problem::Grouped;
use crate::grouped::schedule::schedule as usual;
use crate::grouped::tiles::time;
use crate::job::Job;
use crate::listing::{Listing, variant};
use crate::reference::Difference;
use crate::space::{choice, only, schedule};
use heist_sched::Schedule;
use heist_tune::{Axis, Candidate, Proposal};

/// `experts` in the catalogue.
pub(crate) struct ExpertsEntry;

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

impl Listing for ExpertsEntry {
    type Problem = Experts;
    const FAMILY: &'static Family<Experts> = &FAMILY;
    const ABOUT: &'static str =
        "a layer of experts: tokens gathered, two products with a gate between them, weighed sums";
    const PARAMETERS: &'static [Parameter] = PARAMETERS;

    fn problem(settings: &Settings) -> Result<Experts, KernelError> {
        problem(settings)
    }

    fn schedule(
        _: &Settings,
        _: &Experts,
        target: Target,
    ) -> Result<Option<Schedule>, KernelError> {
        Ok(Some(usual(target)))
    }

    fn job(
        settings: &Settings,
        problem: &Experts,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        match settings.get("config") {
            Some(text) => {
                let tilings = tilings(text)?;
                let gathering = gathering(problem, &tilings[0], target);
                let plan = plan_with(problem, tilings, gathering, schedule, target)?;
                Ok(plan.job(|_| None))
            }
            None => FAMILY
                .choose(variant(settings), problem, target)?
                .job(problem, schedule, target),
        }
    }

    fn prepared(job: Job, problem: Experts, seed: u64) -> Prepared {
        prepared(job, problem, seed)
    }

    fn proposals(problem: &Experts, target: Target) -> Vec<Proposal> {
        let judged = FAMILY.variants[0].suits(problem, target);
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
                let [fused, launch] = gathering_times(problem, &up, target);
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
        proposals.collect()
    }

    fn tuned(problem: &Experts, candidate: &Candidate, target: Target) -> Result<Job, KernelError> {
        let schedule = schedule(candidate)?;
        match candidate.get("up") {
            Some(_) => {
                only(candidate, "a layer of experts", ["up", "down", "gather"])?;
                let tilings = [choice(candidate, "up")?, choice(candidate, "down")?];
                let gathering = choice(candidate, "gather")?;
                let plan = plan_with(problem, tilings, gathering, schedule.as_ref(), target)?;
                Ok(plan.job(|_| None))
            }
            None => {
                only(candidate, "a layer without `up`", ["variant"])?;
                FAMILY
                    .choose(candidate.get("variant"), problem, target)?
                    .job(problem, schedule.as_ref(), target)
            }
        }
    }
}

/// A job with random data and its check.
pub fn prepared(job: Job, problem: Experts, seed: u64) -> Prepared {
    Prepared {
        job: buffers(job, &problem, seed),
        bound: 6e-3,
        verify: Box::new(move |ran| {
            let (found, expected) = results(ran, &problem);
            Ok(Difference::between(&found, &expected))
        }),
    }
}
