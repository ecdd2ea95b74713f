//! What the folder of a family tells the catalogue. All that is asked of an [`Entry`] follows from
//! it.

use crate::entry::{Entry, Parameter, Prepared, Settings};
use crate::error::KernelError;
use crate::family::{Family, Target};
use crate::job::Job;
use heist_sched::Schedule;
use heist_tune::{Candidate, Proposal};

/// A kernel family with its settings and its data.
pub(crate) trait Listing: Sync {
    /// What it solves.
    type Problem: 'static;
    /// Its kernels.
    const FAMILY: &'static Family<Self::Problem>;
    /// What it computes, in a line.
    const ABOUT: &'static str;
    /// Its settings: `seed` and `variant` are among them.
    const PARAMETERS: &'static [Parameter];

    /// The problem that settings describe.
    fn problem(settings: &Settings) -> Result<Self::Problem, KernelError>;
    /// The default schedule; `None` where that is not known beforehand.
    fn schedule(
        settings: &Settings,
        problem: &Self::Problem,
        target: Target,
    ) -> Result<Option<Schedule>, KernelError> {
        let _ = (settings, problem, target);
        Ok(None)
    }
    /// The launches: of the variant that the settings name, or of the one that suits best.
    fn job(
        settings: &Settings,
        problem: &Self::Problem,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        Self::FAMILY
            .choose(variant(settings), problem, target)?
            .job(problem, schedule, target)
    }
    /// A job with random data and its check.
    fn prepared(job: Job, problem: Self::Problem, seed: u64) -> Prepared;
    /// The search space, each candidate judged.
    fn proposals(problem: &Self::Problem, target: Target) -> Vec<Proposal>;
    /// The launches of a candidate of that space.
    fn tuned(
        problem: &Self::Problem,
        candidate: &Candidate,
        target: Target,
    ) -> Result<Job, KernelError>;
    /// The problem in words, where they are others than those of the settings.
    fn words(problem: &Self::Problem) -> Option<String> {
        let _ = problem;
        None
    }
}

/// The variant that settings name.
pub(crate) fn variant(settings: &Settings) -> Option<&str> {
    settings.get("variant").filter(|name| !name.is_empty())
}

impl<L: Listing> Entry for L {
    fn name(&self) -> &'static str {
        L::FAMILY.name
    }

    fn about(&self) -> &'static str {
        L::ABOUT
    }

    fn parameters(&self) -> &'static [Parameter] {
        L::PARAMETERS
    }

    fn variants(&self) -> Vec<(&'static str, &'static str)> {
        L::FAMILY.list()
    }

    fn schedule(
        &self,
        settings: &Settings,
        target: Target,
    ) -> Result<Option<Schedule>, KernelError> {
        L::schedule(settings, &L::problem(settings)?, target)
    }

    fn launches(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError> {
        L::job(settings, &L::problem(settings)?, schedule, target)
    }

    fn prepare(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Prepared, KernelError> {
        let problem = L::problem(settings)?;
        let job = L::job(settings, &problem, schedule, target)?;
        let seed = settings.read(L::PARAMETERS, "seed")?;
        Ok(L::prepared(job, problem, seed))
    }

    fn space(&self, settings: &Settings, target: Target) -> Result<Vec<Proposal>, KernelError> {
        Ok(L::proposals(&L::problem(settings)?, target))
    }

    fn tuned(
        &self,
        settings: &Settings,
        candidate: &Candidate,
        target: Target,
    ) -> Result<Prepared, KernelError> {
        let problem = L::problem(settings)?;
        let job = L::tuned(&problem, candidate, target)?;
        let seed = settings.read(L::PARAMETERS, "seed")?;
        Ok(L::prepared(job, problem, seed))
    }

    fn problem_words(&self, settings: &Settings) -> String {
        let problem = L::problem(settings).ok();
        let words = problem.and_then(|problem| L::words(&problem));
        words.unwrap_or_else(|| settings.problem(L::PARAMETERS, &[]))
    }
}
