//! The search space of attention: every tile shape that can be tried, with its guards and its
//! modelled time.

use super::decode::{Combine, Decode, decode_grid, decode_plan, decode_shape};
use super::entry::FAMILY;
use super::kernel::contents;
use super::problem::{Mask, Problem, Weights};
use super::warpgroup::{
    Stay, WarpgroupShape, Wgmma, warpgroup_job, warpgroup_schedule, warpgroup_shape,
};
use crate::error::KernelError;
use crate::family::{Target, Variant};
use crate::job::Job;
use crate::space::{choice, choice_or, schedule, too_much_shared};
use heist_sched::{Schedule, TileSource};
use heist_tune::{Axis, Candidate, Proposal};

/// The candidates of a problem, each judged: the variants as they are, warpgroups and decoding
/// kernels in other tiles.
pub(super) fn proposals(problem: &Problem, target: Target) -> Vec<Proposal> {
    let named = FAMILY.variants.iter().map(|variant| Proposal {
        candidate: Candidate::new([("variant", variant.name())]),
        judged: variant.suits(problem, target).map(|_| None),
    });
    let mut all: Vec<Proposal> = Vec::new();
    if Wgmma.suits(problem, target).is_ok() {
        let axes = [
            Axis::new("kernel", ["wgmma"]),
            Axis::new("groups", [2, 3]),
            Axis::new("keys", [48, 64, 80, 96, 112, 128, 144, 160, 176]),
            Axis::new("stages", [2, 3, 4]),
            Axis::new("strip", [1, 2, 4]),
            Axis::new("stay", [false, true]),
            Axis::new("turns", [false, true]),
        ];
        all.extend(Axis::product(&axes).into_iter().map(|candidate| Proposal {
            judged: judge_warpgroups(problem, &candidate, target).map(Some),
            candidate,
        }));
    }
    if Decode.suits(problem, target).is_ok_and(|rank| rank > 0) {
        let axes = [
            Axis::new("kernel", ["decode"]),
            Axis::new("keys", [16, 32, 64, 128, 256]),
            Axis::new("stages", [2, 3, 4, 6]),
            Axis::new("blocks", [1, 2, 3]),
            Axis::new("combine", ["nobody", "last", "launch"]),
        ];
        all.extend(Axis::product(&axes).into_iter().map(|candidate| Proposal {
            judged: judge_decode(problem, &candidate, target).map(|()| None),
            candidate,
        }));
    }
    all.extend(named);
    all
}

/// The job of a candidate.
pub(super) fn job(
    problem: &Problem,
    candidate: &Candidate,
    target: Target,
) -> Result<Job, KernelError> {
    let given = schedule(candidate)?;
    match candidate.get("kernel") {
        Some("wgmma") => {
            let shape = shape(problem, candidate, target)?;
            let own = match shape.stay {
                Some(_) => Schedule::new(TileSource::Direct),
                None => warpgroup_schedule(problem, target),
            };
            warpgroup_job(problem, shape, given.as_ref().unwrap_or(&own), target)
        }
        Some("decode") => {
            if let Some(given) = given {
                return Err(KernelError::unfit(format!(
                    "attention decode deals its keys by itself, and takes no schedule such as {given}"
                )));
            }
            let (shape, grid) = decoding(problem, candidate, target)?;
            Ok(decode_plan(problem, shape, grid, target)?.job(contents(problem)))
        }
        Some(other) => Err(KernelError::unfit(format!(
            "attention has no kernel `{other}` to try: there are wgmma and decode"
        ))),
        None => FAMILY
            .choose(candidate.get("variant"), problem, target)?
            .job(problem, given.as_ref(), target),
    }
}

fn shape(
    problem: &Problem,
    candidate: &Candidate,
    target: Target,
) -> Result<WarpgroupShape, KernelError> {
    let shape = WarpgroupShape {
        groups: choice(candidate, "groups")?,
        keys: choice(candidate, "keys")?,
        stages: choice_or(candidate, "stages", 2)?,
        strip: choice_or(candidate, "strip", 1)?,
        stay: choice_or(candidate, "stay", false)?.then_some(Stay { blocks: target.sms }),
        turns: choice_or(candidate, "turns", false)?,
        ..warpgroup_shape(problem, target)
    };
    shape.check()?;
    Ok(shape)
}

