//! The tuner's part in a plan.

use crate::tune::memory::{self, Memory};
use heist_kernels::Tuned;
use heist_run::Device;
use heist_tune::Candidate;
use std::path::Path;

/// What the tuner had to do with a plan.
///
/// When an operation is planned, the tuner's answer for its problem on its device is looked up in the
/// store ([`memory`]), and taken. Tiles and schedule are all that an answer has, so it changes how long a
/// launch takes and never what it computes. Without a store, without an answer, or with one
/// that is not taken, the plan is the one that is made without tuning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The problem as `heist tune` takes it, the name of the kernel first. `None` where nothing was looked up: the
    /// caller gave a schedule or no file of answers, or the tuner doesn't know such problems.
    pub problem: Option<String>,
    /// The answer that was taken: tiles and schedule.
    pub answer: Option<Candidate>,
    /// Why an answer, or the whole store, was not taken, and what to do.
    pub refusal: Option<String>,
}

impl Tuning {
    /// What is remembered for a problem on a device. A store that can't be read is a refusal.
    pub(super) fn of<P: Tuned>(problem: &P, device: &Device, answers: &Path) -> Tuning {
        let Some(words) = problem.words() else {
            return Tuning::default();
        };
        let asked = format!("{} {words}", P::KERNEL);
        let key = memory::key_of(P::KERNEL, words, device);
        let (answer, refusal) = match memory::remembered(answers, &key) {
            Ok(Memory::Answer(answer)) => (Some(answer.candidate), None),
            Ok(other) => (None, other.refusal()),
            Err(error) => (None, Some(error.to_string())),
        };
        Tuning {
            problem: Some(asked),
            answer,
            refusal,
        }
    }

    /// The same, where no kernel could be made of the answer.
    pub(super) fn refused(self, why: impl std::fmt::Display) -> Tuning {
        let Tuning {
            problem, answer, ..
        } = self;
        let [problem, candidate] = [
            problem.unwrap_or_default(),
            answer.unwrap_or_default().to_string(),
        ];
        Tuning {
            refusal: Some(format!(
                "the tuner's answer for this problem, {candidate}, can't be taken: {why}; `heist tune {problem}` finds another"
            )),
            problem: Some(problem),
            answer: None,
        }
    }
}
