//! The search space of a grouped multiplication: every tile shape that can be tried, with its
//! guards and its modelled time.

use super::problem::Grouped;
use super::variant::FAMILY;
use super::wgmma::Wgmma;
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::gemm::{Major, Tiling};
use crate::job::Job;
use crate::space::{choice, choice_or, schedule, too_much_shared};
use heist_tune::{Axis, Candidate, Proposal};

/// The candidates of a problem, each judged: tiles on warpgroups where the device has them, and the
/// kernels with fixed tiles.
pub(super) fn proposals(problem: &Grouped, target: Target) -> Vec<Proposal> {
    let named = FAMILY.variants.iter().map(|variant| Proposal {
        candidate: Candidate::new([("variant", variant.name())]),
        judged: variant.suits(problem, target).map(|_| None),
    });
    let axes = [
        Axis::new("rows", [64, 128]),
        Axis::new("cols", [64, 96, 128, 160, 192, 224, 256]),
        Axis::new("depth", [64, 128]),
        Axis::new("stages", [2, 3, 4, 5, 6, 8]),
        Axis::new("blocks", [1, 2]),
    ];
    let tiled = Axis::product(&axes).into_iter().map(|candidate| Proposal {
        judged: judge(problem, &candidate, target).map(Some),
        candidate,
    });
    tiled.chain(named).collect()
}

/// The job of a candidate, over buffers that the caller adds.
pub(super) fn job(
    problem: &Grouped,
    candidate: &Candidate,
    target: Target,
) -> Result<Job, KernelError> {
    let schedule = schedule(candidate)?;
    match candidate.get("cols") {
        None => FAMILY
            .choose(candidate.get("variant"), problem, target)?
            .job(problem, schedule.as_ref(), target),
        Some(_) => {
            let variant = variant(candidate)?;
            variant.suits(problem, target).map_err(KernelError::unfit)?;
            variant.job(problem, schedule.as_ref(), target)
        }
    }
}

fn variant(candidate: &Candidate) -> Result<Wgmma, KernelError> {
    let number = |name| choice::<u32>(candidate, name);
    let tiling = Tiling::new(
        number("rows")?,
        number("cols")?,
        number("depth")?,
        number("stages")?,
    )
    .blocks(choice_or(candidate, "blocks", 1)?);
    tiling.check()?;
    Ok(Wgmma {
        name: "wgmma",
        about: "tiles that were tried",
        tiling,
    })
}

fn judge(problem: &Grouped, candidate: &Candidate, target: Target) -> Result<f64, String> {
    let variant = variant(candidate).map_err(|error| error.to_string())?;
    let tiling = &variant.tiling;
    let majors = [Major::Depth, problem.layout.b()];
    // Beside the ring lie the table of groups, 32 at least, and the scheduler's words.
    let table = (problem.len() as u32).next_power_of_two().max(32) * 8;
    let bytes = tiling.ring_bytes(majors) + table + 2048;
    if let Some(why) = too_much_shared(bytes.into(), tiling.room(target.arch).into(), target) {
        return Err(why);
    }
    // Among tiles on warpgroups the rank is the model's time, in hundredths of a microsecond
    // down from the highest.
    let rank = variant.suits(problem, target)?;
    Ok(f64::from(u32::MAX - rank) / 100.0)
}
