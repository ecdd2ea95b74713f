//! Gradients of attention by name.

use super::accuracy::{bound, verify};
use super::data::fill;
use super::problem::{Backward, Sums};
use super::variant::BACKWARD;
use crate::attention::entry::{ALIBI, SOFTCAP, problem as attention};
use crate::attention::reference::Sample;
use crate::entry::{Parameter, Prepared, Settings, parameter};
use crate::family::{Family, Target};
use crate::listing::Listing;
use crate::space::{only, schedule};
use crate::{Job, KernelError};
use heist_tune::{Candidate, Proposal};

const PARAMETERS: &[Parameter] = &[
    parameter("batch", "2", "sequences"),
    parameter("heads", "8", "query heads"),
    parameter("kv-heads", "0", "key heads; 0: as many as query heads"),
    parameter("queries", "512", "query rows of a sequence"),
    parameter("keys", "0", "key rows of a sequence; 0: as many as queries"),
    parameter(
        "lengths",
        "",
        "packed sequences instead: their lengths, as 17,300,5 or with keys, 1:500,7:7",
    ),
    parameter("dim", "64", "elements of a head: multiples of 16 up to 128"),
    parameter("dtype", "f16", "f16 or bf16"),
    parameter("mask", "full", "full, causal or window(LEFT,RIGHT)"),
    parameter("layout", "heads", "heads (B,H,S,D) or rows (B,S,H,D)"),
    parameter("scale", "", "of the scores; 1/sqrt(dim) unless given"),
    SOFTCAP,
    ALIBI,
    parameter(
        DETERMINISTIC,
        "false",
        "the same bits in every run: true or false",
    ),
    parameter("seed", "1", "of the random data"),
    parameter(VARIANT, "", "a kernel; chosen unless given"),
];

const DETERMINISTIC: &str = "deterministic";
const VARIANT: &str = "variant";

/// Gradients of attention in the catalogue.
pub struct AttentionBackward;

/// What the settings ask for.
fn problem(settings: &Settings) -> Result<Backward, KernelError> {
    settings.check(BACKWARD.name, PARAMETERS)?;
    // What is attention's own is read as attention does.
    let mut forward = Settings::default();
    for parameter in PARAMETERS {
        if let (false, Some(value)) = (
            [DETERMINISTIC, VARIANT].contains(&parameter.name),
            settings.get(parameter.name),
        ) {
            forward.set(parameter.name, value);
        }
    }
    let problem = Backward {
        attention: attention(&forward)?,
        sums: match settings.read(PARAMETERS, DETERMINISTIC)? {
            true => Sums::Fixed,
            false => Sums::Float,
        },
    };
    problem.check()?;
    Ok(problem)
}

impl Listing for AttentionBackward {
    type Problem = Backward;
    const FAMILY: &'static Family<Backward> = &BACKWARD;
    const ABOUT: &'static str = "gradients of attention from its results and log-sum-exps: dQ, dK, dV; deterministic by a switch";
    const PARAMETERS: &'static [Parameter] = PARAMETERS;

    fn problem(settings: &Settings) -> Result<Backward, KernelError> {
        problem(settings)
    }

    fn prepared(job: Job, problem: Backward, seed: u64) -> Prepared {
        prepared(job, problem, seed)
    }

    fn proposals(problem: &Backward, target: Target) -> Vec<Proposal> {
        let variants = BACKWARD.variants.iter().map(|variant| Proposal {
            candidate: Candidate::new([(VARIANT, variant.name())]),
            judged: variant.suits(problem, target).map(|_| None),
        });
        variants.collect()
    }

    fn tuned(
        problem: &Backward,
        candidate: &Candidate,
        target: Target,
    ) -> Result<Job, KernelError> {
        only(candidate, "attention backward", [VARIANT])?;
        let given = schedule(candidate)?;
        BACKWARD
            .choose(candidate.get(VARIANT), problem, target)?
            .job(problem, given.as_ref(), target)
    }
}

/// A job with random data and its check.
fn prepared(mut job: Job, problem: Backward, seed: u64) -> Prepared {
    fill(&mut job, &problem, seed);
    let bound = bound(&problem);
    Prepared {
        job,
        verify: Box::new(move |job| {
            let sample = Sample::suited(&problem.attention);
            let accuracy = verify(job, &problem, sample)?;
            match accuracy.odd {
                Some(odd) => Err(KernelError::unfit(odd.to_string())),
                None => Ok(accuracy.worst().1),
            }
        }),
        bound,
    }
}