/// Microseconds that warpgroups take in these tiles, about: products at three quarters of the
/// peak, what a block of keys and a tile cost besides, and whole rounds where tiles are equal.
fn judge_warpgroups(
    problem: &Problem,
    candidate: &Candidate,
    target: Target,
) -> Result<f64, String> {
    const FLOPS_A_CYCLE: f64 = 4096.0 * 0.75;
    const BLOCK: f64 = 260.0;
    const TILE: f64 = 2600.0;
    const CLOCK: f64 = 1700.0;
    let shape = shape(problem, candidate, target).map_err(|error| error.to_string())?;
    let room = target.arch.limits().shared_opt_in - 2048;
    if let Some(why) = too_much_shared(shape.stage_bytes().into(), room.into(), target) {
        return Err(why);
    }
    // Sums of results and scores, the scores as halves, and what addresses and maxima take.
    let split = u32::from(problem.weights == Weights::Split);
    let registers = problem.head_dim / 2 + shape.keys / 2 + shape.keys / 4 * (1 + split) + 28;
    let most = shape.registers().multiplying;
    if registers > most {
        return Err(format!(
            "about {registers} registers a thread of the warpgroups that multiply, and they have {most}"
        ));
    }
    let (queries, keys) = problem.longest();
    let seen = match problem.mask {
        Mask::Full => f64::from(keys),
        Mask::Causal => f64::from(keys) / 2.0,
        Mask::Window { left, right } => f64::from(keys.min(left.saturating_add(right))),
    };
    let rows = f64::from(shape.rows());
    let tiles = f64::from(queries.div_ceil(shape.rows()) * problem.heads)
        * problem.sequences().len() as f64;
    let blocks = (seen / f64::from(shape.keys)).ceil();
    let product = 4.0 * rows * f64::from(shape.keys) * f64::from(problem.head_dim) / FLOPS_A_CYCLE;
    let finished_aside = if shape.stay.is_some() {
        0.3
    } else {
        1.0 / f64::from(shape.strip)
    };
    let tile = blocks * (product + BLOCK) + TILE * finished_aside.max(0.3);
    let share = tiles / f64::from(target.sms);
    let rounds = match problem.mask {
        Mask::Full => (share / f64::from(shape.strip)).ceil() * f64::from(shape.strip),
        _ => share + f64::from(shape.strip) / 4.0,
    };
    Ok(rounds * tile / CLOCK)
}

fn decoding(
    problem: &Problem,
    candidate: &Candidate,
    target: Target,
) -> Result<(super::decode::DecodeShape, super::decode::Grid), KernelError> {
    let mut shape = decode_shape(problem, target);
    shape.keys = choice(candidate, "keys")?;
    shape.stages = choice(candidate, "stages")?;
    let mut grid = decode_grid(problem, &shape, target);
    let wanted = match candidate.get("combine") {
        Some("nobody") => Combine::Nobody,
        Some("last") => Combine::LastBlock,
        _ => Combine::Launch,
    };
    if (wanted == Combine::Nobody) != (grid.combine == Combine::Nobody) {
        return Err(KernelError::unfit(format!(
            "shares of whole tiles are combined by nobody, and others by somebody: here they are {grid}"
        )));
    }
    let times: u32 = choice_or(candidate, "blocks", 1)?;
    grid.combine = wanted;
    if wanted != Combine::Nobody {
        grid.blocks *= times;
    } else if times > 1 {
        return Err(KernelError::unfit(
            "whole tiles have as many blocks as they need",
        ));
    }
    Ok((shape, grid))
}

fn judge_decode(problem: &Problem, candidate: &Candidate, target: Target) -> Result<(), String> {
    let (shape, _) = decoding(problem, candidate, target).map_err(|error| error.to_string())?;
    shape.check().map_err(|error| error.to_string())?;
    let bytes = shape.stages * shape.stage_bytes() + shape.other_bytes();
    let room = target.arch.limits().shared_opt_in;
    too_much_shared(bytes.into(), room.into(), target).map_or(Ok(()), Err)
}
